"""The Images page's tables: classes by probability, heads by consistency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from app.shell.tables import pick, value_table

if TYPE_CHECKING:
    from aotlens.heads import ClassPredictions, SemanticConsistency


def likeliest(result: ClassPredictions, most: int) -> html.Table:
    """Return the most probable classes, with bars; in a second column those with heads ablated."""
    runs = [result.probabilities, *([] if result.ablated is None else [result.ablated])]
    rows = [
        html.Tr(
            [
                html.Td(result.classes[place]),
                *(_probability(float(values[place])) for values in runs),
                html.Td(f"{result.logits[place]:.2f}"),
            ]
        )
        for place in np.argsort(-result.probabilities, kind="stable")[:most].tolist()
    ]
    titles = ["class", "probability", *(["heads ablated"] if result.ablated is not None else []), "logit"]
    header = html.Tr([html.Th(title, scope="col") for title in titles])
    return html.Table([html.Thead(header), html.Tbody(rows)], className="images-numbers")


def _probability(value: float) -> html.Td:
    bar = html.Span(className="bar", style={"width": f"{100 * value:.1f}%"})
    return html.Td([html.Span(f"{value:.4f}", className="number"), html.Span(bar, className="track")])


def by_consistency(result: SemanticConsistency) -> list[dict[str, Any]]:
    """Return every head, the most consistent first."""
    columns = [
        ("head", "layer.head; click to see its layer; bold: beyond chance", "mono"),
        ("within", "Mean overlap (IoU) of its regions on two images of one class", "number"),
        ("between", "The same on images of two classes", "number"),
        ("difference", "within − between", "number"),
        ("95% interval", "Of the difference, a bootstrap over images", "text"),
        ("IoU with mean map", "Overlap with the head’s mean map over the other images: position alone", "number"),
        ("adjusted p", "Class labels permuted over images, adjusted over heads (Benjamini and Hochberg)", "number"),
    ]  # fmt: skip
    rows = []
    for layer, head in result.ranking():
        place = (layer, head)
        low, high = result.intervals[place]
        beyond = "beyond-chance" if result.adjusted_p[place] <= 0.05 else ""
        numbers = [f"{of[place]:.3f}" for of in (result.within, result.between, result.difference)]
        rest = [f"{low:.3f} to {high:.3f}", f"{result.with_mean[place]:.3f}", f"{result.adjusted_p[place]:.3f}"]
        rows.append([pick(f"{layer}.{head}", "Go there", [layer, head], beyond), *numbers, *rest])
    return [value_table(columns, rows, height="tall")]
