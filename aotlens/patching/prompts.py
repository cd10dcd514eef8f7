"""Pairs of prompts for one model: two texts with its own answers, and random tokens."""

from __future__ import annotations

import torch

from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, require_ours


@torch.no_grad()
def pair_of(
    model: AttentionOnlyTransformer, clean: str, corrupted: str, answer: str = "", wrong: str = ""
) -> PromptPairs:
    """One pair of texts. Without an answer it is what the model says first after the clean prompt, without a wrong
    answer what it says first after the corrupted one.

    Raises `ValueError` as `PromptPairs.from_texts`, and where the model says the same after both.
    """
    require_ours(model, "pair_of")
    given = [
        said or int(model(model.to_tokens(text))[0, -1].argmax())
        for text, said in ((clean, answer), (corrupted, wrong))
    ]  # fmt: skip
    if given[0] == given[1] and not (answer and wrong):
        said = model.to_str_tokens([given[0]])[0] if isinstance(given[0], int) else given[0]
        raise ValueError(
            f"the model says {said!r} after both prompts; give the answer and the wrong answer that it is to be asked "
            "for, a token each."
        )
    return PromptPairs.from_texts(model, [(clean, corrupted, *given)])
