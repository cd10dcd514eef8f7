"""The In-context denoising page's address: a task in the plane, a layer's scales, a query; and which training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from app.core import address
from app.core.parameters import Parameter, parameter, parameters

Tab = Literal["energy", "training"]
Task = Literal["spheres", "subspaces", "mixtures"]
Energy = Literal["memory", "hopfield"]
Attention = Literal["softmax", "linear"]
TrainedTask = Literal["subspaces", "spheres", "mixtures"]

#: Of a new training; the first values are the paper's, but for epochs and rate, which it does not give, and the runs.
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
    tokens: int = parameter("Context tokens L", 20, least=1, most=200)
    noise: float = parameter("Noise σ² of the query", 0.1, least=0.01, most=2.0, step=0.01)
    components: int = parameter("Components of the mixture", 3, least=1, most=8)
    """Of mixtures only."""
    alpha: float = parameter("α (W_OV = α I)", 1.0, least=0.05, most=4.0, step=0.05)
    beta: float = parameter("β (W_QK = β I)", 10.0, least=0.1, most=40.0, step=0.1)
    share: float = parameter("Step size, in attention’s", 1.0, least=0.05, most=2.0, step=0.05)
    """γ ÷ the γ at which a step is the attention layer."""
    steps: int = parameter("Steps", 20, least=1, most=60)
    seed: int = parameter("Seed", 0, least=0, most=99)
    query: tuple[float, ...] | None = address.reals(most=2)
    """Where somebody has put the query; None: as it was drawn."""
    training: str | None = address.text(most=80)
    """The name of a training; None: the first."""
    run: int = address.whole(0, most=99)
    """The seed of the run whose matrices are shown."""


#: The sliders, in their order.
PARAMETERS = parameters(DenoisingState)

ADDRESS = address.Address("denoising", DenoisingState)
