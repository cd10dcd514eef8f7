"""A score in words: its cell, what it is compared with, and pairs of paths: what came to the key, what the query is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from aotlens.conventions import Head, describe
from aotlens.paths.path import Path, PathPair
from aotlens.paths.score.contrast import Contrast
from aotlens.paths.score.side import ScoreSide
from aotlens.paths.words import place_words

Side: TypeAlias = Literal["query", "key"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a sentence; with a head, that head's name, which leads to its map."""

    text: str
    head: Head | None = None
    cell: tuple[int, int] | None = None
    """The head's own cell, where the path says it: (query, key)."""
    position: int | None = None
    """The position of the token at which to see it, in place of a cell."""
    direction: Literal["to", "from"] = "to"
    """Whether that is where it attends from, or what is attended to."""


@dataclass(frozen=True, kw_only=True)
class ScoreWords:
    """The names of the tokens, the contrast and the paths of one score."""

    head: Head
    contrast: Contrast
    key_side: ScoreSide
    str_tokens: tuple[str, ...]
    """The tokens of the prompt; () without a tokenizer."""

    def at(self, position: int) -> str:
        """Return a token and where it stands: `" Pend"@18`."""
        return place_words(self.str_tokens, position)

    @property
    def cell(self) -> str:
        """`1.0 attends from " Pend"@18 to "leton"@4`."""
        layer, head = self.head
        return f"{layer}.{head} attends from {self.at(self.contrast.query)} to {self.at(self.contrast.key)}"

    @property
    def unit(self) -> str:
        """The unit of a term: `nats above the average key`."""
        against = self.contrast.against
        if against is None:
            return "nats"
        if against == "mean":
            return "nats above the average key"
        return f"nats above {'the first token' if against == 0 else self.at(int(against))}"

    def sentence(self, pair: PathPair) -> list[Piece]:
        """Return the sentence in pieces: `0.3 moved " Pend"@3 into the key; the query is " Pend"@18 itself`."""
        query, key = pair
        return [*self._side(key, "key"), Piece(text="; "), *self._side(query, "query")]

    def line(self, pair: PathPair) -> str:
        """Return the sentence alone."""
        return "".join(piece.text for piece in self.sentence(pair))

    def _side(self, path: Path, side: Side) -> list[Piece]:
        end = self.contrast.query if side == "query" else self.contrast.key
        position = end if path.source_position is None else path.source_position
        if not path.heads:
            return [Piece(text=self._direct(path, side, end, position))]
        here = self._arrives_here(path, side, end)
        heads, what = _heads(path, position, end if here else None), self._what(path, position)
        if here and position == end:
            return [*heads, Piece(text=f" moved {what} from the {side} itself")]
        return [*heads, Piece(text=f" moved {what} into {f'the {side}' if here else self._others()}")]

    def _what(self, path: Path, position: int) -> str:
        """Name what a path carries."""
        if path.source in ("token", "input"):
            return self.at(position)
        if path.source == "position":
            return f"position {position}"
        where = f"of {self.at(position)}"
        return f"biases {where}" if path.source == "bias" else f"what {_source(path)} wrote at {self.at(position)}"

    def _direct(self, path: Path, side: Side, end: int, position: int) -> str:
        """A path without heads: what stands at the query or the key itself, or at a key that it is compared with."""
        here = position == end
        subject = f"the {side}" if here else self._others()
        token = describe(self.str_tokens[position]) if self.str_tokens else f"token {position}"
        alone = here or self.contrast.against != "mean"
        if path.source in ("token", "input"):
            return f"{subject} is {token} itself" if alone else f"{subject} include {self.at(position)}"
        if path.source == "position":
            return f"{subject} stands at position {position}" if alone else f"{subject} include position {position}"
        name = "biases" if path.source == "bias" else f"what {_source(path)} wrote"
        return f"{name} in {subject}" + ("" if alone else f", at {self.at(position)}")

    def _others(self) -> str:
        """The keys that the key is compared with, in words."""
        return "other keys" if self.contrast.against == "mean" else "the other key"

    def _arrives_here(self, path: Path, side: Side, end: int) -> bool:
        """Whether most of what a path brings to the keys comes to this one, not to those that it is compared with."""
        if side == "query":
            return True
        arrivals = self.key_side.arrivals(path)
        return bool(2 * arrivals[end] >= arrivals.sum())


def _heads(path: Path, position: int, end: int | None) -> list[Piece]:
    """The heads of a path by name: one alone has a cell; of several the last is seen where it arrives, the others where
    the path starts. `end` is None for a path that arrives at many keys."""
    pieces: list[Piece] = []
    for index, (layer, head) in enumerate(path.heads):
        if index:
            pieces.append(Piece(text=" and then "))
        name, place = f"{layer}.{head}", (layer, head)
        if end is not None and len(path.heads) == 1:
            pieces.append(Piece(text=name, head=place, cell=(end, position), position=end))
        elif end is not None and index == len(path.heads) - 1:
            pieces.append(Piece(text=name, head=place, position=end))
        else:
            pieces.append(Piece(text=name, head=place, position=position, direction="from"))
    return pieces


def _source(path: Path) -> str:
    return path.source if path.source_layer is None else f"MLP {path.source_layer}"
