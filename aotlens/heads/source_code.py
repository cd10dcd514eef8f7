"""Targets of heads that read words (punctuation, delimiters, earlier uses of a word; in code brackets, indentation),
and of heads that read images (neighbours of a patch, the border, what stands out from the background).

Those of words take the tokens of one sequence as strings and return the (query, key) pairs as bool `[query, key]`, for
`aotlens.heads.targeted_attention`. Strings and comments are not parsed: a bracket in one counts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.patch_grid import PatchGrid


def open_bracket(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair every token inside brackets, and the one that closes them, with the innermost one still open before it."""
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


def last_bracket(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair every token with the last one before it that opens a bracket, closed or not."""
    targets, last = _none(str_tokens), -1
    for position, token in enumerate(str_tokens):
        if last >= 0:
            targets[position, last] = True
        last = position if any(character in "([{" for character in token) else last
    return targets


def line_before(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair the token that ends a line's indentation with that of the line before, however far in it begins."""
    starts = [position for position, _ in _indentations(str_tokens)]
    return _to_last(str_tokens, starts)


def previous_indentation(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair the token that starts a line (it holds the line break) with the one that started the line before."""
    return _to_last(str_tokens, [position for position, token in enumerate(str_tokens) if "\n" in token])


def previous_use(str_tokens: Sequence[str], word: str) -> Bool[Tensor, "query key"]:
    """Pair each token that is `word` (spaces aside) with the last one before it."""
    return _to_last(str_tokens, [position for position, token in enumerate(str_tokens) if token.strip() == word])


def same_indentation(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair the token that ends a line's indentation with that of the last earlier line which begins as far in.

    A line's indentation is the white space after its line break, in that token and the blank ones after it; blank lines
    are not lines. What stands before the first line break is left out: its beginning may not be in the sequence.
    """
    targets = _none(str_tokens)
    last_with: dict[int, int] = {}
    for start, depth in _indentations(str_tokens):
        if depth in last_with:
            targets[start, last_with[depth]] = True
        last_with[depth] = start
    return targets


def _indentations(str_tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the position of the token that ends each line's indentation, and how far in the line begins."""
    start, depth = -1, 0
    for position, token in enumerate(str_tokens):
        if "\n" in token:
            depth = len(token) - token.rindex("\n") - 1
            start = position
        elif start >= 0 and token and not token.strip():
            start, depth = position, depth + len(token)
        elif start >= 0:  # the line's first word; a token such as " x" brings its own space
            yield start, depth + len(token) - len(token.lstrip())
            start = -1


def punctuation(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair every query with each token that holds marks alone (Unicode's punctuation and symbols), spaces aside."""
    marks = torch.tensor([bool(token.strip()) and all(_is_mark(c) for c in token.strip()) for token in str_tokens])
    return marks.expand(len(str_tokens), -1).clone()


def delimiters(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair every query with each token of Unicode's punctuation alone, as brackets and quotes are, spaces aside, and
    with each blank one that holds a line break."""
    categories = [{unicodedata.category(character)[0] for character in token.strip()} for token in str_tokens]
    is_delimiter = [
        each == {"P"} or (not each and "\n" in token) for each, token in zip(categories, str_tokens, strict=True)
    ]
    return torch.tensor(is_delimiter).expand(len(str_tokens), -1).clone()


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" and character != "\ufffd"  # part of a character


def last_same_word(str_tokens: Sequence[str]) -> Bool[Tensor, "query key"]:
    """Pair every token with a letter or digit with the last earlier one that is the same word.

    Its case and the spaces around it do not count; of a word in several tokens each is taken for itself.
    """
    targets = _none(str_tokens)
    last: dict[str, int] = {}
    for position, token in enumerate(str_tokens):
        word = token.strip().casefold()
        if not any(character.isalnum() for character in word):
            continue
        if word in last:
            targets[position, last[word]] = True
        last[word] = position
    return targets


def _none(str_tokens: Sequence[str]) -> Tensor:
    return torch.zeros(len(str_tokens), len(str_tokens), dtype=torch.bool)


def _to_last(str_tokens: Sequence[str], positions: list[int]) -> Tensor:
    targets = _none(str_tokens)
    for earlier, later in pairwise(positions):
        targets[later, earlier] = True
    return targets


def grid_of(inputs: Inputs) -> PatchGrid:
    """Return the grid of the images' patches. Raises `Missing` for inputs that are none."""
    return inputs.need(inputs.grid, "images")


def neighbour(down: int, right: int) -> Callable[[Inputs], Targets]:
    """Return the patch so many rows down and columns to the right of the query."""

    def mask(inputs: Inputs) -> Targets:
        grid = grid_of(inputs)
        keys = torch.zeros(grid.n_pos, grid.n_pos, dtype=torch.bool)
        for row in range(max(0, -down), min(grid.rows, grid.rows - down)):
            for column in range(max(0, -right), min(grid.columns, grid.columns - right)):
                keys[grid.position(row, column), grid.position(row + down, column + right)] = True
        return inputs.targets(keys)

    return mask


def border(inputs: Inputs) -> Targets:
    """Return the patches at the edge of the image, for every query, [CLS] included."""
    grid = grid_of(inputs)
    edge = torch.ones(grid.rows, grid.columns, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    return _for_every_query(inputs, edge.flatten().expand(len(inputs), -1))


def foreground(inputs: Inputs) -> Targets:
    """Return the patches that stand out from the background, for every query, [CLS] included."""
    return _for_every_query(inputs, standing_out(inputs.tokens, grid_of(inputs)))


def standing_out(images: Float[Tensor, "batch channel height width"], grid: PatchGrid) -> Bool[Tensor, "batch patch"]:
    """Return the patches whose mean distance from the background is beyond Otsu's threshold (1979) of the image's
    patches.

    The background is the median of the image's outermost pixels, for each channel. The threshold is the one of two
    groups whose means differ most, n₀ n₁ (μ₀ − μ₁)². An image whose patches are all as far has none, nor has one patch.
    """
    if grid.n_patches == 1:
        return torch.zeros(len(images), 1, dtype=torch.bool)
    edge = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 1:-1, 0], images[..., 1:-1, -1]], dim=-1)
    away = (images - edge.median(-1).values[..., None, None]).abs().mean(1)
    _, height, width = grid.image
    patches = away.unflatten(-1, (grid.columns, width // grid.columns)).mean(-1)
    far = patches.unflatten(-2, (grid.rows, height // grid.rows)).mean(-2).flatten(1).double().cpu()
    values, sums = far.sort(dim=-1).values, far.sort(dim=-1).values.cumsum(-1)
    below = torch.arange(1, grid.n_patches, dtype=torch.float64)
    above = grid.n_patches - below
    low, high = sums[:, :-1] / below, (sums[:, -1:] - sums[:, :-1]) / above
    between, place = (below * above * (high - low).square()).max(-1)
    return (far > values.gather(1, place[:, None])) & (between > 1e-12)[:, None]


def _for_every_query(inputs: Inputs, patches: Bool[Tensor, "batch patch"]) -> Targets:
    """Every query, [CLS] included, of the images that have such a patch."""
    grid = grid_of(inputs)
    keys = torch.zeros(len(inputs), grid.n_pos, dtype=torch.bool)
    keys[:, grid.n_before :] = patches
    every = keys[:, None, :].expand(-1, grid.n_pos, -1)
    return Targets(keys=every, queries=every.any(-1))
