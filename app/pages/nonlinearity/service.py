"""Small feed-forward networks, compiled into attention-only transformers: `aotlens.distill.compile`, remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from app.core import Core
from app.core.address_values import number as parse_number
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.parameters import whole_within
from app.pages.nonlinearity.address import MAX_DEPTH, MAX_KNOTS, MAX_WIDTH, NonlinearityState

if TYPE_CHECKING:
    from aotlens.distill.compile import CompiledFFN, FeedForward
    from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface
    from aotlens.distill.compile.roles import HeadRole

#: Tokens of the models' sequences, beside the auxiliary one: enough to see that they do not see each other.
N_TOKENS = 4
#: Which of the controls a preset uses.
USES: dict[str, tuple[str, ...]] = {
    "abs": (), "hat": (), "ramp": (), "sawtooth": ("depth",), "square": ("width",), "sine": ("width",),
    "random": ("width", "depth", "seed"), "drawn": ("knots",),
}  # fmt: skip
#: How steep the step-like ramp is: it rises over this length.
RAMP = 0.2
#: Powers of ten between which η slides.
LEAST_ETA, MOST_ETA = -9, 1
#: Points near which the largest error is looked for, besides the curve's.
_ADVERSARIAL = 400
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True, eq=False)
class Compiled:
    """A compiled network, and what the page asks of it."""

    state: NonlinearityState
    """What was asked for; its head, x and scale are defaults."""
    compiled: CompiledFFN
    proof_etas: tuple[float, ...]
    """Those that the tolerance asks for."""
    roles: tuple[HeadRole, ...]
    exclusive: threading.RLock = field(default_factory=threading.RLock)
    """One thread at a time uses the model, as hooks are its state."""

    @property
    def curve(self) -> ErrorCurve | ErrorSurface:
        """Network and model over the range of inputs."""
        with self.exclusive:  # so that two who ask at once do not both compute it
            return self._curve

    @property
    def measured(self) -> float:
        """The largest error found: on the curve, and where it is likely to be largest."""
        with self.exclusive:
            return self._measured

    @cached_property
    def _curve(self) -> ErrorCurve | ErrorSurface:
        from aotlens.distill.compile.curves import error_curve, error_surface

        return error_curve(self.compiled) if self.state.inputs == 1 else error_surface(self.compiled)

    @cached_property
    def _measured(self) -> float:
        return max(float(self.curve.error.max()), self.compiled.measured_error(n=_ADVERSARIAL))

    def role(self, layer: int, head: int) -> HeadRole:
        """What the head does. Raises RequestError for one that there is not."""
        for role in self.roles:
            if (role.layer, role.head) == (layer, head):
                return role
        raise RequestError(f"No head {layer}.{head} does anything here; choose one of the list.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """One head on one sequence: the auxiliary token, the chosen x, and other tokens."""

    role: HeadRole
    x: tuple[float, ...]
    tokens: tuple[str, ...]
    pattern: np.ndarray
    """[query, key], of the model."""
    visible: np.ndarray
    read: np.ndarray
    """What the head reads of the chosen token, [width]; one number, t, but for the wide head."""
    wrote: np.ndarray
    """What it writes to the token's stream, [d_model − 1]; of the model."""
    bend: np.ndarray | None
    """For D = 1, the head's t at every x of the curve, [point]; else at random inputs."""
    results: np.ndarray | None
    """t · weight of the model itself at each of `bend`."""


class Nonlinearity:
    """Networks by what was asked for; each compiled once."""

    def __init__(self, core: Core) -> None:
        self._settings = core.settings
        self._made: Cache[NonlinearityState, Compiled] = core.memory.cache(core.settings.n_compiled, grows=True)

    def canonical(self, state: NonlinearityState) -> NonlinearityState:
        """Without what its network does not use."""
        first = NonlinearityState()
        unused = {"width", "depth", "seed", "knots"} - set(USES[state.preset])
        changes: dict[str, Any] = {name: getattr(first, name) for name in unused}
        if state.activation == "silu":
            changes["eta"] = None
        return replace(state, **changes)

    def compile(self, state: NonlinearityState) -> Compiled:
        """The network and its model. Raises RequestError for what can't be compiled, with the reason."""
        state = replace(self.canonical(state), head=None, x=None, scale="linear")
        return self._made.get(state, lambda: _said(lambda: self._compile(state)))

    def _compile(self, state: NonlinearityState) -> Compiled:
        from aotlens.distill import compile_ffn
        from aotlens.distill.compile.roles import head_roles, heads_needed

        if state.eta is not None:
            base = self.compile(replace(state, eta=None))
            etas = [state.eta if one == "relu" else 1.0 for one in base.compiled.ffn.activations]
            compiled, proof = base.compiled.with_etas(etas), base.proof_etas
        else:
            ffn = network(state)
            self._check(sum(heads_needed(ffn, state.construction)))
            compiled = compile_ffn(
                ffn,
                bound=state.bound,
                tolerance=state.tolerance,
                construction=state.construction,
                auxiliary=_auxiliary(state, ffn),
                n_tokens=N_TOKENS,
            )
            proof = compiled.etas
        return Compiled(state=state, compiled=compiled, proof_etas=proof, roles=head_roles(compiled))

    def _check(self, n_heads: int) -> None:
        most = self._settings.max_compiled_heads
        if n_heads > most:
            raise RequestError(
                f"This network needs {n_heads:,} heads, and at most {most:,} are compiled here, so that sliding η "
                "stays quick. Take fewer units, layers or points, or the leaner construction; compile_ffn in Python "
                "has no such limit."
            )

    def look(self, made: Compiled, layer: int, head: int, x: tuple[float, ...]) -> Look:
        """One head where the first token is x."""
        import torch

        role = made.role(layer, head)
        compiled, bound = made.compiled, made.state.bound
        others = [x, *((share * bound,) * made.state.inputs for share in (-1.0, 0.0, 1.0))]
        sequence = torch.tensor(others, dtype=torch.float64)[None]
        inputs = self._inputs(made)
        with made.exclusive, torch.no_grad():
            pattern, stream, z = _run(compiled, sequence, role)
            weights, streams = _weights(compiled, inputs, role) if role.gated else (None, None)
        mask = np.array(compiled.model.cfg.attn_mask)
        reads = role.reads.numpy()
        t = None if streams is None else (streams @ reads)[:, 0]
        return Look(
            role=role,
            x=x,
            tokens=("aux.", *(_token(one) for one in others)),
            pattern=pattern[0],
            visible=mask[0 if len(mask) == 1 else head],
            read=stream[0, 1] @ reads,
            wrote=(z[0, 1] @ compiled.model.W_O[layer, head].numpy())[:-1],
            bend=t,
            results=None if t is None or weights is None else t * weights,
        )

    @staticmethod
    def _inputs(made: Compiled) -> np.ndarray:
        """Inputs over the whole range, [n, D]: 41 equally spaced ones, or a grid of 9 × 9."""
        bound = made.state.bound
        if made.state.inputs == 1:
            return np.linspace(-bound, bound, 41)[:, None]
        side = np.linspace(-bound, bound, 9)
        return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)


def network(state: NonlinearityState) -> FeedForward:
    """The network of a state. Raises RequestError or ValueError for a drawing that is no function."""
    from aotlens.distill.compile import examples

    if state.preset == "random":
        made = examples.random_network(state.inputs, width=state.width, depth=state.depth, seed=state.seed)
        return examples.with_activation(made, state.activation)
    if state.preset == "abs":
        one = examples.absolute_value()
    elif state.preset == "ramp":
        one = examples.ramp(RAMP)
    elif state.preset == "sawtooth":
        one = examples.sawtooth(state.depth)
    elif state.preset in ("square", "sine"):
        one = examples.fit(state.preset, width=state.width, bound=state.bound)
    else:
        one = examples.interpolate(*points(state))
    return examples.with_activation(examples.on_each_coordinate(one, state.inputs), state.activation)


def points(state: NonlinearityState) -> tuple[list[float], list[float]]:
    """The points that the hat and a drawn function join."""
    if state.preset == "hat":
        return [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]
    return knots(state.knots)


def target(state: NonlinearityState, x: np.ndarray) -> np.ndarray | None:
    """The function that a network was fitted to, of one number; None for one that is what it is."""
    import torch

    from aotlens.distill.compile.examples import TARGETS

    return TARGETS[state.preset](torch.from_numpy(x)).numpy() if state.preset in ("square", "sine") else None


def knots(text: str) -> tuple[list[float], list[float]]:
    """`x,y;x,y`, or a line each, as two lists. Raises RequestError for what can't be read, with the line."""
    lines = [line.strip() for line in text.replace(";", "\n").split("\n") if line.strip()]
    if len(lines) > MAX_KNOTS:
        raise RequestError(f"Expected at most {MAX_KNOTS} points, got {len(lines)}; take some away.")
    found: tuple[list[float], list[float]] = ([], [])
    for line in lines:
        values = [parse_number(part.strip().replace("−", "-")) for part in line.split(",")]
        if len(values) != 2 or None in values:
            raise RequestError(f"Expected a point as x, y, such as “0.5, −1”, a line each; got “{line[:60]}”.")
        for axis, value in zip(found, values, strict=True):
            axis.append(float(value or 0.0))
    return found


def from_form(
    preset: str, inputs: Any, activation: str, width: Any, depth: Any, seed: Any, drawing: str | None, bound: Any,
    tolerance: Any, construction: str, auxiliary: str, vector: str | None, eta: Any,
) -> NonlinearityState:  # fmt: skip
    """What stands in the page's controls. Raises RequestError for text that is no number, with what was expected."""
    first = NonlinearityState()
    points = first.knots
    if preset == "drawn":
        points = ";".join(f"{x:.12g},{y:.12g}" for x, y in zip(*knots(drawing or ""), strict=True))
    if auxiliary == "own":
        values = [_number(part, "Auxiliary token") for part in (vector or "").split(",")]
        auxiliary = ",".join(f"{value:.12g}" for value in values)
    return NonlinearityState(
        preset=preset,  # type: ignore[arg-type]
        inputs=2 if str(inputs) == "2" else 1,
        activation=activation,  # type: ignore[arg-type]
        width=whole_within(width, first.width, 1, MAX_WIDTH),
        depth=whole_within(depth, first.depth, 1, MAX_DEPTH),
        seed=whole_within(seed, first.seed, 0, 999_999),
        knots=points,
        bound=_number(bound, "Inputs up to M"),
        tolerance=_number(tolerance, "Tolerance"),
        construction=construction,  # type: ignore[arg-type]
        auxiliary=auxiliary,
        eta=None if eta is None else float(eta),
    )


def slider_of(eta: float) -> float:
    """Where the slider stands for this η: its power of ten."""
    return float(np.clip(round(float(np.log10(eta)), 2), LEAST_ETA, MOST_ETA)) if eta > 0 else LEAST_ETA


def starting_x(state: NonlinearityState) -> tuple[float, ...]:
    """The input that is looked at first: the address's, or a quarter of the range."""
    return state.x if state.x is not None else (state.bound / 4,) * state.inputs


def within(state: NonlinearityState, x: Any) -> tuple[float, ...]:
    """As many numbers as the network reads, within its bound."""
    numbers = [float(one) if isinstance(one, int | float) else state.bound / 4 for one in [*x, *x][: state.inputs]]
    return tuple(min(max(one, -state.bound), state.bound) for one in numbers)


def first_head(made: Compiled, wanted: Any) -> tuple[int, int]:
    """The head that is asked for if there is one; else the first hidden unit's."""
    places = [(role.layer, role.head) for role in made.roles]
    if wanted and tuple(wanted) in places:
        return int(wanted[0]), int(wanted[1])
    return next(((role.layer, role.head) for role in made.roles if role.job == "unit"), places[0])


def _number(text: Any, name: str) -> float:
    value = parse_number(str(text).strip().replace("−", "-"))
    if value is None:
        raise RequestError(f"{name}: expected a number such as 0.001 or 1e-3, got “{str(text)[:40]}”.")
    return value


def to_dict(state: NonlinearityState) -> dict[str, Any]:
    """For the browser."""
    return asdict(state)


def from_dict(data: dict[str, Any]) -> NonlinearityState:
    """What `to_dict` made; other entries are left out."""
    known = {name: data[name] for name in NonlinearityState.__dataclass_fields__ if name in data}
    return NonlinearityState(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    )


def _auxiliary(state: NonlinearityState, ffn: FeedForward) -> Any:
    import torch

    from aotlens.distill.compile.layers import stream_width

    if state.auxiliary == "unit":
        return "unit"
    if state.auxiliary == "random":
        d_model = stream_width(ffn, state.construction)
        return torch.randn(d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = [_number(part, "Auxiliary token") for part in state.auxiliary.split(",")]
    return torch.tensor(values, dtype=torch.float64)


def _said(work: Callable[[], _Value]) -> _Value:
    try:
        return work()
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(str(error)) from error


def _run(compiled: CompiledFFN, x: Any, role: HeadRole) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The head's pattern, the stream that its layer reads (without the last coordinate), and its z."""
    block = f"blocks.{role.layer}"
    names = [f"{block}.attn.hook_pattern", f"{block}.hook_resid_pre", f"{block}.attn.hook_z"]
    _, cache = compiled.model.run_with_cache(compiled.embed(x), names_filter=names)
    pattern, stream, z = (cache[name].cpu().numpy() for name in names)
    return pattern[:, role.head], stream[..., :-1], z[:, :, role.head]


def _weights(compiled: CompiledFFN, x: np.ndarray, role: HeadRole) -> tuple[np.ndarray, np.ndarray]:
    """The weight that each input gives itself, [n], and the stream that the head reads there, [n, d_model − 1]."""
    import torch

    pattern, stream, _ = _run(compiled, torch.from_numpy(x)[:, None], role)
    return pattern[:, 1, 1], stream[:, 1]


def _token(x: tuple[float, ...]) -> str:
    numbers = ",".join(f"{value:.3g}" for value in x).replace("-", "−")
    return f"x={numbers}" if len(x) == 1 else f"({numbers})"
