"""Where a head that reads program code would look: brackets, indentation, earlier uses of a word.

Each function takes the tokens of one sequence as strings and gives the (query, key) pairs as bool `[query, key]`, for
`aotlens.heads.targeted_attention`. Strings and comments are not parsed: a bracket in one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool
from torch import Tensor


def open_bracket(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """From every token inside brackets, and the one that closes them, to the innermost one still open before it."""
    targets = _none(str_tokens)
    stack: list[int] = []
    for position, token in enumerate(str_tokens):
        if stack:
            targets[position, stack[-1]] = True
        for character in token:
            if character in "([{":
                stack.append(position)
            elif character in ")]}" and stack:
                stack.pop()
    return targets


def previous_indentation(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """From the token that starts a line (it holds the line break) to the one that started the line before."""
    return _to_last(str_tokens, [position for position, token in enumerate(str_tokens) if "\n" in token])


def previous_use(str_tokens: Sequence[str], word: str) -> Bool[Tensor, "query key"]:
    """From each token that is `word` (spaces aside) to the last one before it."""
    return _to_last(str_tokens, [position for position, token in enumerate(str_tokens) if token.strip() == word])


def _none(str_tokens: Sequence[str]) -> Tensor:
    return torch.zeros(len(str_tokens), len(str_tokens), dtype=torch.bool)


def _to_last(str_tokens: Sequence[str], positions: list[int]) -> Tensor:
    targets = _none(str_tokens)
    for earlier, later in pairwise(positions):
        targets[later, earlier] = True
    return targets
