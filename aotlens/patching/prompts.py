"""Pairs of prompts for one model: two texts with its own answers, and random tokens."""

from __future__ import annotations

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
