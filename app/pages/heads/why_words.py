"""What the tab Why says above and below its list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.core.address import dotted
from app.core.score_words import plain, sentence
from app.core.scores import Explained
from app.pages.heads.words import names

if TYPE_CHECKING:
    from aotlens.paths.score import TopPairs
    from aotlens.paths.score.pairs import PathPair

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


def whole(off: Sequence[tuple[int, int]]) -> str:
    """That heads which are switched off are in the explanation."""
    if not off:
        return ""
    verb = "is" if len(off) == 1 else "are"
    return f"This explains the whole model: {names(off)}, switched off on this page, {verb} on here."


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
