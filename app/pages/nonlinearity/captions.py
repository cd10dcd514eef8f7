"""What the Non-linearity page says: formulas, captions, and Python that gives the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from app.pages.nonlinearity.address import NonlinearityState
from app.pages.nonlinearity.service import N_TOKENS, RAMP, Compiled, Look, points

if TYPE_CHECKING:
    from aotlens.distill.compile.roles import HeadRole

NAMES: dict[str, str] = {
    "abs": "|x|", "hat": "a hat", "ramp": "a ramp, nearly a step", "sawtooth": "a sawtooth, by depth",
    "square": "x², fitted", "sine": "sin(πx), fitted", "random": "a random network", "drawn": "drawn by you",
}  # fmt: skip
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
#: Terms of a formula that are written out.
_TERMS = 4
#: Terms smaller than this share of the largest are rounding.
_NOTHING = 1e-12


def meaning(made: Compiled) -> str:
    """The network in a sentence."""
    state, ffn = made.state, made.compiled.ffn
    widths = " + ".join(map(str, ffn.widths))
    said = {
        "abs": "|x| = ReLU(x) + ReLU(−x).",
        "hat": "ReLU(x + 1) − 2 ReLU(x) + ReLU(x − 1).",
        "ramp": f"0 up to −{RAMP / 2:g}, 1 from {RAMP / 2:g}, straight between.",
        "sawtooth": f"{2 ** (state.depth - 1)} teeth on [−1, 1] from {state.depth} layers of three units; each layer "
        "folds what it reads once more.",
        "square": f"x² interpolated at {state.width + 1} equally spaced points of the range.",
        "sine": f"sin(πx) interpolated at {state.width + 1} equally spaced points of the range.",
        "random": f"Normal weights, seed {state.seed}.",
        "drawn": "Straight lines between your points, flat outside: a hidden unit a point, exactly.",
    }[state.preset]
    if state.inputs == 2 and state.preset != "random":
        said += " Of two numbers: f(x₁) + f(x₂)."
    if state.activation == "silu" and state.preset != "random":
        said += " With SiLU in place of ReLU these weights make another, smooth function."
    return f"{said} An FFN with {widths} hidden unit{'s' if sum(ffn.widths) > 1 else ''}."


def exactness(made: Compiled) -> str:
    """How the theorem applies."""
    if made.state.activation == "silu":
        return (
            "SiLU is what a head computes, so the model is exact: what is left is float64's rounding, and there is no "
            "η to choose (η = 1)."
        )
    return (
        "ReLU is reached in the limit: a head computes η·SiLU(t/η), which lies at most 0.2785·η below ReLU(t), for "
        "every t. The proof carries that through the later weights, and η is chosen so that it stays within the "
        "tolerance."
    )


def eta(made: Compiled) -> str:
    """Which η there are, and whose."""
    if made.state.activation == "silu":
        return "η = 1: SiLU units are exact, so there is nothing to slide."
    proof = ", ".join(f"{one:.3g}" for one in dict.fromkeys(made.proof_etas))
    layers = "each layer" if len(made.proof_etas) > 1 else "the layer"
    if made.state.eta is None:
        return f"η of {layers} as the proof chooses it for tolerance {short(made.state.tolerance)}: {proof}."
    met = "within" if made.compiled.proven_error <= made.state.tolerance else "above"
    return (
        f"η = {made.state.eta:.3g} in {layers}, chosen by you; the proof's: {proof}. The proven bound is {met} the "
        f"tolerance {short(made.state.tolerance)}."
    )


def error(made: Compiled) -> str:
    """Bound and measurement."""
    compiled = made.compiled
    where = f"[−{short(made.state.bound)}, {short(made.state.bound)}]" + ("²" if made.state.inputs == 2 else "")
    rounding = f"{compiled.rounding_error:.2g} of it for rounding"
    text = (
        f"On {where}: proven |model − FFN| ≤ {compiled.proven_error:.3g} ({rounding}); the largest found "
        f"{made.measured:.3g}, at kinks ± 1.2785·η, corners and random points."
    )
    if made.state.inputs == 2:
        text += " A cell shows the largest error found in it; dotted: kinks of the first layer."
    elif made.state.activation == "relu":
        text += " Dotted: where a hidden unit crosses 0. The error is as narrow as η there: zoom in by dragging."
    return text


def coordinate(made: Compiled, layer: int, index: int) -> str:
    """What the stream holds there before the layer."""
    if index == made.compiled.auxiliary.shape[0] - 2:
        return "1"
    if layer == 0:
        return "x" if made.state.inputs == 1 else f"x{index + 1}".translate(_SUBSCRIPTS)
    return f"h{index}".translate(_SUBSCRIPTS)


def reads(made: Compiled, role: HeadRole) -> str:
    """t as a formula, `0.5·x₁ − 1`; of the wide head, what it takes."""
    if role.reads.shape[1] > 1:
        return ", ".join(_cut([coordinate(made, role.layer, int(i)) for i in role.reads.any(1).nonzero()[:, 0]]))
    return _sum(role.reads[:, 0].numpy(), [coordinate(made, role.layer, i) for i in range(role.reads.shape[0])])


def writes(made: Compiled, role: HeadRole) -> str:
    """Where its result goes, `→ f: −2`."""
    if role.reads.shape[1] > 1:
        bias = " and adds the last bias" if _adds_bias(made, role) else ""
        return f"takes them from the stream{bias}"
    last = role.layer == made.compiled.ffn.depth - 1 and role.job in ("unit", "constant", "bias")
    into = []
    for index in np.flatnonzero(role.writes[0].numpy()):
        name = "f" if last else coordinate(made, role.layer + (role.job != "cancel"), int(index))
        into.append(f"{_number(float(role.writes[0, index]))} × into {name if name != '1' else 'the constant'}")
    return ", ".join(_cut(into))


def job(role: HeadRole) -> str:
    """What a head is for."""
    if role.job == "unit":
        return f"unit {role.unit}"
    return {
        "constant": "carries the 1 on",
        "cancel": "cancels skip",
        "bias": "adds last bias",
    }[role.job]


def kink(made: Compiled, role: HeadRole) -> str:
    """Where a unit crosses 0, for networks of one number."""
    if made.state.inputs != 1 or role.job != "unit" or made.state.activation == "silu":
        return ""
    kinks = made.curve.kinks  # type: ignore[union-attr]
    here = np.unique(kinks.x[(kinks.layer == role.layer) & (kinks.unit == role.unit)].round(12))
    return ", ".join(_cut([_number(float(x)) for x in here])) or "–"


def head(made: Compiled, look: Look) -> list[str]:
    """The chosen head with its numbers: what it reads, its weight, what it writes."""
    role = look.role
    if role.eta is None:
        linear = "cancels the skip connection" if role.job == "cancel" else "adds the last bias"
        return [
            f"It {linear}: it sees its own token only, so its weight is 1 and the head is linear.",
            f"It reads {reads(made, role)} and {writes(made, role) or 'writes nothing'} (W_V W_O, no gate).",
        ]
    t, weight = float(look.read[0]), float(look.pattern[1, 1])
    eta = f"{role.eta:.3g}"
    as_relu = role.job == "unit" and made.state.activation == "relu"
    silu, relu = t * weight, max(t, 0.0)
    what = {
        "unit": f"It is hidden {job(role)}: t = {reads(made, role)} = {_number(t)} at {look.tokens[1]}.",
        "cancel": f"With another it cancels the skip connection, SiLU(−z) − SiLU(z) = −z (Lemma E.3): t = "
        f"{reads(made, role)} = {_number(t)} at {look.tokens[1]}.",
    }.get(role.job, f"It carries the constant 1 to the next layer: t = {_number(t)}, at which SiLU(t) = 1.")
    gap = f": {_number(relu - silu)} below ReLU(t) = {_number(relu)}, at most 0.2785·η = {0.2785 * role.eta:.3g}."
    lines = [
        what,
        f"Scores: 0 to itself, −t/η = {_number(-t / role.eta)} to the auxiliary token (η = {eta}), whose value is 0.",
        f"So the softmax weight on itself is σ(t/η) = {_number(weight)} (read off the model), and its result "
        f"t·σ(t/η) = η·SiLU(t/η) = {_number(silu)}{gap if as_relu else '.'}",
        f"It writes {writes(made, role)}.",
    ]  # fmt: skip
    return lines


def gate(made: Compiled, look: Look) -> str:
    """What the gate's picture shows."""
    role = look.role
    if role.eta is None:
        return "This head has no gate: it sees its own token only, its weight is 1, and it is linear in what it reads."
    if role.job != "unit" or made.state.activation == "silu":
        return "Exactly SiLU(t) = t·σ(t): η = 1."
    return (
        f"η·SiLU(t/η) at η = {role.eta:.3g}: below ReLU(t) by at most 0.2785·η = {0.2785 * role.eta:.3g}, at "
        f"t = ±{1.2785 * role.eta:.3g}; shaded."
    )


def snippet(made: Compiled, role: HeadRole, x: Sequence[float]) -> str:
    """Python that reproduces what is seen."""
    state, compiled = made.state, made.compiled
    expression, names = _expression(state)
    if state.inputs == 2 and state.preset != "random":
        expression, names = f"on_each_coordinate({expression}, 2)", [*names, "on_each_coordinate"]
    if state.activation == "silu":
        expression, names = f'with_activation({expression}, "silu")', [*names, "with_activation"]
    auxiliary = {
        "unit": "",
        "random": f"torch.randn({len(compiled.auxiliary)}, generator=torch.Generator().manual_seed(0), "
        "dtype=torch.float64)",
    }.get(state.auxiliary, f"torch.tensor({compiled.auxiliary.tolist()}, dtype=torch.float64)")
    lines = [
        "import torch",
        "",
        "from aotlens.distill import compile_ffn",
        f"from aotlens.distill.compile.examples import {', '.join(sorted(names))}",
        "",
        f"ffn = {expression}",
        "compiled = compile_ffn(",
        "    ffn,",
        f"    bound={state.bound!r},",
        f"    tolerance={state.tolerance!r},",
        f'    construction="{state.construction}",',
        f"    n_tokens={N_TOKENS},",
        *([f"    auxiliary={auxiliary},"] if auxiliary else []),
        ")",
    ]
    if state.eta is not None:
        lines.append(f"compiled = compiled.with_etas({list(compiled.etas)!r})  # instead of the proof's")
    point = ", ".join(repr(float(value)) for value in x)
    lines += [
        "cfg = compiled.model.cfg",
        "print(compiled.heads_per_layer, cfg.d_model, cfg.d_head)",
        "print(compiled.proven_error, compiled.measured_error())",
        "",
        f"x = torch.tensor([[{point}]], dtype=torch.float64)",
        "print(compiled(x), compiled.ffn(x))  # the attention-only transformer, and the FFN",
        "_, cache = compiled.model.run_with_cache(compiled.embed(x[None]))",
        f'print(cache["pattern", {role.layer}][0, {role.head}])  # head {role.layer}.{role.head}; position 0 is the '
        "auxiliary token",
    ]
    return "\n".join(lines) + "\n"


def short(value: float) -> str:
    """A number as people write it."""
    return f"{value:.6g}".replace("-", "−")


def _expression(state: NonlinearityState) -> tuple[str, list[str]]:
    if state.preset == "random":
        sizes = f"width={state.width}, depth={state.depth}, seed={state.seed}"
        return f"random_network({state.inputs}, {sizes})", ["random_network"]
    if state.preset in ("square", "sine"):
        return f'fit("{state.preset}", width={state.width}, bound={state.bound!r})', ["fit"]
    if state.preset in ("hat", "drawn"):
        x, y = points(state)
        return f"interpolate({x!r}, {y!r})", ["interpolate"]
    call = {"abs": "absolute_value()", "ramp": f"ramp({RAMP!r})", "sawtooth": f"sawtooth({state.depth})"}[state.preset]
    return call, [call.partition("(")[0]]


def _adds_bias(made: Compiled, role: HeadRole) -> bool:
    return role.layer == made.compiled.ffn.depth - 1 and bool(made.compiled.ffn.biases[-1].any())


def _sum(weights: np.ndarray, names: Sequence[str]) -> str:
    size = np.abs(weights).max(initial=0.0)
    order = [i for i in np.flatnonzero(np.abs(weights) > _NOTHING * size) if names[i] != "1"]
    order += [i for i in np.flatnonzero(weights) if names[i] == "1"]
    text = ""
    for place, i in enumerate(order):
        value = float(weights[i])
        if place == _TERMS and len(order) > _TERMS + 1:
            return f"{text} + … ({len(order)} terms)"
        sign = ("−" if value < 0 else "") if not text else (" − " if value < 0 else " + ")
        number = f"{abs(value):.4g}"
        text += sign + (number if names[i] == "1" else names[i] if number == "1" else f"{number}·{names[i]}")
    return text or "0"


def _number(value: float) -> str:
    return f"{value:.5g}".replace("-", "−") if abs(value) > 1e-11 else "0"


def _cut(parts: Sequence[str]) -> list[str]:
    return list(parts) if len(parts) <= _TERMS + 1 else [*parts[:_TERMS], f"… ({len(parts)})"]
