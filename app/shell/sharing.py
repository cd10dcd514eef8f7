"""Actions that several pages share: run a text, mark a head, say values, search tokens, ask for what is seen, save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dash import Input, Output, State, ctx, dcc, no_update, set_props

from app.core.files import File
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import spoken
from app.shell.props import Props, as_role, props, stores, values


def submit_text(app: App, *, prompt: str, text: str, example: str, checkpoint: str, run: str) -> None:
    """Run, another checkpoint or an example puts {checkpoint, text} into the store `prompt` (static/shell.js).

    The page's root has `data-max-characters`: of a longer text, only the length is sent. The ids are the page's name
    with `-text`, `-example`, `-checkpoint` and `-run`; Ctrl+Enter in the text clicks Run.
    """
    _shell(
        app,
        "submit",
        inputs=props("n_clicks", clicks=run) | values(checkpoint=checkpoint, example=example),
        state=values(text=text) | stores(prompt=prompt) | props("id", id=text),
        outputs=stores(prompt=prompt) | values(text=text, example=example),
        at_first=False,
        listens=True,
    )


def when_seen(app: App, shown: str, panels: Iterable[str]) -> None:
    """Pass what the store `shown` holds on to each panel's own store, `ids.seen(panel)`, once the panel is in view.

    The callbacks of `panels` listen to that store. A panel that has not answered yet says that it waits
    (static/waiting.js).
    """
    listed = list(panels)
    app.asked.same(shown, (ids.seen(panel) for panel in listed))
    app.followers.setdefault(shown, []).extend(listed)


def save_files(app: App, files: Mapping[str, Callable[..., File]], state: Props) -> None:
    """Register the entries of export menus that the server answers: `files[entry](**state)`. Pictures, the browser
    saves alone.

    What is wrong is said in the entry's panel.
    """

    app.saving.setdefault(ids.page_of(next(iter(files))), []).append((files, state))


def finish(app: App) -> None:
    """Register one callback for all panels that follow a store, and one for all that a page saves, when all pages are
    known: each costs the browser something at every step of every other one."""
    for shown in app.followers:
        _shell(app, "passOn", inputs=stores(shown=shown) | props("id", id=shown))
    for page, groups in app.saving.items():
        _save(app, page, groups)


def _save(app: App, page: str, groups: Sequence[tuple[Mapping[str, Callable[..., File]], Props]]) -> None:
    makers = {entry: (make, place) for place, (files, _) in enumerate(groups) for entry, make in files.items()}

    @app.callback(
        output=Output(ids.file_of(page), "data", allow_duplicate=True),
        inputs={"clicks": {entry: Input(entry, "n_clicks") for entry in makers}},
        state={"given": [as_role(State, state) for _, state in groups]},
        prevent_initial_call=True,
    )
    def save(clicks: Any, given: list[dict[str, Any]]) -> Any:
        entry = str(ctx.triggered_id)
        if entry not in makers:  # a request that names nothing pressed
            return no_update
        make, place = makers[entry]
        file, problem = spoken(lambda: make(**given[place]), f"saving {entry}")
        set_props(ids.notice(ids.exporting(entry)), {"children": problem})
        return no_update if file is None else dcc.send_bytes(file.content, file.name, type=file.mime)


def save_pictures(app: App, panel: str, make: Callable[..., Any], state: Props) -> None:
    """Register the entries PNG and SVG of a panel whose picture is made for the file: `make(**state)` gives a plotly
    figure.

    The panel has the store `ids.paper(panel)`; the browser draws the figure in its own size (static/shell.js).
    """
    entries = {kind: Input(ids.export(panel, kind), "n_clicks") for kind in ("png", "svg")}

    @app.callback(
        output=Output(ids.paper(panel), "data"),
        inputs={"clicks": entries},
        state={"given": as_role(State, state)},
        prevent_initial_call=True,
    )
    def draw(clicks: Any, given: dict[str, Any]) -> Any:
        entry = str(ctx.triggered_id)
        if entry not in {each.component_id for each in entries.values()}:
            return no_update
        figure, problem = spoken(lambda: make(**given), f"drawing {entry}")
        set_props(ids.notice(panel), {"children": problem})
        return no_update if figure is None else {"format": entry.rpartition("-")[2], "figure": figure}

    _shell(app, "saveFigure", inputs=stores(picture=ids.paper(panel)), at_first=False)


def _shell(app: App, name: str, **rest: Any) -> None:
    app.wiring.register(app, "shell", Browser(name, **rest))
