"""One prompt's run through a model, whole or with heads ablated, and two such runs compared.

left = run_prompt(model, "The captain bowed.")
right = run_prompt(model, "The captain bowed.", ablated=["0.3"])
runs = compare_runs(left, right)
runs.losses().to_frame()    # the loss of each token in both, and right − left, in nats
runs.maps("1.0").to_frame()    # head 1.0 in both, and right − left, entry by entry
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, as_heads, head_name
from aotlens.data import common_positions
from aotlens.evaluate import token_losses
from aotlens.heads.patterns import AttentionPatterns, patterns_and_logits
from aotlens.heads.replacement import without
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadMap(Result):
    """One head's map on one prompt."""

    head: Head
    quantity: str
    """The quantity as `AttentionPatterns.quantity` takes it."""
    str_tokens: tuple[str, ...]
    values: Float32[np.ndarray, "query key"]
    """NaN where a query does not see a key, or the key is left out."""

    @property
    def headline(self) -> str:
        return f"{self.quantity} of head {self.head[0]}.{self.head[1]} on {len(self.values)} tokens"

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that is not NaN."""
        return _entries(self.str_tokens, self.values, {self.quantity: self.values})


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedMaps(Result):
    """Two heads' maps, and their difference at the positions of the left text."""

    left: HeadMap
    right: HeadMap
    positions: tuple[tuple[int, int], ...]
    """Positions that correspond, (left, right)."""

    @cached_property
    def right_at_left(self) -> Float32[np.ndarray, "query key"]:
        """The right map's entries at the left positions that correspond to its own, NaN at all others."""
        values = np.full_like(self.left.values, np.nan)
        here, there = np.array(self.positions, dtype=int).reshape(-1, 2).T
        values[np.ix_(here, here)] = self.right.values[np.ix_(there, there)]
        return values

    @property
    def difference(self) -> Float32[np.ndarray, "query key"]:
        """right − left, NaN where one of them is, or no position corresponds."""
        return self.right_at_left - self.left.values

    @property
    def headline(self) -> str:
        size = np.abs(np.nan_to_num(self.difference))
        query, key = np.unravel_index(int(size.argmax()), size.shape)
        return f"largest difference {self.difference[query, key]:+.3f}, query {query}, key {key}" if size.any() else ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query and key that both have: left, right and difference."""
        columns = {"left": self.left.values, "right": self.right_at_left, "difference": self.difference}
        return _entries(self.left.str_tokens, self.difference, columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedLosses(Result):
    """The loss of each token in two runs, in nats; NaN for tokens that have none."""

    left: Float32[np.ndarray, " left"]
    right: Float32[np.ndarray, " right"]
    left_tokens: tuple[str, ...]
    right_tokens: tuple[str, ...]
    aligned: bool
    """Whether both runs have the same tokens of the same text."""

    @property
    def difference(self) -> Float32[np.ndarray, " left"] | None:
        """right − left; None where the runs have different tokens."""
        return self.right - self.left if self.aligned else None

    @property
    def headline(self) -> str:
        means = [
            f"{np.nanmean(losses):.3f}" if np.isfinite(losses).any() else "none" for losses in (self.left, self.right)
        ]
        return f"mean loss {means[0]} nats at the left, {means[1]} at the right"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a token; where the runs have different tokens, the left's, then the right's."""
        import pandas as pd

        def rows(tokens: tuple[str, ...], **columns: Any) -> pd.DataFrame:
            return pd.DataFrame({"position": range(len(tokens)), "token": tokens, **columns})

        if self.aligned:
            return rows(self.left_tokens, left=self.left, right=self.right, difference=self.difference)
        sides = rows(self.left_tokens, loss=self.left), rows(self.right_tokens, loss=self.right)
        return pd.concat(sides, keys=["left", "right"], names=["pane"]).reset_index("pane").reset_index(drop=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptRun(Result):
    """One prompt in one model, whole or with heads ablated."""

    text: str
    patterns: AttentionPatterns
    losses: Float32[np.ndarray, " pos"] | None
    """The loss of each token in nats, NaN for the first; None where it was not asked for."""
    logits: Float[Tensor, "pos d_vocab"] | None = None
    """The logits on the CPU; None where they were not asked for."""
    ablated: tuple[Head, ...] = ()

    @property
    def headline(self) -> str:
        without = ", ".join(map(head_name, self.ablated))
        return f"{self.patterns.headline}, {f'{without} ablated' if without else 'no heads ablated'}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a token: position, token and, where it was asked for, its loss."""
        import pandas as pd

        tokens = self.patterns.str_tokens
        columns = {} if self.losses is None else {"loss": self.losses}
        return pd.DataFrame({"position": range(len(tokens)), "token": tokens, **columns})

    def map(self, head: HeadLike, quantity: str = "attention", *, without_first: bool = False) -> HeadMap:
        """Return the map of one head; `without_first` leaves out attention to position 0.

        Raises `ValueError` if the head does not exist, and as `AttentionPatterns.quantity`.
        """
        values = self.patterns.of_head(head, quantity, without_first=without_first)
        return HeadMap(head=as_head(head), quantity=quantity, str_tokens=self.patterns.str_tokens, values=values)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRuns(Result):
    """Two runs, and which of their positions correspond."""

    left: PromptRun
    right: PromptRun
    positions: tuple[tuple[int, int], ...]
    """(left, right), increasing in both."""

    @property
    def aligned(self) -> bool:
        """Whether both runs have the same tokens of the same text."""
        same_tokens = self.left.patterns.str_tokens == self.right.patterns.str_tokens
        return self.left.text == self.right.text and same_tokens

    @property
    def headline(self) -> str:
        sizes = self.left.patterns.n_pos, self.right.patterns.n_pos
        return f"{sizes[0]} and {sizes[1]} tokens, of which {len(self.positions)} correspond"

    def sentences(self) -> str:
        """Return the sizes of the texts, and which of their positions correspond, or why none does."""
        sizes, n = (self.left.patterns.n_pos, self.right.patterns.n_pos), len(self.positions)
        if self.aligned:
            return f"{sizes[0]} tokens."
        if not n:
            return self.why_nothing_corresponds()
        if sizes == (n, n):
            return f"Two texts of {n} tokens: position by position."
        return (
            f"{n} tokens that both texts have in this order are compared, of {sizes[0]} and {sizes[1]}; rows and "
            "columns of the others are empty."
        )

    def why_nothing_corresponds(self) -> str:
        """Return the reason why no position of one text corresponds to one of the other; empty where some do."""
        if self.positions:
            return ""
        if self.left.text != self.right.text:
            return "The two texts have no token in common, so no position of one corresponds to one of the other."
        sizes = self.left.patterns.n_pos, self.right.patterns.n_pos
        return (
            f"The two tokenizers cut this text into different tokens ({sizes[0]} at the left, {sizes[1]} at the "
            "right), so no entry of one map corresponds to one of the other."
        )

    def losses(self) -> ComparedLosses:
        """Return the loss of each token in both runs. Raises `ValueError` where a run was made without losses."""
        left, right = self.left.losses, self.right.losses
        if left is None or right is None:
            raise ValueError(
                "ComparedRuns.losses: expected runs with losses; run_prompt(…, losses=True) computes them."
            )
        tokens = self.left.patterns.str_tokens, self.right.patterns.str_tokens
        return ComparedLosses(
            left=left, right=right, left_tokens=tokens[0], right_tokens=tokens[1], aligned=self.aligned
        )  # fmt: skip

    def maps(
        self,
        head: HeadLike,
        other: HeadLike | None = None,
        quantity: str = "attention",
        *,
        without_first: bool = False,
    ) -> ComparedMaps:
        """Return the left run's `head` and the right run's `other`, by default the head of the same number.

        Raises `ValueError` as `PromptRun.map`, and where no positions correspond.
        """
        if not self.positions:
            raise ValueError(self.why_nothing_corresponds())
        left = self.left.map(head, quantity, without_first=without_first)
        right = self.right.map(head if other is None else other, quantity, without_first=without_first)
        return ComparedMaps(left=left, right=right, positions=self.positions)


def run_prompt(
    model: AttentionOnlyTransformer,
    text: str,
    *,
    ablated: Iterable[HeadLike] = (),
    how: str = "zero",
    reference: Tensor | str | list[str] | None = None,
    losses: bool = True,
    logits: bool = False,
) -> PromptRun:
    """Run a model on a text, with the heads `ablated` replaced as `without` does by `how` and `reference`.

    `logits` are kept where they are asked for: `aotlens.evaluate.predictions_of_logits` reads them.

    Time: one forward pass; with `losses`, a model that sees both sides takes another for each token (`token_losses`).
    Raises `ValueError` for a text that the model does not read, and as `without` and `token_losses`.
    """
    require_ours(model, "run_prompt")
    heads = as_heads(ablated, model.cfg, at_least=0)
    with without(model, heads, how, reference=reference) if heads else nullcontext():
        patterns, written = patterns_and_logits(model, text)
        loss = None
        if losses:
            known = None if model.sees_later_keys else written
            loss = token_losses(model, torch.from_numpy(patterns.tokens), logits=known)
    stored_logits = written.cpu() if logits else None
    return PromptRun(text=text, patterns=patterns, losses=loss, logits=stored_logits, ablated=tuple(sorted(heads)))


def compare_runs(left: PromptRun, right: PromptRun, *, one_tokenizer: bool = True) -> ComparedRuns:
    """Pair two runs, with the positions that correspond.

    These are the same positions where both have the same tokens of one text, or equally many tokens of one tokenizer;
    otherwise those of a longest common subsequence of tokens. One text that two tokenizers cut differently has none.
    """
    tokens = left.patterns.str_tokens, right.patterns.str_tokens
    one_text = left.text == right.text
    if (one_text and tokens[0] == tokens[1]) or (not one_text and one_tokenizer and len(tokens[0]) == len(tokens[1])):
        positions = tuple((position, position) for position in range(len(tokens[0])))
    else:
        positions = () if one_text else common_positions(*tokens)
    return ComparedRuns(left=left, right=right, positions=positions)


def _entries(
    str_tokens: tuple[str, ...], seen: Float32[np.ndarray, "query key"], columns: dict[str, np.ndarray]
) -> pd.DataFrame:
    """One row for each entry of `seen` that is not NaN, with its tokens and the same entries of `columns`."""
    import pandas as pd

    query, key = np.nonzero(~np.isnan(seen))
    names = np.array(str_tokens, dtype=object)
    places = {"query": query, "query_token": names[query], "key": key, "key_token": names[key]}
    return pd.DataFrame({**places, **{name: values[query, key] for name, values in columns.items()}})
