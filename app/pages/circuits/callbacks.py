"""Callbacks of the Circuits page: all that it shows in one answer, and copying, which takes long, alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from dash import no_update

from aotlens.views import Load
from aotlens.views.circuit_captions import LINE_ENDS, LINE_TITLES, exact_because, meaning
from aotlens.views.circuit_choice import left_sides, most_distance, right_sides
from aotlens.views.circuits import CIRCUIT
from app.core import Core
from app.pages.circuits import tables as listed
from app.pages.circuits.address import CircuitsState
from app.pages.circuits.ids import VIEWS, ids
from app.pages.circuits.service import LINES, CircuitRequest, Circuits, has_biases
from app.shell import ids as shell
from app.shell.app import App
from app.shell.choices import head_buttons, options
from app.shell.notices import exact, relative, taken_instead
from app.shell.page import python_of
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_head, save_files, search_tokens
from app.shell.views import Own, python_lines, record, show_views, tables

_CHOICES = stores(asked=ids.ASKED, before=ids.SHOWN, block=ids.BLOCK_AT) | values(
    rows=ids.MAP_ROWS, columns=ids.MAP_COLUMNS, row=ids.ROW_CHOICE, column=ids.COLUMN_CHOICE,
    statistic=ids.OVERVIEW_STATISTIC, z=ids.COMPOSITION_Z,
)  # fmt: skip
#: The model, of which there may be no circuit.
_MODEL = replace(CIRCUIT, call=lambda chosen: Load(chosen.checkpoint), missing=lambda chosen: None)
#: The searchable choices by what the address calls them.
_SEARCHES = {"rows": ids.MAP_ROWS, "columns": ids.MAP_COLUMNS, "row": ids.ROW_CHOICE, "column": ids.COLUMN_CHOICE}
_TABLES = {
    ids.TOP: ids.TOP_ENTRIES, ids.ROW: ids.ROW_ENTRIES, ids.COLUMN: ids.COLUMN_ENTRIES, ids.BLOCK: ids.BLOCK_ENTRIES,
    ids.SINGULAR: ids.SINGULAR_PAIRS, ids.COMPOSITION: ids.COMPOSITION_PAIRS, ids.COPYING: ids.COPYING_HEADS,
}  # fmt: skip


def register(app: App, core: Core, circuits: Circuits) -> None:
    """Register the page's callbacks."""
    mark_head(app, ids.HEADS, ids.SHOWN)
    for name, id in _SEARCHES.items():
        of_columns = bool(LINES[name][0])
        search_tokens(app, id, ids.SHOWN, partial(circuits.labels_shown, of_columns), follows_value=True)
    hides = {eigen: shell.box(shell.graph(eigen)) for eigen in (ids.EIGENVALUES, ids.COMPOSITION)}
    panels = {
        # Drawn without its circuit, too: another one can still be chosen.
        ids.CHOICE: Own(
            view=_MODEL, draw=partial(choose, circuits), parts=(), empty={"heads": no_update},
            outputs=stores(shown=ids.SHOWN, heads=shell.drawn(ids.HEADS))
            | children(meaning=ids.MEANING, exactness=ids.EXACTNESS),
            reads=lambda chosen: (
                chosen.head, chosen.kind, chosen.left, chosen.right, chosen.biases, chosen.distance
            ),
        ),
        ids.MAP: _own(ids.MAP, name_map, parts=("matrix", "caption", "title"), empty={"title": "Map"}),
        ids.TOP: _own(ids.TOP, list_top, parts=()),
        ids.ROW: _line("row"),
        ids.COLUMN: _line("column"),
        ids.OVERVIEW: _own(ids.OVERVIEW, None, parts=("matrix", "caption")),
        ids.BLOCK: _own(ids.BLOCK, list_block, parts=("matrix", "caption")),
        ids.EIGENVALUES: _own(
            ids.EIGENVALUES, lambda chosen, result: {"box": "graph-circuit"}, parts=("figure", "caption"),
            outputs=props("className", box=hides[ids.EIGENVALUES]), empty={"box": "hidden"},
        ),
        ids.SINGULAR: _own(ids.SINGULAR, list_singular, parts=("caption",)),
        ids.COMPOSITION: _own(
            ids.COMPOSITION, list_composition, parts=("figure", "caption"),
            outputs=props("className", box=hides[ids.COMPOSITION]), empty={"box": "hidden"},
        ),
    }  # fmt: skip
    copying = {ids.COPYING: _own(ids.COPYING, list_copying, parts=("caption",), reads=lambda chosen: chosen.head)}
    show_views(
        app, circuits.workshop, panels, circuits.values, shown=ids.CHOSEN, keys=ids.DRAWN, inputs=_CHOICES,
        likely=circuits.around,
    )  # fmt: skip
    show_views(app, circuits.workshop, copying, circuits.values, shown=ids.CHOSEN, keys=ids.COPIED, inputs={})
    pictured = {panel: view for panel, view in VIEWS.items() if view.pictured}
    files = tables(circuits.workshop, VIEWS, circuits.values)
    files |= tables(circuits.workshop, pictured, circuits.values, "json", record)
    save_files(app, files, stores(shown=ids.CHOSEN) | _CHOICES)


def _own(panel: str, draw: Any, *, outputs: Any = None, **rest: Any) -> Own:
    """A panel with its table, if it has one."""
    table = stores(lines=shell.drawn(_TABLES[panel])) if panel in _TABLES else {}
    return Own(view=VIEWS[panel], draw=draw, outputs={**table, **(outputs or {})}, quiet=True, **rest)


def _line(axis: str) -> Own:
    panel, choice = {"row": (ids.ROW, ids.ROW_CHOICE), "column": (ids.COLUMN, ids.COLUMN_CHOICE)}[axis]
    return _own(
        panel, partial(list_line, axis), parts=("title", "explanation", "caption"),
        outputs=props("label", label=choice), empty={"title": f"One {axis}", "label": axis.capitalize()},
    )  # fmt: skip


def choose(circuits: Circuits, chosen: CircuitRequest, model: Any) -> dict[str, Any]:
    """Return which circuit is shown, what else could be, and what its numbers are.

    The page's script puts the controls right where they differ: Dash renders anew whatever an answer names, and waits
    for ever where a callback both reads and sets a choice of several.
    """
    before = chosen.before
    lefts, rights = (sides(chosen.model, chosen.head[0], chosen.kind) for sides in (left_sides, right_sides))
    form = {"checkpoint": chosen.checkpoint, "head": list(chosen.head), "kind": chosen.kind, "left": chosen.left,
            "right": chosen.right, "biases": chosen.biases, "distance": chosen.distance}  # fmt: skip
    core, shape = circuits.core, [chosen.model.n_layers, chosen.model.n_heads]
    stored = {
        "checkpoint": chosen.checkpoint, "layer": chosen.head[0], "head": chosen.head[1], "kind": chosen.kind,
        "biases": chosen.biases, "distance": chosen.distance, "form": form,
        "layers": shape[0], "heads": shape[1], "problem": chosen.problem,
        "spaces": [list(space) for space in chosen.spaces],
        "named": {
            name: None if form[name] == next(iter(there)) else form[name]
            for name, there in (("left", lefts), ("right", rights))
        },
        "reads_text": core.catalog.reads_text(core.catalog.info(chosen.checkpoint)),
    }  # fmt: skip
    answer: dict[str, Any] = {"shown": stored, "meaning": chosen.problem, "exactness": None}
    most = most_distance(chosen.model, chosen.kind)
    stored["controls"] = {
        ids.HEAD: {"data": form["head"]}, ids.KIND: {"value": chosen.kind},
        ids.LEFT: {"data": _options(lefts), "value": chosen.left},
        ids.RIGHT: {"data": _options(rights), "value": chosen.right},
        ids.BIASES: {"disabled": not has_biases(chosen.model, chosen.kind)},
        ids.DISTANCE: {"max": most, "style": {} if most else {"display": "none"}},
    }  # fmt: skip
    if before is None or [before["layers"], before["heads"]] != shape:
        answer["heads"] = head_buttons(*shape)
    if chosen.problem:
        return answer
    circuit = circuits.circuit(chosen)
    answer["meaning"] = meaning(chosen, circuit)
    answer["exactness"] = relative(circuit.reasons, "entries") if circuit.reasons else exact(exact_because(circuit))
    if chosen.said:
        answer["notice"] = taken_instead(chosen.said)
    stored["controls"] |= _lines(circuits, chosen)
    return answer


def _options(sides: dict[str, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in sides.items()]


def _lines(circuits: Circuits, chosen: CircuitRequest) -> dict[str, dict[str, Any]]:
    """Return options and values of the searchable choices by id, where rows or columns mean others than before."""
    lines: dict[str, dict[str, Any]] = {}
    before = (chosen.before or {}).get("spaces") or [None, None]
    labels = circuits.labels(chosen)
    for name, (side, several) in LINES.items():
        if before[side] != list(chosen.spaces[side]):
            given = getattr(chosen, name)
            chosen_lines = list(given) if several else [] if given is None else [given]
            first = labels[side].search("", circuits.core.settings.n_options)
            value = [str(each) for each in chosen_lines] if several else next(map(str, chosen_lines), None)
            lines[_SEARCHES[name]] = {"data": options(labels[side], [*chosen_lines, *first]), "value": value}
    return lines


def name_map(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """Name the map in its title."""
    return {"title": f"Map of {chosen.kind.upper()} of head {chosen.name}"}


def list_top(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List both ends of the whole matrix."""
    return {"lines": listed.ends(result, ("Largest", "Smallest"), height="tall")}


def list_line(axis: str, chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List both ends of one row or column."""
    this, other = (result.rows, result.columns) if axis == "row" else (result.columns, result.rows)
    kind, name = chosen.kind, f"‹{listed.full_labels(this)[0]}›"
    return {
        "lines": listed.ends(result, LINE_ENDS[kind, axis], but=axis, height="short"),
        "title": LINE_TITLES[kind, axis].format(it=name),
        "explanation": f"The {axis} of {name} as {this.role}: its entries with every {other.role}.",
        "caption": VIEWS[ids.ROW if axis == "row" else ids.COLUMN].caption(chosen, result),
        "label": f"{this.role[:1].upper()}{this.role[1:]}",
    }


def list_block(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List a block's entries by size."""
    notice = {"notice": taken_instead([chosen.block_said])} if chosen.block_said else {}
    return {"lines": listed.by_size(result.entries), **notice}


def list_singular(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List the singular pairs in a table."""
    return {"lines": [listed.singular_table(result)], "caption": VIEWS[ids.SINGULAR].caption(chosen, result)}


def list_composition(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List every pair that the head is in."""
    return {"lines": listed.pairs(result), "box": "graph-composition"}


def list_copying(chosen: CircuitRequest, result: Any) -> dict[str, Any]:
    """List what every head copies."""
    caption = VIEWS[ids.COPYING].caption(chosen, result)
    return {"lines": listed.copying(result, chosen.head), "caption": caption}


@python_of(*VIEWS)
def python(core: Core, circuits: Circuits, state: CircuitsState, panel: str) -> list[str]:
    """Write the lines that give a panel's numbers."""
    return python_lines(VIEWS[panel], circuits.of_address(state))
