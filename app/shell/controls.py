"""Controls that several pages have, in one look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import html

from app.shell import ids


def labelled(label: str, control: Any, *, size: str = "sm") -> html.Div:
    """Return a control that has no label of its own."""
    return html.Div([html.Span(label, className=f"field-label field-label-{size}"), control])


def switch_of(id: str, label: str, value: str, options: Mapping[str, str], *, size: Any = "xs") -> dmc.SegmentedControl:
    """Lay out a choice of one of a few, side by side; `options` are labels by value, `label` is for screen readers."""
    data = [{"value": option, "label": text} for option, text in options.items()]
    return dmc.SegmentedControl(id=id, data=data, value=value, size=size, **{"aria-label": label})


def segments(id: str, label: str, value: str, options: Mapping[str, str], *, size: Any = "sm") -> html.Div:
    """Lay out a `switch_of` with its label above it."""
    return labelled(label, switch_of(id, label, value, options, size=size), size=size)


def whole_number(id: str, label: str | None, value: Any, least: int, most: int | None, **rest: Any) -> dmc.NumberInput:
    """Lay out a box for a whole number within bounds."""
    return dmc.NumberInput(
        id=id, label=label, value=value, min=least, max=most, allowDecimal=False,
        **{"debounce": 300, "clampBehavior": "blur", "size": "sm", **rest},
    )  # fmt: skip


def slider(
    id: str, label: str, value: float, least: float, most: float, step: float, *, says: str = "plainNumber", **rest: Any
) -> html.Div:
    """Return a number within bounds. It is told when it is let go; static/view_page.js says beside the label what it
    is."""
    size = len(f"{step:.10f}".rstrip("0").partition(".")[2])
    return html.Div(
        [
            html.Div(
                [html.Span(label), html.Span(id=ids.value_of(id), className="slider-value")], className="slider-label"
            ),
            dmc.Slider(
                id=id, value=value, min=least, max=most, step=step, size="sm", thumbLabel=label,
                **{"precision": size, "updatemode": "mouseup", "label": {"function": says}, **rest},
            ),
        ],
        className="slider",
    )  # fmt: skip
