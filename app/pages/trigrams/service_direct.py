"""The direct path: what the last token alone predicts, beside the bigrams of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.plots import glyphs
from app.pages.trigrams.address import MAX_ROWS
from app.pages.trigrams.service import Reading, Trigrams, matching

if TYPE_CHECKING:
    from aotlens.trigrams import Bigrams, ZeroLayer

#: Bigrams that are listed of every first token that is searched for.
_OF_A_TOKEN = 20


@dataclass(frozen=True, kw_only=True)
class PathChoice:
    """Which bigrams."""

    checkpoint: str
    k: int
    own: bool
    """With the heads that attend to the token itself, whatever it is."""
    after: str
    """What first tokens must contain; empty: all tokens."""
    reading: Reading | None
    """The text whose bigrams stand beside them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DirectPath:
    """What was found."""

    bigrams: Bigrams
    own: tuple[tuple[int, int], ...]
    """The heads that attend to the token itself, part of the path or not."""
    zero_layer: ZeroLayer | None
    """How far the path's prediction is from the text's bigrams; None without a text."""
    n_text: int
    """Bigrams of the text that were counted."""


def direct_path(trigrams: Trigrams, choice: PathChoice) -> DirectPath:
    """The path's largest entries, remembered. Raises `ValueError` where no token is like what is searched for."""
    loaded = trigrams.core.catalog.load(choice.checkpoint)
    return trigrams.paths.get(f"{loaded.key}:{choice}", lambda: _direct_path(trigrams, choice))


def _direct_path(trigrams: Trigrams, choice: PathChoice) -> DirectPath:
    from aotlens.trigrams import bigrams, count_bigrams, own_token_heads, zero_layer

    model = trigrams.core.catalog.load(choice.checkpoint).model
    own = own_token_heads(model)
    heads = own if choice.own else ()
    counts, (tokens, k) = None, first_tokens(trigrams, choice)
    if choice.reading is not None:
        text = trigrams.text(choice.reading, choice.checkpoint)
        source, how_much = trigrams.source(choice.reading, text)
        counts = count_bigrams(model, source, **how_much)
    return DirectPath(
        bigrams=bigrams(model, k, tokens=tokens, heads=heads, corpus=counts),
        own=own,
        zero_layer=None if counts is None else zero_layer(model, counts, heads=heads),
        n_text=0 if counts is None else counts.n,
    )


def first_tokens(trigrams: Trigrams, choice: PathChoice) -> tuple[list[int] | None, int]:
    """The first tokens that are searched for, and how many bigrams of each; None, and how many of all."""
    if not choice.after:
        return None, choice.k
    k = min(choice.k, _OF_A_TOKEN)
    shown = [glyphs(token) for token in trigrams.strings(choice.checkpoint)]
    return matching(shown, choice.after, "first token")[: max(MAX_ROWS // k, 1)], k


def bigram_rows(path: DirectPath) -> list[dict[str, Any]]:
    """A row a bigram as the table lists it, tokens with glyphs; null where the text does not have the first token."""
    frame = path.bigrams.to_frame()
    frame["first"], frame["second"] = ([glyphs(token) for token in frame[name]] for name in ("first", "second"))
    frame["id"] = [str(number) for number in range(len(frame))]
    records = frame.to_dict(orient="records")
    return [{name: None if value != value else value for name, value in record.items()} for record in records]
