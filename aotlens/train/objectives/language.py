"""Objectives of text: each next token, or hidden tokens found from both sides as BERT does it.

A model that sees both sides has no next-token loss: what is measured of it is the loss on hidden tokens
(`aotlens.evaluate.masked_loss`), compared with that of a unigram model.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.data import BatchSampler, mask_tokens, validation_windows
from aotlens.data.sampler import require_length
from aotlens.evaluate import BigramModel, masked_loss, repeat_losses, unigram_loss, validation_loss
from aotlens.heads import MotifScores, attention_by_place, motif_scores
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.train.corpus import TrainingData, prepare
from aotlens.train.recipe import Batch, Objective, Recipe
from aotlens.train.sections import Announce, silent

_WINDOW = 256  # tokens of a validation window, at most
_BIGRAM_TOKENS = 200_000_000  # counted for the bigram model, which takes some 30 bytes a token


class NextToken(Objective[TrainingData], name="next_token"):
    """Every next token, from those before it."""

    section = "corpus"

    def __init__(self, recipe: Recipe, data: TrainingData) -> None:
        """The recipe as it was followed: its corpus is that of `data`."""
        corpus = dataclasses.replace(data.corpus, tokenizer=recipe.corpus.tokenizer)
        other = corpus.name != recipe.corpus.name
        description = f"The recipe {recipe.name} on {corpus.name}." if other else recipe.description
        super().__init__(dataclasses.replace(recipe, corpus=corpus, description=description), data)

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        cfg = cls.model_config(recipe)
        if (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
            raise ValueError(
                f"recipe {recipe.name!r}: objective = {recipe.objective!r} predicts tokens from tokens, but the model "
                f"reads {cfg.read_in} and writes {cfg.read_out}; for classes of images set objective = 'classes' and "
                "[images]."
            )
        longest = max(stage.sequence_length for stage in recipe.stages)
        if longest > cfg.n_ctx:
            raise ValueError(
                f"recipe {recipe.name!r}: a stage has sequence_length = {longest} (256 where it says nothing), but the "
                f"model's n_ctx is {cfg.n_ctx}; set sequence_length to at most {cfg.n_ctx}, or raise n_ctx."
            )
        cls._check_sight(recipe, cfg)

    @classmethod
    def _check_sight(cls, recipe: Recipe, cfg: ModelConfig) -> None:
        if cfg.sees_later_keys:
            raise ValueError(
                f"recipe {recipe.name!r}: a model that sees later tokens has its next token before it; set causal = "
                "true, or objective = 'masked'."
            )

    @classmethod
    def model_config(cls, recipe: Recipe) -> ModelConfig:
        return recipe.model_config(recipe.corpus.d_vocab)

    @classmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        return torch.randint(recipe.corpus.d_vocab, (n_rows, recipe.stages[-1].sequence_length)), None

    @classmethod
    def prepare(
        cls, recipe: Recipe, spec: str | None = None, *, home: Path | None = None, announce: Announce = silent
    ) -> TrainingData:
        data = prepare(recipe.corpus, spec, home=home, announce=announce)
        row = min(_WINDOW, cls.model_config(recipe).n_ctx)
        if len(data.validation) < row:
            announce(f"{len(data.validation)} held-out tokens are less than a row of {row}: losses on them are rough")
        return data

    def check_data(self) -> None:
        super().check_data()
        require_length(self.data.validation, 2)
        self.data.validation.counts()  # which reads every id

    def make_model(self) -> AttentionOnlyTransformer:
        own = self.data.tokenizer
        tokenizer = own.with_mask() if self.recipe.objective == "masked" else own
        model = AttentionOnlyTransformer(self.recipe.model_config(tokenizer.d_vocab), tokenizer)
        model.unigram_counts = torch.zeros(tokenizer.d_vocab, dtype=torch.long)
        model.unigram_counts[: own.d_vocab] = torch.as_tensor(self.data.train.counts())
        return model

    def identity(self) -> dict[str, Any]:
        return {"corpus sha256": self.data.sha256, "training tokens": len(self.data.train)}

    def batch(self, stage: int, step: int) -> Batch:
        return self._samplers[stage].batch(step), None

    def offsets(self, stage: int, step: int) -> Int64[np.ndarray, " batch"]:
        """Return the offset of each row's text in the training tokens; −1 for rows of random tokens."""
        return self._samplers[stage].offsets(step)

    @functools.cached_property
    def _samplers(self) -> list[BatchSampler]:
        return [self._sampler(stage) for stage in range(len(self.recipe.stages))]

    def _sampler(self, stage: int) -> BatchSampler:
        own = self.recipe.stages[stage]
        random_only = own.repeat_fraction == 1.0 and own.repeat_source == "random"
        return BatchSampler(
            tokens=None if random_only else self.data.train,
            d_vocab=self.data.tokenizer.d_vocab,
            batch_size=own.batch_size,
            sequence_length=own.sequence_length,
            seed=self.stage_seed(stage),
            repeat_fraction=own.repeat_fraction,
            repeat_source=own.repeat_source,
        )

    @property
    def _length(self) -> int:
        """Tokens of a validation window: 256, or fewer if the context or all that is held out is shorter."""
        return min(_WINDOW, self.model_config(self.recipe).n_ctx, len(self.data.validation))

    @functools.cached_property
    def _running_windows(self) -> Tensor:
        return validation_windows(self.data.validation, self._length, max_windows=64)

    def _final_windows(self) -> Tensor:
        wanted = self.recipe.validation_tokens
        most = None if wanted is None else max(1, wanted // (self._length - 1))
        return validation_windows(self.data.validation, self._length, max_windows=most)

    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Return validation loss in nats a token, and the best heads' induction and previous-token scores."""
        scores = motif_scores(model, n_sequences=8, half_length=min(50, (model.cfg.n_ctx - 1) // 2))
        return {
            "validation_loss": validation_loss(model, self._running_windows),
            "induction": float(scores["induction"].max()),
            "previous_token": float(scores["previous_token"].max()),
        }

    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return losses on the validation split, the bigram baseline, motifs on repeated tokens.

        Losses are nats a token; `bigram_loss` is that of a smoothed bigram model of the training tokens (the first 200
        million of more) on the very windows of `validation_loss`, each of which begins with the separator. `heads`
        gives, for each motif, its strongest head and that head's score.
        """
        windows = self._final_windows()
        repeats = repeat_losses(model)
        scores = motif_scores(model, n_sequences=32)
        loss = validation_loss(model, windows)
        counted = np.asarray(self.data.train.tokens[:_BIGRAM_TOKENS])
        bigram_loss = BigramModel.fit(counted, self.data.train.d_vocab).loss(windows.numpy())
        return {
            "validation_loss": loss,
            "bigram_loss": bigram_loss,
            "below_bigram": bigram_loss - loss,
            "validation_tokens": int(windows.shape[0] * (windows.shape[1] - 1)),
            "repeated_first_half_loss": repeats.first_half,
            "repeated_second_half_loss": repeats.second_half,
            "heads": _best_heads(scores),
        }

    def corpus(self) -> dict[str, Any]:
        return {"sha256": self.data.sha256, "validation": list(self.data.validation.document_names)}


class Masked(NextToken, name="masked"):
    """Hidden tokens, from both sides (`aotlens.data.sampler`)."""

    @classmethod
    def _check_sight(cls, recipe: Recipe, cfg: ModelConfig) -> None:
        if not cfg.sees_later_keys:
            raise ValueError(
                f"recipe {recipe.name!r}: objective = 'masked' hides tokens to be found from both sides; set causal = "
                "false in [model]."
            )

    @classmethod
    def model_config(cls, recipe: Recipe) -> ModelConfig:
        return recipe.model_config(recipe.corpus.d_vocab + 1)

    @classmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        tokens, _ = super().random_batch(recipe, n_rows)
        return mask_tokens(tokens, recipe.corpus.d_vocab, recipe.seed, 0)

    def batch(self, stage: int, step: int) -> Batch:
        rows, _ = super().batch(stage, step)
        return mask_tokens(rows, self._mask_id, self.stage_seed(stage), step)

    @functools.cached_property
    def _mask_id(self) -> int:
        mask_id = self.data.tokenizer.with_mask().mask_id
        assert mask_id is not None
        return mask_id

    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Return the loss on hidden tokens, and the best heads' attention to either neighbour."""
        places = attention_by_place(model, self._running_windows[:8].to(model.device))
        return {
            "masked_loss": masked_loss(model, self._running_windows).loss,
            "previous_token": float(places["previous_token"].max()),
            "next_token": float(places["next_token"].max()),
        }

    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return `masked_loss`, `unigram_loss` and the share guessed right, on the same hidden tokens, and for each
        place the head that attends there most."""
        windows = self._final_windows()
        losses = masked_loss(model, windows)
        baseline = unigram_loss(self.data.train.counts(), losses.targets)
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
