"""Pairs of paths of a score in words: what came to the key, and what the query is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aotlens.plots import describe
from app.core.address import dotted
from app.core.scores import Explained

if TYPE_CHECKING:
    from aotlens.paths import Path
    from aotlens.paths.score.pairs import PathPair

Side = Literal["query", "key"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a sentence; with a head, that head's name, which leads to its map."""

    text: str
    head: tuple[int, int] | None = None
    cell: tuple[int, int] | None = None
    """The head's own cell, where the path says it: (query, key)."""
    position: int | None = None
    """Or the token at which to see it."""
    direction: Literal["to", "from"] = "to"
    """Whether that is where it attends from, or what is attended to."""


def sentence(explained: Explained, pair: PathPair) -> list[Piece]:
    """`0.3 brought " Pend"@3 to the key; the query is " Pend"@18 itself`."""
    query, key = pair
    return [*_side(explained, key, "key"), Piece(text="; "), *_side(explained, query, "query")]


def plain(pieces: list[Piece]) -> str:
    """The sentence alone."""
    return "".join(piece.text for piece in pieces)


def unit(explained: Explained) -> str:
    """What a term is measured in: `nats above the average key`."""
    against = explained.against
    if against == "plain":
        return "nats"
    if against == "mean":
        return "nats above the average key"
    return f"nats above {'the first token' if against == 0 else explained.at(int(against))}"


def _side(explained: Explained, path: Path, side: Side) -> list[Piece]:
    end = explained.score.query if side == "query" else explained.score.key
    at = end if path.source_position is None else path.source_position
    if not path.heads:
        return [Piece(text=_direct(explained, path, side, end, at))]
    here = _arrives_here(explained, path, side, end)
    heads, what = _heads(path, at, end if here else None), _what(explained, path, at)
    if here and at == end:
        return [*heads, Piece(text=f" brought {what} from the {side} itself")]
    return [*heads, Piece(text=f" brought {what} to {f'the {side}' if here else _others(explained)}")]


def _what(explained: Explained, path: Path, at: int) -> str:
    """What a path carries."""
    if path.source in ("token", "input"):
        return explained.at(at)
    if path.source == "position":
        return f"position {at}"
    where = f"of {explained.at(at)}"
    return f"biases {where}" if path.source == "bias" else f"what {_source(path)} wrote at {explained.at(at)}"


def _source(path: Path) -> str:
    return f"MLP {path.source_layer}" if getattr(path, "source_layer", None) is not None else path.source


def _direct(explained: Explained, path: Path, side: Side, end: int, at: int) -> str:
    """A path without heads: what stands at the query or the key itself, or at a key that it is compared with."""
    here = at == end
    subject = f"the {side}" if here else _others(explained)
    token = describe(explained.expanded.expansion.str_tokens[at])
    alone = here or explained.against != "mean"
    if path.source in ("token", "input"):
        return f"{subject} is {token} itself" if alone else f"{subject} include {explained.at(at)}"
    if path.source == "position":
        return f"{subject} stands at position {at}" if alone else f"{subject} include position {at}"
    name = "biases" if path.source == "bias" else f"what {_source(path)} wrote"
    return f"{name} in {subject}" + ("" if alone else f", at {explained.at(at)}")


def _others(explained: Explained) -> str:
    """What the key is compared with."""
    return "other keys" if explained.against == "mean" else "the other key"


def _arrives_here(explained: Explained, path: Path, side: Side, end: int) -> bool:
    """Whether most of what a path brings to the keys comes to this one, and not to those that it is compared with."""
    if side == "query":
        return True
    arrivals = explained.score.sides[1].arrivals(path)
    return bool(2 * arrivals[end] >= arrivals.sum())


def _heads(path: Path, at: int, end: int | None) -> list[Piece]:
    """The heads of a path by name: one alone has a cell; of several the last is seen where it arrives, the others where
    the path starts. `end` is None for a path that arrives at many keys."""
    pieces: list[Piece] = []
    for index, (layer, head) in enumerate(path.heads):
        if index:
            pieces.append(Piece(text=" and then "))
        name, place = dotted((layer, head)), (layer, head)
        if end is not None and len(path.heads) == 1:
            pieces.append(Piece(text=name, head=place, cell=(end, at), position=end))
        elif end is not None and index == len(path.heads) - 1:
            pieces.append(Piece(text=name, head=place, position=end))
        else:
            pieces.append(Piece(text=name, head=place, position=at, direction="from"))
    return pieces
