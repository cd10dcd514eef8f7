"""Compare: two models, or one with heads ablated, on one text or on two, next to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.views import compare as views
from aotlens.views.compare import CompareParameters, each_pair
from app.core import Core
from app.core.examples import EXAMPLES, FIRST
from app.shell.arrange import Columns, Form, Matrix, Preset, Rows, Tabs
from app.shell.pair_maps import PairList, PairMaps, Strips, of_runs
from app.shell.tables import chips
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.heads import ComparedLosses, HeadMatching

#: The fields that the matching of two models' heads does not depend on.
_ABLATION = ("left", "right", "how", "corpus")


def first(core: Core) -> dict[str, Any]:
    """Return what an empty address shows: a model without a head of its first layer on the first example, and a head of
    the next layer, which may have read it. (In novels-2l-mhsa: induction without the previous-token head.)"""
    shape = core.catalog.shape(core.catalog.default())
    return {} if shape is None else {"right": ((0, shape[1] - 1),), "head": (min(1, shape[0] - 1), 0), "text": FIRST}


def strips(params: CompareParameters, result: ComparedLosses) -> dict[str, list[Any]]:
    """Return one strip of differences; a strip of losses for each side if they have different tokens."""
    if result.difference is None:
        return {
            "left": [chips(result.left_tokens, result.left.tolist())],
            "right": [chips(result.right_tokens, result.right.tolist())],
        }
    tips = [
        f"loss {left:.3f} at the left, {right:.3f} at the right, {right - left:+.3f} nats".replace("-", "−")
        if np.isfinite(right - left)
        else "no loss"
        for left, right in zip(result.left, result.right, strict=True)
    ]
    return {"left": [chips(result.left_tokens, result.difference.tolist(), tips)]}


def of_pairs(params: CompareParameters, result: HeadMatching) -> Mapping[str, Any]:
    """Return for each left head the right one that it is paired with, and whose heads they are."""
    return {"of": [params.info("left").name, params.info("right").name], "pairs": list(each_pair(result))}


def _two(words: str, left: str, right: str) -> Preset:
    """Two bundled checkpoints, whose layers have 393,216 numbers each (docs/atlas.md)."""
    sets = {"left_model": left, "right_model": right, "left": [], "right": []}
    return Preset(words, sets, tip=f"{left} and {right}", needs=(left, right))


PRESETS = [
    Preset(
        "Same model, head ablated", {"right_model": "=left_model", "left": [], "right": ["=head"]},
        tip="The left checkpoint at both sides; at the right, the left head is ablated.",
    ),
    _two("MSSA | MHSA", "novels-12l-mssa", "novels-6l-mhsa"),
    _two("MHSA | GPT", "novels-6l-mhsa", "novels-2l-gpt"),
    _two("MSSA | GPT", "novels-12l-mssa", "novels-2l-gpt"),
    Preset("⇄", {"left_model": "=right_model", "right_model": "=left_model", "left": "=right", "right": "=left"},
           tip="Swap the two models"),
    *(Preset(words, {"text": text}, menu="Examples") for words, text in EXAMPLES.items()),
]  # fmt: skip

PAGE = view_page(
    views.FAMILY,
    "Compare",
    opens=first,
    arranged=Rows(
        Form(views.RUNS, presets=PRESETS, facts=of_runs),
        Strips(views.LOSSES, strips=strips),
        Tabs("tab", label="Of the heads", sections={
            "maps": ("A pair of heads", PairMaps(
                views.LEFT, views.RIGHT, views.DIFFERENCE, pane=views.PANE, runs=views.RUNS, pairs=views.PAIRS,
            )),
            "pairs": ("All pairs", Columns(
                PairList(views.PAIRS, facts=of_pairs, ignores=_ABLATION, apart=True),
                Matrix(
                    views.SIMILARITY, ignores=_ABLATION, apart=True,
                    picks={"head": "rows", "other_head": "columns", "tab": "=maps"},
                ),
                widths="minmax(0, 1.6fr) minmax(0, 1fr)",
            )),
        }),
    ),
)  # fmt: skip
