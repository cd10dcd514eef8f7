"""A head's circuits as views: what it attends to (QK) and what it writes (OV), read from the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.views.calls import Call, Load, call
from aotlens.views.circuit_parameters import CircuitsParameters
from aotlens.views.family import Family
from aotlens.views.view import FRAMEWORK, View

if TYPE_CHECKING:
    from aotlens.circuits import Circuit, CopyingScores, HeadComposition, Spectrum

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

_NAMES = {"directions": "directions of the stream", "biases": "bias"}


def _missing(params: CircuitsParameters) -> str | None:
    if params.kind == "qk" and not params.config.has_query_key:
        return (
            f"{params.checkpoint} has a fixed attention pattern: its heads have no queries and no keys, so there is no "
            "QK circuit. What they write is there: choose OV."
        )
    return None


def _missing_eigenvalues(params: CircuitsParameters) -> str | None:
    left, right = (_NAMES.get(lines, lines) for lines, _ in params.axes())
    if left == right:
        return _missing(params)
    return _missing(params) or (
        f"Rows are {left}, columns are {right}: only where both are the same things does something come out that went "
        "in, and only there are there eigenvalues. Singular pairs are always there."
    )


def _missing_pairs(params: CircuitsParameters) -> str | None:
    return "This model has one layer: no head reads what another one writes." if params.config.n_layers < 2 else None


def _missing_copying(params: CircuitsParameters) -> str | None:
    if (params.config.read_in, params.config.read_out) == ("tokens", "tokens"):
        return None
    return "Copying is from tokens to the same tokens: this model does not both read and write tokens."


def meaning(params: CircuitsParameters, circuit: Circuit) -> str:
    """Describe the circuit in three sentences: whose it is, what its rows and columns are, what an entry is."""
    kind, (rows, columns) = params.kind, circuit.shape
    entry = _ENTRY["residual" if circuit.unit == "residual stream" else kind]
    if kind == "qk" and circuit.left.index == circuit.right.index == "position" and _only_earlier(params):
        entry += " The model only looks back: entries above the diagonal, with the source after, are never used."
    if not (circuit.A.any() and circuit.B.any()):
        why = ": this model has no such bias" if "bias" in params.left + params.right else ""
        entry += f" Every entry is 0 here{why}."
    read = (circuit.left, circuit.right) if kind == "qk" else (circuit.left,)
    for layer, head in dict.fromkeys(side.through for side in read if side.through):
        entry += f" Through {layer}.{head}: as head {layer}.{head} writes it when it attends to that token."
    if kind == "ov" and circuit.right.through:
        later = "{}.{}".format(*circuit.right.through)
        entry += f" Through {later}: after head {later} has attended to the result."
    biases = " Biases are in every entry." if params.biases else ""
    if params.distance is not None:
        biases += f" The source stands {params.distance} positions before the destination."
    return (
        f"{kind.upper()} circuit of head {params.name}: row = {circuit.role('left')} ({rows:,}), "
        f"column = {circuit.role('right')} ({columns:,}). {entry}{biases}"
    )


def _only_earlier(params: CircuitsParameters) -> bool:
    """Whether a source after its destination is never looked at."""
    return params.config.causal and params.config.attn_mask is None


def exact_because(circuit: Circuit) -> str:
    """Say what an exact circuit is."""
    whole = {"residual stream": "what the head writes", "nats": "the model's own attention score"}
    what = whole.get(circuit.unit, "the model's own logit")
    return f"Exact: every entry is a term of {what}, on any input."


def _of_pairs(params: CircuitsParameters, result: Spectrum) -> str:
    values, listed = result.singular_values, len(result.left.highest)
    share = float((values[:listed] ** 2).sum() / max((values**2).sum(), 1e-300))
    return f"The first {listed} of {len(values)} pairs; together {share:.0%} of the circuit's squared size."


def _of_composition(params: CircuitsParameters, result: HeadComposition) -> str:
    from aotlens.plots.circuits import MOST_EDGES

    n = len(result.strongest(params.z))
    return result.sentences(params.z) + (f" The strongest {MOST_EDGES} are drawn." if n > MOST_EDGES else "")


def _of_copying(params: CircuitsParameters, result: CopyingScores) -> str:
    only = " Only this head's: all heads of a model of this size would take long." if params.copied else ""
    return f"Over {result.n_tokens:,} tokens, tokens × logits.{only}"


def _circuit_view(name: str, title: str, **rest: Any) -> View:
    """A view of the circuit, of its extreme entries by default."""
    usual: dict[str, Any] = {
        "missing": _missing,
        "file": lambda params: params.file(name),
        "cost": lambda params: params.products(2),
    }
    return View(name=name, title=title, **{**usual, **rest})


CIRCUIT = _circuit_view(
    "circuit",
    "Circuit",
    about="Read from the weights alone: no text is run. QK says which tokens a head attends to from which, OV what it "
    "does to the output when it attends. The address in your browser holds everything you choose here.",
    formula="QK = W_E W_Q W_Kᵀ W_Eᵀ / √d_head, in nats;  OV = W_E W_V W_O W_U, in logits",
    source=f"{FRAMEWORK}; MSSA, where W_Q = W_K = W_V: Attention-Only Transformers, Eq. 4",
    call=lambda params: params.circuit,
    caption=meaning,
    cost=lambda params: 0.0,
    pictured=False,
)


def _map(params: CircuitsParameters) -> Call:
    lines: dict[str, Any] = {name: list(getattr(params, name)) for name in ("rows", "columns") if getattr(params, name)}
    return call(
        "aotlens.circuits.circuit_map", params.circuit, **(lines or {"entries": params.entries}), n=params.n_lines
    )


MAP = _circuit_view(
    "map",
    "Map",
    about="Exact entries for some rows and columns; without a choice, those of the entries largest in size. Blue is "
    "positive, orange negative. Point at one for its value; click it to list its row and column.",
    call=_map,
)
TOP = _circuit_view(
    "top",
    "Top entries",
    about="The largest and the smallest of all entries, exact over the whole matrix. Click a token to list its row or "
    "column.",
    call=lambda params: params.entries,
    pictured=False,
)


def _line(axis: str) -> View:
    return _circuit_view(
        axis,
        f"One {axis}",
        about=f"The largest and smallest entries of one {axis}, by default that of the largest entry.",
        call=lambda params: params.line(axis),
        pictured=False,
    )


ROW, COLUMN = _line("row"), _line("column")
OVERVIEW = _circuit_view(
    "overview",
    "Whole matrix",
    about="All entries, in blocks, in order of id (of tokens: single bytes, then pieces of text, frequent ones first). "
    "Click a block to see its entries.",
    call=lambda params: params.overview(params.statistic),
    file=lambda params: params.file(f"blocks-{params.statistic}"),
    cost=lambda params: params.products(1),
)
BLOCK = _circuit_view(
    "block",
    "One block",
    about="The block that is framed in the whole matrix, in full or, if it is large, where it is largest.",
    call=lambda params: call(
        "aotlens.circuits.circuit_block", params.circuit, params.overview("extreme"), params.block, n=params.n_lines,
        k=params.n_entries,
    ),
    file=lambda params: params.file("block" if params.block is None else f"block-{params.block[0]}.{params.block[1]}"),
    cost=lambda params: params.products(1),
)  # fmt: skip
EIGENVALUES = _circuit_view(
    "eigenvalues",
    "Eigenvalues",
    about="Where rows and columns are the same, an eigenvector goes in and comes out multiplied by its eigenvalue. "
    "Mostly positive real parts mean copying (OV) or like attending to like (QK).",
    formula="W v = λ v",
    source=FRAMEWORK,
    call=lambda params: call("aotlens.circuits.spectrum", params.circuit),
    missing=_missing_eigenvalues,
    table="eigenvalue_frame",
    cost=lambda params: params.spectrum_cost,
)
SINGULAR = _circuit_view(
    "singular",
    "Singular pairs",
    about="A circuit is a sum of few products, strongest first: a pattern over rows times a pattern over columns. A "
    "row and a column listed side by side raise each other's entry; the + rows with the − columns lower it. Which side "
    "is called + is arbitrary.",
    formula="W = Σᵢ σᵢ uᵢ vᵢᵀ",
    call=lambda params: call("aotlens.circuits.spectrum", params.circuit),
    caption=_of_pairs,
    cost=lambda params: params.spectrum_cost,
    pictured=False,
)


def _pairs_cost(params: CircuitsParameters) -> float:
    """Operations of the compositions of all pairs of heads, in three modes."""
    n_layers, n_heads = params.config.n_layers, params.config.n_heads
    return 3.0 * n_layers * (n_layers - 1) * n_heads**2 * float(params.config.d_model) ** 2


COMPOSITION = View(
    name="composition",
    title="Composition",
    about="Which earlier heads this head reads, and which later ones read it: between 0 and 1. Two unrelated heads are "
    "not at 0 either, so a line is drawn only where a pair lies above its null: the same two heads, with the signs of "
    "the stream's directions flipped at random for the later one. A stream that all heads share lifts many pairs above "
    "random rotations; the rank among all heads that the later one can read tells them apart. Far below the null is "
    "not absence of composition, and neither the score nor z sees size: look at the norm. Click a head to go there, or "
    "what it is read by (queries, keys, values) for the later head's QK or OV circuit through the earlier one.",
    formula="‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), Frobenius norms",
    source=FRAMEWORK,
    call=lambda params: call(
        "aotlens.circuits.head_composition", Load(params.checkpoint), params.head, params.pairs_of_all
    ),
    caption=_of_composition,
    missing=_missing_pairs,
    drawn=lambda params: {"z": params.z} if params.z else {},
    file=lambda params: f"{params.checkpoint}-head-{params.name}-composition",
    picks="head = customdata",
    cost=_pairs_cost,
)
COPYING = View(
    name="copying",
    title="Copying",
    about="How often attending to a token promotes that same token above all others, over the whole vocabulary; and "
    "the copying score of the eigenvalues, 1 for pure copying, −1 for pure suppression.",
    formula="Σ λ / Σ |λ| over the eigenvalues λ of the full OV circuit",
    source=FRAMEWORK,
    call=lambda params: call(
        "aotlens.circuits.copying_scores", Load(params.checkpoint), *([] if params.copied is None else [params.copied])
    ),
    caption=_of_copying,
    missing=_missing_copying,
    file=lambda params: f"{params.checkpoint}-copying",
    cost=lambda params: params.copying_cost(
        len(params.copied or range(params.config.n_layers * params.config.n_heads))
    ),
    pictured=False,
)


FAMILY = Family(
    "circuits",
    "Tokens that a head attends to and writes when it attends, by its weights.",
    (MAP, TOP, ROW, COLUMN, OVERVIEW, BLOCK, EIGENVALUES, SINGULAR, COMPOSITION, COPYING),
    CircuitsParameters,
    reads=lambda info: info.problem is None,
)
