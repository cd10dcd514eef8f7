"""The inputs of a head's scores: a model, a text, pairs of prompts; and what a score is when it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.heads.inputs import Missing, special_ids
from aotlens.heads.reader import HeadReader

if TYPE_CHECKING:
    from aotlens.data import PromptPairs
    from aotlens.models import AttentionOnlyTransformer


class MeasuredScore(NamedTuple):
    """A score of every head, beside its chance."""

    values: Float64[np.ndarray, "layer head"]
    chance: Float64[np.ndarray, "layer head"]
    """The score under the null that its declaration names."""
    n: int
    """The number of queries, tokens or pairs that each value is a mean over."""
    excess: Float64[np.ndarray, "unit layer head"] | None = None
    """values − chance, summed over the queries of each sequence, word or pair; None if it has no such units."""
    counts: Float64[np.ndarray, " unit"] | None = None
    """The queries of each unit; None: one each."""
    clusters: Int64[np.ndarray, " unit"] | None = None
    """The document of each unit, if it is known."""
    attends: Bool[np.ndarray, "layer head"] | None = None
    """Whether each head attends to what the score is about, by the rule of labels; None if the score does not say."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreInputs:
    """Everything that a score may read. Its methods raise `Missing`, with the reason, for what is not there."""

    reader: HeadReader
    tokens: Int64[Tensor, "batch pos"] | None = None
    """Sequences of a text, of one length, without padding."""
    pairs: PromptPairs | None = None
    seed: int = 0
    clusters: Int64[np.ndarray, " batch"] | None = None
    """The document of each sequence of the text, if it is known."""

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return self.reader.n_layers, self.reader.n_heads

    def text(self) -> Int64[Tensor, "batch pos"]:
        """Return the sequences of the text."""
        if self.tokens is None:
            raise Missing("it needs a text, and none was given")
        return self.tokens

    def batches(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Split sequences into batches of eight."""
        return tokens.split(8)

    @torch.no_grad()
    def activations(self, ids: Int64[Tensor, " pos"], names: Iterable[str]) -> dict[str, Tensor]:
        """Run one sequence, and return the activations of these hook points, without the batch dimension."""
        activations: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any) -> None:
            activations[hook.name] = value[0].detach()

        self.reader.run(ids[None], [(name, keep) for name in names])
        return activations

    def by_head(self, v: Float[Tensor, "pos kv *rest"]) -> Float[Tensor, "pos head *rest"]:
        """Return the values of every head, or their norms; grouped keys serve heads in turn."""
        return v.repeat_interleave(self.reader.n_heads // v.shape[1], 1)

    def model_with_circuits(self) -> AttentionOnlyTransformer:
        """Return the model, whose outputs are logits of tokens that heads add to directly."""
        if self.reader.is_bridge:
            raise Missing("it reads weights of a model of aotlens; this one is of TransformerLens")
        if self.reader.no_circuits:
            raise Missing(self.reader.no_circuits.rstrip("."))
        model: Any = self.reader.model
        if model.cfg.read_out != "tokens":
            raise Missing(f"the model writes {model.cfg.read_out}, not tokens")
        return model  # type: ignore[no-any-return]

    def special_ids(self) -> list[int]:
        """List the ids of tokens that separate texts; none without a tokenizer."""
        tokenizer = self.reader.model.tokenizer
        return [] if tokenizer is None else sorted(special_ids(tokenizer))
