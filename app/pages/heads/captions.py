"""Sentences of the Heads page about ablated heads, losses and continuations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.core.inference import PromptResult
from app.core.switches import HOWS


def names(heads: Sequence[tuple[int, int]]) -> str:
    """1.0, 1.3."""
    return ", ".join(f"{layer}.{head}" for layer, head in heads)


def without(result: PromptResult) -> str:
    """Which heads are ablated in a result, and by what."""
    return f"{names(result.off)} ablated by {HOWS[result.how]}"


def mean(losses: np.ndarray) -> float:
    """The mean of the losses that there are; NaN where there is none."""
    known = losses[np.isfinite(losses)]
    return float(known.mean()) if len(known) else float("nan")


def of_losses(losses: np.ndarray, both_sides: bool) -> str:
    """The caption of the full model's losses."""
    known = int(np.isfinite(losses).sum())
    if not known:
        return "No token of this text has a loss: it takes two tokens, or one that is no mask."
    how = " with the token hidden, one after the other" if both_sides else ""
    return f"Full model: mean {mean(losses):.3f} nats over {known} tokens{how}."


def of_change(result: PromptResult, losses: np.ndarray, whole: np.ndarray) -> str:
    """The caption of the change of losses."""
    change = losses - whole
    worse = int((change[np.isfinite(change)] > 0).sum())
    return (
        f"{without(result)}: mean {mean(losses):.3f} nats, a change of {mean(change):+.3f}; {worse} of "
        f"{int(np.isfinite(change).sum())} tokens are more surprising."
    )


def tips(whole: np.ndarray, losses: np.ndarray | None = None) -> list[str]:
    """What is said of each token's loss when it is pointed at."""
    if losses is None:
        return [f"loss {value:.3f} nats" if np.isfinite(value) else "no loss" for value in whole]
    pairs = zip(whole, losses, strict=True)
    return [
        f"loss {one:.3f}, under ablation {other:.3f} nats" if np.isfinite(other) else "no loss" for one, other in pairs
    ]


def explained_whole(off: Sequence[tuple[int, int]]) -> str:
    """That the explanation is of the model without ablation."""
    if not off:
        return ""
    return f"This explains the full model, without the ablation of {names(off)}."
