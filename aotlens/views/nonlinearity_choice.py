"""The choice of a feed-forward network that is compiled into attention, how, and what of it is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from aotlens.conventions import HeadLike
from aotlens.views.calls import Call, call, make
from aotlens.views.family import Choice, TextParameter
from aotlens.views.view import Parameter, pass_cost

PRESETS = {
    "hat": "hat", "abs": "|x|", "ramp": "steep ramp", "sawtooth": "sawtooth (deep)", "square": "x² (interpolated)",
    "sine": "sin(πx) (interpolated)", "random": "random network", "drawn": "drawn by hand",
}  # fmt: skip
ACTIVATIONS = {"relu": "ReLU", "silu": "SiLU"}
CONSTRUCTIONS = {"lean": "lean", "narrow": "narrow", "paper": "paper"}
SCALES = {"linear": "linear", "log": "log"}
#: Parameters that only some networks have; of the others they change nothing.
USES: dict[str, tuple[str, ...]] = {
    "abs": (), "hat": (), "ramp": (), "sawtooth": ("depth",), "square": ("width",), "sine": ("width",),
    "random": ("width", "depth", "seed"), "drawn": ("knots",),
}  # fmt: skip
#: Points of a drawn function at most, and those that a drawing starts from.
MAX_KNOTS, FIRST_KNOTS = 40, "-2,0;-1,1;0,-0.5;1,0.8;2,0"
#: Tokens of the models' sequences beside the auxiliary one: enough to show that they do not see each other.
N_TOKENS = 4
#: The length over which the steep ramp rises.
RAMP = 0.2

PARAMETERS: dict[str, Any] = {
    "preset": Choice("Network", PRESETS),
    "inputs": Parameter("Input dimension", 1, least=1, most=2),
    "activation": Choice("Activation", ACTIVATIONS),
    "width": Parameter("Units a layer", 6, least=1, most=64),
    "depth": Parameter("Hidden layers", 2, least=1, most=6),
    "seed": Parameter("Seed", 0, least=0, most=999_999),
    "knots": TextParameter("Points of a drawn function, x,y with semicolons between", FIRST_KNOTS),
    "bound": Parameter("Input bound M", 2.0, least=1e-6, most=1e6, step=0.1),
    "tolerance": Parameter("Tolerance", 0.05, least=1e-12, most=1e6, step=0.01),
    "construction": Choice("Construction", CONSTRUCTIONS),
    "auxiliary": TextParameter("Auxiliary token: unit, random, or its d_model numbers with commas between", "unit"),
    "eta": Parameter("η of ReLU layers", None, least=1e-9, most=10.0, step=1e-3),
    "head": TextParameter("Head", "", blank="that of the first hidden unit"),
    "x": TextParameter("Input x", "", blank="a quarter of the bound"),
    "scale": Choice("Scale of the error", SCALES),
}

_COMPILE = "aotlens.distill.compile"


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A network, how it is compiled, and which head and input are looked at."""

    preset: str = "hat"
    inputs: int = 1
    activation: str = "relu"
    width: int = 6
    depth: int = 2
    seed: int = 0
    knots: str = FIRST_KNOTS
    bound: float | int = 2.0
    tolerance: float | int = 0.05
    construction: str = "lean"
    auxiliary: str = "unit"
    eta: float | int | None = None
    """η of all ReLU layers; None for those that the proof chooses."""
    head: HeadLike | None = None
    """None for the first hidden unit's."""
    x: tuple[float, ...] | None = None
    scale: str = "linear"
    problem: str | None = None
    """The reason why there is no such model, where that is known already."""
    gated: bool = True
    """Whether the head sees the auxiliary token, where that is known already."""

    @property
    def point(self) -> tuple[float, ...]:
        """The input that is looked at."""
        return self.x if self.x is not None else (self.bound / 4,) * self.inputs

    @property
    def ffn(self) -> Call:
        """The network. Raises `ValueError` for a drawing that cannot be read."""
        if self.preset == "random":
            sizes = {"width": self.width, "depth": self.depth, "seed": self.seed}
            ffn = make(f"{_COMPILE}.random_network", self.inputs, **sizes)
        elif self.preset in ("square", "sine"):
            ffn = make(f"{_COMPILE}.fit", self.preset, width=self.width, bound=self.bound)
        elif self.preset in ("hat", "drawn"):
            points = ([-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]) if self.preset == "hat" else read_points(self.knots)
            ffn = make(f"{_COMPILE}.interpolate", *points)
        else:
            name, given = {"abs": ("absolute_value", ()), "ramp": ("ramp", (RAMP,)),
                           "sawtooth": ("sawtooth", (self.depth,))}[self.preset]  # fmt: skip
            ffn = make(f"{_COMPILE}.{name}", *given)
        if self.inputs == 2 and self.preset != "random":
            ffn = make(f"{_COMPILE}.on_each_coordinate", ffn, 2)
        if self.activation == "silu":
            ffn = make(f"{_COMPILE}.with_activation", ffn, "silu")
        return ffn.named("ffn")

    @property
    def by_proof(self) -> Call:
        """The model with the η that the proof chooses for the tolerance."""
        plain = self.auxiliary in ("unit", "random")
        auxiliary = self.auxiliary if plain else read_numbers(self.auxiliary, "Auxiliary token")
        return call(
            "aotlens.distill.compile_ffn", self.ffn, bound=self.bound, tolerance=self.tolerance,
            construction=self.construction, n_tokens=N_TOKENS,
            **({} if auxiliary == "unit" else {"auxiliary": auxiliary}),
        ).named("compiled")  # fmt: skip

    @property
    def compiled(self) -> Call:
        """The model."""
        if self.eta is None or self.activation == "silu":
            return self.by_proof
        return Call(self.by_proof.part("with_etas"), ([self.eta] * len(self.widths),)).named("compiled")

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, at most."""
        by_preset = {"abs": 2, "hat": 3, "ramp": 2, "sawtooth": 3, "drawn": MAX_KNOTS, "random": self.width}
        units = by_preset.get(self.preset, self.width + 1)
        copies = self.inputs if self.preset != "random" else 1
        return (units * copies,) * (self.depth if "depth" in USES[self.preset] else 1)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the model, at most, by the names of its configuration."""
        widest, first = max(self.widths), max((self.inputs, *self.widths[:-1]))
        heads = {"lean": widest + 1, "narrow": widest + first + 1, "paper": widest + 1 + 2 * (first + 1)}
        return {
            "n_layers": len(self.widths), "n_heads": heads[self.construction],
            "d_head": first + 1 if self.construction == "lean" else 1,
            "d_model": max(self.inputs, widest if self.construction == "paper" else first) + 2,
        }  # fmt: skip

    def operations(self, n_points: int) -> float:
        """Return the number of operations for so many inputs through the model."""
        return n_points / N_TOKENS * pass_cost(self.sizes, N_TOKENS + 1)

    @property
    def held(self) -> float:
        """Bytes of its weights, and of as much again while it is built."""
        sizes = self.sizes
        return 2 * 8 * 4.0 * sizes["n_layers"] * sizes["n_heads"] * sizes["d_head"] * sizes["d_model"]

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return f"compiled-{self.preset}-{self.inputs}d-{self.activation}-{self.construction}-{what}"


def read_points(text: str) -> tuple[list[float], list[float]]:
    """Read `x,y;x,y`, or a line each, as two lists. Raises `ValueError` for a line that is no point, and for
    too many."""
    lines = [line.strip() for line in text.replace(";", "\n").split("\n") if line.strip()]
    if len(lines) > MAX_KNOTS:
        raise ValueError(f"Expected at most {MAX_KNOTS} points, got {len(lines)}; take some away.")
    points = []
    for line in lines:
        try:
            x, y = read_numbers(line, "")
        except ValueError as error:
            message = f"Expected a point as x, y, such as “0.5, −1”, a line each; got “{line[:60]}”."
            raise ValueError(message) from error
        points.append((x, y))
    return [x for x, _ in points], [y for _, y in points]


def read_numbers(text: str, name: str) -> list[float]:
    """Read finite numbers with commas between. Raises `ValueError`, with the name, for anything else."""
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part.replace("−", "-")))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise ValueError(f"{name}: expected a number such as 0.001 or 1e-3, got “{part.strip()[:40]}”.")
    return numbers
