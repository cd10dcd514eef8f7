"""How a token is written where whitespace and control characters must be told apart.

`glyphs` is for people: a space is ·, a newline ⏎, a tab →, other invisible characters their code: few fonts
have the pictures that Unicode gives control characters. It isn't reversible (a real middle dot looks the same);
`aotlens.conventions.describe` is the unambiguous form for tooltips and exports.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence

from aotlens.conventions import INVISIBLE

_WHITESPACE = {" ": "·", "\n": "⏎", "\t": "→"}


def glyphs(token: str) -> str:
    """A token with every character visible: `" the"` is `"·the"`; the empty token is `"∅"`."""
    return "".join(map(_glyph, token)) or "∅"


def is_whitespace(token: str) -> bool:
    """Whether every character of the token is whitespace."""
    return bool(token) and token.isspace()


def plotly_text(text: str) -> str:
    """Text that plotly shows as it is: its labels read a subset of HTML, and `<b>` is a token like another."""
    return html.escape(text, quote=False)


def axis_labels(str_tokens: Sequence[str]) -> list[str]:
    """One distinct label per position, for a category axis: the token, then its position."""
    return [f"{plotly_text(glyphs(token))}  {position}" for position, token in enumerate(str_tokens)]


def _glyph(char: str) -> str:
    if char in _WHITESPACE:
        return _WHITESPACE[char]
    code = ord(char)
    category = unicodedata.category(char)
    if category in INVISIBLE:
        return f"⟨{code:04X}⟩"
    if category.startswith("M"):
        return "◌" + char
    return char
