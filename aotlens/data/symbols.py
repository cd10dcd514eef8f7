"""A vocabulary of symbols: names, digits or letters, one for each id, as models of algorithmic tasks have.

A text is names with spaces between them (`"7 + 5 ="`), or names side by side where each is one character (`"abba"`), or
ids in brackets (`"[12 7 7 3]"`), which are taken as they are, without a start token. Where a space is a symbol itself,
as in a character-level model of text, every character is one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from aotlens.conventions import require_whole
from aotlens.data.tokenizer import TokenIds, Tokenizer
from aotlens.data.tokenizer_kinds import require_utf8
from aotlens.models.text import ids_in_brackets
from aotlens.untrusted import excerpt, strict_json

_FORMAT = "aotlens symbols"


class SymbolTokenizer:
    """Names by id, with a start token among them or none."""

    mask_id = None

    def __init__(self, names: Sequence[str], start: str | None = None) -> None:
        """`names[i]` is the name of id i; `start` is the one that every text begins with, if any.

        Raises `ValueError` for names that are empty or occur twice, and for a start that is not one of them.
        """
        self.names = tuple(names)
        if not self.names or not all(isinstance(name, str) and name for name in self.names):
            raise ValueError("symbols: expected at least one name, and none that is empty.")
        for name in self.names:
            require_utf8(name, what=f"symbol {name!r}")
        self._ids = {name: index for index, name in enumerate(self.names)}
        if len(self._ids) != len(self.names):
            twice = next(name for index, name in enumerate(self.names) if self._ids[name] != index)
            raise ValueError(f"symbols: expected different names, got {twice!r} twice.")
        if start is not None and start not in self._ids:
            raise ValueError(f"start {start!r}: expected one of the symbols, {self._some()}.")
        self.start = start
        self.eot_id: int | None = None if start is None else self._ids[start]
        spaced = any(any(character.isspace() for character in name) for name in self.names)
        self._by_character = all(len(name) == 1 for name in self.names)
        if spaced and not self._by_character:
            raise ValueError("symbols: expected names without spaces, or single characters only.")
        self._spaces_are_symbols = spaced

    @classmethod
    def numbers(cls, n: int) -> SymbolTokenizer:
        """Return a tokenizer of ids as their own names: what a model without a tokenizer can be asked in."""
        return cls([str(index) for index in range(n)])

    @property
    def d_vocab(self) -> int:
        """The number of symbols."""
        return len(self.names)

    def begins(self, text: str) -> bool:
        """Return whether a start token, if there is one, comes before `text`; not before ids in brackets."""
        return self.start is not None and ids_in_brackets(text) is None

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return ids of `text`, no start token added. Raises `ValueError`, naming it, for what is no symbol. Every
        symbol can be typed, with or without `special`."""
        if (numbers := ids_in_brackets(text)) is not None:
            return self._checked(numbers)
        if self._spaces_are_symbols:
            return [self._id(character) for character in text]
        ids: list[int] = []
        for piece in text.split():
            side_by_side = piece not in self._ids and all(character in self._ids for character in piece)
            ids += [self._id(part) for part in (piece if side_by_side else [piece])]
        return ids

    def decode(self, ids: TokenIds) -> str:
        """Return the names, with spaces between them where they are longer than a character."""
        return ("" if self._by_character else " ").join(self.str_tokens(ids))

    def str_tokens(self, ids: TokenIds) -> list[str]:
        """Return one name a token."""
        return [self.names[index] for index in self._checked(list(map(int, ids)))]

    def to_json(self) -> str:
        """Return the symbols as JSON text, readable by `tokenizer_from_json`."""
        return json.dumps({"format": _FORMAT, "names": self.names, "start": self.start}, ensure_ascii=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return SymbolTokenizer, (self.names, self.start)

    def __repr__(self) -> str:
        return f"SymbolTokenizer(d_vocab={self.d_vocab}, start={self.start!r})"

    def _id(self, name: str) -> int:
        if name not in self._ids:
            near = difflib.get_close_matches(name, self.names, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "write their names, or ids in brackets as [1 0]"
            raise ValueError(f"{name!r} is none of the {self.d_vocab} symbols {self._some()}; {hint}")
        return self._ids[name]

    def _checked(self, ids: list[int]) -> list[int]:
        for index in ids:
            require_whole("id", index, 0, self.d_vocab - 1)
        return ids

    def _some(self, most: int = 12) -> str:
        return ", ".join(self.names[:most]) + (", …" if self.d_vocab > most else "")


def tokenizer_from_json(text: str) -> Tokenizer | SymbolTokenizer:
    """Return the tokenizer, of either kind, whose `to_json` gave `text`. Raises `ValueError` for anything else."""
    try:
        saved = strict_json(text)
    except ValueError as error:
        raise ValueError(f"expected a tokenizer's JSON: {error}") from error
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        return Tokenizer.from_json(text)
    if unknown := sorted(saved.keys() - {"format", "names", "start"}):
        raise ValueError(f"symbols: unknown settings {excerpt(unknown)}; known are format, names and start.")
    names = saved.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected a list of names of symbols.")
    start = saved.get("start")
    if start is not None and not isinstance(start, str):
        raise ValueError(f"start: expected a symbol's name or null, found {excerpt(start)}.")
    return SymbolTokenizer(names, start)
