"""The In-context denoising page's address: a task in the plane, a layer's scales, a query; and which training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from aotlens.views.denoising import PARAMETERS
from app.core import address
from app.core.parameters import Parameter, declared

Tab = Literal["energy", "training"]
Task = Literal["spheres", "subspaces", "mixtures"]
Energy = Literal["memory", "hopfield"]
Attention = Literal["softmax", "linear"]
TrainedTask = Literal["subspaces", "spheres", "mixtures"]

#: A new training's parameters; the first values are the paper's, but for epochs and rate, which it lacks, and the runs.
TRAINING: dict[str, Parameter] = {
    "epochs": Parameter("Epochs", 150, least=1, most=500),
    "rate": Parameter("Learning rate of Adam", 0.01, least=0.001, most=0.1, step=0.001),
    "context": Parameter("Context tokens L", 499, least=10, most=499),
    "prompts": Parameter("Prompts", 800, least=50, most=800, step=50),
    "runs": Parameter("Runs (seeds)", 3, least=1, most=6),
}


@dataclass(frozen=True, kw_only=True)
class DenoisingState:
    """Everything that the In-context denoising page shows.

    The first values are Figure 5's, but for the noise (it prints σ² = 10, and R = 1).
    """

    tab: Tab = address.choice(get_args(Tab), "energy")
    task: Task = address.choice(get_args(Task), "spheres")
    energy: Energy = address.choice(get_args(Energy), "memory")
    tokens: int = declared(PARAMETERS["tokens"])
    noise: float = declared(PARAMETERS["noise"])
    components: int = declared(PARAMETERS["components"])
    """The number of components, of mixtures only."""
    alpha: float = declared(PARAMETERS["alpha"])
    beta: float = declared(PARAMETERS["beta"])
    share: float = declared(PARAMETERS["share"])
    """γ ÷ the γ at which a step is the attention layer."""
    steps: int = declared(PARAMETERS["steps"])
    seed: int = declared(PARAMETERS["seed"])
    query: tuple[float, ...] | None = address.reals(most=2)
    """The place where somebody has put the query; None: as it was drawn."""
    training: str | None = address.text(most=80)
    """The name of a training; None: the first."""
    run: int = address.whole(0, most=99)
    """The seed of the run whose matrices are shown."""


ADDRESS = address.Address("denoising", DenoisingState)
