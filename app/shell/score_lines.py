"""The largest pairs of paths of a score as a table, in which a head's name leads to its map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.conventions import signed
from aotlens.views.paths import PathsParameters
from app.shell.tables import Height, bar, link_cell, value_table

if TYPE_CHECKING:
    from aotlens.paths import TopPairs
    from aotlens.paths.score.pairs import Piece


def pair_table(params: PathsParameters, top: TopPairs, height: Height = "") -> dict[str, Any]:
    """Return a table with one pair of paths per row, largest first."""
    largest = max(map(abs, top.values), default=1.0) or 1.0
    rows = [
        (
            signed(value, 2) + ("" if rank < top.n_proven else "?"),
            list(map(_piece, pieces)),
            bar(value / largest),
        )
        for rank, (pieces, value) in enumerate(zip(top.pieces, top.values, strict=True))
    ]
    columns = [(top.unit, "", "number"), ("from", "", "sentence"), ("", "", "")]
    return value_table(columns, rows, height=height, along={"checkpoint": params.checkpoint, "text": params.text})


def _piece(piece: Piece) -> Any:
    """A part of a sentence: words, or a head's name that leads to its map."""
    if piece.head is None:
        return piece.text
    place: dict[str, Any] = {"position": piece.position, "direction": piece.direction}
    if piece.cell is not None:
        place["cell"] = piece.cell
    return link_cell(piece.text, f"The map of {piece.text}", "heads", head=piece.head, **place)
