"""Heads as feed-forward networks, as views: distillations side by side, one head of them, and a new distillation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aotlens.conventions import head_name, minus
from aotlens.statistics import interval_text
from aotlens.views.distillation_parameters import NO_RESULT, DistillationParameters
from aotlens.views.family import Family, reads_tokens
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.distill import ComparedDistillations, Distillation, TextErrors

NO_MODEL = "No model of text is here whose heads could be distilled: train or import one (aotlens --help)."
#: A click on a head's point inspects it.
_PICKS = "of = customdata.0; head = customdata.1.2"
_ONE_OF_EACH = (
    "One checkpoint in each column: a difference between columns is one between these checkpoints and says nothing of "
    "architectures."
)


def _no_result(params: DistillationParameters) -> str | None:
    if params.records:
        return None
    return " ".join([*params.left_out, *([] if params.paths else [NO_RESULT])])


def _answer(params: DistillationParameters, result: ComparedDistillations) -> str:
    """Say what share of the heads' outputs FFNs of this width explain, and what a comparison of models does not say."""
    return " ".join([result.answer, *([_ONE_OF_EACH] if len(result.records) > 1 else []), *params.left_out])


def _headline(params: DistillationParameters, result: ComparedDistillations) -> str:
    return " ".join([result.finding, *params.left_out])


def of_head(params: DistillationParameters, result: ComparedDistillations) -> str:
    """Describe the inspected head in sentences."""
    from aotlens.distill.compared import units

    record, distillation, place = result.records[result.of], result.found, result.place
    interval = interval_text(
        distillation.interval(result.width)[place], ".3f", f"95% over {distillation.text_unit} and seeds: "
    )
    error = distillation.mean_error(result.width)[place]
    rank = distillation.order(result.width).index(result.head) + 1
    label = distillation.attending.attends[place]
    attends = "attends to no one target" if label == "mixed" else f"attends most to: {label.replace('_', ' ')}"
    consistency = distillation.attending.pattern_consistency[place]
    same = "attends uniformly" if consistency != consistency else f"has a pattern consistency of {consistency:.2f}"
    sentences = [
        f"With {units(result.width)}: error {error:.3f}{interval}, number {rank} of {len(distillation.heads)} in "
        "FFN-likeness.",
        f"The head {attends}; it {same} (1: the same on every text).",
        _others(distillation, place),
    ]
    if record.costs is not None:
        alone = [minus(cost, "+.4f") for cost in record.costs.alone[place]]
        sentences.append(
            f"Replaced alone, it costs {alone[0]} nats a token by its FFN ({units(record.costs.width)}), {alone[1]} by "
            f"its mean, {alone[2]} by zero."
        )
    return " ".join(sentences)


def _others(distillation: Distillation, place: int) -> str:
    parts = []
    if distillation.linear_error is not None:
        parts.append(f"linear map {distillation.linear_error[place]:.3f}")
    parts.append(f"mean at the position {distillation.position_error[place]:.3f}")
    if distillation.wide_error is not None:
        parts.append(f"FFN of {distillation.settings.wide} units {distillation.wide_error[place]:.3f}")
    if distillation.neighbour_error is not None:
        parts.append(f"nearest neighbours {distillation.neighbour_error[place]:.3f}")
    return f"Compared with: {', '.join(parts)}."


def _of_costs(params: DistillationParameters, result: ComparedDistillations) -> str:
    costs = {name: record.costs for name, record in result.records.items()}
    missing = [name for name, cost in costs.items() if cost is None]
    sentences = [
        f"{name}: on {cost.n_tokens:,} held-out tokens; rank correlation of a head’s error with its cost alone "
        f"{minus(cost.rank_correlation, '+.2f')}."
        for name, cost in costs.items()
        if cost is not None
    ]
    return " ".join([*sentences, f"Not measured for {', '.join(missing)}."] if missing else sentences)


def _of_text(params: DistillationParameters, result: TextErrors) -> str:
    from aotlens.distill.compared import units

    assert params.kept is not None
    other = f" Only FFNs of {units(params.kept)} were kept, so these are theirs." if params.kept != params.units else ""
    return (
        f"Error on this text: {result.error:.3f}, with {units(params.kept)}.{other} The number under a token is the "
        "FFN’s squared error there; 1 is what always writing the mean is off by on an average token. Blue: the FFN "
        "fails."
    )


def _of_new(params: DistillationParameters, result: Distillation) -> str:
    return f"{result.finding} Kept as {params.new}: choose it among the distillations."


def _no_attention(params: DistillationParameters) -> str | None:
    if missing := _no_result(params):
        return missing
    reasons = {name: record.distillation.attending.why_not(params.motif) for name, record in params.records.items()}
    words = params.motif.replace("_", " ")
    unknown = [f"{name}: attention to {words} was not measured: {why}." for name, why in reasons.items() if why]
    return " ".join(unknown) or None


def _no_costs(params: DistillationParameters) -> str | None:
    if _no_result(params) or any(record.costs for record in params.records.values()):
        return _no_result(params)
    return "Nothing was replaced in any of these distillations, so there are no costs."


def _no_curve(params: DistillationParameters) -> str | None:
    if _no_result(params) or params.units:
        return _no_result(params)
    return "The linear map is solved for, not trained: choose a number of hidden units to see how FFNs learnt."


def _no_ffns(params: DistillationParameters) -> str | None:
    if _no_result(params):
        return _no_result(params)
    if params.kept is not None:
        return None if params.text else "Write a text."
    return f"{params.name} has kept no FFNs, so there are no errors on a text: distil {params.name} anew."


def _no_order(params: DistillationParameters) -> str | None:
    if params.info is None:
        return NO_MODEL
    try:
        params.wanted  # noqa: B018 (which says what is wrong)
    except ValueError as error:
        return str(error)
    if params.corpus is None and params.new not in params.paths:
        return "Choose a text, and press Run. A distillation is kept, and shown with the others."
    return None


def _view(name: str, title: str, about: str, caption: Callable[..., str], **rest: Any) -> View:
    """A view of the compared distillations and the inspected head."""
    usual: dict[str, Any] = {"call": lambda params: params.compared(), "missing": _no_result}
    return View(name=name, title=title, about=about, caption=caption, **{**usual, **rest})


HEADS = View(
    name="heads",
    title="Error by head",
    about="Can a small feed-forward network (FFN) that sees only a token’s own vector stand in for a head? Errors are "
    "on documents that the FFN was not trained on. 0: the FFN does all that the head does. 1: it does no better than "
    "always writing the mean; then what the head moves comes from other tokens. Row = layer, column = head; the number "
    "is the error with the selected hidden units, mean over seeds. Point at a head for its interval; click it to "
    "inspect it.",
    formula="error = Σ‖y − ŷ‖² ÷ Σ‖y − ȳ‖², with y what the head writes, ŷ the FFN’s, ȳ the head’s mean",
    source="Non-linearity in attention, Sections 4 and 5",
    call=lambda params: params.compared(),
    caption=_answer,
    file=lambda params: params.file(f"heads-{params.units}-units"),
    missing=_no_result,
    picks=_PICKS,
    wide=True,
)
WIDTHS = _view(
    "widths",
    "Error by width",
    "Mean over a model’s heads (bars: 95% interval over heads, long where there are few); dotted: the inspected head. "
    "Left of the line: FFNs by hidden units; the linear map passes through no bottleneck, so it may beat a narrow one. "
    "Right of it: what else was tried on the same heads. “Least of all” is the smallest error that anything reached, "
    "an estimate from above of what any function of the token’s own input could.",
    _headline,
    file=lambda params: params.file("errors"),
    drawn=lambda params: {"what": "widths"},
    table="width_frame",
)
ATTENTION = _view(
    "attention",
    "Error against attention",
    "A point is a head: colour says where it attends most, shape its model, bars the 95% interval. Left: against its "
    "mean attention to one target. Right: against its pattern consistency, 1 for the same pattern on every text. Click "
    "a point to inspect the head.",
    _headline,
    call=lambda params: params.compared(across=True),
    file=lambda params: params.file(f"attention-{params.motif}"),
    missing=_no_attention,
    drawn=lambda params: {"what": "attention"},
    table="attention_frame",
    picks=_PICKS,
    wide=True,
)
COSTS = _view(
    "costs",
    "Heads replaced by FFNs",
    "Is the error a good standard to choose heads by? Heads are replaced by their FFNs together, the most FFN-like "
    "first, compared with the same heads’ means or zeros, and other orders (grey: random ones). Below the others is "
    "better. Click a name in the legend to leave its curve out.",
    _of_costs,
    call=lambda params: params.compared(head=False),
    file=lambda params: params.file("substitution"),
    missing=_no_costs,
    drawn=lambda params: {"what": "costs"},
    table="cost_frame",
    wide=True,
)
TABLE = _view(
    "table",
    "All heads",
    "A row per head. Click a column’s name to sort, a head to inspect it.",
    _headline,
    call=lambda params: params.compared(head=False),
    file=lambda params: params.file(f"heads-{params.units}-units"),
    pictured=False,
)
ORIGIN = _view(
    "origin",
    "Data and settings",
    "What was distilled, on which text, by which command; and the mean error over heads, with its 95% interval.",
    _headline,
    call=lambda params: params.compared(head=False),
    file=lambda params: params.file(f"settings-{params.units}-units"),
    table="origin_frame",
    pictured=False,
    listed=True,
)
ONE = _view(
    "one",
    "One head",
    "Errors are on held-out documents. Which tokens is the FFN wrong about?",
    of_head,
    file=lambda params: params.file_of_head("classes"),
    drawn=lambda params: {"what": "classes"},
    table="class_frame",
)
CURVE = _view(
    "curve",
    "Learning curve",
    "Error on validation text while the FFNs trained, a line per seed; below 1 they beat the mean.",
    lambda params, result: f"{params.name} {head_name(params.inspected)}, {params.units} hidden units.",
    file=lambda params: params.file_of_head(f"curve-{params.units}-units"),
    missing=_no_curve,
    drawn=lambda params: {"what": "curve"},
    table="curve_frame",
)
ON_TEXT = _view(
    "text",
    "On a text",
    "Where on a text the FFN fails. Heads shows where the head attends there.",
    _of_text,
    call=lambda params: params.on_text,
    file=lambda params: params.file_of_head(f"text-{params.kept}-units"),
    missing=_no_ffns,
    pictured=False,
)
NEW = _view(
    "new",
    "Distil a checkpoint",
    "Trains FFNs for the heads of a checkpoint, all at once; errors are on documents held out. With held-out tokens on "
    "which heads are replaced, it is also measured what replacing heads by their FFNs costs. The result is kept (in "
    "$AOTLENS_HOME/distillations).",
    _of_new,
    call=lambda params: params.distillation,
    file=lambda params: params.new,
    missing=_no_order,
    slow="steps",
    cost=lambda params: float(params.new in params.paths),
)

FAMILY = Family(
    "distillation",
    "Can a small feed-forward network that sees only a token's own vector stand in for a head?",
    (HEADS, WIDTHS, ATTENTION, COSTS, TABLE, ORIGIN, ONE, CURVE, ON_TEXT, NEW),
    DistillationParameters,
    reads=reads_tokens,
    optional=True,
    none=NO_MODEL,
)
