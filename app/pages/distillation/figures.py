"""What of distillations is shown: figures, and the rows of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.plots import Theme
from aotlens.plots.distillation import (
    Cloud,
    Costs,
    ErrorGrid,
    class_bars,
    cost_curves,
    error_grids,
    head_clouds,
    learning_curves,
    width_profiles,
)
from app.pages.distillation import words
from app.pages.distillation.service import Distillations, Shown

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from aotlens.distill import Distillation


def grid_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure:
    """Error by head, a grid a model."""
    grids = []
    for key in shown.results:
        found = page.record(key).distillation
        n_layers, n_heads = page.shape(key)
        errors = np.full((n_layers, n_heads), np.nan)
        notes = [["not distilled"] * n_heads for _ in range(n_layers)]
        means, intervals = found.mean_error(shown.width), found.interval(shown.width)
        for place, (layer, head) in enumerate(found.heads):
            errors[layer, head] = means[place]
            notes[layer][head] = words.cell(found, place, intervals[place])
        grids.append(ErrorGrid(key=key, name=key, errors=errors, notes=notes))
    figure = error_grids(grids, shown.chosen, theme=theme)
    return _named(figure, shown, f"error by head, {words.units(shown.width)}")


def widths_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure:
    """Mean error by width and of everything else that was tried; the chosen head's beside it."""
    widths = page.widths(shown)
    wides = sorted({found.settings.wide or 0 for found in _all(page, shown)} - {0})
    names = ["linear" if width == 0 else str(width) for width in widths]
    wide = "wide FFN" if len(wides) > 1 else f"wide FFN<br>({wides[0]})" if wides else ""
    others = [one for one in (wide, "position’s<br>mean", "neighbours", "least<br>of all") if one]

    def profile(found: Distillation, pick: Any) -> np.ndarray:
        values = [pick(found.mean_error(width)) if width in found.hidden else np.nan for width in widths]
        for name, errors in (
            (wide, found.wide_error), ("position’s<br>mean", found.position_error),
            ("neighbours", found.neighbour_error), ("least<br>of all", found.floor),
        ):  # fmt: skip
            if name:
                values.append(np.nan if errors is None else pick(errors))
        return np.array(values, dtype=np.float64)

    means, intervals = {}, {}
    for key in shown.results:
        found = page.record(key).distillation
        means[key] = profile(found, np.mean)
        if len(found.heads) > 1:
            reach = np.repeat(means[key][:, None], 2, axis=1)
            for k, width in enumerate(widths):
                if width in found.hidden:
                    reach[k] = found.over_heads(width)[1:]
            intervals[key] = reach
    found = page.record(shown.of).distillation
    place = found.place((shown.layer, shown.head))
    head = (words.name(shown), profile(found, lambda errors: errors[place]))
    figure = width_profiles([*names, *others], len(names), means, intervals, head, theme=theme)
    figure.update_xaxes(title={"text": "FFNs, by hidden units · other predictors"})
    return _named(figure, shown, "error by width")


def cloud_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure:
    """Error against attention to something, and against how constant the pattern is over texts."""
    from aotlens.heads import motifs_of

    clouds: list[Cloud] = []
    for key in shown.results:
        found = page.record(key).distillation
        kinds = [label.replace("_", " ") for label in found.attending.attends]
        clouds.append(
            Cloud(
                key=key, name=key, heads=found.heads, errors=found.mean_error(shown.width),
                intervals=found.interval(shown.width), kinds=kinds,
                x=(found.attending.to(shown.across), found.attending.constancy),
            )
        )  # fmt: skip
    titles = (f"mean attention: {shown.across.replace('_', ' ')}", "constancy of the pattern over texts")
    named = [motif.title for motif in motifs_of("tokens").values()]
    other = {kind for cloud in clouds for kind in cloud.kinds} - {*named, "mixed"}  # of an older result
    figure = head_clouds(clouds, titles, shown.chosen, kinds=[*named, *sorted(other), "mixed"], theme=theme)
    return _named(figure, shown, "error against attention")


def costs_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure | None:
    """Added loss as heads are replaced; None where nothing was replaced."""
    made = []
    for key in shown.results:
        costs = page.record(key).costs
        if costs is None:
            continue
        by = costs.by_error
        made.append(
            Costs(
                name=f"{key}, {words.units(costs.width)}", sizes=costs.sizes, random=costs.random,
                curves={"FFNs, most FFN-like first": by[0], "the same heads’ means": by[1],
                        "the same heads zero": by[2], "FFNs, least FFN-like first": costs.reverse},
            )
        )  # fmt: skip
    if not made:
        return None
    return _named(cost_curves(made, unit="loss, nats a token", theme=theme), shown, "substitution")


def classes_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure:
    """The chosen head's error by kind of token."""
    frame = classes_frame(page, shown)
    figure = class_bars(
        frame["class"].replace("first", "first token").tolist(), frame["error"].to_numpy(), frame["tokens"].to_numpy(),
        frame["share_of_error"].to_numpy(), theme=theme,
    )  # fmt: skip
    return _named(figure, shown, f"{words.name(shown)}, error by kind of token")


def classes_frame(page: Distillations, shown: Shown) -> pd.DataFrame:
    """Of the chosen head and width."""
    frame = page.record(shown.of).distillation.class_frame()
    here = (frame["layer"] == shown.layer) & (frame["head"] == shown.head) & (frame["hidden"] == shown.width)
    return frame[here]


def curve_figure(page: Distillations, shown: Shown, theme: Theme) -> go.Figure | None:
    """The chosen head's FFNs as they trained; None for the linear map, which is not trained."""
    found = page.record(shown.of).distillation
    if not shown.width or not len(found.curve_tokens):
        return None
    place, column = found.place((shown.layer, shown.head)), found.settings.trained.index(shown.width)
    lines = {f"seed {found.settings.seed + k}": found.curve[:, place, column, k] for k in range(found.n_seeds)}
    linear = found.linear_error
    references = {} if linear is None else {"linear map (held out)": float(linear[place])}
    figure = learning_curves(found.curve_tokens.tolist(), lines, references, theme=theme)
    return _named(figure, shown, f"{words.name(shown)}, learning curve, {words.units(shown.width)}")


def table_rows(page: Distillations, shown: Shown) -> list[dict[str, Any]]:
    """A record a head of every result."""
    rows = []
    for key in shown.results:
        record = page.record(key)
        found, costs = record.distillation, record.costs
        means, intervals = found.mean_error(shown.width), found.interval(shown.width)
        for place, (layer, head) in enumerate(found.heads):
            row: dict[str, Any] = {
                "id": f"{key}:{layer}.{head}", "result": key, "layer": layer, "head": head, "name": f"{layer}.{head}",
                "error": means[place], "low": intervals[place, 0], "high": intervals[place, 1],
                "linear": None if found.linear_error is None else found.linear_error[place],
                "position": found.position_error[place],
                "neighbours": None if found.neighbour_error is None else found.neighbour_error[place],
                "wide": None if found.wide_error is None else found.wide_error[place],
                "floor": found.floor[place], "attends": found.attending.attends[place].replace("_", " "),
                "constancy": found.attending.constancy[place],
            }  # fmt: skip
            scores = found.attending.scores
            row |= {motif: scores[motif][layer, head] for motif in scores.motifs}
            if costs is not None:
                row |= {f"cost_{kind}": costs.alone[place, k] for k, kind in enumerate(("ffn", "mean", "zero"))}
            plain = {name: float(v) if isinstance(v, np.floating) else v for name, v in row.items()}
            rows.append({name: None if v != v else v for name, v in plain.items()})  # NaN is no JSON
    return rows


def _all(page: Distillations, shown: Shown) -> list[Distillation]:
    return [page.record(key).distillation for key in shown.results]


def _named(figure: go.Figure, shown: Shown, what: str) -> go.Figure:
    return figure.update_layout(meta={"name": f"{' · '.join(shown.results)} · {what}"})
