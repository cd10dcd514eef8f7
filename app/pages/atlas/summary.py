"""A head's summary as components: passages, sharpest rows, partners, losses, motifs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from aotlens.heads.sharpest import MODES
from aotlens.plots import describe, glyphs
from aotlens.views.atlas import AtlasParameters
from app.core import Core
from app.pages.atlas import captions

if TYPE_CHECKING:
    from aotlens.heads import Example, HeadSummary, SharpestCircuits

#: Tokens before a query and before a key that a passage has, and the least attention of a key that is told.
_BEFORE_QUERY, _BEFORE_KEY, _LEAST = 14, 4, 0.05
#: Motifs that are listed of a head, those most beyond chance first.
_N_MOTIFS = 6
_HOWS = {
    "position_mean": ("its means by position", "Whatever the text is, it does the same"),
    "fixed_pattern": ("its mean pattern", "Its queries and keys have no say"),
}


def sentence(chosen: AtlasParameters, summary: HeadSummary) -> dict[str, Any]:
    """Say what the head does."""
    return {"body": html.P(summary.headline), "title": f"Head {summary.name} of {chosen.checkpoint}"}


def passages(core: Core, chosen: AtlasParameters, summary: HeadSummary) -> dict[str, Any]:
    """Return a passage each, with a link to the same text on the Heads page; and the bins that have some."""
    bins = [
        {"value": str(place), "label": f".{place}", "disabled": count == 0}
        for place, count in enumerate(summary.counts)
    ]
    model = core.catalog.load(chosen.checkpoint).model
    body = []
    for example in summary.examples:
        ids = summary.atlas.examples.tokens[example.sequence].tolist()
        strings = model.tokenizer.str_tokens(ids)
        upto = example.query + 2
        # Some windows begin within a character of several bytes, or with a space that a tokenizer would merge.
        text = "".join(strings[1:upto])
        link = []
        if model.to_tokens(text)[0].tolist() == ids[:upto]:
            place = {"checkpoint": chosen.checkpoint, "text": text, "head": summary.head, "position": example.query}
            link = [
                dcc.Link(
                    "open", href=core.links.to("heads", **place), className="atlas-open",
                    title="The whole window on the Heads page",
                )
            ]  # fmt: skip
        away = html.Span(f"{example.away:.2f}", className="atlas-away", title="Attention away from the start token")
        passage = html.Span(list(_pieces(example, strings)), className="atlas-passage")
        body.append(html.Div([away, passage, *link], className="atlas-example"))
    return {"bins": bins, "bin": str(summary.bin), "caption": summary.examples_headline, "body": body}


def _pieces(example: Example, strings: Sequence[str]) -> Iterator[html.Span]:
    """The text around the query and around the keys that it attends to."""
    query, weights = example.query, dict(zip(example.keys, example.weights, strict=True))
    keys = {key for key, weight in weights.items() if weight >= _LEAST and key != query}
    positions = set(range(max(1, query - _BEFORE_QUERY), min(query + 2, len(strings))))
    for key in keys:
        positions |= set(range(max(1, key - _BEFORE_KEY), min(key + 2, len(strings))))
    before, plain = 0, ""
    for position in sorted(positions):
        marked = position in keys or position in (query, query + 1)
        gap = position > before + 1
        if plain and (gap or marked):
            yield _plain(plain)
            plain = ""
        if gap:
            yield html.Span("…", className="piece-gap")
        before = position
        if marked:
            yield _marked(strings[position], position - query, weights.get(position, 0.0), position in keys)
        else:
            plain += strings[position]
    if plain:
        yield _plain(plain)


def _plain(text: str) -> html.Span:
    return html.Span(text.replace("\n", "⏎"), className="piece-plain")


def _marked(text: str, distance: int, weight: float, is_key: bool) -> html.Span:
    kind, meaning = ("key", f"attention {weight:.2f}") if is_key else ("next", "what comes next")
    if distance == 0:
        own = f", which attends to itself by {weight:.2f}" if weight else ""
        kind, meaning = "query", f"the query{own}"
    number = [html.Sub(f"{weight:.2f}".removeprefix("0"))] if is_key else []
    return html.Span(
        [glyphs(text), *number],
        className=f"token piece-{kind}",
        style={"--heat": f"{0 if kind == 'next' else 100 * weight:.0f}%"},
        title=f"{describe(text)}: {meaning}",
    )


def weights(core: Core, chosen: AtlasParameters, circuits: SharpestCircuits) -> dict[str, Any]:
    """Return a table a circuit: a row's token, and its largest entries with their values."""
    boxes = []
    for each in circuits.circuits:
        side = {} if each.through is None else {{"k": "right", "q": "left"}[each.mode]: captions.name(each.through)}
        place = {"checkpoint": chosen.checkpoint, "kind": each.kind, "head": each.head, **side}
        whole = dcc.Link("whole", href=core.links.to("circuits", **place))
        heading = html.H3(
            [each.title, html.Span(f" ({each.unit}) ", className="quiet"), whole], className="atlas-heading"
        )
        body = []
        for row, entries, values in zip(each.rows, each.entries, each.values, strict=True):
            spans = [
                html.Span([_token(entry), html.Sub(f"{value:.1f}")], className="entry")
                for entry, value in zip(entries, values, strict=True)
            ]
            body.append(html.Tr([html.Td(_token(row)), html.Td(spans)]))
        boxes.append(html.Div([heading, html.Table(html.Tbody(body), className="atlas-small")]))
    return {"body": [html.Div(boxes, className="atlas-weights")]}


def _token(text: str) -> html.Span:
    return html.Span(glyphs(text), className="token", title=describe(text))


def partners(core: Core, chosen: AtlasParameters, summary: HeadSummary) -> dict[str, Any]:
    """Return a row a partner: whom it is, by which input, how far beyond chance, and the circuit through it."""
    if "circuits" in summary.atlas.missing:
        return {"body": _quiet(f"Not measured: {summary.atlas.missing['circuits']}.")}
    frame, rows = summary.partner_frame(), []
    for row in frame.itertuples():
        partner = (row.layer, row.head)
        earlier, later = (partner, summary.head) if row.relation == "reads" else (summary.head, partner)
        side = {"left" if row.mode in "qv" else "right": captions.name(earlier)}
        place = {"checkpoint": chosen.checkpoint, "head": later, "kind": "ov" if row.mode == "v" else "qk", **side}
        circuit = dcc.Link("circuit", href=core.links.to("circuits", **place))
        button = html.Button(
            captions.name(partner), className="plain-button atlas-go", title="Its summary",
            **{"data-layer": str(row.layer), "data-head": str(row.head)},
        )  # fmt: skip
        rows.append((row.relation, button, MODES[row.mode], f"{row.z:.1f}", circuit))
    if not rows:
        return {"body": _quiet("No other head is read or fed beyond flipped signs.")}
    by = "by its" if "reads" in set(frame["relation"]) else "by"
    return {"body": small_table(("", "head", by, "z", ""), rows, numbers=(3,))}


def losses(chosen: AtlasParameters, summary: HeadSummary) -> dict[str, Any]:
    """Return a row a kind of replacement."""
    records = list(summary.loss_frame().itertuples())
    if not records:
        why = summary.atlas.missing.get("ablations", "the atlas was made without")
        return {"body": _quiet(f"Not measured: {why}.")}
    rows = [
        (html.Span(_HOWS[each.how][0], title=_HOWS[each.how][1]), captions.signed(each.change),
         captions.between(each.low, each.high), captions.signed(each.together))
        for each in records
    ]  # fmt: skip
    table = small_table(("replaced by", "loss", "95%", "all heads"), rows, numbers=(1, 2, 3))
    return {"body": [table, _quiet(f"Nats a token, from {records[0].clean:.3f}; {records[0].n} windows.")]}


def motifs(chosen: AtlasParameters, summary: HeadSummary) -> dict[str, Any]:
    """Return a row a motif, those most beyond chance first."""
    frame = summary.to_frame().dropna(subset="excess")
    frame = frame.sort_values("excess", ascending=False, kind="stable").head(_N_MOTIFS)
    rows = [
        (each["motif"].replace("_", " "), f"{each['score']:.2f}", f"{each['chance']:.2f}",
         captions.signed(each["excess"], "+.2f"),
         captions.between(each["low"], each["high"], "+.2f") if "low" in each else "")
        for each in frame.to_dict("records")
    ]  # fmt: skip
    return {"body": small_table(("attends to", "score", "chance", "excess", "95%"), rows, numbers=(1, 2, 3, 4))}


def _quiet(text: str) -> html.P:
    return html.P(text, className="quiet")


def small_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: Sequence[int] = ()) -> html.Table:
    """Return a table of a few rows; `numbers` are the columns that are numbers."""

    def kind(place: int) -> str:
        return "number" if place in numbers else ""

    head = html.Tr([html.Th(title, scope="col", className=kind(place)) for place, title in enumerate(titles)])
    body = [html.Tr([html.Td(cell, className=kind(place)) for place, cell in enumerate(row)]) for row in rows]
    return html.Table([html.Thead(head), html.Tbody(body)], className="effect atlas-small")
