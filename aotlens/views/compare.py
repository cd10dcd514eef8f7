"""Two runs side by side as views: two models, or one with heads ablated, on one text or on two."""

from __future__ import annotations

from dataclasses import replace

from aotlens.conventions import head_name
from aotlens.views.compare_captions import says_losses, says_maps, says_pairs, says_runs, says_similarity
from aotlens.views.compare_choice import CompareParameters, Side
from aotlens.views.family import Family, reads_text
from aotlens.views.view import About, View


def _missing_matching(params: CompareParameters) -> str | None:
    if params.one_model:
        model = params.info("left").model
        n_heads = model["n_layers"] * model["n_heads"]
        return f"One checkpoint at both sides: each of its {n_heads} heads is next to itself."
    return params.unmatched


def _missing_text(params: CompareParameters) -> str | None:
    return params.lacks_text


def _stem(params: CompareParameters) -> str:
    return f"{params.info('left').name}-{params.info('right').name}"


def _map_view(side: Side) -> View:
    return View(
        name=side,
        title=side.capitalize(),
        about=About(
            text="The map of one head of the pane, in the run with the pane’s ablations. Left and right have one "
            "colour scale. Point at an entry to see it in the other maps too, where the panes have the same tokens; "
            "click to lock it. An ablated head still has a pattern: it is its output that is replaced.",
            formula="A(i, j) = φ(score(i, j))",
            source="A Mathematical Framework for Transformer Circuits (2021); φ, MSSA: Attention-Only Transformers, "
            "Eq. 4",
        ),
        call=lambda params: params.map(side),
        caption=lambda params, result: f"{result.headline}, {params.info(side).name}.",
        file=lambda params: f"{params.info(side).name}-{side}-head-{params.quantity}",
        missing=_missing_text,
    )


RUNS = View(
    name="runs",
    title="Two panes",
    about=About(
        text="Two panes, each a checkpoint, a text and a set of ablated heads. Both have one text unless you give the "
        "right one its own. Means and other outputs that replace those of ablated heads are taken from 32 windows of a "
        "text, as long as this one. The address in your browser holds all of it: heads as 1.0,1.3, and of a text of "
        "more than 600 characters, which is then kept on this machine, its hash.",
        source="What an ablated head’s output is replaced with: docs/atlas.md and the library’s aotlens.heads.ablation",
    ),
    call=lambda params: params.runs(),
    caption=says_runs,
    file=_stem,
    missing=_missing_text,
    pictured=False,
)
#: The left run by itself, whose maps a page fetches once.
PANE = View(
    name="pane",
    title="Left",
    about=About(text=""),
    call=lambda params: params.run("left"),
    caption=lambda params, result: f"{result.headline}.",
    file=_stem,
    missing=_missing_text,
    pictured=False,
)
LOSSES = View(
    name="losses",
    title="Loss per token",
    about=About(
        text="How much more a token costs at the right than at the left, in nats: blue where the right pane does "
        "worse, orange where it does better; the number is under the token, both losses are in its tooltip. Point at a "
        "token to mark its row in the maps, click to lock it. Where the panes have other tokens, each has a strip of "
        "its own, coloured by its loss.",
        formula="ℓᵢ = −log p(xᵢ | x₁ … xᵢ₋₁);  Δᵢ = ℓᵢ(right) − ℓᵢ(left)",
        source="A masked language model is asked for each token with a mask in its place",
    ),
    call=lambda params: params.runs(losses=True).method("losses"),
    caption=says_losses,
    file=lambda params: f"{_stem(params)}-losses",
    missing=_missing_text,
    pictured=False,
)
LEFT, RIGHT = _map_view("left"), _map_view("right")
DIFFERENCE = View(
    name="difference",
    title="Right − left",
    about=About(
        text="Right − left, entry by entry: blue where the right head attends more, orange where the left one does. "
        "Two texts with equally many tokens are compared position by position, others where they have the same tokens "
        "in the same order (a longest common subsequence), at the left text’s positions. A softmax does not see a "
        "constant along a row, so differences of scores are to be compared along rows only.",
        formula="D(i, j) = A_right(i, j) − A_left(i, j)",
    ),
    call=lambda params: params.runs().method(
        "maps", head_name(params.head), params.beside, params.quantity, without_first=params.without_first
    ),
    caption=says_maps,
    file=lambda params: f"{_stem(params)}-head-{head_name(params.head)}-{params.quantity}",
    missing=_missing_text,
)
PAIRS = View(
    name="pairs",
    title="Matched heads",
    about=About(
        text="Of one checkpoint, each head is next to itself. Heads of two checkpoints are matched by what they do "
        "to tokens, whatever the bases of their weights: the cosines of the OV circuits and of the QK circuits between "
        "tokens, and, where both panes have the same tokens, of the patterns on this text. The pairs have the largest "
        "sum of mean cosines; the margin is by how much a pair beats the left head’s best other one. The first "
        "matching of two checkpoints takes up to some seconds, and is kept. Ablated heads are matched as they are in "
        "the full model.",
        formula="⟨M, N⟩ = Σ pᵢ pⱼ M(i, j) N(i, j),  M = W_E W_OV W_U or W_E W_QK W_Eᵀ,  p: shares of the tokens",
        source="Assignment: Kuhn 1955; docs/atlas.md, The heads of two models",
    ),
    call=lambda params: params.matching,
    caption=says_pairs,
    file=lambda params: f"{_stem(params)}-pairs",
    missing=_missing_matching,
)
SIMILARITY = replace(
    PAIRS,
    name="similarity",
    title="Similarity of all heads",
    about=About(
        text="How alike every left head is to every right one: the mean of the cosines. Click an entry to see these "
        "two heads.",
        formula="(cos OV + cos QK + cos pattern) / 3, of the available ones",
        source="docs/atlas.md, The heads of two models",
    ),
    caption=says_similarity,
    file=lambda params: f"{_stem(params)}-similarity",
    table="similarities",
)


FAMILY = Family(
    "compare",
    "What differs between two models, or one with and without some heads, on a text?",
    (LOSSES, DIFFERENCE, LEFT, RIGHT, PAIRS, SIMILARITY),
    CompareParameters,
    sides=("left", "right"),
    most=2,
    reads=reads_text,
)
