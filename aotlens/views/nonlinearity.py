"""A feed-forward network compiled into attention, as views: the model, its error, and what each head of it does."""

from __future__ import annotations

from typing import Any

from aotlens.views import nonlinearity_captions as captions
from aotlens.views.calls import Call, call
from aotlens.views.family import Family
from aotlens.views.nonlinearity_choice import NonlinearityParameters
from aotlens.views.view import About, View

_PAPER = "Non-linearity in attention"
_COMPILE = "aotlens.distill.compile"
#: Inputs through the model, about: those of a curve or of a surface, with the adversarial ones; and of a gate.
_CURVE, _SURFACE, _GATE = 8_000, 11_500, 400


def _of_error(chosen: NonlinearityParameters) -> Call:
    if chosen.inputs == 2:
        return call(f"{_COMPILE}.error_surface", chosen.compiled)
    target = {"target": chosen.preset} if chosen.preset in ("square", "sine") else {}
    return call(f"{_COMPILE}.error_curve", chosen.compiled, **target)


def _drawn(chosen: NonlinearityParameters) -> dict[str, Any]:
    point = chosen.point[0] if chosen.inputs == 1 else chosen.point
    return {"at": point, **({"log": True} if chosen.scale == "log" else {})}


def _of_head(function: str) -> Any:
    return lambda chosen: call(f"{_COMPILE}.{function}", chosen.compiled, chosen.shown_head, chosen.point)


def _headline(chosen: NonlinearityParameters, result: Any) -> str:
    return result.finding


def _file(what: str, *, of_head: bool = False) -> Any:
    def name(chosen: NonlinearityParameters) -> str:
        head = "" if not of_head or chosen.shown_head is None else "-{}.{}".format(*chosen.shown_head)
        return chosen.file(f"{what}{head}")

    return name


def _view(name: str, title: str, about: About, caption: Any, n_points: int = _GATE, **rest: Any) -> View:
    usual = {
        "file": _file(name),
        "missing": lambda chosen: chosen.problem,
        "cost": lambda chosen: chosen.operations(n_points),
        "held": lambda chosen: chosen.held,
    }
    return View(name=name, title=title, about=about, caption=caption, **{**usual, **rest})


LAYERS = _view(
    "layers",
    "The attention model",
    About(
        text="One attention layer computes one hidden layer, and one head of size 1 computes one hidden unit. W is the "
        "number of its units, D the input dimension; biases are weights of a constant (Lemma E.1), and two heads for "
        "each coordinate cancel the skip connection (Lemma E.3). The lean construction is exact with fewer heads: one "
        "head that sees its own token only cancels all of it.",
        formula="stated: max{W, D} + 1 heads a layer; its proof needs (W + 1) + 2(D + 1)",
        source=f"{_PAPER}, Theorem 4.1",
    ),
    captions.model,
    call=lambda chosen: chosen.compiled,
    pictured=False,
)
ERROR = _view(
    "error",
    "Error over the inputs",
    About(
        text="The difference between the model and the FFN. The error of a ReLU unit is largest at |t| = 1.2785·η, "
        "where it is 0.2785·η, and vanishes elsewhere; later weights multiply it. Slide η: a smaller one is closer to "
        "ReLU and makes the softmax sharper. Click the figure to choose an x. Click the drawing of a function to add a "
        "point, drag a point to move it; arrow keys move the focused one (with Shift: more), and Delete removes it. "
        "Attention alone can compute a feed-forward network: a small FFN is compiled into an attention-only "
        "transformer, with a proven bound on how far the two can differ for any input in [−M, M]. ReLU is reached in "
        "the limit: a head computes η·SiLU(t/η), at most 0.2785·η below ReLU(t) for every t. The proof carries that "
        "error through the later weights, and η is chosen so that it stays within the tolerance. A head computes SiLU "
        "itself: such a model is exact up to float64's rounding, with η = 1.",
        formula="ReLU(t) − η·SiLU(t/η) = |t|·σ(−|t|/η)",
        source=f"{_PAPER}, Lemma E.2, which writes σ_L(ηx)/x; what holds is η·SiLU(x/η) → ReLU(x) as η → 0",
    ),
    captions.error,
    call=_of_error,
    drawn=_drawn,
    cost=lambda chosen: chosen.operations(_SURFACE if chosen.inputs == 2 else _CURVE),
)
HEADS = _view(
    "heads",
    "Heads",
    About(
        text="The inputs and outputs of each head, from its weights. Click a head for its details. Heads that are all "
        "zeros and only fill up the model's shape are left out."
    ),
    _headline,
    call=lambda chosen: call(f"{_COMPILE}.describe_heads", chosen.compiled),
    pictured=False,
)
HEAD = _view(
    "head",
    "One head",
    About(
        text="Its attention pattern on a sequence of the auxiliary token and four tokens, the first of which is your "
        "x; tokens do not see each other. A token scores itself 0 and the auxiliary token −t/η, and the auxiliary "
        "token's value is 0, so the softmax over two keys is a sigmoid: a gate on the token's own value.",
        formula="softmax(0, −t/η)₁ = σ(t/η)",
        source=f"{_PAPER}, Lemma E.4",
    ),
    captions.head,
    call=_of_head("head_at_input"),
    file=_file("head", of_head=True),
)
GATE = _view(
    "gate",
    "The gate",
    About(
        text="Above, the head's result against what it reads, t, beside ReLU; circles are the model's own results at "
        "inputs over the whole range. Below, the softmax weight that the token gives itself. The upright is your x; "
        "the panels at the right show the same near 0."
    ),
    captions.gate,
    call=_of_head("head_gate"),
    file=_file("gate", of_head=True),
    missing=lambda chosen: chosen.problem or captions.no_gate(chosen),
)
MASK = _view(
    "mask",
    "Attention mask",
    About(
        text="Which keys each query sees. A token sees itself and the auxiliary token (position 0), never another "
        "token; the auxiliary token sees itself, so that no softmax is over nothing."
    ),
    _headline,
    call=lambda chosen: call(f"{_COMPILE}.attention_masks", chosen.compiled),
)


FAMILY = Family(
    "nonlinearity",
    "Can attention alone compute a feed-forward network, and how far from it is the model?",
    (LAYERS, ERROR, HEADS, HEAD, GATE, MASK),
    NonlinearityParameters,
)
