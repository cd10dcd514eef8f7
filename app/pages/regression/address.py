"""The In-context regression page's address: models of one dimension, a task for all of them, one model's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from aotlens.views.regression import MOST_D, N_SHOWN, PARAMETERS, STAND_INS
from app.core import address
from app.core.address_checks import Unfit
from app.core.head_maps import View
from app.core.parameters import declared

if TYPE_CHECKING:
    from app.core import Core

Tab = Literal["layers", "heads", "without", "motifs", "support"]
Axis = Literal["linear", "log"]


def names(core: Core) -> dict[str, int]:
    """Return the width of the inputs that each model of regression reads, by the models' names."""
    listed = [info for info in core.catalog.list() if core.catalog.regresses(info)]
    return {info.name: int(info.model.get("d_in") or info.model["d_model"]) for info in listed}


def _models(core: Core, state: Any, value: tuple[str, ...]) -> None:
    known = names(core)
    fitting = tuple(name for name in value if name in known and known[name] == known.get(value[0]))
    if fitting != value:
        there = ", ".join(known) or "there are none"
        raise Unfit(f"checkpoints of in-context regression that read equally many numbers ({there})", fitting)


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
    """The models whose errors are compared; none: all that read as many numbers as the checkpoint, or as few as any."""
    checkpoint: str | None = address.text(check=_checkpoint)
    """The model whose layers and heads are shown; None: the first of the models."""
    dims: int | None = address.whole(least=1, most=MOST_D)
    """Coordinates of the inputs that are not zero; None: as many as the models read."""
    nonzero: int | None = address.whole(least=1, most=MOST_D)
    """Coordinates on which labels depend; None: all."""
    noise: float = declared(PARAMETERS["noise"])
    scale: float = declared(PARAMETERS["scale"])
    mean: float = declared(PARAMETERS["mean"])
    skew: float = declared(PARAMETERS["skew"])
    seed: int = declared(PARAMETERS["seed"])
    axis: Axis = address.choice(get_args(Axis), "linear")
    tab: Tab = address.choice(get_args(Tab), "layers")
    head: tuple[int, int] | None = address.pair(check=_head, expected="a layer and a head, as 1.3")
    """The head; None: 0.0."""
    prompt: int = address.whole(0, most=N_SHOWN - 1)
    """The prompt that the maps are of."""
    query: int | None = address.whole(most=2 * 512)
    """The position whose row is locked; None: no row."""
    view: View = address.choice(get_args(View), "attention")
    how: str = address.choice(tuple(STAND_INS), "mean")
    """The replacement of a head that is left out."""


ADDRESS = address.Address("regression", RegressionState)
