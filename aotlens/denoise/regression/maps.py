"""The maps of all heads on one prompt of in-context regression, with the model's answers next to the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from aotlens.conventions import Head, HeadLike, as_head, head_name
from aotlens.data import RegressionPrompts
from aotlens.heads.patterns import AttentionPatterns, patterns_and_logits
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptMaps(Result):
    """All heads on one prompt; the table and the figure show one of them, `head`."""

    patterns: AttentionPatterns
    """Positions are named x1, y1, x2, y2, …"""
    labels: Float[np.ndarray, " point"]
    answers: Float[np.ndarray, " point"]
    """The model's answer at each x."""
    number: int
    """The number of the prompt, from 0."""
    head: Head = (0, 0)

    @property
    def headline(self) -> str:
        return f"head {head_name(self.head)} of {self.patterns.headline} of prompt {self.number}"

    def at(self, head: HeadLike) -> PromptMaps:
        """Return the same maps with the table and the figure of another head. Raises `ValueError` if it does not
        exist."""
        return replace(self, head=as_head(head, self.patterns))

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that it sees: query, key, attention, weighted, and score in nats
        unless the pattern is fixed."""
        import pandas as pd

        patterns, names = self.patterns, np.array(self.patterns.str_tokens)
        queries, keys = np.nonzero(patterns.visible[min(self.head[1], len(patterns.visible) - 1)])
        columns = {"query": names[queries], "key": names[keys]}
        columns["attention"] = patterns.pattern[self.head][queries, keys]
        columns["weighted"] = patterns.value_weighted()[self.head][queries, keys]
        if patterns.scores is not None:
            columns["score"] = patterns.scores[self.head][queries, keys]
        return pd.DataFrame(columns)


def prompt_maps(model: AttentionOnlyTransformer, prompts: RegressionPrompts, number: int = 0) -> PromptMaps:
    """Run one of the prompts, and return all heads' attention on it and the answer at each x.

    Raises `ValueError` as `require_ours`, for a number that no prompt has, and for prompts that a model does not read.
    """
    require_ours(model, "prompt_maps")
    if not 0 <= number < len(prompts.tokens):
        raise ValueError(f"prompt_maps: number={number}: expected a number from 0 to {len(prompts.tokens) - 1}.")
    tokens = prompts.tokens[number]
    patterns, outputs = patterns_and_logits(model, tokens)
    return PromptMaps(
        patterns=replace(patterns, str_tokens=prompt_positions(len(tokens))), number=number,
        labels=prompts.labels[number].cpu().numpy(), answers=outputs[::2, 0].cpu().numpy(),
    )  # fmt: skip


def prompt_positions(n_pos: int) -> tuple[str, ...]:
    """Name what is at each position of a prompt: x1, y1, x2, y2, …"""
    return tuple(f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(n_pos))
