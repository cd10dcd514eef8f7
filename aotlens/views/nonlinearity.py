"""A feed-forward network compiled into attention, as views: the model, its error, and what each head of it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head, head_name, minus
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, call, make
from aotlens.views.family import Family
from aotlens.views.kinds import read_numbers
from aotlens.views.parameters import Limit, OfNone
from aotlens.views.view import View, pass_cost

if TYPE_CHECKING:
    from aotlens.distill.compile import CompiledFFN
    from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface
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
#: Tokens of the models' sequences without the auxiliary one: enough to show that they do not see each other.
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
        None, 1e-9, 10.0, step=0.05, label="η (sharpness of the gates)", blank="those of the proof", log=True
    )
    head: tuple[int, int] | None = declare.pair(
        "Head", blank="that of the first hidden unit",
        cleared_by=("preset", "inputs", "activation", "width", "depth", "seed", "knots", "construction"),
    )  # fmt: skip
    x: tuple[float, ...] | None = declare.reals(most=2, label="Input x", blank="a quarter of the bound")
    scale: str = declare.choice(SCALES, label="Scale of the error")

    def limits(self) -> Mapping[str, Limit]:
        limits = {name: Limit(hidden=name not in USES[self.preset]) for name in ("width", "depth", "seed", "knots")}
        limits["x"] = Limit(most=self.bound, words=f"numbers from {-self.bound:g} to {self.bound:g}, the inputs' bound")
        limits["eta"] = Limit(hidden=self.activation == "silu", rest=self.model and self.model.etas[0])
        if self.model is not None:
            limits["head"] = Limit(
                options={head: head_name(head) for head in self.roles},
                words="a head of this model that is not only zeros",
            )
        return limits

    @property
    def model(self) -> CompiledFFN | None:
        """The model with the η of the proof; None if the network cannot be compiled."""
        return self._model_or_problem[0]

    @property
    def problem(self) -> str | None:
        """The reason why the network cannot be compiled."""
        return self._model_or_problem[1]

    @property
    def _model_or_problem(self) -> tuple[CompiledFFN | None, str | None]:
        try:
            return _compiled(self.by_proof), None
        except ValueError as error:
            return None, str(error)

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
            name, args = {"abs": ("absolute_value", ()), "ramp": ("ramp", (RAMP,)),
                           "sawtooth": ("sawtooth", (self.depth,))}[self.preset]  # fmt: skip
            ffn = make(f"{_COMPILE}.{name}", *args)
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
        units *= 1 if self.preset == "random" else self.inputs
        return (units,) * (self.depth if "depth" in USES[self.preset] else 1)

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
        return 2 * 8 * 4.0 * math.prod(self.sizes.values())

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
            raise ValueError(f"Expected a point as x, y, as “0.5, −1”, a line each; got “{line[:60]}”.") from error
        points.append((x, y))
    return [x for x, _ in points], [y for _, y in points]


_PAPER = "Non-linearity in attention"
#: Inputs through the model, about: those of a curve or of a surface, with the adversarial ones; and of a gate.
_CURVE, _SURFACE, _GATE = 8_000, 11_500, 400


def _error(params: NonlinearityParameters) -> Call:
    target = {"target": params.preset} if params.inputs == 1 and params.preset in ("square", "sine") else {}
    return call(f"{_COMPILE}.error_{'curve' if params.inputs == 1 else 'surface'}", params.compiled, **target)


def _drawn(params: NonlinearityParameters) -> dict[str, Any]:
    point = params.point[0] if params.inputs == 1 else params.point
    return {"at": point, **({"log": True} if params.scale == "log" else {})}


def _view(name: str, title: str, **rest: Any) -> View:
    usual = {
        "file": lambda params: params.file(name),
        "missing": lambda params: params.problem,
        "cost": lambda params: params.operations(_GATE),
        "held": lambda params: params.held,
    }
    return View(name=name, title=title, **{**usual, **rest})


def _head_view(name: str, title: str, function: str, **rest: Any) -> View:
    return _view(
        name, title,
        call=lambda params: call(f"{_COMPILE}.{function}", params.compiled, params.shown_head, params.point),
        file=lambda params: params.file("-".join([name, *map(head_name, filter(None, [params.shown_head]))])),
        **rest,
    )  # fmt: skip


def _no_gate(params: NonlinearityParameters) -> str | None:
    if params.problem or params.shown_head is None or params.roles[params.shown_head].gated:
        return params.problem
    return "This head has no gate: it sees its own token only, its weight is 1, and it is linear in what it reads."


def network(params: NonlinearityParameters) -> str:
    """Describe the network in a sentence; nothing if it cannot be compiled."""
    if params.model is None:
        return ""
    widths = params.model.ffn.widths
    sentences = {
        "abs": "|x| = ReLU(x) + ReLU(−x).",
        "hat": "ReLU(x + 1) − 2 ReLU(x) + ReLU(x − 1).",
        "ramp": f"0 up to −{RAMP / 2:g}, 1 from {RAMP / 2:g}, straight between.",
        "sawtooth": f"{2 ** (params.depth - 1)} teeth on [−1, 1] from {params.depth} layers of three units; each layer "
        "folds its input once more.",
        "square": f"x² interpolated at {params.width + 1} equally spaced points of the range.",
        "sine": f"sin(πx) interpolated at {params.width + 1} equally spaced points of the range.",
        "random": f"Normal weights, seed {params.seed}.",
        "drawn": "Straight lines between your points, flat outside: one hidden unit a point, exactly.",
    }[params.preset]
    if params.inputs == 2 and params.preset != "random":
        sentences += " For two inputs: f(x₁) + f(x₂)."
    if params.activation == "silu" and params.preset != "random":
        sentences += " With SiLU in place of ReLU these weights give another, smooth function."
    return f"{sentences} An FFN with {' + '.join(map(str, widths))} hidden unit{'s' if sum(widths) > 1 else ''}."


def eta(params: NonlinearityParameters) -> str:
    """State the η of the layers, and who chose it; nothing if the network cannot be compiled."""
    if params.model is None:
        return ""
    by_proof = params.model.etas
    if params.activation == "silu":
        return "η = 1: SiLU units are exact, so there is nothing to slide."
    proof = ", ".join(f"{eta:.3g}" for eta in dict.fromkeys(by_proof))
    layers = "each layer" if len(by_proof) > 1 else "the layer"
    if params.eta is None:
        return f"η of {layers}, chosen by the proof for tolerance {minus(params.tolerance, '.6g')}: {proof}."
    compiled = params.model.with_etas([params.eta] * len(by_proof))
    met = "within" if compiled.proven_error <= params.tolerance else "above"
    return (
        f"η = {params.eta:.3g} in {layers}, chosen by you; the proof's: {proof}. The proven bound is {met} the "
        f"tolerance {minus(params.tolerance, '.6g')}."
    )


def _of_error(params: NonlinearityParameters, result: ErrorCurve | ErrorSurface) -> str:
    where = f"[−{minus(params.bound, '.6g')}, {minus(params.bound, '.6g')}]" + ("²" if params.inputs == 2 else "")
    text = (
        f"On {where}: proven |model − FFN| ≤ {result.proven:.3g} ({result.rounding:.2g} of it for rounding); the "
        f"largest measured {result.measured:.3g}, at kinks ± 1.2785·η, corners and random points."
    )
    if params.inputs == 2:
        return f"{text} A cell shows the largest error found in it; dotted: kinks of the first layer."
    dotted = " Dotted: where a hidden unit crosses 0. The error is as narrow as η there: drag to zoom in."
    return text + dotted * (params.activation == "relu")


LAYERS = _view(
    "layers",
    "The attention model",
    about="One attention layer computes one hidden layer, and one head of size 1 computes one hidden unit. W is the "
    "number of its units, D the input dimension; biases are weights of a constant (Lemma E.1), and two heads for each "
    "coordinate cancel the skip connection (Lemma E.3). The lean construction is exact with fewer heads: one head that "
    "sees its own token only cancels all of it.",
    formula="stated: max{W, D} + 1 heads a layer; its proof needs (W + 1) + 2(D + 1)",
    source=f"{_PAPER}, Theorem 4.1",
    call=lambda params: params.compiled,
    pictured=False,
)
ERROR = _view(
    "error",
    "Error over the inputs",
    about="The difference between the model and the FFN. The error of a ReLU unit is largest at |t| = 1.2785·η, where "
    "it is 0.2785·η, and vanishes elsewhere; later weights multiply it. Slide η: a smaller one is closer to ReLU and "
    "makes the softmax sharper. Click the figure to choose an x. Click the drawing of a function to add a point, drag "
    "a point to move it; arrow keys move the focused one (with Shift: more), and Delete removes it. Attention alone "
    "can compute a feed-forward network: a small FFN is compiled into an attention-only transformer, with a proven "
    "bound on how far the two can differ for any input in [−M, M]. ReLU is reached in the limit: a head computes "
    "η·SiLU(t/η), at most 0.2785·η below ReLU(t) for every t. The proof carries that error through the later weights, "
    "and η is such that it stays within the tolerance. A head computes SiLU itself: such a model is exact up to "
    "float64's rounding, with η = 1.",
    formula="ReLU(t) − η·SiLU(t/η) = |t|·σ(−|t|/η)",
    source=f"{_PAPER}, Lemma E.2, which writes σ_L(ηx)/x; what holds is η·SiLU(x/η) → ReLU(x) as η → 0",
    caption=_of_error,
    call=_error,
    drawn=_drawn,
    cost=lambda params: params.operations(_SURFACE if params.inputs == 2 else _CURVE),
)
HEADS = _view(
    "heads",
    "Heads",
    about="The inputs and outputs of each head, from its weights. Click a head for its details. Heads that are all "
    "zeros and only fill up the model's shape are left out.",
    call=lambda params: call(f"{_COMPILE}.describe_heads", params.compiled),
    pictured=False,
)
HEAD = _head_view(
    "head",
    "One head",
    about="Its attention pattern on a sequence of the auxiliary token and four tokens, the first of which is your x; "
    "tokens do not see each other. A token scores itself 0 and the auxiliary token −t/η, and the auxiliary token's "
    "value is 0, so the softmax over two keys is a sigmoid: a gate on the token's own value.",
    formula="softmax(0, −t/η)₁ = σ(t/η)",
    source=f"{_PAPER}, Lemma E.4",
    function="head_at_input",
)
GATE = _head_view(
    "gate",
    "The gate",
    about="Above, the head's result against what it reads, t, beside ReLU; circles are the model's own results at "
    "inputs over the whole range. Below, the softmax weight that the token gives itself. The upright is your x; the "
    "panels at the right show the same near 0.",
    function="head_gate",
    missing=_no_gate,
)
MASK = _view(
    "mask",
    "Attention mask",
    about="Which keys each query sees. A token sees itself and the auxiliary token (position 0), never another token; "
    "the auxiliary token sees itself, so that no softmax is over nothing.",
    call=lambda params: call(f"{_COMPILE}.attention_masks", params.compiled),
)


FAMILY = Family(
    "nonlinearity",
    "Can attention alone compute a feed-forward network, and how far from it is the model?",
    (LAYERS, ERROR, HEADS, HEAD, GATE, MASK),
    NonlinearityParameters,
)
