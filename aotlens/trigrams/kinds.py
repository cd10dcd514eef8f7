"""The kind of rule that a row is, read from its tokens alone.

In this order, the first that fits:

    copying       the out is the source but for case and spaces at its ends, or one begins the other and has 3
                  characters at least (' captain' → ' cap'; not ' he' → ' her')
    punctuation   the out has no letter and no digit; spaces and line ends are punctuation, copied or not
    names         the out begins with a capital letter, after a space or not
    morphology    the out goes on with a word: letters, and no space before them
    other         the rest

A rule of thumb, on text in which a word's first token begins with its space; it says nothing of why a head does it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlens.trigrams.table import TrigramTable

KINDS = ("copying", "punctuation", "names", "morphology", "other")
_SHORTEST_SHARED = 3  # characters that source and out must share to be one word


def kinds(table: TrigramTable) -> tuple[str, ...]:
    """Return a word a row (`KINDS`). `ValueError` for a table of a model without a tokenizer: its tokens have no
    strings."""
    if len(table) and not any(table.out_token):
        raise ValueError("kinds: expected a table whose tokens have strings, got a model without a tokenizer.")
    return tuple(kind_of(source, out) for source, out in zip(table.source_token, table.out_token, strict=True))


def count_kinds(words: Sequence[str]) -> dict[str, int]:
    """Count the words of each kind, kinds that do not occur included."""
    return {kind: words.count(kind) for kind in KINDS}


def kind_of(source: str, out: str) -> str:
    """Return the kind of the row with this source and out."""
    before, after = source.strip().casefold(), out.strip().casefold()
    shorter = min(before, after, key=len)
    shares = len(shorter) >= _SHORTEST_SHARED and (before.startswith(after) or after.startswith(before))
    if before and (before == after or shares):
        return "copying"
    if not any(char.isalnum() for char in out):
        return "punctuation"
    begins = out[:1].isspace()
    if out.strip()[:1].isupper():
        return "names"
    return "morphology" if not begins and out[:1].isalpha() else "other"
