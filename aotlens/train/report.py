"""What a run measures of its model, while it goes on and at the end.

A model that sees both sides has no next-token loss: what is measured of it is the loss on hidden tokens
(`aotlens.evaluate.masked_loss`), beside that of a unigram model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from aotlens.checkpoints import CheckpointInfo
from aotlens.data import validation_windows
from aotlens.evaluate import BigramModel, masked_loss, repeat_losses, unigram_loss, validation_loss
from aotlens.heads import MotifScores, attention_by_place, motif_scores
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.corpus import TrainingData
from aotlens.train.recipe import Recipe

_BIGRAM_TOKENS = 200_000_000  # counted for the bigram model, which takes some 30 bytes a token


def running_metrics(model: AttentionOnlyTransformer, windows: Tensor) -> dict[str, float]:
    """Validation loss (nats a token) on `windows`, and the best head's induction and previous-token scores.

    For a masked language model: the loss on hidden tokens, and the best heads' attention to either neighbour.
    """
    if model.sees_later_keys:
        places = attention_by_place(model, windows[:8].to(model.device))
        return {
            "masked_loss": masked_loss(model, windows).loss,
            "previous_token": float(places["previous_token"].max()),
            "next_token": float(places["next_token"].max()),
        }
    scores = motif_scores(model, n_sequences=8, half_length=min(50, (model.cfg.n_ctx - 1) // 2))
    return {
        "validation_loss": validation_loss(model, windows),
        "induction": float(scores["induction"].max()),
        "previous_token": float(scores["previous_token"].max()),
    }


def final_metrics(
    model: AttentionOnlyTransformer, data: TrainingData, validation_tokens: int | None = None
) -> dict[str, Any]:
    """The figures of a card: losses on the validation split, the bigram baseline, motifs on repeated tokens.

    Losses are nats a token; `bigram_loss` is that of a smoothed bigram model of the training tokens (the first 200
    million of more) on the very windows of `validation_loss`, each of which begins with the separator. `heads` gives,
    for each motif, its strongest head and that head's score. For a masked language model: `masked_loss`,
    `unigram_loss` and the share guessed right, on the same hidden tokens, and for each place the head that attends
    there most.
    """
    if model.sees_later_keys:
        return _masked_metrics(model, data, validation_tokens)
    length = min(256, model.cfg.n_ctx)
    most = None if validation_tokens is None else max(1, validation_tokens // (length - 1))
    windows = validation_windows(data.validation, length, max_windows=most)
    repeats = repeat_losses(model)
    scores = motif_scores(model, n_sequences=32)
    loss = validation_loss(model, windows)
    counted = np.asarray(data.train.tokens[:_BIGRAM_TOKENS])
    bigram_loss = BigramModel.fit(counted, data.train.d_vocab).loss(windows.numpy())
    return {
        "validation_loss": loss,
        "bigram_loss": bigram_loss,
        "below_bigram": bigram_loss - loss,
        "validation_tokens": int(windows.shape[0] * (windows.shape[1] - 1)),
        "repeated_first_half_loss": repeats.first_half,
        "repeated_second_half_loss": repeats.second_half,
        "heads": _best_heads(scores),
    }


def _masked_metrics(
    model: AttentionOnlyTransformer, data: TrainingData, validation_tokens: int | None
) -> dict[str, Any]:
    length = min(256, model.cfg.n_ctx)
    most = None if validation_tokens is None else max(1, validation_tokens // (length - 1))
    windows = validation_windows(data.validation, length, max_windows=most)
    losses = masked_loss(model, windows)
    baseline = unigram_loss(data.train.counts(), losses.targets)
    places = attention_by_place(model, windows[:: max(1, len(windows) // 64)][:64].to(model.device))
    return {
        "masked_loss": losses.loss,
        "unigram_loss": baseline,
        "below_unigram": baseline - losses.loss,
        "masked_accuracy": losses.accuracy,
        "masked_tokens": len(losses.targets),
        "heads": _best_heads(places),
    }


def _best_heads(scores: MotifScores) -> dict[str, dict[str, Any]]:
    """The head with the highest score for each motif that could be measured."""
    best = {motif: scores.best(motif) for motif in scores.motifs}
    return {
        motif: {"head": f"{top[0][0]}.{top[0][1]}", "score": round(top[1], 4)}
        for motif, top in best.items()
        if top is not None
    }


def make_info(
    recipe: Recipe,
    data: TrainingData,
    tokens: int,
    seconds: float,
    device: str,
    command: str,
    metrics: dict[str, Any],
) -> CheckpointInfo:
    """What the checkpoint says about itself; the corpus by name and where it is had, never by a local path."""
    return CheckpointInfo(
        name=recipe.name,
        description=recipe.description,
        recipe=recipe.to_dict(),
        command=command,
        corpus={
            "name": recipe.corpus.name or recipe.corpus.spec or "",
            "source": recipe.corpus.source,
            "license": recipe.corpus.license,
            "sha256": data.sha256,
            "validation": list(data.validation.document_names),
        },
        seed=recipe.seed,
        device=device,
        tokens_seen=tokens,
        seconds=round(seconds, 1),
        metrics=metrics,
    )
