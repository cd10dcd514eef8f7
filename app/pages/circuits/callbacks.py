"""What the Circuits page asks of the server: which circuit, its map, and the whole of it."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from dash import Output, ctx, no_update

from aotlens.plots import Theme
from app.core.labels import Labels
from app.pages.circuits import figures, words
from app.pages.circuits.address import ADDRESS, CircuitsState, Statistic
from app.pages.circuits.ids import PANELS, ids
from app.pages.circuits.service import Choice, Circuits
from app.pages.circuits.tables import entry_columns, entry_rows, side_options
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons, options
from app.shell.notices import exact, relative, taken_instead
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_head, search_tokens, when_seen

#: The searchable choices by what the address calls them, and whether they are of columns.
_SEARCHES = {
    "rows": (ids.MAP_ROWS, False),
    "columns": (ids.MAP_COLUMNS, True),
    "row": (ids.ROW_CHOICE, False),
    "column": (ids.COLUMN_CHOICE, True),
}


def register(app: App, circuits: Circuits) -> None:
    """The page's callbacks."""
    mark_head(app, ids.HEADS, ids.SHOWN)
    when_seen(app, ids.SHOWN, PANELS)
    _register_choice(app, circuits)
    for name, of_columns in _SEARCHES.values():
        search_tokens(app, name, ids.SHOWN, partial(_labels, circuits, of_columns), follows_value=True)
    of_choice = partial(guarded, app, reads={"choice": chosen})

    @of_choice(
        panel=ids.MAP,
        inputs=stores(choice=shell.seen(ids.MAP), theme=shell.THEME)
        | values(rows=ids.MAP_ROWS, columns=ids.MAP_COLUMNS),
        parts=("figure", "title"),
        empty={"title": "Map"},
    )
    def draw_map(choice: Choice, rows: list[str], columns: list[str], theme: Theme) -> Answer:
        view = figures.entries(circuits, choice, map(int, rows or []), map(int, columns or []))
        return {"figure": view.figure(theme), "title": f"Map of {words.named(choice)}"}

    @of_choice(
        panel=ids.OVERVIEW,
        inputs=stores(choice=shell.seen(ids.OVERVIEW), theme=shell.THEME) | values(statistic=ids.OVERVIEW_STATISTIC),
        parts=("figure", "caption"),
    )
    def draw_overview(choice: Choice, statistic: Statistic, theme: Theme) -> Answer:
        view = figures.overview(circuits, choice, statistic)
        return {"figure": view.figure(theme), "caption": view.caption}

    @of_choice(
        panel=ids.BLOCK,
        inputs=stores(choice=shell.seen(ids.BLOCK), block=ids.BLOCK_AT, theme=shell.THEME),
        parts=("figure", "caption", "columns", "rows"),
    )
    def draw_block(choice: Choice, block: list[int] | None, theme: Theme) -> Answer:
        view, shown = figures.block(circuits, choice, block), circuits.circuit(choice)
        said = None
        if block is not None and tuple(block) != view.block:
            whole = " × ".join(map(str, circuits.overview(choice, "extreme").values.shape))
            instead = ADDRESS.sentence("block", ADDRESS.written("block", block), f"one of {whole} blocks", view.block)
            said = taken_instead([instead])
        return {
            "notice": said,
            "figure": view.map.figure(theme),
            "caption": view.caption,
            "columns": entry_columns(shown),
            "rows": entry_rows(shown, *view.listed),
        }


def _register_choice(app: App, circuits: Circuits) -> None:
    searches = {f"{name}_{prop}": Output(id, prop) for name, (id, _) in _SEARCHES.items() for prop in ("data", "value")}
    stay = ("head", "heads", "kind", "lefts", "left", "rights", "right", "biases", "distance_style", "most", *searches)

    @guarded(
        app,
        panel=ids.CHOICE,
        inputs=values(checkpoint=ids.CHECKPOINT, kind=ids.KIND, left=ids.LEFT, right=ids.RIGHT, distance=ids.DISTANCE)
        | stores(head=ids.HEAD, through=ids.THROUGH)
        | props("checked", biases=ids.BIASES),
        state=stores(asked=ids.ASKED, before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, head=ids.HEAD, lefts=ids.LEFT, rights=ids.RIGHT, heads=shell.drawn(ids.HEADS))
        | children(meaning=ids.MEANING, exactness=ids.EXACTNESS)
        | values(kind=ids.KIND, left=ids.LEFT, right=ids.RIGHT)
        | props("disabled", biases=ids.BIASES)
        | props("style", distance_style=ids.DISTANCE)
        | props("max", most=ids.DISTANCE)
        | searches,
        empty=dict.fromkeys(stay, no_update),
    )
    def choose(
        checkpoint: str | None, head: Any, kind: Any, left: str | None, right: str | None, distance: Any, biases: bool,
        through: Any, asked: Any, before: Any,
    ) -> Answer:  # fmt: skip
        left, right = left or asked["left"], right or asked["right"]
        if through and ids.THROUGH in ctx.triggered_prop_ids.values():
            head, kind = (through["layer"], through["head"]), through["kind"]
            left, right = through["left"], through["right"]
        described = circuits.describe(
            CircuitsState(
                checkpoint=checkpoint,
                head=(int(head[0]), int(head[1])) if head else None,
                kind=kind,
                left=left,
                right=right,
                biases=biases,
                distance=distance if isinstance(distance, int) and distance >= 0 else None,
            )
        )
        choice, shape = described.choice, [described.n_layers, described.n_heads]
        shown = {
            **choice.to_dict(),
            "named": described.named,
            "layers": shape[0],
            "heads": shape[1],
            "reads_text": described.reads_text,
            "problem": described.problem,
        }
        answer = {
            "shown": shown,
            "head": [choice.layer, choice.head],
            "kind": choice.kind,
            "lefts": side_options(described.left_options),
            "left": choice.left,
            "rights": side_options(described.right_options),
            "right": choice.right,
            "biases": not described.can_have_biases,
            "distance_style": {} if described.most_distance else {"display": "none"},
            "most": described.most_distance,
            "meaning": described.problem,
            "exactness": None,
        }
        if before is None or [before["layers"], before["heads"]] != shape:
            answer["heads"] = head_buttons(*shape)
        if described.problem:
            return answer
        circuit = circuits.circuit(choice)
        sides = circuit.rows, circuit.columns
        shown["spaces"] = [[choice.checkpoint, side.of, side.n] for side in sides]
        answer["meaning"] = words.meaning(circuit)
        if before is None and (said := _not_there(asked, choice, sides)):
            answer["notice"] = taken_instead(said)
        notes = described.notes
        answer["exactness"] = relative(notes, "entries") if notes else exact(words.exact(circuit))
        return answer | _searches(sides, shown, asked, before, circuits.settings.n_options)


def _labels(circuits: Circuits, of_columns: bool, data: Any) -> Labels | None:
    """Of the rows or columns of what is shown."""
    choice = chosen(data)
    if choice is None:
        return None
    circuit = circuits.circuit(choice)
    return circuit.columns if of_columns else circuit.rows


def chosen(data: Any) -> Choice | None:
    """The circuit that is shown; None when there is none."""
    if not data or data.get("problem"):
        return None
    return Choice(**{field.name: data[field.name] for field in fields(Choice)})


def _not_there(asked: Any, choice: Choice, sides: tuple[Labels, Labels]) -> list[str]:
    """A sentence for each side, row or column that the address names and this circuit does not have."""
    said = [
        ADDRESS.sentence(side, asked[side], "a side of this circuit", getattr(choice, side))
        for side in ("left", "right")
        if asked[side] not in (None, getattr(choice, side))
    ]
    for name, (_, of_columns) in _SEARCHES.items():
        labels, wanted = sides[of_columns], asked[name]
        indices = tuple(wanted) if isinstance(wanted, list) else () if wanted is None else (wanted,)
        kept = tuple(index for index in indices if index < labels.n)
        if kept != indices:
            taken = kept if isinstance(wanted, list) else None
            written = ADDRESS.written(name, wanted)
            said.append(ADDRESS.sentence(name, written, f"{labels.plural} from 0 to {labels.n - 1:,}", taken))
    return said


def _searches(sides: tuple[Labels, Labels], shown: Any, asked: Any, before: Any, n_options: int) -> dict[str, Any]:
    """Options and values of the searchable choices: from the address at first, emptied where rows mean others now."""
    answer: dict[str, Any] = {}
    spaces = (before or {}).get("spaces") or [None, None]
    for name, (_, of_columns) in _SEARCHES.items():
        labels = sides[of_columns]
        if spaces[of_columns] == shown["spaces"][of_columns]:
            continue
        wanted = asked[name] if before is None else None
        indices = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
        kept = [index for index in indices if index < labels.n]
        values = [str(index) for index in kept]
        answer[f"{name}_data"] = options(labels, [*kept, *labels.search("", n_options)])
        answer[f"{name}_value"] = values if isinstance(asked[name], list) else next(iter(values), None)
    return answer
