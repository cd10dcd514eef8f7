"""Heads as feed-forward networks, as views: distillations side by side, and one head of them closely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotlens.statistics import interval_text
from aotlens.views.calls import Call, call, make
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.distill import ComparedDistillations, Distillation

#: The width that is shown unless another is chosen.
WIDTH = 16


@dataclass(frozen=True, kw_only=True)
class DistillationParameters:
    """Distillations by name, at what width, and the head of one of them that is looked at."""

    results: tuple[str, ...]
    width: int
    across: str
    of: str
    layer: int
    head: int
    files: Mapping[str, str] = field(default_factory=dict)
    """The file names of those that are in files of their own."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names by which `named_record` finds those that have another there."""
    stamps: Mapping[str, int] = field(default_factory=dict)
    """The mark that tells a file of that name from another."""

    @property
    def name(self) -> str:
        """The chosen head."""
        return f"{self.of} {self.layer}.{self.head}"

    def record(self, name: str) -> Call:
        """Return a distillation with its origin."""
        if name in self.files:
            opened = call("aotlens.distill.load_record", self.files[name])
        else:
            opened = call("aotlens.distill.named_record", self.names.get(name, name))
        return opened.stamped(self.stamps.get(name, 0))

    def errors_on(self, model: str, text: str, width: int) -> Call:
        """Return the errors of the chosen head's FFN of a width along a text."""
        from aotlens.views.calls import Load

        tokens = Load(model).method("to_tokens", text).item(0)
        distillation = self.record(self.of).part("distillation")
        return call(
            "aotlens.distill.text_errors", Load(model), distillation, tokens, (self.layer, self.head), width=width
        )

    def file(self, what: str) -> str:
        """Name a file about all of them."""
        return f"{'-'.join(self.results)}-{what}"

    def file_of_head(self, what: str) -> str:
        """Name a file about the head."""
        return f"{self.of}-head-{self.layer}.{self.head}-{what}"


def _compared(chosen: DistillationParameters) -> Call:
    head: Head = (chosen.layer, chosen.head)
    records = {name: chosen.record(name) for name in chosen.results}
    return make(
        "aotlens.distill.compare_distillations", records, chosen.width, head, of=chosen.of, across=chosen.across
    )


def _headline(chosen: DistillationParameters, result: ComparedDistillations) -> str:
    headline = result.headline
    return f"{headline[0].upper()}{headline[1:]}."


def of_head(chosen: DistillationParameters, result: ComparedDistillations) -> str:
    """Describe the chosen head in sentences."""
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
        alone = [f"{cost:+.4f}".replace("-", "−") for cost in record.costs.alone[place]]
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
    return f"Beside it: {', '.join(parts)}."


def _of_costs(chosen: DistillationParameters, result: ComparedDistillations) -> str:
    costs = {name: record.costs for name, record in result.records.items()}
    missing = [name for name, each in costs.items() if each is None]
    sentences = [
        f"{name}: on {each.n_tokens:,} held-out tokens; rank correlation of a head’s error with its cost alone "
        f"{each.rank_correlation:+.2f}."
        for name, each in costs.items()
        if each is not None
    ]
    return " ".join([*sentences, f"Not measured for {', '.join(missing)}."] if missing else sentences)


def _no_curve(chosen: DistillationParameters) -> str | None:
    if chosen.width:
        return None
    return "The linear map is solved for, not trained: choose a number of hidden units to see how FFNs learnt."


HEADS = View(
    name="heads",
    title="Error by head",
    about=About(
        text="Row = layer, column = head; the number is the error with the chosen hidden units, mean over seeds. The "
        "stronger the colour, the less an FFN can do it without other tokens. Point at a head for its interval; click "
        "it to see it closely.",
        formula="error = Σ‖y − ŷ‖² ÷ Σ‖y − ȳ‖², with y what the head writes, ŷ the FFN’s, ȳ the head’s mean",
        source="Non-linearity in attention, Sections 4 and 5",
    ),
    call=_compared,
    caption=_headline,
    file=lambda chosen: chosen.file(f"heads-{chosen.width}-units"),
)
WIDTHS = View(
    name="widths",
    title="Error by width",
    about=About(
        text="Mean over a model’s heads (bars: 95% interval over heads, long where there are few); dotted: the chosen "
        "head. Left of the line: FFNs by hidden units; the linear map passes through no bottleneck, so it may beat a "
        "narrow one. Right of it: what else was tried on the same heads. “Least of all” is the smallest error that "
        "anything reached, an estimate from above of what any function of the token’s own input could.",
    ),
    call=_compared,
    caption=_headline,
    file=lambda chosen: chosen.file("errors"),
    drawn=lambda chosen: {"what": "widths"},
    table="width_frame",
)
ATTENTION = View(
    name="attention",
    title="Error against attention",
    about=About(
        text="A point is a head: colour says where it attends most, shape its model, bars the 95% interval. Left: "
        "against its mean attention to one target. Right: against its pattern consistency, 1 for the same pattern on "
        "every text. Click a point to see the head closely.",
    ),
    call=_compared,
    caption=_headline,
    file=lambda chosen: chosen.file(f"attention-{chosen.across}"),
    drawn=lambda chosen: {"what": "attention"},
    table="attention_frame",
)
COSTS = View(
    name="costs",
    title="Heads replaced by FFNs",
    about=About(
        text="Is the error a good standard to choose heads by? Heads are replaced by their FFNs together, the most "
        "FFN-like first, beside the same heads’ means or zeros, and other orders (grey: random ones). Below the others "
        "is better. Click a name in the legend to leave its curve out.",
    ),
    call=_compared,
    caption=_of_costs,
    file=lambda chosen: chosen.file("substitution"),
    drawn=lambda chosen: {"what": "costs"},
    table="cost_frame",
)
ONE = View(
    name="one",
    title="One head",
    about=About(text="Errors are on held-out documents. Which tokens is the FFN wrong about?"),
    call=_compared,
    caption=of_head,
    file=lambda chosen: chosen.file_of_head("classes"),
    drawn=lambda chosen: {"what": "classes"},
    table="class_frame",
)
CURVE = View(
    name="curve",
    title="Learning curve",
    about=About(text="Error on validation text while the FFNs trained, a line a seed; below 1 they beat the mean."),
    call=_compared,
    caption=lambda chosen, result: f"{chosen.name}, {chosen.width} hidden units.",
    file=lambda chosen: chosen.file_of_head(f"curve-{chosen.width}-units"),
    missing=_no_curve,
    drawn=lambda chosen: {"what": "curve"},
    table="curve_frame",
)
