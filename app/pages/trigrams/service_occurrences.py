"""Places in real text where a row's source … destination occurs, ready to be read and to be opened in Heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotlens.plots import glyphs
from app.core.links import Links
from app.pages.trigrams.service import Choice, Reading, Trigrams

if TYPE_CHECKING:
    from aotlens.trigrams import Example

Role = Literal["", "source", "destination", "out", "instead", "gap"]

#: Tokens shown before the source, after it, and before the destination; what lies between is left out.
_AROUND = 12
_MAX_GAP = 40

#: How many of a window's first tokens may be dropped to find one from which its text tokenises the same.
_MAX_DROPPED = 24


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A token, or some that are left out."""

    text: str
    role: Role = ""


@dataclass(frozen=True, kw_only=True)
class Occurrence:
    """One place."""

    pieces: tuple[Piece, ...]
    follows: bool
    attention: float
    """The head's, from the destination to all copies of the source."""
    distance: int
    """From the source's last copy to the destination, in tokens."""
    address: str | None
    """The Heads page on this text; None where no text gives the same tokens."""
    same: bool
    """Whether Heads shows the same window from its beginning, and so the same numbers."""


def occurrences(trigrams: Trigrams, choice: Choice, reading: Reading, row: int) -> list[Occurrence]:
    """The kept occurrences of a row (0 is the first), those that the out follows first."""
    found = trigrams.evidence(choice, reading)
    if found is None:
        return []
    core = trigrams.core
    loaded = core.catalog.load(choice.checkpoint)
    limit = core.inference.token_limit(loaded)
    return [
        _occurrence(loaded.model, core.links, choice, example, limit)
        for example in found.examples
        if example.row == row
    ]


def _occurrence(model: Any, links: Links, choice: Choice, example: Example, limit: int) -> Occurrence:
    tokens = [int(token) for token in example.tokens]
    names = model.tokenizer.str_tokens(tokens)
    source, destination = example.source_position, example.destination_position
    address, same = _address(model, links, choice, tokens, source, destination, limit)
    return Occurrence(
        pieces=tuple(_pieces(names, source, destination, example.follows)),
        follows=example.follows,
        attention=float(example.attention),
        distance=destination - source,
        address=address,
        same=same,
    )


def _pieces(names: list[str], source: int, destination: int, follows: bool) -> list[Piece]:
    """The tokens around the three, in order."""
    roles: dict[int, Role] = {source: "source", destination: "destination"}
    roles[len(names) - 1] = "out" if follows else "instead"
    shown = [
        *range(max(0, source - _AROUND), min(len(names), source + _AROUND + 1)),
        *range(max(0, destination - _AROUND), len(names)),
    ]
    if destination - source <= _MAX_GAP:
        shown = list(range(max(0, source - _AROUND), len(names)))
    pieces, last = [], -1
    for position in sorted(set(shown)):
        if position != last + 1:
            pieces.append(Piece(text=f"… {position - last - 1} tokens …" if last >= 0 else "…", role="gap"))
        pieces.append(Piece(text=glyphs(names[position]), role=roles.get(position, "")))
        last = position
    return pieces


def _address(
    model: Any, links: Links, choice: Choice, tokens: list[int], source: int, destination: int, limit: int
) -> tuple[str | None, bool]:
    """A text of which the model makes these very tokens, with as little of the beginning dropped as possible.

    A window may begin within a word or a character, where its text alone would be cut into other tokens.
    """
    least = max(0, len(tokens) - limit)
    for dropped in range(least, min(least + _MAX_DROPPED, source)):
        wanted = tokens[1 + dropped :]
        text = model.tokenizer.decode(wanted)
        if text and model.to_tokens(text)[0].tolist()[1:] == wanted:
            head, position = (choice.layer, choice.head), destination - dropped
            address = links.to("heads", checkpoint=choice.checkpoint, text=text, head=head, position=position)
            return address, dropped == 0
    return None, False
