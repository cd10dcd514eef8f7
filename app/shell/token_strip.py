"""Tokens as chips. Shading, hover and lock are the browser's (heads.js)."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html

from aotlens.plots import describe, glyphs, is_whitespace


def token_strip(tokens: Sequence[int], str_tokens: Sequence[str]) -> list[html.Button]:
    """One button a token, whitespace told apart; the tooltip has the exact text, the id and the position.

    One stop of the Tab key for the whole strip: arrows move within it.
    """
    return [_chip(position, token, text) for position, (token, text) in enumerate(zip(tokens, str_tokens, strict=True))]


def _chip(position: int, token: int, text: str) -> html.Button:
    kind = "chip chip-space" if is_whitespace(text) else "chip"
    return html.Button(
        glyphs(text),
        className=kind,
        title=f"{describe(text)} · id {token} · position {position}",
        tabIndex=0 if position == 0 else -1,
        **{"data-position": str(position), "aria-pressed": "false"},
    )
