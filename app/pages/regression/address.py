"""The In-context regression page's address: models of one dimension, a task for all of them, one model's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from app.core import address
from app.core.address_checks import Unfit
from app.core.head_maps import View
from app.core.parameters import parameter, parameters
from app.core.switches import How

if TYPE_CHECKING:
    from app.core import Core

Tab = Literal["layers", "heads", "without", "motifs", "support"]
Axis = Literal["linear", "log"]
#: The most numbers that a prompt's inputs may have here.
_MOST_D = 64
#: Prompts of a task that can be looked at one by one.
N_SHOWN = 32
#: What may stand in a head's place: what needs no other prompts than those that are measured.
STAND_INS: tuple[How, ...] = ("mean", "zero", "uniform", "position_mean")


def names(core: Core) -> dict[str, int]:
    """The width of the inputs that each model of regression reads, by the models' names."""
    listed = [info for info in core.catalog.list() if core.catalog.regresses(info)]
    return {info.name: int(info.model.get("d_in") or info.model["d_model"]) for info in listed}


def _models(core: Core, state: Any, value: tuple[str, ...]) -> None:
    known = names(core)
    kept = tuple(name for name in value if name in known and known[name] == known.get(value[0]))
    if kept != value:
        there = ", ".join(known) or "there are none"
        raise Unfit(f"checkpoints of in-context regression that read equally many numbers ({there})", kept)


def _checkpoint(core: Core, state: Any, name: str) -> None:
    known = names(core)
    if name not in known:
        there = ", ".join(known) or "there are none"
        raise Unfit(f"a checkpoint of in-context regression ({there})", next(iter(known), None))


def _head(core: Core, state: Any, value: tuple[int, int]) -> None:
    known = names(core)
    narrowest = min(known, key=lambda name: known[name], default=None)  # the first of the narrowest
    shape = core.catalog.shape(state.checkpoint or next(iter(state.models), narrowest))
    if shape is not None and not (value[0] < shape[0] and value[1] < shape[1]):
        raise Unfit(f"a head of {shape[0]} layers of {shape[1]} heads, the first of which is 0.0", (0, 0))


@dataclass(frozen=True, kw_only=True)
class RegressionState:
    """Everything that the In-context regression page shows."""

    models: tuple[str, ...] = address.texts(most=12, longest=80, check=_models)
    """Whose errors are compared; none: all that read as many numbers as the checkpoint, or as few as any."""
    checkpoint: str | None = address.text(check=_checkpoint)
    """Whose layers and heads are shown; None: the first of the models."""
    dims: int | None = address.whole(least=1, most=_MOST_D)
    """Coordinates of the inputs that are not zero; None: as many as the models read."""
    nonzero: int | None = address.whole(least=1, most=_MOST_D)
    """Coordinates on which labels depend; None: all."""
    noise: float = parameter("Noise of labels (std)", 0.0, least=0.0, most=2.0, step=0.05)
    scale: float = parameter("Scale of inputs (std)", 1.0, least=0.2, most=3.0, step=0.05)
    mean: float = parameter("Mean of inputs", 0.0, least=-2.0, most=2.0, step=0.1)
    skew: float = parameter("Skew of their covariance", 0.0, least=0.0, most=4.0, step=0.1)
    seed: int = parameter("Prompts (seed)", 0, least=0, most=99)
    axis: Axis = address.choice(get_args(Axis), "linear")
    tab: Tab = address.choice(get_args(Tab), "layers")
    head: tuple[int, int] | None = address.pair(check=_head, expected="a layer and a head, as 1.3")
    """None: 0.0."""
    prompt: int = address.whole(0, most=N_SHOWN - 1)
    """Which prompt the maps are of."""
    query: int | None = address.whole(most=2 * 512)
    """The position whose row is locked; None: no row."""
    view: View = address.choice(get_args(View), "attention")
    how: How = address.choice(STAND_INS, "mean")
    """What stands in the place of a head that is left out."""


#: The sliders with bounds of their own, in their order; those of `dims` and `nonzero` hang on the models.
PARAMETERS = parameters(RegressionState)

ADDRESS = address.Address("regression", RegressionState)
