"""The Distillation page's table of heads, and tokens coloured by an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.plots import describe, glyphs, is_whitespace
from app.shell.tables import number

if TYPE_CHECKING:
    import pandas as pd

_NATS = "Added loss when this head alone is replaced, nats a token"


def head_columns(motifs: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Return the columns, with one for each motif: its name, its title and what it means."""

    def share(field: str, title: str, help: str) -> dict[str, Any]:
        return number(field, title, ".2f", help)

    return [
        {"field": "name", "headerName": "head", "pinned": "left", "width": 58, "cellClass": "mono pick",
         "headerTooltip": "layer.head; click or Enter to see it above"},
        {"field": "result", "headerName": "result", "cellClass": "mono",
         "tooltipField": "result"},
        number("error", "error", ".3f", "Of the FFN of the chosen width, held out, mean over seeds", initialSort="asc"),
        number("low", "95% from", ".3f", "Over text and seeds"),
        number("high", "to", ".3f", "Over text and seeds"),
        {"field": "attends", "headerName": "attends to",
         "headerTooltip": "The target with the most attention, mixed where none has 0.4"},
        share("pattern_consistency", "consistency", "1: the same pattern on every text; 0: no nearer than uniform"),
        share("linear", "linear map", "Error of the best linear map of the token's input"),
        share("position", "position’s mean", "Error of the mean at the token's position"),
        share("neighbours", "neighbours", "Error of the mean over the nearest training inputs"),
        share("wide", "wide FFN", "Error of one wide FFN"),
        share("floor", "least of all", "The least error found by any means: an FFN can reach this"),
        *(share(*motif) for motif in motifs),
        number("cost_ffn", "cost: FFN", "+.3f", _NATS),
        number("cost_mean", "cost: mean", "+.3f", _NATS),
        number("cost_zero", "cost: zero", "+.3f", _NATS),
    ]  # fmt: skip


def head_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a record a head of the table of compared distillations; NaN is no JSON."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    names = (f"{row['layer']}.{row['head']}" for row in rows)
    return [{"id": f"{row['result']}:{name}", "name": name, **row} for row, name in zip(rows, names, strict=True)]


def error_chips(
    tokens: Sequence[int], str_tokens: Sequence[str], errors: Sequence[float], movement: Sequence[float]
) -> list[html.Span]:
    """Return one chip a token, the bluer the larger its error; full colour at 1, or at the largest where that
    is more."""
    top = max(1.0, *errors)
    return [
        html.Span(
            glyphs(text),
            className="chip chip-space" if is_whitespace(text) else "chip",
            title=f"{describe(text)} · id {token} · position {position} · error {error:.2f} · "
            f"the mean is off by {moved:.2f}",
            style={"--heat": f"{100 * error / top:.0f}%"},
            **{"data-value": f"{error:.2f}" if error >= 0.005 else "0"},
        )
        for position, (token, text, error, moved) in enumerate(zip(tokens, str_tokens, errors, movement, strict=True))
    ]
