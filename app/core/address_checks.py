"""Checks of the values in an address: a check raises Unfit, with what was expected and what is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.core.own_texts import is_key

if TYPE_CHECKING:
    from app.core import Core


class Unfit(ValueError):
    """An impossible value: what was `expected`, and what is `taken` instead, by default the parameter's default."""

    def __init__(self, expected: str, *taken: Any) -> None:
        super().__init__(expected)
        self.expected, self.taken = expected, taken


#: `check(core, state, value)` looks at a value beside what there is, and beside the fields before it; raises Unfit.
Check = Callable[["Core", Any, Any], None]


def checkpoint(core: Core, state: Any, name: str) -> None:
    """Check that a checkpoint is listed, or a snapshot of one that is."""
    known, first = [info.name for info in core.catalog.list()], core.catalog.default()
    if not core.catalog.has(name, known):
        raise Unfit(f"the name of a checkpoint here ({', '.join(known) or 'there are none'})", first)


def head(*of: str) -> Check:
    """Check that the checkpoint of the first of the fields `of` that says one has such a head."""

    def check(core: Core, state: Any, value: tuple[int, int]) -> None:
        shape = core.catalog.shape(_checkpoint(core, state, of))
        if shape is not None and not (value[0] < shape[0] and value[1] < shape[1]):
            raise Unfit(f"a head of {shape[0]} layers of {shape[1]} heads, the first of which is 0.0", (0, 0))

    return check


def prompt(core: Core, state: Any, value: str) -> None:
    """Check that a text is kept under the value where it is a key."""
    if is_key(value) and core.corpora.own.get(value) is None:
        raise Unfit("a text, or the key of one that is kept here: this one is not, or has been deleted")


def heads(*of: str) -> Check:
    """Check that that checkpoint has all these heads."""

    def check(core: Core, state: Any, value: tuple[tuple[int, int], ...]) -> None:
        shape = core.catalog.shape(_checkpoint(core, state, of))
        there = value if shape is None else tuple(each for each in value if each[0] < shape[0] and each[1] < shape[1])
        if shape is not None and there != value:
            raise Unfit(f"heads of {shape[0]} layers of {shape[1]} heads, the first of which is 0.0", there)

    return check


def token(core: Core, state: Any, value: int) -> None:
    """Check that the state's checkpoint has such a token."""
    n = core.catalog.config(state.checkpoint or core.catalog.default()).get("d_vocab")
    if n is not None and value >= n:
        raise Unfit(f"the id of a token, from 0 to {n - 1:,}")


def position(first: str) -> Check:
    """Check that the state's text, or `first` where it has none, has a token there."""

    def check(core: Core, state: Any, value: int) -> None:
        checkpoint = state.checkpoint or core.catalog.default()
        n = core.inference.n_tokens(checkpoint, first if state.text is None else state.text)
        if n is not None and value >= n:
            raise Unfit(f"the position of one of the text's {n:,} tokens, from 0 to {n - 1:,}")

    return check


def cell(first: str) -> Check:
    """Check that the state's text, or `first` where it has none, has both tokens."""
    among = position(first)

    def check(core: Core, state: Any, value: tuple[int, int]) -> None:
        among(core, state, max(value))

    return check


def corpus(core: Core, state: Any, name: str) -> None:
    """Check that there is such a text."""
    available = core.corpora.available(name)
    if available != name:
        raise Unfit("a text that is kept here: this one is not, or has been deleted", available)


def motif(core: Core, state: Any, name: str) -> None:
    """Check that there is such a motif."""
    from aotlens.heads import MOTIFS  # takes seconds, once

    if name not in MOTIFS:
        raise Unfit(f"one of {', '.join(MOTIFS)}")


def _checkpoint(core: Core, state: Any, of: tuple[str, ...]) -> str | None:
    """The first of these fields (none: of `checkpoint`) that names one; the default where none does."""
    return next(filter(None, (getattr(state, name) for name in of or ("checkpoint",))), core.catalog.default())


def images(core: Core, state: Any, name: str) -> None:
    """Check that images are there under that name."""
    if name not in core.images.names:
        raise Unfit(f"one of {', '.join(core.images.names)}")


def own_images(core: Core, state: Any, keys: tuple[str, ...]) -> None:
    """Check that images of a user's own are kept under these keys."""
    known = tuple(key for key in keys if core.images.own.known(key))
    if known != keys:
        raise Unfit("the keys of images that are kept here: not all of them are, or they have been removed", known)
