"""The spelling of tokens in figures (`aotlens.conventions.glyphs`)."""

from __future__ import annotations

import html
from collections.abc import Sequence

from aotlens.conventions import glyphs

__all__ = ["axis_labels", "glyphs", "is_whitespace", "plotly_text"]


def is_whitespace(token: str) -> bool:
    """Return whether every character of the token is whitespace."""
    return bool(token) and token.isspace()


def plotly_text(text: str) -> str:
    """Return text that plotly shows as it is: its labels read a subset of HTML, and `<b>` is a token like another."""
    return html.escape(text, quote=False)


def axis_labels(str_tokens: Sequence[str]) -> list[str]:
    """Return one distinct label per position, for a category axis: the token, then its position."""
    return [f"{plotly_text(glyphs(token))}  {position}" for position, token in enumerate(str_tokens)]
