"""A score in words: what is explained, pairs of paths (what came to the key, what the query is), what they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotlens.plots import describe
from app.core.address_values import dotted
from app.core.scores import Explained, ScoreQuestion, Scores

if TYPE_CHECKING:
    from aotlens.paths import Path
    from aotlens.paths.score import TopPairs
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
    return path.source if path.source_layer is None else f"MLP {path.source_layer}"


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


# ── beside the pairs ────────────────────────────────────────────────────────────────────────────────────────

#: From this many times their sum on, terms are said to cancel.
_CANCELS = 3.0
#: Numbers from here on are said as powers of ten.
_LARGE = 10**9


def cell(explained: Explained) -> str:
    """`1.0 attends from " Pend"@18 to "leton"@4`."""
    score = explained.score
    return f"{dotted(score.head)} attends from {explained.at(score.query)} to {explained.at(score.key)}"


def line(explained: Explained, pair: PathPair) -> str:
    """A pair of paths in words."""
    return plain(sentence(explained, pair))


def about(explained: Explained) -> list[str]:
    """How much it attends, what is explained, and why that."""
    score = explained.score
    layer, head = score.head
    attention = float(explained.expanded.expansion.frozen.patterns[layer, head, score.query, score.key])
    share = f"{attention:.1%} of its attention" if score.log_probability is not None else f"a weight of {attention:.4g}"
    return [f"The query gives the key {share}; the score is {signed(score.score)}.", _compared(explained)]


def _compared(explained: Explained) -> str:
    score, value = explained.score, signed(explained.score.value)
    normalised, softmax = score.log_probability is not None, ""
    if explained.against == "plain":
        text = "Explained is the score itself."
    elif explained.against == "mean" and normalised:
        text, softmax = f"Explained is how far it is above the average key's: {value} nats", "log P(key) + H(P)"
    elif explained.against == "mean":
        text = f"Explained is how far it is above the mean over all keys that the query sees: {value} nats."
    else:
        other = "the first token" if explained.against == 0 else explained.at(int(explained.against))
        text = f"Explained is how far it is above that of {other}: {value} nats"
        text, softmax = (text, "log P(key) − log P(other)") if normalised else (f"{text}.", "")
    if softmax:
        text += f", {softmax}" + (
            " with P the softmax before the threshold: the pattern itself may be 0 there."
            if score.contrast.before_threshold
            else "."
        )
    return f"{text} {explained.reason}".strip()


def proof(top: TopPairs) -> str:
    """What is listed, what all others add, and what is proven of the ranks."""
    n = len(top.pairs)
    ranks = f"All {n} ranks are proven" if top.complete else f"The first {top.n_proven} of {n} ranks are proven"
    rest = top.n_pairs - n
    if not rest:
        return f"{ranks}; these are all pairs there are. All together: {signed(top.total)} nats."
    return (
        f"{ranks}. Listed: {signed(top.total - top.remainder)}; the other {counted(rest)} pairs together: "
        f"{signed(top.remainder)}; all together: {signed(top.total)} nats."
    )


def cancellation(size: float, total: float) -> str:
    """That terms cancel, where they do largely; `size` is Σ|term| over pairs of last heads."""
    if size < _CANCELS * abs(total) or not size:
        return ""
    times = f"{size / abs(total):.1f} times what they add up to" if total else "and they add up to nothing"
    return f"Much cancels: by last heads, pairs are {size:.1f} nats in size, {times}."


def counted(number: int) -> str:
    """A number of pairs: 81,205, or 3.5 · 10¹⁹."""
    if number < _LARGE:
        return f"{number:,}"
    digits, _, power = f"{number:.1e}".partition("e+")
    return f"{digits} · 10{power.lstrip('0').translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def signed(value: float, digits: int = 2) -> str:
    """With its sign, a minus as long as a plus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def record(scores: Scores, question: ScoreQuestion, k: int) -> dict[str, Any]:
    """The k largest pairs as a file has them: with their sentences, the sum of all pairs, and what is proven."""
    explained, top = scores.explain(question), scores.top(question, k)
    score, expansion = explained.score, explained.expanded.expansion
    return {
        **question.to_dict(),
        "against": explained.against,
        "reason": explained.reason,
        "tokens": list(expansion.tokens),
        "str_tokens": list(expansion.str_tokens),
        "score": score.score,
        "log_probability": score.log_probability,
        "all_together": top.total,
        "remainder": top.remainder,
        "n_pairs": str(top.n_pairs),  # beyond what JSON's readers take for a whole number
        "n_proven": top.n_proven,
        "bound_on_any_other_pair": top.bound,
        "pairs": [
            {"pair": line(explained, pair), "formula": score.describe(pair), "nats": value}
            for pair, value in zip(top.pairs, top.values, strict=True)
        ],
    }
