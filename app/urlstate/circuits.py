"""The Circuits page's address: a head, a circuit's sides, and what of it is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from app.urlstate.query import choice, dotted, format_query, head_of, number, pair, parse_query

Kind = Literal["qk", "ov"]
Statistic = Literal["extreme", "mean"]

CIRCUITS_PATH = "/circuits"

#: A side of a circuit by name; an earlier or later head is `layer.head`.
SIDES = ("tokens", "positions", "bias", "residual", "logits")

#: Rows and columns of the map that an address may name.
MAX_CHOSEN = 48

#: Standard deviations above chance from which the Circuits page draws two heads as composed.
FIRST_Z = 5


@dataclass(frozen=True, kw_only=True)
class CircuitsState:
    """Everything that the Circuits page shows."""

    checkpoint: str | None = None
    head: tuple[int, int] | None = None
    kind: Kind = "qk"
    left: str | None = None
    """The rows' side, one of `SIDES` or `layer.head`; None: tokens, where the model has them."""
    right: str | None = None
    biases: bool = False
    """Whether the biases are in every entry of a QK circuit."""
    rows: tuple[int, ...] = ()
    """The map's rows; none: those of the largest entries."""
    columns: tuple[int, ...] = ()
    row: int | None = None
    """The row that is listed; None: that of the largest entry."""
    column: int | None = None
    statistic: Statistic = "extreme"
    """What stands for a block of the whole matrix."""
    block: tuple[int, int] | None = None
    """The block that is shown in full; None: that of the largest entry."""
    z: int = FIRST_Z
    """Composition is drawn from so many standard deviations above independent random heads."""
    text: str | None = None
    """The text on the Heads page, for the way back."""


def parse_circuits(search: str | None) -> CircuitsState:
    """The state that `format_circuits` wrote; anything unreadable is left at its default."""
    query = parse_query(search)
    z = number(query.get("z"))
    return CircuitsState(
        checkpoint=query.get("checkpoint") or None,
        head=head_of(query),
        kind=choice(query, "kind", get_args(Kind), "qk"),
        left=_side(query, "left"),
        right=_side(query, "right"),
        biases=query.get("biases") == "with",
        rows=_numbers(query.get("rows")),
        columns=_numbers(query.get("columns")),
        row=number(query.get("row")),
        column=number(query.get("column")),
        statistic=choice(query, "blocks", get_args(Statistic), "extreme"),
        block=pair(query.get("block", "")),
        z=FIRST_Z if z is None else z,
        text=query.get("text"),
    )


def format_circuits(state: CircuitsState) -> str:
    """The address of a state; defaults are left out."""
    pairs = {
        "checkpoint": state.checkpoint,
        "head": dotted(state.head),
        "kind": state.kind if state.kind != "qk" else None,
        "left": state.left,
        "right": state.right,
        "biases": "with" if state.biases else None,
        "rows": "-".join(map(str, state.rows)),
        "columns": "-".join(map(str, state.columns)),
        "row": None if state.row is None else str(state.row),
        "column": None if state.column is None else str(state.column),
        "blocks": state.statistic if state.statistic != "extreme" else None,
        "block": dotted(state.block),
        "z": str(state.z) if state.z != FIRST_Z else None,
        "text": state.text,
    }
    kept = {key: value for key, value in pairs.items() if value or (key == "text" and value is not None)}
    return CIRCUITS_PATH + format_query(kept)


def _numbers(value: str | None) -> tuple[int, ...]:
    """Distinct numbers, as many as a map has room for; none if one of them can't be read."""
    parts = [number(part) for part in value.split("-")] if value else []
    numbers = [part for part in parts if part is not None]
    return tuple(dict.fromkeys(numbers))[:MAX_CHOSEN] if len(numbers) == len(parts) else ()


def _side(query: Mapping[str, str], key: str) -> str | None:
    value = query.get(key)
    return value if value in SIDES or (value and dotted(pair(value)) == value) else None
