"""What several pages do alike: run a text, mark a head, save a figure or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update

from app import ids
from app.pages.guard import guarded
from app.services.export import File


def submit_text(app: Dash, *, prompt: str, text: str, example: str, checkpoint: str, run: str) -> None:
    """Run, another checkpoint or an example puts {checkpoint, text} into the store `prompt` (assets/shell.js).

    The page's root has `data-max-characters`: of a longer text, only the length is sent. The ids are the page's name
    with `-text`, `-example`, `-checkpoint` and `-run`; Ctrl+Enter in the text clicks Run.
    """
    app.clientside_callback(
        ClientsideFunction("shell", "submit"),
        Output(prompt, "data"),
        Output(text, "value"),
        Output(example, "value"),
        Input(run, "n_clicks"),
        Input(checkpoint, "value"),
        Input(example, "value"),
        State(text, "value"),
        State(prompt, "data"),
        State(text, "id"),
        prevent_initial_call=True,
    )


def mark_head(app: Dash, picker: str, shown: str) -> None:
    """Marks in a `head_picker` the head of what the store `shown` holds, {layer, head, …} or nothing."""
    app.clientside_callback(
        ClientsideFunction("pickHeads", "show"),
        Input(shown, "data"),
        Input(picker, "children"),
        State(picker, "id"),
    )


def save_pictures(app: Dash, panel: str, graph: str, title: State | None = None) -> None:
    """The entries for pictures in a panel's export menu; a figure without a name gets the panel's, or `title`."""
    for kind in ("png", "svg"):
        app.clientside_callback(
            ClientsideFunction("shell", f"save_{kind}"),
            Input(ids.export(panel, kind), "n_clicks"),
            State(graph, "id"),
            title or State(ids.title(panel), "children"),
            prevent_initial_call=True,
        )


def save_files(
    app: Dash,
    entries: Sequence[str],
    states: Sequence[State],
    make_file: Callable[..., File],
    *,
    download: str,
    panel: str,
) -> None:
    """The entries of export menus that the server answers: `make_file(entry, *states)` goes to `download`.

    What is wrong is said in `panel`.
    """

    @app.callback(
        Output(download, "data"),
        Output(ids.notice(panel), "children", allow_duplicate=True),
        *(Input(entry, "n_clicks") for entry in entries),
        *states,
        prevent_initial_call=True,
    )
    @guarded(no_update)
    def save(*args: Any) -> tuple[Any, ...]:
        file = make_file(str(ctx.triggered_id), *args[len(entries) :])
        return (dcc.send_bytes(file.content, file.name, type=file.mime),)
