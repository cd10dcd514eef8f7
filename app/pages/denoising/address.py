"""The In-context denoising page's address: a task in the plane, a layer's scales, a query; and which training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address
from app.core.parameters import Parameter

Tab = Literal["energy", "training"]
Task = Literal["spheres", "subspaces", "mixtures"]
Energy = Literal["memory", "hopfield"]
Attention = Literal["softmax", "linear"]
TrainedTask = Literal["subspaces", "spheres", "mixtures"]

#: The sliders, in their order. The first values are Figure 5's, but for the noise (it prints σ² = 10, and R = 1).
PARAMETERS: dict[str, Parameter] = {
    "tokens": Parameter(label="Context tokens L", first=20, least=1, most=200, step=1),
    "noise": Parameter(label="Noise σ² of the query", first=0.1, least=0.01, most=2.0, step=0.01),
    "components": Parameter(label="Components of the mixture", first=3, least=1, most=8, step=1),
    "alpha": Parameter(label="α (W_OV = α I)", first=1.0, least=0.05, most=4.0, step=0.05),
    "beta": Parameter(label="β (W_QK = β I)", first=10.0, least=0.1, most=40.0, step=0.1),
    "share": Parameter(label="Step size, in attention’s", first=1.0, least=0.05, most=2.0, step=0.05),
    "steps": Parameter(label="Steps", first=20, least=1, most=60, step=1),
    "seed": Parameter(label="Seed", first=0, least=0, most=99, step=1),
}
#: Of a new training; the first values are the paper's, but for epochs and rate, which it does not give, and the runs.
TRAINING: dict[str, Parameter] = {
    "epochs": Parameter(label="Epochs", first=150, least=1, most=500, step=1),
    "rate": Parameter(label="Learning rate of Adam", first=0.01, least=0.001, most=0.1, step=0.001),
    "context": Parameter(label="Context tokens L", first=499, least=10, most=499, step=1),
    "prompts": Parameter(label="Prompts", first=800, least=50, most=800, step=50),
    "runs": Parameter(label="Runs (seeds)", first=3, least=1, most=6, step=1),
}


@dataclass(frozen=True, kw_only=True)
class DenoisingState:
    """Everything that the In-context denoising page shows."""

    tab: Tab = address.choice(get_args(Tab), "energy")
    task: Task = address.choice(get_args(Task), "spheres")
    energy: Energy = address.choice(get_args(Energy), "memory")
    tokens: int = PARAMETERS["tokens"].field()
    noise: float = PARAMETERS["noise"].field()
    components: int = PARAMETERS["components"].field()
    """Of mixtures only."""
    alpha: float = PARAMETERS["alpha"].field()
    beta: float = PARAMETERS["beta"].field()
    share: float = PARAMETERS["share"].field()
    """γ ÷ the γ at which a step is the attention layer."""
    steps: int = PARAMETERS["steps"].field()
    seed: int = PARAMETERS["seed"].field()
    query: tuple[float, ...] | None = address.reals(most=2)
    """Where somebody has put the query; None: as it was drawn."""
    training: str | None = address.text(most=80)
    """The name of a training; None: the first."""
    run: int = address.whole(0, most=99)
    """The seed of the run whose matrices are shown."""


ADDRESS = address.Address("denoising", DenoisingState)
