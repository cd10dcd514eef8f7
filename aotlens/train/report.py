"""What a run measures of its model, while it goes on and at the end."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotlens.checkpoints import CheckpointInfo
from aotlens.data import validation_windows
from aotlens.evaluate import repeat_losses, validation_loss
from aotlens.heads import MOTIFS, motif_scores
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.corpus import TrainingData
from aotlens.train.recipe import Recipe


def running_metrics(model: AttentionOnlyTransformer, windows: Tensor) -> dict[str, float]:
    """Validation loss (nats a token) on `windows`, and the best head's induction and previous-token scores."""
    scores = motif_scores(model, n_sequences=8, half_length=min(50, (model.cfg.n_ctx - 1) // 2))
    return {
        "validation_loss": validation_loss(model, windows),
        "induction": float(scores.induction.max()),
        "previous_token": float(scores.previous_token.max()),
    }


def final_metrics(
    model: AttentionOnlyTransformer, data: TrainingData, validation_tokens: int | None = None
) -> dict[str, Any]:
    """The figures of a card: losses on the validation split, the bigram baseline, motifs on repeated tokens.

    Losses are nats a token; `heads` gives, for each motif, its strongest head and that head's score.
    """
    length = min(256, model.cfg.n_ctx)
    most = None if validation_tokens is None else max(1, validation_tokens // (length - 1))
    windows = validation_windows(data.validation, length, max_windows=most)
    repeats = repeat_losses(model)
    scores = motif_scores(model, n_sequences=32)
    best = {}
    for motif in MOTIFS:
        layer, head = divmod(int(scores[motif].argmax()), model.cfg.n_heads)
        best[motif] = {"head": f"{layer}.{head}", "score": round(float(scores[motif].max()), 4)}
    loss = validation_loss(model, windows)
    return {
        "validation_loss": loss,
        "bigram_loss": data.bigram_loss,
        "below_bigram": data.bigram_loss - loss,
        "validation_tokens": int(windows.shape[0] * (windows.shape[1] - 1)),
        "repeated_first_half_loss": repeats.first_half,
        "repeated_second_half_loss": repeats.second_half,
        "heads": best,
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
