"""The choice of a feed-forward network that is compiled into attention, how, and what of it is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from aotlens.conventions import Head
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, call, make
from aotlens.views.kinds import read_numbers
from aotlens.views.parameters import Limit, OfNone
from aotlens.views.view import pass_cost

if TYPE_CHECKING:
    from aotlens.distill.compile import CompiledFFN
    from aotlens.distill.compile.described import HeadRole

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

_COMPILE = "aotlens.distill.compile"


@dataclass(frozen=True, kw_only=True)
class NonlinearityParameters(OfNone):
    """A network, how it is compiled, and which head and input are looked at."""

    preset: str = declare.choice(PRESETS, label="Network")
    inputs: int = declare.whole(1, least=1, most=2, label="Input dimension")
    activation: str = declare.choice(ACTIVATIONS, label="Activation")
    width: int = declare.whole(6, least=1, most=64, label="Units a layer")
    depth: int = declare.whole(2, least=1, most=6, label="Hidden layers")
    seed: int = declare.whole(0, most=999_999, label="Seed")
    knots: str = declare.text(
        FIRST_KNOTS, label="Points of a drawn function, x,y with semicolons between", most=1200, lines=4
    )
    bound: float = declare.real(2.0, 1e-6, 1e6, step=0.1, label="Input bound M")
    tolerance: float = declare.real(0.05, 1e-12, 1e6, step=0.01, label="Tolerance")
    construction: str = declare.choice(CONSTRUCTIONS, label="Construction")
    auxiliary: str = declare.text(
        "unit", label="Auxiliary token: unit, random, or its d_model numbers with commas between"
    )
    eta: float | None = declare.real(
        None,
        1e-9,
        10.0,
        step=0.05,
        label="η (sharpness of the gates)",
        blank="those of the proof",
        log=True,
    )
    head: tuple[int, int] | None = declare.pair(
        "Head", blank="that of the first hidden unit",
        cleared_by=("preset", "inputs", "activation", "width", "depth", "seed", "knots", "construction"),
    )  # fmt: skip
    x: tuple[float, ...] | None = declare.reals(most=2, label="Input x", blank="a quarter of the bound")
    scale: str = declare.choice(SCALES, label="Scale of the error")

    def limits(self) -> Mapping[str, Limit]:
        is_silu = self.activation == "silu"
        limits = {name: Limit(hidden=name not in USES[self.preset]) for name in ("width", "depth", "seed", "knots")}
        limits["x"] = Limit(most=self.bound, words=f"numbers from {-self.bound:g} to {self.bound:g}, the inputs' bound")
        limits["eta"] = Limit(hidden=is_silu, rest=None if self.model is None else self.model.etas[0])
        if self.model is not None:
            limits["head"] = Limit(
                options={head: f"{head[0]}.{head[1]}" for head in self.roles},
                words="a head of this model that is not only zeros",
            )
        return limits

    @property
    def model(self) -> CompiledFFN | None:
        """The model with the η of the proof; None if the network cannot be compiled."""
        model = self._compiled_or_problem
        return None if isinstance(model, str) else model

    @property
    def problem(self) -> str | None:
        """The reason why the network cannot be compiled."""
        problem = self._compiled_or_problem
        return problem if isinstance(problem, str) else None

    @property
    def _compiled_or_problem(self) -> CompiledFFN | str:
        try:
            return _compiled(self.by_proof)
        except ValueError as error:
            return str(error)

    @property
    def roles(self) -> Mapping[Head, HeadRole]:
        """The heads of the model that write something."""
        return {} if self.model is None else _roles(self.by_proof)

    @property
    def shown_head(self) -> Head | None:
        """The head that is looked at: by default that of the first hidden unit."""
        units = (head for head, role in self.roles.items() if role.job == "unit")
        return self.head or next(units, next(iter(self.roles), None))

    @property
    def point(self) -> tuple[float, ...]:
        """The input that is looked at, with one number for each input of the network."""
        x = self.x or (self.bound / 4,)
        return tuple([*x, *x][: self.inputs])

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


@lru_cache(maxsize=16)
def _compiled(by_proof: Call) -> CompiledFFN:
    compiled: CompiledFFN = by_proof.run()
    return compiled


@lru_cache(maxsize=256)
def _roles(by_proof: Call) -> Mapping[Head, HeadRole]:
    from aotlens.distill.compile.described import head_roles

    return {(role.layer, role.head): role for role in head_roles(_compiled(by_proof))}


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
