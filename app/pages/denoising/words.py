"""What the In-context denoising page says of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.pages.denoising.address import DenoisingState
from app.pages.denoising.service import N_PROMPTS, Plane

if TYPE_CHECKING:
    from aotlens.denoise import Descent

TASKS = {"spheres": "circle", "subspaces": "line", "mixtures": "mixture"}
ENERGIES = {"memory": "softmax (associative memory)", "hopfield": "linear (spherical Hopfield)"}


def meaning(state: DenoisingState, made: Plane, descent: Descent) -> list[str]:
    """The answer in sentences: what one step does, what many do, and how far Bayes is."""
    mean = made.mean
    query, layer, bayes = (
        float(mean.errors[0].mean()),
        float(mean.attention_errors.mean()),
        float(mean.bayes_errors.mean()),
    )
    curve = mean.errors.mean(1)
    best, last = int(curve.argmin()), len(curve) - 1
    said = (
        f"Mean squared error over {N_PROMPTS} prompts: {query:.3g} at the query, {layer:.3g} after one step of "
        f"attention, {float(curve[last]):.3g} after {_steps(last)} of descent, {bayes:.3g} by Bayes."
    )
    if state.energy == "hopfield" and float(curve[last]) > 100 * query:
        said += " Contexts whose largest second moment is above 1/αβ drive the state to infinity."
    elif layer > query:
        said += " At these α and β attention makes it worse."
    elif best < last and float(curve[last]) > 1.02 * float(curve[best]):
        said += f" Iterating is best stopped after {_steps(best)}."
    one = (
        f"This query: {float(descent.errors[0, 0]):.3g} from the clean token (squared), attention "
        f"{float(descent.attention_errors[0]):.3g}, after {_steps(last)} {float(descent.errors[-1, 0]):.3g}, Bayes "
        f"{float(descent.bayes_errors[0]):.3g}."
    )
    return [said, one]


def name(state: DenoisingState) -> str:
    """What a file of these parameters is called."""
    return (
        f"denoising-{state.task}-{state.energy}-L{state.tokens}-noise{state.noise:g}-alpha{state.alpha:g}-"
        f"beta{state.beta:g}-seed{state.seed}"
    )


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
