"""Pairs of prompts: two texts with a model's own answers; their positions, and batches of like lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, require_ours


@torch.no_grad()
def pair_of(
    model: AttentionOnlyTransformer, clean: str, corrupted: str, answer: str = "", wrong: str = ""
) -> PromptPairs:
    """Return one pair of texts. Without an answer it is what the model says first after the clean prompt, without a
    wrong answer what it says first after the corrupted one; where that is the same, the output whose logit the prompt
    raises most over the other prompt.

    Raises `ValueError` as `PromptPairs.from_texts`.
    """
    require_ours(model, "pair_of")
    ends = [model(model.to_tokens(text))[0, -1] for text in (clean, corrupted)]
    given: list[str | int] = [text or int(end.argmax()) for text, end in zip((answer, wrong), ends, strict=True)]
    if given[0] == given[1] and not (answer and wrong):
        change = ends[0] - ends[1]
        given = [answer or int(change.argmax()), wrong or int(change.argmin())]
    return PromptPairs.from_texts(model, [(clean, corrupted, *given)])


def require_one_length(pairs: PromptPairs, direction: str) -> None:
    """Raise `ValueError` where the prompts that are run have different lengths: their positions cannot be compared."""
    if len({len(each.corrupted if direction == "denoising" else each.clean) for each in pairs}) > 1:
        raise ValueError(
            "patch: by position, expected prompts of one length, so that positions mean the same in all of them; patch "
            "pairs of each length by themselves, or heads at all positions."
        )


def checked_positions(positions: Iterable[int] | np.ndarray, pairs: PromptPairs, direction: str) -> tuple[int, ...]:
    """Return some positions of the prompts that are run, in order. Raises `ValueError` for what is none, and
    for none."""
    n_pos = min(len(pair.corrupted if direction == "denoising" else pair.clean) for pair in pairs)
    given = list(positions)
    wrong = [
        position
        for position in given
        if isinstance(position, bool) or not isinstance(position, int | np.integer) or not 0 <= position < n_pos
    ]
    if wrong or not given:
        raise ValueError(f"positions: expected some of 0 to {n_pos - 1}, got {wrong or 'none'}.")
    return tuple(sorted({int(position) for position in given}))


def batches(pairs: PromptPairs, batch_size: int) -> Iterator[list[int]]:
    """Yield the numbers of pairs, at most `batch_size` at a time, those together whose two prompts have the same
    lengths."""
    by_length: dict[tuple[int, int], list[int]] = {}
    for row, pair in enumerate(pairs):
        by_length.setdefault((len(pair.clean), len(pair.corrupted)), []).append(row)
    for rows in by_length.values():
        for start in range(0, len(rows), batch_size):
            yield rows[start : start + batch_size]
