"""Tokens as chips. Hover and lock are the browser's (heads.js), and so is shading that follows a pointer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dash import html

from aotlens.plots import describe, glyphs, is_whitespace


def token_strip(
    tokens: Sequence[int] | None,
    str_tokens: Sequence[str],
    values: Sequence[float] | None = None,
    *,
    top: float | None = None,
    tips: Sequence[str] | None = None,
) -> list[html.Button]:
    """Return one button per token, with whitespace marked; the tooltip has the exact text, the position, and the id if
    there are `tokens`.

    One stop of the Tab key for the whole strip: arrows move within it. `values` shade the tokens by
    value ÷ `top` (by default the largest |value|; negative ones in the other colour) and are below them; NaN shades
    nothing. `tips` are added to the tooltips.
    """
    known = [abs(value) for value in values or () if math.isfinite(value)]
    scale = top or max(known, default=1.0) or 1.0
    return [
        _chip(
            position, token, text, None if values is None else float(values[position]), scale,
            "" if tips is None else f" · {tips[position]}",
        )
        for position, (token, text) in enumerate(zip(tokens or [None] * len(str_tokens), str_tokens, strict=True))
    ]  # fmt: skip


def _chip(position: int, token: int | None, text: str, value: float | None, top: float, tip: str) -> html.Button:
    kind = "chip chip-space" if is_whitespace(text) else "chip"
    shading, id_words = {}, "" if token is None else f" · id {token}"
    if value is not None and math.isfinite(value):
        kind += " chip-negative" if value < 0 else ""
        shading = {"style": {"--heat": f"{100 * min(abs(value) / top, 1):.1f}%"}, "data-value": f"{value:.2f}"}
    return html.Button(
        glyphs(text),
        className=kind,
        title=f"{describe(text)}{id_words} · position {position}{tip}",
        tabIndex=0 if position == 0 else -1,
        **{"data-position": str(position), "aria-pressed": "false", **shading},
    )
