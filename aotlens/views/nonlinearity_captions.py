"""The captions of a compiled network, its error, and one head of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.views.nonlinearity_choice import RAMP, NonlinearityParameters

if TYPE_CHECKING:
    from aotlens.distill.compile import CompiledFFN
    from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface
    from aotlens.distill.compile.one_head import HeadAtInput, HeadGate

_NO_GATE = "This head has no gate: it sees its own token only, its weight is 1, and it is linear in what it reads."
#: SiLU(t) lies this far below ReLU(t) at most, and there.
_GAP, _WORST = 0.2785, 1.2785


def no_gate(chosen: NonlinearityParameters) -> str | None:
    """State that the head has no gate; None if it has one."""
    return None if chosen.shown_head is None or chosen.roles[chosen.shown_head].gated else _NO_GATE


def network(chosen: NonlinearityParameters) -> str:
    """Describe the network in a sentence; nothing if it cannot be compiled."""
    if chosen.model is None:
        return ""
    widths = chosen.model.ffn.widths
    sentences = {
        "abs": "|x| = ReLU(x) + ReLU(−x).",
        "hat": "ReLU(x + 1) − 2 ReLU(x) + ReLU(x − 1).",
        "ramp": f"0 up to −{RAMP / 2:g}, 1 from {RAMP / 2:g}, straight between.",
        "sawtooth": f"{2 ** (chosen.depth - 1)} teeth on [−1, 1] from {chosen.depth} layers of three units; each layer "
        "folds its input once more.",
        "square": f"x² interpolated at {chosen.width + 1} equally spaced points of the range.",
        "sine": f"sin(πx) interpolated at {chosen.width + 1} equally spaced points of the range.",
        "random": f"Normal weights, seed {chosen.seed}.",
        "drawn": "Straight lines between your points, flat outside: one hidden unit a point, exactly.",
    }[chosen.preset]
    if chosen.inputs == 2 and chosen.preset != "random":
        sentences += " For two inputs: f(x₁) + f(x₂)."
    if chosen.activation == "silu" and chosen.preset != "random":
        sentences += " With SiLU in place of ReLU these weights give another, smooth function."
    return f"{sentences} An FFN with {' + '.join(map(str, widths))} hidden unit{'s' if sum(widths) > 1 else ''}."


def eta(chosen: NonlinearityParameters) -> str:
    """State the η of the layers, and who chose it; nothing if the network cannot be compiled."""
    if chosen.model is None:
        return ""
    by_proof = chosen.model.etas
    if chosen.activation == "silu":
        return "η = 1: SiLU units are exact, so there is nothing to slide."
    proof = ", ".join(f"{each:.3g}" for each in dict.fromkeys(by_proof))
    layers = "each layer" if len(by_proof) > 1 else "the layer"
    if chosen.eta is None:
        return f"η of {layers}, chosen by the proof for tolerance {plain(chosen.tolerance)}: {proof}."
    compiled = chosen.model.with_etas([chosen.eta] * len(by_proof))
    met = "within" if compiled.proven_error <= chosen.tolerance else "above"
    return (
        f"η = {chosen.eta:.3g} in {layers}, chosen by you; the proof's: {proof}. The proven bound is {met} the "
        f"tolerance {plain(chosen.tolerance)}."
    )


def model(chosen: NonlinearityParameters, compiled: CompiledFFN) -> str:
    """Describe the model, its bound and its η."""
    etas = ", ".join(f"{each:.3g}" for each in dict.fromkeys(compiled.etas))
    return f"{compiled.finding} η: {etas}."


def facts(chosen: NonlinearityParameters, compiled: CompiledFFN) -> list[tuple[str, str, str]]:
    """List the numbers of the model: the name of each, its value, and its source."""
    cfg, ffn = compiled.model.cfg, compiled.ffn
    stated = max(*ffn.widths, ffn.d_in) + 1
    by_layer = f"{' + '.join(map(str, compiled.heads_per_layer))} by layer; " if ffn.depth > 1 else ""
    in_each = " in each" if ffn.depth > 1 else ""
    wide = "size of its widest head, which cancels the skip connection"
    return [
        ("heads", f"{compiled.n_heads}", f"{by_layer}Theorem 4.1 states {stated}{in_each}"),
        ("attention layers", str(cfg.n_layers), "one for each hidden layer; no MLP, no norm, no biases"),
        ("d_model", str(cfg.d_model),
         f"hidden units, the constant 1, the auxiliary token's mark; stated: max{{W, D}} + 2 = {stated + 1}"),
        ("d_head", str(cfg.d_head), wide if compiled.construction == "lean" else "every head has size 1"),
        ("proven |model − FFN|", f"≤ {compiled.proven_error:.3g}",
         f"over the whole range, with rounding (tolerance {plain(chosen.tolerance)})"),
    ]  # fmt: skip


def error(chosen: NonlinearityParameters, result: ErrorCurve | ErrorSurface) -> str:
    """Say the bound and the measurement."""
    where = f"[−{plain(chosen.bound)}, {plain(chosen.bound)}]" + ("²" if chosen.inputs == 2 else "")
    text = (
        f"On {where}: proven |model − FFN| ≤ {result.proven:.3g} ({result.rounding:.2g} of it for rounding); the "
        f"largest measured {result.measured:.3g}, at kinks ± {_WORST}·η, corners and random points."
    )
    if chosen.inputs == 2:
        return f"{text} A cell shows the largest error found in it; dotted: kinks of the first layer."
    if chosen.activation == "relu":
        text += " Dotted: where a hidden unit crosses 0. The error is as narrow as η there: drag to zoom in."
    return text


def head(chosen: NonlinearityParameters, result: HeadAtInput) -> str:
    """Describe the head with its numbers, a line each: what it reads, its weight, what it writes."""
    from aotlens.distill.compile.described import short

    role, x = result.role, result.str_tokens[1]
    if role.eta is None:
        linear = "cancels the skip connection" if role.job == "cancel" else "adds the last bias"
        return (
            f"This head {linear}: it sees its own token only, so its weight is 1 and the head is linear.\n"
            f"It reads {result.reads} and {result.writes or 'writes nothing'} (W_V W_O, no gate)."
        )
    t, weight = float(result.read[0]), float(result.pattern[1, 1])
    silu, relu = t * weight, max(t, 0.0)
    what = {
        "unit": f"Hidden {result.job}: t = {result.reads} = {short(t)} at {x}.",
        "cancel": "One of two heads that cancel the skip connection, SiLU(−z) − SiLU(z) = −z (Lemma E.3): t = "
        f"{result.reads} = {short(t)} at {x}.",
    }.get(role.job, f"This head carries the constant 1 to the next layer: t = {short(t)}, at which SiLU(t) = 1.")
    gap = "."
    if role.job == "unit" and chosen.activation == "relu":
        most = _GAP * role.eta
        gap = f": {short(relu - silu)} below ReLU(t) = {short(relu)}, at most {_GAP}·η = {most:.3g}."
    return "\n".join([
        what,
        f"Scores: 0 to itself, −t/η = {short(-t / role.eta)} to the auxiliary token (η = {role.eta:.3g}), whose value "
        "is 0.",
        f"The softmax weight on itself is σ(t/η) = {short(weight)} (from the model), and its result t·σ(t/η) = "
        f"η·SiLU(t/η) = {short(silu)}{gap}",
        f"It writes {result.writes}.",
    ])  # fmt: skip


def gate(chosen: NonlinearityParameters, result: HeadGate) -> str:
    """Say what the gate's figure shows."""
    if result.gap is None:
        return "Exactly SiLU(t) = t·σ(t): η = 1."
    return (
        f"η·SiLU(t/η) at η = {result.eta:.3g}: below ReLU(t) by at most {_GAP}·η = {_GAP * result.eta:.3g}, at t = "
        f"±{_WORST * result.eta:.3g}; shaded."
    )


def plain(value: float) -> str:
    """Write a number as people write it."""
    return f"{value:.6g}".replace("-", "−")
