"""Two panes, each a checkpoint, a prompt and a set of heads that are switched off: what is alike, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aotlens.data import common_positions
from app.core import Core
from app.core.cache import Cache
from app.core.catalog import LoadedModel
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.pages.compare.address import CompareState, Head, Side, pane_of

if TYPE_CHECKING:
    from aotlens.heads import HeadMatching

#: How the right head came to stand beside the left one.
Why = Literal["same", "partner", "alike", "chosen", "unmatched"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Panes:
    """What the two panes show."""

    left: PromptResult
    right: PromptResult
    one_text: bool
    """Whether both have been given the same text."""
    one_tokenizer: bool
    """Whether both models cut texts in the same pieces."""

    @property
    def one_model(self) -> bool:
        """Whether both are one checkpoint: then each head stands beside itself."""
        return self.left.checkpoint == self.right.checkpoint

    @property
    def aligned(self) -> bool:
        """Whether a position is the same piece of the same text in both."""
        return self.one_text and self.left.patterns.str_tokens == self.right.patterns.str_tokens

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Positions that correspond, (left, right): the same ones where both texts have equally many tokens of one
        tokenizer, otherwise those of a longest common subsequence. Of one text in different pieces none."""
        left, right = self.left.patterns, self.right.patterns
        if self.aligned or (not self.one_text and self.one_tokenizer and left.n_pos == right.n_pos):
            return tuple((at, at) for at in range(left.n_pos))
        return () if self.one_text else common_positions(left.str_tokens, right.str_tokens)

    @property
    def key(self) -> str:
        """Names the two results."""
        return f"{self.left.key}-{self.right.key}"

    @property
    def results(self) -> dict[Side, PromptResult]:
        return {"left": self.left, "right": self.right}


@dataclass(frozen=True, kw_only=True)
class HeadPair:
    """A left head and the right one beside it."""

    left: Head
    right: Head
    why: Why
    cosines: dict[str, float]
    """ov, qk, pattern (where there are some) and similarity, their mean; empty for a head beside itself."""
    margin: float | None
    """By how much a matched pair's similarity beats the left head's best other one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """The loss of each token in both panes, nats; NaN where there is none."""

    left: np.ndarray
    right: np.ndarray
    difference: np.ndarray | None
    """right − left; None where the panes have other tokens."""


class Compare:
    """What the page shows. The models' heads, matched by what they do to tokens, are kept: that takes seconds."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._by_function: Cache[tuple[str, str], HeadMatching] = core.memory.cache(core.settings.n_matchings)
        self._on_text: Cache[tuple[str, str, str], HeadMatching] = core.memory.cache(core.settings.n_matchings)

    def first_of(self, state: CompareState) -> CompareState:
        """The address; of an empty one, the first checkpoint beside itself without a head of its first layer, and a
        head of the next one, which may have read it. (In novels-2l-mhsa: induction without the previous-token head.)"""
        shape = self._core.catalog.shape(self._core.catalog.default())
        if state != CompareState() or shape is None:
            return state
        return CompareState(right_off=((0, shape[1] - 1),), head=(min(1, shape[0] - 1), 0))

    def asked_of(self, state: CompareState) -> dict[str, Any]:
        """What an address asks for, with the texts themselves; `first_of` says what, where it asks for nothing."""
        state, panes = self.first_of(state), {}
        for side in ("left", "right"):
            checkpoint, _ = pane_of(state, side)
            panes[side] = {"checkpoint": checkpoint or self._core.catalog.default(),
                           "off": [list(head) for head in getattr(state, f"{side}_off")]}  # fmt: skip
        text = self._core.corpora.prompt(pane_of(state, "left")[1])
        other = None if state.other is None else self._core.corpora.prompt(state.other)
        right_text = text if other is None else other
        return {**panes, "text": text, "other": other, "right_text": right_text, "how": state.how,
                "corpus": state.corpus}  # fmt: skip

    def panes(self, asked: dict[str, Any]) -> Panes:
        """Run what a browser (or `asked_of`) asks for: `{left: {checkpoint, off}, right: …, text, other, how, corpus}`.

        Raises RequestError as `Inference.analyse`, with the pane's name before it where it is one pane's alone.
        """
        results: dict[Side, PromptResult] = {}
        for side in ("left", "right"):
            text, length = self._text(asked, side)
            pane = asked[side]
            off = tuple((int(layer), int(head)) for layer, head in pane.get("off") or ())
            try:
                results[side] = self._core.inference.analyse(
                    pane.get("checkpoint"), text, off=off, how=asked.get("how") or "zero", corpus=asked.get("corpus"),
                    length=length,
                )  # fmt: skip
            except RequestError as error:
                raise RequestError(f"At the {side}: {error}") from error
        cuts = [self._core.catalog.info(result.checkpoint).tokenizer_sha256 for result in results.values()]
        return Panes(
            left=results["left"], right=results["right"], one_text=asked.get("other") is None,
            one_tokenizer=results["left"].checkpoint == results["right"].checkpoint or cuts[0] == cuts[1] is not None,
        )  # fmt: skip

    @staticmethod
    def _text(asked: dict[str, Any], side: Side) -> tuple[str, int | None]:
        """A pane's text, and its length where the browser held it back for being too long."""
        own = side == "right" and asked.get("other") is not None
        return asked.get("other" if own else "text") or "", asked.get("other_length" if own else "length")

    def losses(self, panes: Panes) -> Losses:
        """Of every token. Raises RequestError where a model has no loss of a token."""
        left, right = (self._core.inference.losses(result) for result in panes.results.values())
        return Losses(left=left, right=right, difference=right - left if panes.aligned else None)

    def matching(self, panes: Panes) -> HeadMatching | None:
        """Which head of the right model is which of the left one: by what they do to tokens and, where both panes have
        the same tokens, by the whole models' patterns on them. None where both are one checkpoint.

        Raises RequestError for models whose heads can't be compared.
        """
        if panes.one_model:
            return None
        from aotlens.heads import match_heads

        loaded = [self._core.catalog.load(result.checkpoint) for result in panes.results.values()]
        a, b = (one.model for one in loaded)
        keys = loaded[0].key, loaded[1].key
        try:
            matched = self._by_function.get(keys, lambda: match_heads(a, b))
            if not panes.aligned:
                return matched
            import torch

            tokens = torch.from_numpy(panes.left.patterns.tokens)

            def on_text() -> HeadMatching:
                with _exclusive(*loaded):
                    return matched.on(a, b, tokens)

            return self._on_text.get((*keys, str(tokens.tolist())), on_text)
        except ValueError as error:
            why = str(error).removeprefix("match_heads: ")
            raise RequestError(f"The heads of these two models can't be matched: {why}") from error

    def why_unmatched(self, panes: Panes) -> str | None:
        """Why heads can't be matched; None where they can."""
        try:
            self.matching(panes)
        except RequestError as error:
            return str(error)
        return None

    def pair(self, panes: Panes, head: Head | None, other: Head | None) -> HeadPair:
        """The left head (None: the first) and the right one, `other` or the one that it is matched with.

        A head without a partner stands beside the one most like it, and beside the one of its own number in a model
        whose heads can't be matched.
        """
        left = _within(head or (0, 0), panes.left)
        chosen = None if other is None else _within(other, panes.right)
        if panes.one_model:
            right = chosen or left
            return HeadPair(left=left, right=right, why="same" if right == left else "chosen", cosines={}, margin=None)
        try:
            matched = self.matching(panes)
        except RequestError:
            right = chosen or _within(left, panes.right)
            why: Why = "chosen" if chosen else "unmatched"
            return HeadPair(left=left, right=right, why=why, cosines={}, margin=None)
        assert matched is not None
        row, partner = matched.left.index(left), matched.partner(left)
        best = matched.right[int(matched.similarity[row].argmax())]
        right = chosen or partner or best
        column = matched.right.index(right)
        cosines = {name: float(getattr(matched, name)[row, column]) for name in (*matched.measured, "similarity")}
        why = "partner" if right == partner else "chosen" if chosen else "alike"
        margin = float(matched.margins[matched.pairs.index((left, right))]) if right == partner else None
        return HeadPair(left=left, right=right, why=why, cosines=cosines, margin=margin)

    @staticmethod
    def beside(panes: Panes, left: Head, right: Head) -> HeadPair:
        """Two heads whose maps are wanted, without asking how alike they are."""
        left, right = _within(left, panes.left), _within(right, panes.right)
        return HeadPair(left=left, right=right, why="chosen", cosines={}, margin=None)

    def pairs(self, panes: Panes) -> list[HeadPair]:
        """All pairs: of two models those that are matched, of one each head beside itself."""
        patterns = panes.left.patterns
        if panes.one_model:
            lefts = [(layer, head) for layer in range(patterns.n_layers) for head in range(patterns.n_heads)]
        else:
            matched = self.matching(panes)
            assert matched is not None
            lefts = [left for left, _ in matched.pairs]
        return [self.pair(panes, left, None) for left in lefts]


@contextmanager
def _exclusive(*models: LoadedModel) -> Iterator[None]:
    """The use of several models, always taken in one order, so that two requests never wait for each other."""
    with ExitStack() as stack:
        for one in sorted({model.key: model for model in models}.values(), key=lambda model: model.key):
            stack.enter_context(one.exclusive)
        yield


def _within(head: Head, result: PromptResult) -> Head:
    """The head, or the first one where the model has no such head."""
    patterns = result.patterns
    return head if head[0] < patterns.n_layers and head[1] < patterns.n_heads else (0, 0)
