"""The largest pairs of paths of a score and what is proven of them; all pairs as a table of sums; a score in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head, describe, head_name
from aotlens.paths.path import Path, PathPair, place_words
from aotlens.paths.score.side import Contrast, ScoreSide
from aotlens.paths.search import Ranked
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

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
    """The heads of a path by name: a single one with its cell; of several, the last at its arrival `end` (None: many
    keys) and the others at the start."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class TopPairs(Ranked):
    """The largest pairs found, and what is proven of them. Terms in nats."""

    pairs: tuple[PathPair, ...]
    """The path to the query and the path to the keys, of each pair."""
    descriptions: tuple[str, ...] = ()
    """Each pair in words: what came to the key and what the query is."""
    formulas: tuple[str, ...] = ()
    """The formula of each pair, `ScoreExpansion.describe`."""
    pieces: tuple[tuple[Piece, ...], ...] = ()
    """The parts of each sentence, in which heads are apart."""
    unit: str = ""
    """The unit of a term: nats above what the score is compared with."""
    score: float | None = None
    """The model's own score of the cell."""
    log_probability: float | None = None
    """`ScoreExpansion.log_probability`."""
    n_pairs: int
    """The number of pairs."""

    @property
    def headline(self) -> str:
        return f"{self._ranks}; all other pairs add {self.remainder:+.3f} nats"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair: rank, pair (its sentence), formula; source, source_position and heads of each side;
        nats, proven."""
        import pandas as pd

        columns: dict[str, object] = {"rank": range(1, len(self.pairs) + 1)}
        columns |= {"pair": self.descriptions, "formula": self.formulas} if self.descriptions else {}
        for side, name in enumerate(("query", "key")):
            paths = [pair[side] for pair in self.pairs]
            columns[f"{name}_source"] = [path.source for path in paths]
            positions = [path.source_position for path in paths]
            columns[f"{name}_source_position"] = pd.array(positions, dtype="Int64")
            columns[f"{name}_heads"] = [" ".join(map(head_name, path.heads)) for path in paths]
        columns["nats"] = self.values
        columns["proven"] = [rank < self.n_proven for rank in range(len(self.pairs))]
        return pd.DataFrame(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSums(Result):
    """A partition of all pairs of paths by a group of each side: `values.sum()` is the contrast.

    Groups are numbers of heads, sources, or last heads ("0.3": every path whose last head it is, with all that it read)
    and, of the paths without heads, their sources.
    """

    names: tuple[str, ...]
    """The groups, the same on both sides."""
    values: Float[Tensor, "query_group key_group"]
    """Nats; the scale of scores is in them."""
    by: Literal["orders", "sources", "heads"]
    """The kind of the groups: numbers of heads, sources, or last heads and sources."""
    total: float
    """The sum of all pairs: the model's own contrast."""
    unit: str = "nats"
    """The unit of a sum, in words: nats above the average key."""

    @property
    def headline(self) -> str:
        query, key = divmod(int(self.values.abs().argmax()), len(self.names))
        largest, total = float(self.values[query, key]), float(self.values.sum())
        sentence = f"largest: {self.names[query]} × {self.names[key]}, {largest:+.3f} of {total:+.3f} nats in all"
        if abs(largest) <= abs(total):
            return sentence
        n, sizes = int((self.values != 0).sum()), float(self.values.abs().sum())
        return f"{sentence}; {n} terms cancel, whose sizes add up to {sizes:.3f}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair of groups, largest first: query, key, nats."""
        n = len(self.names)
        frame = data_frame(
            {
                "query": [self.names[row] for row in range(n) for _ in range(n)],
                "key": [*self.names] * n,
                "nats": self.values.flatten().cpu().double().numpy(),
            }
        )
        return frame.sort_values("nats", key=abs, ascending=False, kind="stable", ignore_index=True)
