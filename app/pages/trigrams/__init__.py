"""Skip-trigrams: the best `[source] … [destination] → [predicted token]` of a head, and whether text bears them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.conventions import glyphs
from aotlens.views import trigrams as views
from aotlens.views.trigram_parameters import TrigramsParameters
from app.core import Core
from app.pages.trigrams import tables
from app.shell.arrange import Columns, Form, Linked, Panel, Rows, Tabs
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.trigrams import ExplainedRow

_CHECKED = "novels-1l-mhsa"
#: Parameters of the rows' panel, and of the check, that change what the rows are and what a text says of them.
_TOKENS = ("source", "destination", "out", "within")
_TEXT = ("corpus", "tokens")
_OF_ROWS = ("fold", *_TOKENS, *_TEXT)


def _opens(core: Core) -> dict[str, Any]:
    """Rows whose check is bundled, if their checkpoint is here."""
    known = any(info.name == _CHECKED and info.problem is None for info in core.catalog.list())
    return {"checkpoint": _CHECKED, "head": (0, 6)} if known else {}


def _row_title(params: TrigramsParameters, result: ExplainedRow) -> str:
    table, place = result.row.rows.table, result.row.number
    source, destination, out = (
        glyphs(strings[place]) for strings in (table.source_token, table.destination_token, table.out_token)
    )
    return f"Row {place + 1:,}: {source} … {destination} → {out}"


PAGE = view_page(
    views.FAMILY,
    "Skip-trigrams",
    opens=_opens,
    arranged=Rows(
        Form(views.CHOICE, reads=("fold", *_TOKENS), by=("score", "end", "k", "least", "fold", *_TOKENS)),
        Columns(
            Tabs("tab", label="Of the head", sections={
                "rows": ("Rows", Linked(
                    views.ROWS, lines=tables.rows, controls=("fold",),
                    over=(*_TOKENS, "verdict", "kind"), reads=_TEXT,
                )),
                "kinds": ("Kinds", Panel(views.BY_KIND, size="low", reads=_OF_ROWS)),
                "forced": ("Skip-trigram bugs", Linked(views.BUGS, lines=tables.bugs, reads=_OF_ROWS)),
                "heads": ("All heads", Linked(views.BY_HEAD, lines=tables.heads, by=("head",), reads=_OF_ROWS)),
                "direct": ("Direct path", Rows(
                    Linked(views.PATH, lines=tables.bigrams, over=("after", "own"), reads=_TEXT),
                    Linked(views.ZERO_LAYER, reads=("own", *_TEXT)),
                )),
            }),
            Tabs("beside", label="Of a row, and of text", sections={
                "one": ("One row", Linked(
                    views.ONE, lines=tables.row, title=_row_title, controls=("row",), reads=_OF_ROWS,
                )),
                "text": ("Check against text", Linked(views.CHECK, over=_TEXT, reads=("fold", *_TOKENS))),
            }),
            widths="minmax(0, 1.6fr) minmax(0, 1fr)",
        ),
    ),
)  # fmt: skip
