"""What the Circuits page asks of the server: which circuit, its map, and the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from aotlens.plots import Theme
from app import ids
from app.components.choices import head_buttons, options, side_options
from app.components.circuit_tables import entry_columns, entry_rows
from app.components.graph import EMPTY
from app.pages.guard import guarded
from app.services import Services, circuit_views
from app.services import circuit_words as words
from app.services.circuits import Choice, Described
from app.services.sides import Labels
from app.urlstate import CircuitsState, Statistic

#: The searchable choices, and whether they are of columns.
SEARCHES = (
    (ids.ENTRIES_ROWS, False),
    (ids.ENTRIES_COLUMNS, True),
    (ids.ROW_CHOICE, False),
    (ids.COLUMN_CHOICE, True),
)


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_choice(app, services)
    _register_search(app, services)

    @app.callback(
        Output(ids.ENTRIES_GRAPH, "figure"),
        Output(ids.title(ids.ENTRIES), "children"),
        Output(ids.notice(ids.ENTRIES), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.ENTRIES_ROWS, "value"),
        Input(ids.ENTRIES_COLUMNS, "value"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "Map")
    def draw_entries(data: Any, rows: list[str], columns: list[str], theme: Theme | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return EMPTY, "Map"
        view = circuit_views.entries(services.circuits, choice, map(int, rows or []), map(int, columns or []))
        return view.figure(theme or "light"), f"Map of {words.named(choice)}"

    @app.callback(
        Output(ids.OVERVIEW_GRAPH, "figure"),
        Output(ids.OVERVIEW_CAPTION, "children"),
        Output(ids.notice(ids.OVERVIEW), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.OVERVIEW_STATISTIC, "value"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "")
    def draw_overview(data: Any, statistic: Statistic, theme: Theme | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return EMPTY, ""
        view = circuit_views.overview(services.circuits, choice, statistic)
        return view.figure(theme or "light"), view.caption

    @app.callback(
        Output(ids.BLOCK_GRAPH, "figure"),
        Output(ids.BLOCK_CAPTION, "children"),
        Output(ids.BLOCK_TABLE, "columnDefs"),
        Output(ids.BLOCK_TABLE, "rowData"),
        Output(ids.notice(ids.BLOCK_PANEL), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.BLOCK, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "", [], [])
    def draw_block(data: Any, block: list[int] | None, theme: Theme | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return EMPTY, "", [], []
        view = circuit_views.block(services.circuits, choice, block)
        shown = services.circuits.circuit(choice)
        records = entry_rows(shown, *view.listed)
        return view.map.figure(theme or "light"), view.caption, entry_columns(shown), records


def _register_choice(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.CIRCUIT, "data"),
        Output(ids.CIRCUITS_HEAD, "data"),
        Output(ids.CIRCUITS_HEADS, "children"),
        Output(ids.CIRCUITS_LEFT, "data"),
        Output(ids.CIRCUITS_LEFT, "value"),
        Output(ids.CIRCUITS_RIGHT, "data"),
        Output(ids.CIRCUITS_RIGHT, "value"),
        Output(ids.CIRCUITS_BIASES, "disabled"),
        Output(ids.CIRCUIT_MEANING, "children"),
        Output(ids.CIRCUIT_EXACTNESS, "children"),
        *(Output(id, prop) for id, _ in SEARCHES for prop in ("data", "value")),
        Output(ids.notice(ids.CIRCUIT_PANEL), "children"),
        Input(ids.CIRCUITS_CHECKPOINT, "value"),
        Input(ids.CIRCUITS_HEAD, "data"),
        Input(ids.CIRCUITS_KIND, "value"),
        Input(ids.CIRCUITS_LEFT, "value"),
        Input(ids.CIRCUITS_RIGHT, "value"),
        Input(ids.CIRCUITS_BIASES, "checked"),
        State(ids.CIRCUITS_ASKED, "data"),
        State(ids.CIRCUIT, "data"),
    )
    @guarded(None, *(no_update,) * 7, "", None, *(no_update,) * 8)
    def choose(
        checkpoint: str | None, head: Any, kind: Any, left: str, right: str, biases: bool, asked: Any, before: Any
    ) -> tuple[Any, ...]:
        first = before is None
        state = CircuitsState(
            checkpoint=checkpoint,
            head=(int(head[0]), int(head[1])) if head else None,
            kind=kind,
            left=left or asked["left"],
            right=right or asked["right"],
            biases=biases,
        )
        found = services.circuits.describe(state)
        choice, shape = found.choice, [found.n_layers, found.n_heads]
        data = {**choice.to_dict(), "layers": shape[0], "heads": shape[1], "reads_text": found.reads_text}
        data["problem"] = found.problem
        text: Any = found.problem
        searches: tuple[Any, ...] = (no_update,) * 8
        if not found.problem:
            shown = services.circuits.circuit(choice)
            data["spaces"] = [[choice.checkpoint, side.of, side.n] for side in (shown.rows, shown.columns)]
            text = words.meaning(shown)
            searches = _searches(services, (shown.rows, shown.columns), data, asked, before)
        same_grid = not first and [before["layers"], before["heads"]] == shape
        return (
            data,
            [choice.layer, choice.head],
            no_update if same_grid else head_buttons(*shape),
            side_options(found.left_options),
            choice.left,
            side_options(found.right_options),
            choice.right,
            not found.can_have_biases,
            text,
            None if found.problem else _exactness(found, services),
            *searches,
        )


def _register_search(app: Dash, services: Services) -> None:
    for id, of_columns in SEARCHES:

        @app.callback(
            Output(id, "data", allow_duplicate=True),
            Input(id, "searchValue"),
            # Not a state: a choice empties the box first, and options found without it would undo it.
            Input(id, "value"),
            State(ids.CIRCUIT, "data"),
            prevent_initial_call=True,
        )
        def search(wanted: str | None, value: Any, data: Any, of_columns: bool = of_columns) -> Any:
            choice = chosen(data)
            if choice is None:
                return no_update
            shown = services.circuits.circuit(choice)
            labels = shown.columns if of_columns else shown.rows
            kept = [int(one) for one in ([value] if isinstance(value, str) else value or [])]
            # A chosen one's text stands in the box; whoever opens the list then wants to see others.
            named = isinstance(value, str) and wanted == labels.shown(kept[0])
            found = labels.search("" if named else wanted or "", services.settings.n_options)
            return options(labels, [*found, *(one for one in kept if one < labels.n)])


def chosen(data: Any) -> Choice | None:
    """The circuit that is shown; None when there is none."""
    if not data or data.get("problem"):
        return None
    return Choice(**{field.name: data[field.name] for field in fields(Choice)})


def _searches(services: Services, sides: tuple[Labels, Labels], data: Any, asked: Any, before: Any) -> tuple[Any, ...]:
    """Options and values of the searchable choices: from the address at first, emptied where rows mean others now."""
    answer: list[Any] = []
    keys = ("rows", "columns", "row", "column")
    spaces = (before or {}).get("spaces") or [None, None]
    for (_, of_columns), key in zip(SEARCHES, keys, strict=True):
        labels = sides[of_columns]
        if spaces[of_columns] == data["spaces"][of_columns]:
            answer += [no_update, no_update]
            continue
        wanted = asked[key] if before is None else None
        some = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
        kept = [index for index in some if index < labels.n]
        value = [str(index) for index in kept]
        answer += [
            options(labels, [*kept, *labels.search("", services.settings.n_options)]),
            value if isinstance(asked[key], list) else next(iter(value), None),
        ]
    return tuple(answer)


def _exactness(found: Described, services: Services) -> Any:
    if not found.notes:
        return dmc.Text(words.exact(services.circuits.circuit(found.choice)), className="exact", size="sm")
    text: Sequence[Any] = [dmc.Text(note, size="sm") for note in found.notes]
    return dmc.Alert(
        text,
        title="Relative: compare entries with each other; they are not the model's own numbers",
        color="orange",
        variant="light",
        className="relative",
    )
