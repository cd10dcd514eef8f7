"""A head's dossier as components: passages, sharpest rows, partners, losses, motifs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from aotlens.plots import describe, glyphs
from app.core.links import Links
from app.pages.atlas import words
from app.pages.atlas.service_dossier import Passage, Piece, Sharpest
from app.pages.atlas.tables import small_table

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.heads.atlas import Partner


def passage_list(links: Links, checkpoint: str, head: Head, passages: Sequence[Passage]) -> list[Any]:
    """A passage each, with a link to the same text on the Heads page."""
    return [
        html.Div(
            [
                html.Span(f"{passage.away:.2f}", className="atlas-away", title="Attention away from the start token"),
                html.Span([_piece(piece) for piece in passage.pieces], className="atlas-passage"),
                *_to_heads(links, checkpoint, head, passage),
            ],
            className="atlas-example",
        )
        for passage in passages
    ]


def _piece(piece: Piece) -> Any:
    if piece.kind in ("plain", "gap"):
        return html.Span(piece.text.replace("\n", "⏎"), className=f"piece-{piece.kind}")
    said = {"query": "the query", "key": f"attention {piece.weight:.2f}", "next": "what comes next"}[piece.kind]
    own = f", which attends to itself by {piece.weight:.2f}" if piece.kind == "query" and piece.weight else ""
    weight = [html.Sub(f"{piece.weight:.2f}".removeprefix("0"))] if piece.kind == "key" else []
    return html.Span(
        [glyphs(piece.text), *weight],
        className=f"token piece-{piece.kind}",
        style={"--heat": f"{100 * piece.weight:.0f}%"},
        title=f"{describe(piece.text)}: {said}{own}",
    )


def _to_heads(links: Links, checkpoint: str, head: Head, passage: Passage) -> list[Any]:
    if passage.text is None:
        return []
    href = links.to("heads", checkpoint=checkpoint, text=passage.text, head=head, position=passage.position)
    return [dcc.Link("open", href=href, className="atlas-open", title="The whole window on the Heads page")]


def sharpest_tables(links: Links, checkpoint: str, found: Sequence[Sharpest]) -> list[Any]:
    """A table a circuit: a row's token, and its largest entries with their values."""
    boxes = []
    for each in found:
        href = links.to("circuits", checkpoint=checkpoint, **each.link)
        heading = html.H3(
            [each.title, html.Span(f" ({each.unit}) ", className="quiet"), dcc.Link("whole", href=href)],
            className="atlas-heading",
        )
        body = [html.Tr([html.Td(_token(row)), html.Td([_entry(*entry) for entry in row_entries])])
                for row, row_entries in each.rows]  # fmt: skip
        boxes.append(html.Div([heading, html.Table(html.Tbody(body), className="atlas-small")]))
    return [html.Div(boxes, className="atlas-weights")]


def partner_table(
    links: Links, checkpoint: str, head: Head, found: Mapping[str, Sequence[Partner]], missing: Mapping[str, str]
) -> Any:
    """A row a partner: whom it is, by which input, how far beyond chance, and the circuit through it."""
    if "circuits" in missing:
        return html.P(f"Not measured: {missing['circuits']}.", className="quiet")
    rows = []
    for relation, partners in found.items():
        for one in partners:
            earlier, later = (one.head, head) if relation == "reads" else (head, one.head)
            side = {"q": "left", "k": "right", "v": "left"}[one.mode]
            through = {"kind": "ov" if one.mode == "v" else "qk", side: words.name(earlier)}
            circuit = dcc.Link("circuit", href=links.to("circuits", checkpoint=checkpoint, head=later, **through))
            rows.append((relation, _head_button(one.head), words.MODES[one.mode], f"{one.z:.1f}", circuit))
    if not rows:
        return html.P("No other head is read or fed beyond flipped signs.", className="quiet")
    return small_table(("", "head", "by its" if found["reads"] else "by", "z", ""), rows, numbers=(3,))


def loss_table(records: Sequence[Mapping[str, Any]], missing: Mapping[str, str]) -> Any:
    """A row a kind of replacement."""
    if not records:
        return html.P(f"Not measured: {missing.get('ablations', 'the atlas was made without')}.", className="quiet")
    rows = [
        (html.Span(words.HOWS[one["how"]][0], title=words.HOWS[one["how"]][1].capitalize()),
         words.signed(one["change"]), words.between(one["low"], one["high"]), words.signed(one["together"]))
        for one in records
    ]  # fmt: skip
    said = f"Nats a token, from {records[0]['clean']:.3f}; {records[0]['n']} windows."
    table = small_table(("replaced by", "loss", "95%", "all heads"), rows, numbers=(1, 2, 3))
    return [table, html.P(said, className="quiet")]


def motif_table(records: Sequence[Mapping[str, Any]]) -> html.Table:
    """A row a motif, those most beyond chance first."""
    rows = [
        (one["motif"].replace("_", " "), f"{one['score']:.2f}", f"{one['chance']:.2f}",
         words.signed(one["excess"], "+.2f"), words.between(one["low"], one["high"], "+.2f") if "low" in one else "")
        for one in records
    ]  # fmt: skip
    return small_table(("attends to", "score", "chance", "excess", "95%"), rows, numbers=(1, 2, 3, 4))


def _entry(text: str, value: float) -> html.Span:
    return html.Span([_token(text), html.Sub(f"{value:.1f}")], className="entry")


def _token(text: str) -> html.Span:
    return html.Span(glyphs(text), className="token", title=describe(text))


def _head_button(head: Head) -> html.Button:
    return html.Button(
        words.name(head), className="plain-button atlas-go", title="Its dossier",
        **{"data-layer": str(head[0]), "data-head": str(head[1])},
    )  # fmt: skip
