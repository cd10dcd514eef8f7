"""Python for a view: lines that give a panel's numbers in a notebook, which the page makes of what its address says.

A panel with "python" among its `exports` has the entry; `Page.python`, made with `python_of`, writes the lines, which
end with `result`. The browser sends the address, so that what is shown is what is written (static/python.js).
"""

from __future__ import annotations

from typing import Any

from dash import Input, Output, dcc, html

from aotlens.conventions import head_name
from app.core import Core
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import spoken
from app.shell.props import children


def loading(checkpoint: str | None) -> list[str]:
    """Return the first lines of most views: the library, and the model as `model`."""
    return ["import aotlens", "", f"model = aotlens.load({checkpoint!r})"]


def reading(core: Core, checkpoint: str, name: str, *, called: str = "text") -> list[str]:
    """Write lines for what a model reads of a text of `core.corpora`: the corpus, and `documents`, None for all."""
    documents = "None"
    if core.corpora.text(name, core.catalog.info(checkpoint)).documents is not None:
        documents = f"aotlens.checkpoints.find_checkpoint({checkpoint!r}).held_out({called}.names())"
    return [f"{called} = {core.corpora.opening(name).source}", f"documents = {documents}"]


def switched(core: Core, result: PromptResult, measure: str, *, length: int | None = None) -> list[str]:
    """Write lines that run `measure`, of `model` and a prompt `text`, with the heads off that are off in `result`.

    Windows of a corpus are as long as the prompt, or of `length`.
    """
    if not result.off:
        return [measure]
    heads, given, lines = list(map(head_name, result.off)), "", []
    if result.corpus is not None:
        causal = not core.catalog.load(result.checkpoint).model.sees_later_keys
        n, length = core.settings.reference_windows, length or result.patterns.n_pos
        lines = [
            *reading(core, result.checkpoint, result.corpus, called="corpus"),
            f"encoding = aotlens.data.Encoding.of(model.tokenizer, causal={causal})",
            f"windows = aotlens.data.spread_windows(corpus, documents or corpus.names(), encoding, {n}, {length})",
        ]
        given = ", reference=windows"
    return [*lines, f"with aotlens.heads.without(model, {heads!r}, {result.how!r}{given}):", f"    {measure}"]


def dialog() -> html.Dialog:
    """Lay out the dialog where the lines are shown, to be copied or saved."""
    buttons = [
        html.Button("Copy", className="plain-button python-copy"),
        html.Button("Save (PY)", className="plain-button python-save"),
        html.Button("Close", className="plain-button python-close"),
    ]
    return html.Dialog(
        [
            html.Div([html.H2("Python for this view", className="panel-title"), *buttons], className="python-header"),
            html.Pre(html.Code(id=ids.PYTHON_CODE), className="code", tabIndex=0),
            dcc.Store(id=ids.PYTHON_ASKED),
        ],
        id=ids.PYTHON,
        className="python-dialog",
        **{"aria-label": "Python for this view"},
    )


def register(app: App) -> None:
    """Register the callback that writes the lines."""
    pages = {page.name: page for page in app.pages}

    @app.callback(
        Output(ids.PYTHON_CODE, "children"), Input(ids.PYTHON_ASKED, "data"), prevent_initial_call=True
    )  # fmt: skip
    def write(asked: dict[str, str] | None) -> Any:
        if asked is None:
            return None

        def written() -> str:
            page = pages.get(ids.page_of(str(asked["panel"])))
            if page is None:
                raise RequestError("There is no such page, so there is no Python for it.")
            return lines(app, page.name, str(asked["panel"]), asked["search"])

        text, problem = spoken(written, "Python for a view")
        return text if problem is None else problem

    app.asked.declare({ids.PYTHON_ASKED: {"panel": "heads-map", "search": "?head=1.0"}})

    app.wiring.register(app, "shell", Browser("showPython", inputs=children(code=ids.PYTHON_CODE), at_first=False))


def lines(app: App, page: str, panel: str, search: str | None) -> str:
    """Return the lines for a panel of a page at an address."""
    owner = next(each for each in app.pages if each.name == page)
    state, taken = owner.address.read(search, app.core)
    written = owner.python and owner.python.write(app.core, app.services[page], state, panel)
    if not written:
        raise RequestError("There is nothing here that Python could repeat.")
    return "\n".join([*(f"# {sentence}" for sentence in taken), *written]) + "\n"
