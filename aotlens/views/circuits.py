"""A head's circuits as views: what it attends to (QK) and what it writes (OV), read from the weights."""

from __future__ import annotations

from typing import Any

from aotlens.views.calls import Call, Load, call
from aotlens.views.circuit_captions import (
    meaning,
    says_around,
    says_block,
    says_copying,
    says_eigenvalues,
    says_entries,
    says_overview,
    says_pairs,
)
from aotlens.views.circuit_choice import CircuitsParameters
from aotlens.views.family import Family
from aotlens.views.view import About, View

_NAMES = {"directions": "directions of the stream", "biases": "bias"}
_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"


def _missing(chosen: CircuitsParameters) -> str | None:
    if chosen.kind == "qk" and not chosen.config.has_query_key:
        return (
            f"{chosen.checkpoint} has a fixed attention pattern: its heads have no queries and no keys, so there is no "
            "QK circuit. What they write is there: choose OV."
        )
    return None


def _missing_eigenvalues(chosen: CircuitsParameters) -> str | None:
    left, right = (_NAMES.get(lines, lines) for lines, _ in chosen.axes())
    if left == right:
        return _missing(chosen)
    return _missing(chosen) or (
        f"Rows are {left}, columns are {right}: only where both are the same things does something come out that went "
        "in, and only there are there eigenvalues. Singular pairs are always there."
    )


def _missing_pairs(chosen: CircuitsParameters) -> str | None:
    return "This model has one layer: no head reads what another one writes." if chosen.config.n_layers < 2 else None


def _missing_copying(chosen: CircuitsParameters) -> str | None:
    if (chosen.config.read_in, chosen.config.read_out) == ("tokens", "tokens"):
        return None
    return "Copying is from tokens to the same tokens: this model does not both read and write tokens."


def _circuit_view(name: str, title: str, about: About, **rest: Any) -> View:
    """A view of the circuit, of its extreme entries by default."""
    usual: dict[str, Any] = {
        "caption": says_entries,
        "missing": _missing,
        "file": lambda chosen: chosen.file(name),
        "cost": lambda chosen: chosen.products(2),
    }
    return View(name=name, title=title, about=about, **{**usual, **rest})


CIRCUIT = _circuit_view(
    "circuit",
    "Circuit",
    About(
        text="Read from the weights alone: no text is run. QK says which tokens a head attends to from which, OV what "
        "it does to the output when it attends. The address in your browser holds everything you choose here.",
        formula="QK = W_E W_Q W_Kᵀ W_Eᵀ / √d_head, in nats;  OV = W_E W_V W_O W_U, in logits",
        source=f"{_FRAMEWORK}; MSSA, where W_Q = W_K = W_V: Attention-Only Transformers, Eq. 4",
    ),
    call=lambda chosen: chosen.circuit,
    caption=meaning,
    cost=lambda chosen: 0.0,
    pictured=False,
)


def _map(chosen: CircuitsParameters) -> Call:
    lines = {name: list(given) for name, given in (("rows", chosen.rows), ("columns", chosen.columns)) if given}
    given: dict[str, Any] = lines or {"entries": chosen.entries}
    return call("aotlens.circuits.circuit_map", chosen.circuit, **given, n=chosen.n_lines)


MAP = _circuit_view(
    "map",
    "Map",
    About(
        text="Exact entries for some rows and columns; without a choice, those of the entries largest in size. Blue is "
        "positive, orange negative. Point at one for its value; click it to list its row and column."
    ),
    call=_map,
    caption=lambda chosen, result: result.finding,
)
TOP = _circuit_view(
    "top",
    "Top entries",
    About(
        text="The largest and the smallest of all entries, exact over the whole matrix. Click a token to list its row "
        "or column."
    ),
    call=lambda chosen: chosen.entries,
    pictured=False,
)


def _line(axis: str) -> View:
    return _circuit_view(
        axis,
        f"One {axis}",
        About(text=f"The largest and smallest entries of one {axis}, by default that of the largest entry."),
        call=lambda chosen: chosen.line(axis),
        pictured=False,
    )


ROW, COLUMN = _line("row"), _line("column")
OVERVIEW = _circuit_view(
    "overview",
    "Whole matrix",
    About(
        text="All entries, in blocks, in order of id (of tokens: single bytes, then pieces of text, frequent ones "
        "first). Click a block to see its entries."
    ),
    call=lambda chosen: chosen.overview(chosen.statistic),
    caption=says_overview,
    file=lambda chosen: chosen.file(f"blocks-{chosen.statistic}"),
    cost=lambda chosen: chosen.products(1),
)
BLOCK = _circuit_view(
    "block",
    "One block",
    About(text="The block that is framed in the whole matrix, in full or, if it is large, where it is largest."),
    call=lambda chosen: call(
        "aotlens.circuits.circuit_block", chosen.circuit, chosen.overview("extreme"), chosen.block, n=chosen.n_lines,
        k=chosen.n_entries,
    ),
    caption=says_block,
    file=lambda chosen: chosen.file("block" if chosen.block is None else f"block-{chosen.block[0]}.{chosen.block[1]}"),
    cost=lambda chosen: chosen.products(1),
)  # fmt: skip
EIGENVALUES = _circuit_view(
    "eigenvalues",
    "Eigenvalues",
    About(
        text="Where rows and columns are the same, an eigenvector goes in and comes out multiplied by its eigenvalue. "
        "Mostly positive real parts mean copying (OV) or like attending to like (QK).",
        formula="W v = λ v",
        source=_FRAMEWORK,
    ),
    call=lambda chosen: call("aotlens.circuits.spectrum", chosen.circuit),
    caption=says_eigenvalues,
    missing=_missing_eigenvalues,
    table="eigenvalue_frame",
    cost=lambda chosen: chosen.spectrum_cost,
)
SINGULAR = _circuit_view(
    "singular",
    "Singular pairs",
    About(
        text="A circuit is a sum of few products, strongest first: a pattern over rows times a pattern over columns. A "
        "row and a column listed side by side raise each other's entry; the + rows with the − columns lower it. Which "
        "side is called + is arbitrary.",
        formula="W = Σᵢ σᵢ uᵢ vᵢᵀ",
    ),
    call=lambda chosen: call("aotlens.circuits.spectrum", chosen.circuit),
    caption=says_pairs,
    cost=lambda chosen: chosen.spectrum_cost,
    pictured=False,
)


def _pairs_cost(chosen: CircuitsParameters) -> float:
    """Operations of the compositions of all pairs of heads, in three modes."""
    n_layers, n_heads = chosen.config.n_layers, chosen.config.n_heads
    return 3.0 * n_layers * (n_layers - 1) * n_heads**2 * float(chosen.config.d_model) ** 2


COMPOSITION = View(
    name="composition",
    title="Composition",
    about=About(
        text="Which earlier heads this head reads, and which later ones read it: between 0 and 1. Two unrelated heads "
        "are not at 0 either, so a line is drawn only where a pair lies above its null: the same two heads, with the "
        "signs of the stream's directions flipped at random for the later one. A stream that all heads share lifts "
        "many pairs above random rotations; the rank among all heads that the later one can read tells them apart. Far "
        "below the null is not absence of composition, and neither the score nor z sees size: look at the norm. Click "
        "a head to go there, or what it is read by (queries, keys, values) for the later head's QK or OV circuit "
        "through the earlier one.",
        formula="‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), Frobenius norms",
        source=_FRAMEWORK,
    ),
    call=lambda chosen: call(
        "aotlens.circuits.head_composition", Load(chosen.checkpoint), chosen.head, chosen.pairs_of_all
    ),
    caption=says_around,
    missing=_missing_pairs,
    drawn=lambda chosen: {"z": chosen.z} if chosen.z else {},
    file=lambda chosen: f"{chosen.checkpoint}-head-{chosen.name}-composition",
    picks="head = customdata",
    cost=_pairs_cost,
)
COPYING = View(
    name="copying",
    title="Copying",
    about=About(
        text="How often attending to a token promotes that same token above all others, over the whole vocabulary; and "
        "the copying score of the eigenvalues, 1 for pure copying, −1 for pure suppression.",
        formula="Σ λ / Σ |λ| over the eigenvalues λ of the full OV circuit",
        source=_FRAMEWORK,
    ),
    call=lambda chosen: call(
        "aotlens.circuits.copying_scores", Load(chosen.checkpoint), *([] if chosen.copied is None else [chosen.copied])
    ),
    caption=says_copying,
    missing=_missing_copying,
    file=lambda chosen: f"{chosen.checkpoint}-copying",
    cost=lambda chosen: chosen.copying_cost(
        len(chosen.copied or range(chosen.config.n_layers * chosen.config.n_heads))
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
