"""Distillation: can a small feed-forward network stand in for a head?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.conventions import describe, glyphs, head_name
from aotlens.plots import is_whitespace
from aotlens.views import distillation as views
from aotlens.views.distillation_parameters import DistillationParameters
from app.shell.arrange import Columns, Form, Linked, Rows, Tabs, link
from app.shell.tables import number_text, pick, value_table
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.distill import ComparedDistillations, TextErrors

_NEW = ("checkpoint", "corpus", "hidden", "heads", "seeds", "tokens", "replaced")
_NATS = "Added loss if this head alone is replaced, nats per token"
#: Columns of the table of heads, by those of the result: title, format and help.
_NUMBERS = {
    "error": ("error", ".3f", "Of the FFN of the selected width, held out, mean over seeds"),
    "low": ("95% from", ".3f", "Over text and seeds"),
    "high": ("to", ".3f", "Over text and seeds"),
    "pattern_consistency": ("consistency", ".2f", "1: the same pattern on every text; 0: no nearer than uniform"),
    "linear": ("linear map", ".2f", "Error of the best linear map of the token's input"),
    "position": ("position’s mean", ".2f", "Error of the mean at the token's position"),
    "neighbours": ("neighbours", ".2f", "Error of the mean over the nearest training inputs"),
    "wide": ("wide FFN", ".2f", "Error of one wide FFN"),
    "floor": ("least of all", ".2f", "The least error found by any means: an FFN can reach this"),
    "cost_ffn": ("cost: FFN", "+.3f", _NATS),
    "cost_mean": ("cost: mean", "+.3f", _NATS),
    "cost_zero": ("cost: zero", "+.3f", _NATS),
}


def table(params: DistillationParameters, result: ComparedDistillations) -> list[dict[str, Any]]:
    """List one row per head, the most FFN-like first; a click on its name inspects it."""
    from aotlens.heads import motifs_of

    frame = result.to_frame().sort_values("error")
    motifs = {name: (motif.title, ".2f", f"Score: {motif.sentence}") for name, motif in motifs_of("tokens").items()}
    shown = {name: of for name, of in (_NUMBERS | motifs).items() if name in frame and frame[name].notna().any()}
    columns = [("head", "layer.head; click to inspect it", "mono"), ("distillation", "", "mono"),
               ("attends to", "The target with the most attention, mixed if none has 0.4", "tokens"),
               *((title, help, "number") for title, _, help in shown.values())]  # fmt: skip
    rows = []
    for row in frame.to_dict("records"):
        head = (row["layer"], row["head"])
        name = pick(head_name(head), f"Inspect head {head_name(head)}", {"of": row["result"], "head": head})
        rows.append(
            [name, row["result"], row["attends"], *(number_text(row[key], form) for key, (_, form, _) in shown.items())]
        )
    return [value_table(columns, rows, height="fill")]


def strip(params: DistillationParameters, result: TextErrors) -> html.Div:
    """Draw one chip per token, the bluer the larger its error; full colour at 1, or at the largest if that is more."""
    top = max(1.0, *result.relative)
    chips = [
        html.Span(
            glyphs(token), className="chip chip-space" if is_whitespace(token) else "chip",
            title=f"{describe(token)} · id {id} · position {position} · error {error:.2f} · the mean is off by "
            f"{movement:.2f}",
            style={"--heat": f"{100 * error / top:.0f}%"},
            **{"data-value": f"{error:.2f}" if error >= 0.005 else "0"},
        )
        for position, id, token, error, movement in result.to_frame().itertuples(index=False)
    ]  # fmt: skip
    return html.Div(chips, className="strip")


_HEADS_PAGE = link(
    "This head on the text", "heads", when=lambda params: bool(params.records), answers={
        "checkpoint": lambda params: params.records[params.name].checkpoint if params.records else None,
        "head": lambda params: params.inspected if params.records else None,
        "text": lambda params: params.text,
    },
)  # fmt: skip
PAGE = view_page(
    views.FAMILY,
    "Distillation",
    arranged=Rows(
        Form(reads=("head", "text")),
        Columns(
            Tabs("view", label="All heads", sections={
                "heads": ("Error by head", Linked(views.HEADS, size="fill", reads=("head",))),
                "widths": ("Error by width", Linked(views.WIDTHS, size="fill", reads=("head",))),
                "attention": ("Against attention", Linked(
                    views.ATTENTION, size="fill", controls=("across",), reads=("head",),
                )),
                "replaced": ("Heads replaced", Linked(views.COSTS, size="fill")),
                "table": ("Table", Linked(views.TABLE, lines=table)),
                "origin": (views.ORIGIN.title, views.ORIGIN),
            }),
            Tabs("beside", label="One head, and new distillations", sections={
                "head": ("One head", Linked(
                    views.ONE, size="low", reads=("head",),
                    title=lambda params, result: f"Head {head_name(params.inspected)} of {params.name}",
                )),
                "curve": ("Learning curve", Linked(views.CURVE, size="fill", reads=("head",))),
                "text": ("On a text", Linked(
                    views.ON_TEXT, over=("text",), reads=("head",), body=strip, links=[_HEADS_PAGE],
                )),
                "new": ("Distil a checkpoint", Linked(views.NEW, over=_NEW)),
            }),
            widths="minmax(0, 1.35fr) minmax(0, 1fr)",
        ),
    ),
)  # fmt: skip
