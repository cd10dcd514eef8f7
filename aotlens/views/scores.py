"""The explanation of a head's attention, as views: one attention score as a sum over pairs of paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.conventions import signed
from aotlens.views.calls import Call
from aotlens.views.view import FRAMEWORK, Values, View

if TYPE_CHECKING:
    from aotlens.paths import PairSums, ScoreExpansion, TopPairs, Trace

#: Pairs of paths that are listed, and nodes that a search may expand.
N_PAIRS, BUDGET = 20, 1000
#: The multiple of their sum from which on terms are said to cancel.
_CANCELS = 3.0
#: Numbers from here on are said as powers of ten.
_LARGE = 10**9

_COMPOSITION = f"{FRAMEWORK}, QK circuits with composition"


def cell_says(score: ScoreExpansion, reason: str) -> list[str]:
    """Say how much the query attends to the key, what is explained, and why that."""
    weight = score.attention
    share = f"{weight:.1%} of its attention" if score.log_probability is not None else f"a weight of {weight:.4g}"
    compared = f"{_compared(score)} {reason}".strip()
    return [f"The query gives the key {share}; the score is {signed(score.score, 2)}.", compared]


def _compared(score: ScoreExpansion) -> str:
    value, normalised = signed(score.value, 2), score.log_probability is not None
    if score.against is None:
        return "The pairs sum to the score itself."
    if score.against == "mean":
        if not normalised:
            return f"The pairs sum to its difference from the mean over all keys that the query sees: {value} nats."
        text, softmax = f"The pairs sum to its difference from the average key's: {value} nats", "log P(key) + H(P)"
    else:
        other = "the first token" if score.against == 0 else score.words.at(int(score.against))
        text, softmax = (
            f"The pairs sum to its difference from that of {other}: {value} nats",
            "log P(key) − log P(other)",
        )
        if not normalised:
            return f"{text}."
    end = " with P the softmax before the threshold: the pattern itself may be 0 there."
    return f"{text}, {softmax}{end if score.contrast.before_threshold else '.'}"


def pairs_say(top: TopPairs) -> str:
    """Say what is listed, what all others add, and what is proven of the ranks."""
    n = len(top.pairs)
    ranks = f"Exact top {n}" if top.complete else f"The top {top.n_proven} of {n} are exact"
    rest, everything = top.n_pairs - n, signed(top.total, 2)
    if not rest:
        return f"{ranks}; these are all pairs there are. All together: {everything} nats."
    return (
        f"{ranks}. Listed: {signed(top.total - top.remainder, 2)}; the other {counted(rest)} pairs together: "
        f"{signed(top.remainder, 2)}; all together: {everything} nats."
    )


def cancellation(size: float, total: float) -> str:
    """Say that terms cancel, where they do largely; `size` is Σ|term| over pairs of last heads."""
    if size < _CANCELS * abs(total) or not size:
        return ""
    times = f"{size / abs(total):.1f} times what they add up to" if total else "and they add up to nothing"
    return f"Much cancels: by last heads, pairs are {size:.1f} nats in size, {times}."


def _says_score(params: Values, score: ScoreExpansion) -> str:
    sums, residual = score.by_head_pair().values, score.residual()
    trust = "" if residual.within_tolerance else " This is above the tolerance: don't trust the pairs of this score."
    sentences = [
        f"Head {score.words.cell}.", *cell_says(score, score.reason),
        f"{counted(score.n_pairs)} pairs of paths; their sum differs from the model's own score by "
        f"{residual.largest:.1e} nats (tolerance {residual.tolerance:.1e}).{trust}",
        cancellation(float(sums.abs().sum()), float(sums.sum())),
    ]  # fmt: skip
    return " ".join(filter(None, sentences))


def _says_trace(params: Values, trace: Trace) -> str:
    left = f"; {trace.n_not_followed} more are not followed" if trace.n_not_followed else ""
    return f"{trace.headline}{left}."


def _says_sums(params: Values, sums: PairSums) -> str:
    return f"All pairs together: {signed(sums.total, 2)} {sums.unit}."


def _refused(params: Values) -> str | None:
    return params.not_compared


SCORE = View(
    name="score",
    title="Attention score",
    about="A score is bilinear in the query's and the key's stream, and each is a sum of paths, with patterns and "
    "norms of earlier layers as they are on this text: so the score is a sum over pairs of paths, exactly. A softmax "
    "ignores what all keys share, so what a key is compared with is taken off on the key side. Click a token of the "
    "first row to choose the query, one of the second to choose the key. Shading: what the paths of that side that "
    "start at a token bring, times the whole other side; either row adds up to what is explained.",
    formula="score(i, j) = Σ ⟨q_a, k_b⟩ / √d_head over pairs of a path a to the query and a path b to the key",
    source=_COMPOSITION,
    call=lambda params: params.score,
    caption=_says_score,
    file=lambda params: params.file_of_score("sides"),
    missing=_refused,
    pictured=False,
)
PAIRS = View(
    name="pairs",
    title="Largest pairs",
    about="Single pairs of paths: one to the key, one to the query. A head's name leads to its own entry on Heads. "
    "Ranks are exact unless a question mark says that they are not.",
    formula="term(a, b) = ⟨q_a, Σₖ cₖ k_b(k)⟩ / √d_head;  c = 1 at the key, less what it is compared with",
    source=_COMPOSITION,
    call=lambda params: Call(params.score.part("top"), (N_PAIRS,), {"budget": BUDGET}),
    caption=lambda params, top: pairs_say(top),
    file=lambda params: params.file_of_score("pairs"),
    missing=_refused,
    pictured=False,
)
TRACE = View(
    name="trace",
    title="Trace",
    about="The cells behind the cell: each is split twice, by what made its query and by what made its keys, into "
    "sources and cells of earlier layers. The width of a link is its share of its side in size, orange is the query "
    "side, blue the key side, dashed is negative. Terms of different cells are not to be added or multiplied: behind "
    "the first they are of first order. Point at a box for what is known of it; click one to explain that cell "
    "instead.",
    formula="share = |term| ÷ Σ|term| of one side of one cell",
    source="The query side's cells are (h′, query, m); the key side's (h′, k, m), for every key k, times δₖⱼ − wₖ",
    call=lambda params: params.trace,
    caption=_says_trace,
    file=lambda params: params.file_of_score("trace"),
    missing=_refused,
    picks="head = customdata.0; query = customdata.1; key = customdata.2",
)


def _sums(by: str, title: str, groups: str, method: str) -> View:
    text = (
        f"All pairs of paths by {groups}: rows are the query side, columns the key side; the entries add up to the "
        "score."
    )
    return View(
        name=f"by-{by}",
        title=title,
        about=text,
        call=lambda params: params.score.method(method),
        caption=_says_sums,
        file=lambda params: params.file_of_score(f"by-{by}"),
        missing=_refused,
    )


_HEADS = "the last head on either side (paths without heads by where they start)"
BY_HEADS = _sums("heads", "By last heads", _HEADS, "by_head_pair")
BY_SOURCES = _sums("sources", "By sources", "where their two paths start", "by_source_pair")
BY_ORDERS = _sums("orders", "By numbers of heads", "how many heads their two paths pass", "by_pair_of_orders")
VIEWS = (SCORE, PAIRS, TRACE, BY_HEADS, BY_SOURCES, BY_ORDERS)


def counted(number: int) -> str:
    """Write a number of pairs: 81,205, or 3.5 · 10¹⁹."""
    if number < _LARGE:
        return f"{number:,}"
    digits, _, power = f"{number:.1e}".partition("e+")
    return f"{digits} · 10{power.lstrip('0').translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
