"""The captions of patched cells, estimates and circuits, those of `aotlens.views.patching`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import minus
from aotlens.statistics import interval_text

if TYPE_CHECKING:
    from aotlens.patching import Attribution, EdgeCircuit, Patched

METRICS = {
    "logit_difference": "logit difference",
    "probability": "probability of the answer",
    "loss": "loss of the answer",
    "kl": "KL divergence from the clean prompt",
}


def _cell(result: Patched | Attribution, place: tuple[int, ...]) -> str:
    of = result.cell(place)
    layer = f"head {of['layer']}.{of['head']}" if "head" in of else f"layer {of['layer']}"
    if "position" not in of:
        return layer
    position = of["position"]
    word = result.str_tokens[position] if result.str_tokens else ""
    return f"{layer}, position {position}" + (f" (‹{word}›)" if word else "")


def says_patched(chosen: Any, result: Patched) -> str:
    """Say what the clean and the corrupted prompt say, and which cell matters most."""
    clean, corrupted = float(result.clean.mean()), float(result.corrupted.mean())
    base, verb = (1.0, "takes most away") if chosen.direction == "noising" else (0.0, "restores most")
    place = np.unravel_index(int(np.abs(result.restored - base).argmax()), result.restored.shape)
    asked = f"Answer ‹{result.outputs[0]}›, wrong answer ‹{result.outputs[1]}›. " if result.outputs else ""
    sentences = (
        f"{asked}{METRICS[chosen.metric].capitalize()}: {clean:.3f} {result.unit} clean, {corrupted:.3f} corrupted"
        f"{'' if len(result.clean) == 1 else f', means over {len(result.clean)} pairs'}. Of all cells "
        f"{_cell(result, tuple(int(i) for i in place))} {verb}: with it patched {result.values[place]:.3f}, a share "
        f"of {result.restored[place]:.2f} of the way from corrupted to clean"
    )
    sentences += f"{interval_text(result.intervals()[place], '.2f', over=', over pairs')}."
    low, high = result.difference_interval
    if low <= 0 <= high:
        sentences += (
            f" Over pairs clean and corrupted prompts cannot be told apart (95% of their difference {low:.3f} to "
            f"{high:.3f}), so these are shares of next to nothing."
        )
    return sentences


def says_estimate(chosen: Any, result: Attribution) -> str:
    """Say how far the gradient's estimate is from the exact change, over the cells that were patched."""
    cell, miss = result.worst
    return (
        f"Of the {len(result.exact)} cells that the gradient calls largest, estimate and exact change have a rank "
        f"correlation of {result.rank_correlation:.2f}. The estimate is farthest off at {_cell(result, cell)}: by "
        f"{minus(miss, '+.3f')} {result.unit}."
    )


def says_circuit(chosen: Any, result: EdgeCircuit) -> str:
    """Say how faithful and complete a circuit is, on which pairs, and how many of its edges are necessary."""
    reach = interval_text(result.interval, ".2f", over=", over pairs")
    where = (
        f"on {result.n_held_out} pairs that the search did not see" if result.n_held_out
        else f"on all {result.n_searched} pairs, with {_counted(len(result.removed), 'edge')} taken out"
        if result.search == "given"
        else "on the pair that it was searched on; pairs that it has not seen would check it"
    )  # fmt: skip
    needed = sum(each == "necessary" for each in result.necessary)
    sentence = (
        f"{len(result.edges)} of {result.n_edges} edges keep {result.faithfulness:.2f}{reach} of what the corrupted "
        f"prompt takes away, {where}; all other edges keep {result.completeness:.2f}."
    )
    return sentence if np.isnan(result.interval[0]) else f"{sentence} {needed} are necessary for {result.keep:g}."


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
