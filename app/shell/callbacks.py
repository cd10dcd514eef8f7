"""Server callbacks by names, and what they do with an error: a clear message in their panel, never a traceback.

    @guarded(
        app, panel=ids.CURVE, parts=("figure", "caption"),
        inputs=stores(shown=ids.SHOWN, theme=shell.THEME), output=props("href", link=ids.OPEN),
    )
    def draw(shown, theme):
        return {"figure": …, "caption": …, "link": …}

`parts` are outputs of the panel that have their ids from it. What the answer does not name stays as it is; so does what
the callback has also read, where the answer says the same: somebody may have chosen something else there meanwhile.
None is the answer when there is nothing to show: then, as after an error, each output is empty: `empty` says what that
is, where it isn't the usual of its property.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from dash import Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from aotlens.checkpoints import CheckpointError
from aotlens.files import WriteError
from app.core.errors import RequestError, logged, not_kept, out_of_memory
from app.shell import ids
from app.shell.graph import EMPTY
from app.shell.notices import defect, no_memory, problem
from app.shell.props import Props, as_role, stores
from app.shell.requests import refuse_wrong_values

if TYPE_CHECKING:
    from app.shell.app import App

log = logging.getLogger("aotlens.app")

#: Parts of a panel: the id of each, and its property.
_PARTS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "figure": (ids.graph, "figure"),
    "matrix": (lambda panel: ids.drawn(ids.matrix(panel)), "data"),
    "body": (ids.body, "children"),
    "caption": (ids.caption, "children"),
    "title": (ids.title, "children"),
    "explanation": (ids.explanation, "children"),
    "notice": (ids.notice, "children"),
}

#: The value of an output when there is nothing to show, by its property; any other stays as it is.
_EMPTY: Mapping[str, Any] = {"children": None, "data": None, "figure": EMPTY}

#: The answer by the names of outputs.
Answer = dict[str, Any] | None

T = TypeVar("T")


def part(panel: str, name: str, **rest: Any) -> Output:
    """Return a panel's part as an output: figure, matrix, body, caption, title, explanation or notice."""
    make_id, prop = _PARTS[name]
    return Output(make_id(panel), prop, **rest)


def emptied(outputs: Mapping[str, Output]) -> dict[str, Any]:
    """Return the value of each output when there is nothing to show."""
    return {name: _EMPTY.get(each.component_property, no_update) for name, each in outputs.items()}


def spoken(work: Callable[[], T], name: str) -> tuple[T | None, Any]:
    """Return what `work` gives and nothing to say; or None, and what went wrong. `name` is for the log."""
    try:
        return work(), None
    except PreventUpdate:
        raise
    except (RequestError, CheckpointError) as error:
        return None, problem(str(error))
    except WriteError as error:
        logged(log, f"{name} could not write")
        return None, problem(not_kept(error))
    except BaseException as error:  # panics of native code, too
        if isinstance(error, Exception):
            log.info("%s failed; whether by what was asked is seen next", name, exc_info=True)
            refuse_wrong_values()
        id = logged(log, f"{name} failed")
        return None, no_memory(id) if out_of_memory(error) else defect(error, id)


class _Guarded:
    """One callback's outputs and inputs by names, and its answer with what went wrong; `guarded` says what is given."""

    def __init__(
        self, app: App, callback: Callable[..., Answer], *, panel: str, inputs: Props, state: Props | None = None,
        parts: Sequence[str] = (), output: Props | None = None, empty: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.app, self.callback, self.panel = app, callback, panel
        self.inputs, self.state = as_role(Input, inputs), as_role(State, state)
        self.outputs = {name: part(panel, name) for name in parts} | as_role(Output, output)
        misnamed = set(empty or {}) - set(self.outputs)
        if misnamed:
            raise ValueError(f"`empty` names what is no output: {', '.join(sorted(misnamed))}.")
        self.nothing = {**emptied(self.outputs), **(empty or {})}
        places = {str(each): name for name, each in (self.inputs | self.state).items()}
        self.returned = {name: places[str(each)] for name, each in self.outputs.items() if str(each) in places}
        self.filled = {
            name: each.component_id for name, each in self.outputs.items() if each.component_property == "data"
        }

    def answer(self, values: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """All outputs and the notice, and whether it went well."""
        if "theme" in values:
            values = {**values, "theme": values["theme"] or "light"}
        answer, problem = spoken(lambda: self._run(values), self.callback.__name__)
        for name, store in self.filled.items():
            if answer is not None and answer[name] is not no_update:
                self.app.asked.sent(store, answer[name])
        return {"notice": problem, **(self.nothing if answer is None else answer)}, answer is not None

    def _run(self, values: dict[str, Any]) -> dict[str, Any]:
        answer = self.callback(**values)
        if answer is None:
            return self.nothing
        unknown = answer.keys() - {*self.outputs, "notice"}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise TypeError(f"{self.callback.__name__} answers what is no output: {names}")
        same = (name for name, place in self.returned.items() if name in answer and answer[name] == values[place])
        return {**dict.fromkeys(self.outputs, no_update), **answer, **dict.fromkeys(same, no_update)}


def guarded(
    app: App,
    *,
    panel: str,
    inputs: Props,
    state: Props | None = None,
    parts: Sequence[str] = (),
    output: Props | None = None,
    empty: Mapping[str, Any] | None = None,
    at_first: bool = True,
    shares_notice: bool = False,
) -> Callable[[Callable[..., Answer]], Callable[..., dict[str, Any]]]:
    """Return a callback whose errors are said in `panel`; `shares_notice` where other callbacks speak there, too.

    A theme that nobody has chosen yet is light.
    """
    # A panel that is asked for when it is seen has nothing to answer before that.
    at_first = at_first and stores(seen=ids.seen(panel))["seen"] not in inputs.values()

    def decorate(callback: Callable[..., Answer]) -> Callable[..., dict[str, Any]]:
        guard = _Guarded(
            app, callback, panel=panel, inputs=inputs, state=state, parts=parts, output=output, empty=empty
        )

        @app.callback(
            output={**guard.outputs, "notice": part(panel, "notice", allow_duplicate=shares_notice)},
            inputs=guard.inputs, state=guard.state,
            prevent_initial_call="initial_duplicate" if shares_notice and at_first else not at_first,
        )  # fmt: skip
        @wraps(callback)
        def answered(**values: Any) -> dict[str, Any]:
            return guard.answer(values)[0]

        return answered

    return decorate
