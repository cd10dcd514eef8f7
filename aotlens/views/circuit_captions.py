"""The captions of a circuit: what its entries are, and the answer of each of its views."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotlens.circuits import (
        Circuit,
        CircuitBlock,
        CopyingScores,
        ExtremeEntries,
        HeadComposition,
        Overview,
        Spectrum,
    )
    from aotlens.views.circuit_choice import CircuitsParameters

#: The titles of panels about a row (or column), by what is at its ends, with {it} for its name.
LINE_TITLES = {
    ("qk", "row"): "Attention scores of destination {it}",
    ("qk", "column"): "Attention scores of source {it}",
    ("ov", "row"): "Outputs that source {it} promotes and suppresses",
    ("ov", "column"): "Sources that promote and suppress {it}",
}
LINE_ENDS = {
    ("qk", "row"): ("highest scores", "lowest scores"),
    ("qk", "column"): ("highest scores", "lowest scores"),
    ("ov", "row"): ("promotes", "suppresses"),
    ("ov", "column"): ("promote it", "suppress it"),
}
ABOVE_ROW_NAMES = {"qk": "minus row log-mean-exp", "ov": "minus row mean"}
ABOVE_ROW = {
    "qk": "Nats above the row's log-mean-exp. A softmax ignores what all sources of a destination have in common, so "
    "this, and not the score itself, compares different destinations: by these scores alone the source gets e^x times "
    "the attention of an average token.",
    "ov": "Logits above the row's mean. The final softmax ignores what all outputs have in common, so this is what "
    "attending to the source does for this output rather than for all.",
}

_ENTRY = {
    "qk": "An entry is what this pair adds to the attention score, in nats, before the softmax: one nat more is "
    "e ≈ 2.7 times the attention, compared with other sources of the same destination.",
    "ov": "An entry is what attending to the source, with weight 1, adds to the output's logit; one logit more is "
    "e ≈ 2.7 times the odds.",
    "residual": "An entry is what attending to the source, with weight 1, adds to a direction of the residual stream.",
}
_COLUMN = {
    "qk": "Scores of different destinations can't be compared as they are: each destination's softmax ignores what all "
    "its sources have in common. Scores minus the row's log-mean-exp can.",
    "ov": "Minus row mean: what attending to the source does for this output rather than for all outputs.",
}


def meaning(chosen: CircuitsParameters, circuit: Circuit) -> str:
    """Describe the circuit in three sentences: whose it is, what its rows and columns are, what an entry is."""
    kind, (rows, columns) = chosen.kind, circuit.shape
    entry = _ENTRY["residual" if circuit.unit == "residual stream" else kind]
    if kind == "qk" and circuit.left.index == circuit.right.index == "position" and _only_earlier(chosen):
        entry += " The model only looks back: entries above the diagonal, with the source after, are never used."
    if not (circuit.A.any() and circuit.B.any()):
        why = ": this model has no such bias" if "bias" in chosen.left + chosen.right else ""
        entry += f" Every entry is 0 here{why}."
    read = (circuit.left, circuit.right) if kind == "qk" else (circuit.left,)
    for layer, head in dict.fromkeys(side.through for side in read if side.through):
        entry += f" Through {layer}.{head}: as head {layer}.{head} writes it when it attends to that token."
    if kind == "ov" and circuit.right.through:
        later = "{}.{}".format(*circuit.right.through)
        entry += f" Through {later}: after head {later} has attended to the result."
    biases = " Biases are in every entry." if chosen.biases else ""
    if chosen.distance is not None:
        biases += f" The source stands {chosen.distance} positions before the destination."
    return (
        f"{kind.upper()} circuit of head {chosen.name}: row = {circuit.role('left')} ({rows:,}), "
        f"column = {circuit.role('right')} ({columns:,}). {entry}{biases}"
    )


def _only_earlier(chosen: CircuitsParameters) -> bool:
    """Whether a source after its destination is never looked at."""
    return chosen.config.causal and chosen.config.attn_mask is None


def exact_because(circuit: Circuit) -> str:
    """Say what an exact circuit is."""
    whole = {"residual stream": "what the head writes", "nats": "the model's own attention score"}
    what = whole.get(circuit.unit, "the model's own logit")
    return f"Exact: every entry is a term of {what}, on any input."


def says_entries(chosen: CircuitsParameters, result: ExtremeEntries) -> str:
    """Say a row's level and spread; what can be compared in a column; the largest entry of the whole."""
    statistics, unit = result.row_statistics, result.unit
    if statistics is None:
        ends = result.finding
        return _COLUMN[chosen.kind] if len(set(result.columns.places.tolist())) == 1 < result.columns.n else ends
    if result.columns.n < 2:
        return ""
    numbers = [f"mean {_signed(float(statistics.mean[0]), 2)}", f"standard deviation {float(statistics.std[0]):.2f}"]
    if chosen.kind == "qk":
        numbers.append(f"log-mean-exp {_signed(float(statistics.log_mean_exp[0]), 2)}")
    return f"Over all {result.columns.n:,} {result.columns.plural}: {', '.join(numbers)} {unit}."


def says_overview(chosen: CircuitsParameters, result: Overview) -> str:
    """Say what a pixel is."""
    entries = f"{result.n_rows:,} × {result.n_columns:,} entries"
    if result.row_size == result.column_size == 1:
        return f"Every one of the {entries}."
    statistic = "its entry largest in size, with its sign" if result.statistic == "extreme" else "its mean"
    return f"A pixel is a block of {result.row_size} × {result.column_size} of the {entries}, shown by {statistic}."


def says_block(chosen: CircuitsParameters, result: CircuitBlock) -> str:
    """Say which rows and columns are drawn, and whether all entries are."""
    where = ("", ", around the largest entry" if result.around else ", the block of the largest entry")[result.first]
    listed = "All of its entries" if result.whole else "Its rows and columns with the largest entries"
    rows, columns = (f"{first}–{last}" if last > first else f"{first}" for first, last in result.spans)
    return f"Rows {rows}, columns {columns}{where}. {listed}; below, by size."


def says_eigenvalues(chosen: CircuitsParameters, result: Spectrum) -> str:
    """Say the copying score, and what it means."""
    n, size = len(result.singular_values), result.left_vectors.shape[0]
    sentence = f"{n} eigenvalues; the other {size - n:,} are 0. "
    if result.copying_score is None:
        return sentence + result.why
    name = "Copying score" if chosen.kind == "ov" else "Balance of signs"
    score = f"{name} Σ Re λ / Σ |λ| = {_signed(float(result.copying_score), 3)}"
    if result.by_construction:
        return f"{sentence}{score}. This is 1 by construction and says nothing about what was learned: {result.why}"
    return f"{sentence}{score} (1: all positive, 0: they cancel, −1: all negative)."


def says_pairs(chosen: CircuitsParameters, result: Spectrum) -> str:
    """Say how many singular pairs there are, and how strong those are that are listed."""
    values, listed = result.singular_values, len(result.left.highest)
    share = float((values[:listed] ** 2).sum() / max((values**2).sum(), 1e-300))
    return f"The first {listed} of {len(values)} pairs; together {share:.0%} of the circuit's squared size."


def says_around(chosen: CircuitsParameters, result: HeadComposition) -> str:
    """Say how many pairs lie above their null, and what the null is."""
    from aotlens.circuits.composition import EDGE_Z
    from aotlens.plots.circuits import MOST_EDGES

    n = len(result.strongest(chosen.z))
    same = ""
    if "qk" in result.modes:
        same = " Queries and keys are one matrix here (MSSA), so q and k composition are one number."
    cut = f" The strongest {MOST_EDGES} are drawn." if n > MOST_EDGES else ""
    level = f" and at least z = {chosen.z:g}" if chosen.z > EDGE_Z else ""
    return (
        f"{n} of {len(result.values)} pairs lie above their null{level}: z ≥ {EDGE_Z:g} where the directions in which "
        f"the stream varies are kept, and which of them the two heads share is drawn. Randomly rotated, every pair has "
        f"a root mean square of {result.random_rms:.3f}.{cut}{same}"
    )


def says_copying(chosen: CircuitsParameters, result: CopyingScores) -> str:
    """Say over which tokens, and of which heads."""
    only = " Only the chosen head's: all heads of a model of this size would take long." if chosen.copied else ""
    return f"Over {result.n_tokens:,} tokens, tokens × logits.{only}"


def _signed(value: float, digits: int) -> str:
    """A number with a minus that is one."""
    return f"{value:.{digits}f}".replace("-", "−")
