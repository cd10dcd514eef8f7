"""Atlas: what every head of a checkpoint does, one of them closely, and a tutorial that finds an induction circuit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aotlens.conventions import head_name
from aotlens.heads.summary import MODES
from aotlens.plots import describe, glyphs
from aotlens.plots.atlas import column_help, column_title
from aotlens.views import atlas as views
from aotlens.views.atlas import AtlasParameters
from app.shell.arrange import Columns, Form, Linked, Rows, Tabs, link
from app.shell.tables import link_cell, mark, number_text, pick, value_table
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.heads import (
        Example,
        FoundHeads,
        HeadSummary,
        InductionCircuit,
        InductionSteps,
        SharpestCircuits,
    )

#: The columns that are listed of every head, if they were measured; and the forms of numbers that have another.
_LISTED = (
    "label", "margin", "induction_random", "copying", "pattern_consistency", "pattern_consistency_without_first",
    "loss_position_mean", "loss_fixed_pattern", "reads", "feeds", "mean_distance", "entropy", "ffn_error",
)  # fmt: skip
_FORMS = {"mean_distance": ".1f", "loss_position_mean": "+.3f", "loss_fixed_pattern": "+.3f"}
_HOWS = {"position_mean": "its means by position", "fixed_pattern": "its mean pattern"}
#: Tokens before a query and before a key that a passage has, and the least attention of a key that is marked.
_BEFORE_QUERY, _BEFORE_KEY, _LEAST = 14, 4, 0.05


def _between(low: float, high: float, form: str = "+.3f") -> str:
    return f"{number_text(low, form)} to {number_text(high, form)}" if low == low else ""


def _head(head: Sequence[int]) -> dict[str, Any]:
    """Return a cell that opens a head's summary."""
    return pick(head_name(head), "Its summary", {"head": [int(each) for each in head], "tab": "head"})


def listed_heads(params: AtlasParameters, found: FoundHeads) -> list[dict[str, Any]]:
    """List one row per head that is found: the usual columns, and those that the search names."""
    from aotlens.heads import HEAD_SCORES, label_words

    frame = found.to_frame()
    search = params.where.casefold().replace(" ", "_")
    listed = [name for name in _LISTED if name in frame]
    listed += [name for name in frame if name in search and name not in (*listed, "layer", "head")]
    sentences = {name: score.sentence for name, score in HEAD_SCORES.items()}
    numbers = {name for name in listed if frame[name].dtype.kind in "fiu"}
    columns = [("head", "Layer and head; click one for its summary", "mono")]
    for name in listed:
        columns.append((column_title(name), column_help(name, sentences), "number" if name in numbers else "sentence"))

    def cell(row: dict[str, Any], name: str) -> str:
        if name in numbers:
            return number_text(row[name], _FORMS.get(name, ".2f"))
        return label_words(row[name], row["resting"]) if name == "label" else str(row[name]).replace("_", " ")

    rows = [
        [_head((row["layer"], row["head"])), *(cell(row, name) for name in listed)] for row in frame.to_dict("records")
    ]
    return [value_table(columns, rows, height="fill")]


def passages(params: AtlasParameters, summary: HeadSummary) -> list[dict[str, Any]]:
    """List one passage per example, with a link to the same text on the page Heads."""
    rows = []
    for example, strings, prompt in zip(summary.examples, summary.strings, summary.prompts, strict=True):
        place = {"checkpoint": params.checkpoint, "text": prompt, "head": summary.head, "position": example.query}
        there = link_cell("open", "The text up to the query, on the page Heads", "heads", **place) if prompt else ""
        rows.append([f"{example.away:.2f}", list(_pieces(example, strings)), there])
    columns = [("away", "Attention away from the start token", "number"), ("passage", "", "sentence"), ("", "", "")]
    return [value_table(columns, rows)] if rows else []


def _pieces(example: Example, strings: Sequence[str]) -> Iterator[str | dict[str, Any]]:
    """Yield the text around the query and around the keys that it attends to."""
    query, weights = example.query, dict(zip(example.keys, example.weights, strict=True))
    keys = {key for key, weight in weights.items() if weight >= _LEAST and key != query}
    positions = set(range(max(1, query - _BEFORE_QUERY), min(query + 2, len(strings))))
    for key in keys:
        positions |= set(range(max(1, key - _BEFORE_KEY), min(key + 2, len(strings))))
    before = 0
    for position in sorted(positions):
        if position > before + 1:
            yield " … "
        before, text, weight = position, strings[position], weights.get(position, 0.0)
        if position in keys:
            title, note = f"{describe(text)}: attention {weight:.2f}", f"{weight:.2f}".removeprefix("0")
            yield mark(glyphs(text), title, "token key", note=note, heat=weight)
        elif position == query:
            itself = f", which attends to itself by {weight:.2f}" if weight else ""
            yield mark(glyphs(text), f"{describe(text)}: the query{itself}", "token query")
        elif position == query + 1:
            yield mark(glyphs(text), f"{describe(text)}: what comes next", "token next")
        else:
            yield text.replace("\n", "⏎")


def _motifs(params: AtlasParameters, summary: HeadSummary) -> list[dict[str, Any]]:
    """List the motifs that the head exceeds chance by most."""
    frame = views.strongest_motifs(summary)
    rows = [
        [row["motif"].replace("_", " "), f"{row['score']:.2f}", f"{row['chance']:.2f}",
         number_text(row["excess"], "+.2f"), _between(row["low"], row["high"], "+.2f") if "low" in row else ""]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    titles = ("score", "chance", "excess", "95%")
    return [value_table([("attends to", "", ""), *((title, "", "number") for title in titles)], rows)]


def _weights(params: AtlasParameters, circuits: SharpestCircuits) -> list[dict[str, Any]]:
    """List one table per circuit: a row's token, and its largest entries with their values."""
    return [
        value_table(
            [("row", "", "mono"), ("largest entries", "", "tokens")],
            [
                [mark(glyphs(row), describe(row), "token"),
                 [mark(glyphs(entry), describe(entry), "token", note=number_text(value, ".1f"))
                  for entry, value in zip(entries, values, strict=True)]]
                for row, entries, values in zip(each.rows, each.entries, each.values, strict=True)
            ],
            heading=f"{each.title} ({each.unit})",
        )
        for each in circuits.circuits
    ]  # fmt: skip


def _losses(params: AtlasParameters, summary: HeadSummary) -> list[dict[str, Any]]:
    """List one row per kind of replacement."""
    rows = [
        [_HOWS.get(row.how, row.how), number_text(row.change, "+.3f"), _between(row.low, row.high),
         number_text(row.together, "+.3f")]
        for row in summary.loss_frame().itertuples()
    ]  # fmt: skip
    titles = ("Δ loss", "95%", "all heads")
    columns = [("replaced by", "", ""), *((title, "", "number") for title in titles)]
    return [value_table(columns, rows)] if rows else []


def _partners(params: AtlasParameters, summary: HeadSummary) -> list[dict[str, Any]]:
    """List one row per head that this one composes with, and the circuit through it."""
    rows = []
    for row in summary.partner_frame().itertuples():
        partner = (row.layer, row.head)
        earlier, later = (partner, summary.head) if row.relation == "reads" else (summary.head, partner)
        place = {"left" if row.mode in "qv" else "right": head_name(earlier), "kind": "ov" if row.mode == "v" else "qk"}
        circuit = link_cell("circuit", f"The circuit of {head_name(later)} through {head_name(earlier)}", "circuits",
                            checkpoint=params.checkpoint, head=later, **place)  # fmt: skip
        rows.append([row.relation, _head(partner), MODES[row.mode], number_text(row.z, ".1f"), circuit])
    columns = [("", "", ""), ("head", "", "mono"), ("by its", "The later head's input", ""), ("z", "", "number")]
    return [value_table([*columns, ("", "", "")], rows)] if rows else []


def _steps(params: AtlasParameters, steps: InductionSteps) -> list[dict[str, Any]]:
    """List the six steps, with links to the views that show them."""
    here: dict[str, Any] = {"checkpoint": params.checkpoint}
    own = here | ({} if params.corpus is None else {"corpus": params.corpus.name, "tokens": params.tokens})
    circuit, head, before = steps.circuit, steps.head, head_name(steps.previous)
    found = f"induction_random >= {circuit.threshold}"
    text = {**here, "text": params.text, "head": head}
    links = [
        [link_cell("Open the heads", "", "atlas", **own, where=found, y="copying")],
        [link_cell("Open the text", "", "heads", **text, position=steps.query)],
        [link_cell("Open its copying", "", "circuits", **here, head=head, kind="ov", beside="copying")],
        [link_cell("Open the composition", "", "circuits", **here, head=head, view="composition"), " · ",
         link_cell(f"The summary of {before}", "", "atlas", **own, head=steps.previous, tab="head")],
        [link_cell("Open the circuit", "", "circuits", **here, head=head, kind="qk", right=before)],
        [link_cell("Ablate the heads", "", "heads", **text, off=circuit.heads, tab="loss"), " · ",
         link_cell("Open the paths", "", "paths", **here, without=head_name(head), through=head, beside="without")],
    ]  # fmt: skip
    rows = [
        [f"{number}. {step}", [f"{look} {finding} ", *each]]
        for number, ((step, look, finding), each) in enumerate(zip(steps.to_frame().to_numpy(), links, strict=True), 1)
    ]
    return [value_table([("step", "", "sentence"), ("look at, and finding", "", "sentence")], rows)]


def _verdict(params: AtlasParameters, circuit: InductionCircuit) -> list[dict[str, Any]]:
    """List the five claims, and what each head of the model is worth alone."""
    claims = [
        [str(place), check.claim, check.measured, "✓ holds" if check.holds else "✗ fails"]
        for place, check in enumerate(circuit.checks, start=1)
    ]
    each = circuit.each
    alone = [
        [head_name(head), number_text(change, "+.2f"), _between(low, high, "+.2f"),
         f"{change / circuit.gain:.0%}" if circuit.gains else "–"]
        for head, change, (low, high) in zip(each.heads, each.changes, each.intervals(), strict=True)
    ]  # fmt: skip
    titles = ("Δ loss, nats", "95%", "of the gain")
    return [
        value_table(
            [("", "", "rank"), ("claim", "", "sentence"), ("measured", "", "sentence"), ("", "", "here")], claims
        ),
        value_table(
            [("without", "", "mono"), *((title, "", "number") for title in titles)], alone,
            heading="Each head alone, on random tokens that occur again",
        ),
    ]  # fmt: skip


PAGE = view_page(
    views.FAMILY,
    "Atlas",
    arranged=Rows(
        Form(views.SUMMARY, links=[
            link("On a text", "heads", "checkpoint", "head"),
            link("Its circuits", "circuits", "checkpoint", "head"),
            link("Paths through it", "paths", "checkpoint", answers={"through": lambda params: params.head}),
        ]),
        Tabs("tab", label="Atlas", sections={
            "heads": ("All heads", Columns(
                Linked(views.HEADS, over=("where",), lines=listed_heads),
                Linked(views.SCORES, size="fill", over=("y", "x"), reads=("where",), captioned=False),
                widths="minmax(0, 2.2fr) minmax(0, 1fr)",
            )),
            "head": ("One head", Columns(
                Rows(
                    Linked(views.EXAMPLES, over=("bin",), lines=passages),
                    Linked(views.MOTIFS, lines=_motifs),
                    Linked(views.LOSSES, lines=_losses),
                ),
                Rows(Linked(views.WEIGHTS, lines=_weights, captioned=False), Linked(views.PARTNERS, lines=_partners)),
            )),
            "path": ("Tutorial", Rows(
                Linked(views.TUTORIAL, lines=_steps, captioned=False), Linked(views.CIRCUIT, lines=_verdict),
            )),
        }),
    ),
)  # fmt: skip
