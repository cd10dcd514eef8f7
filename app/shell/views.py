"""Panels that show views (`aotlens.views`): figure, caption, table and Python, from one declaration.

views = {ids.LAYERS: LAYERS, ids.SUPPORT: SUPPORT}
show_views(app, workshop, views, values, shown=ids.SHOWN, keys=ids.KEYS)      the callbacks
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import Input, Output, State, dcc, html, no_update

from aotlens.plots import Theme
from aotlens.views import View
from app.core.errors import RequestError
from app.core.files import File, csv_file, json_file
from app.core.jobs import Job, Jobs, Report
from app.core.workshop import AppWorkshop
from app.shell import ids
from app.shell import panel as frames
from app.shell.app import App
from app.shell.background import follow_job, job_bar
from app.shell.callbacks import emptied, part, spoken
from app.shell.graph import entries_of, finding_first
from app.shell.props import Props, as_role, stores
from app.shell.sharing import when_seen

FILES = ("png", "svg", "csv", "python")
_AHEAD = 1e9  # operations of a result that nobody has asked for yet: about a second of a core
_PARTS = ("figure", "caption")
_NOT_MADE = "Not computed yet. Run computes it in the background; you can stop it."
_MADE_BY = "Not computed yet: Run in the panel ‹{}› computes it, too."


@dataclass(frozen=True, kw_only=True)
class Own:
    """A panel of a view that the page draws itself: a table with links, a text with marks.

    `draw(values, result)` gives its `parts` (`callbacks.part`) and `outputs` by their names; what it leaves out stays.
    Where "figure" is among the parts, the view's own figure and caption are there already; or "matrix", of a view whose
    figure is one heat map.
    """

    view: View
    draw: Callable[[Any, Any], dict[str, Any]] | None = None
    """The drawing; None for the view's own figure and caption."""
    parts: Sequence[str] = ("body",)
    outputs: Props = field(default_factory=dict)
    empty: Mapping[str, Any] = field(default_factory=dict)
    """The values of outputs where there is nothing to show, if not the usual of their properties."""
    quiet: bool = False
    """Whether the caption says what is missing (`View.missing`), or else `empty`, and no notice does."""
    reads: Callable[[Any], Any] = lambda values: ""
    """The choices that `draw` depends on beside the view's call."""


@dataclass(frozen=True)
class FormLimits:
    """What a page's form offers next to its other values, answered with the panels in one request."""

    form: str
    """The id of the form, which follows the page's store."""
    store: str
    """The store that gets the answer."""
    answer: Callable[[Mapping[str, Any]], dict[str, Any]]


def start_bar(id: str) -> html.Div:
    """Return the button that starts a slow view, and how far it is."""
    button = dmc.Button("Run", id=ids.start(id), n_clicks=0, size="compact-sm")
    return html.Div([button, job_bar(id), dcc.Store(id=ids.made(id))], className="view-start")


def about_view(view: View) -> Any:
    """Return the explanation behind the "?" of a view's panel."""
    return frames.about(view.about, formula=view.formula, source=view.source)


def picture(workshop: AppWorkshop, view: View, values: Any, theme: Theme) -> dict[str, Any]:
    """Return a view's figure and caption. Raises RequestError for what is missing."""
    result = workshop.result(view, values)
    drawn = _refusing(lambda: view.figure(values, result, theme))
    drawn.layout.meta = {**(drawn.layout.meta or {}), "name": view.file(values), "picks": view.picks}
    return {"figure": drawn, "caption": view.caption(values, result)}


def table(workshop: AppWorkshop, view: View, values: Any) -> File:
    """Return a view's table as a file."""
    result = workshop.result(view, values)
    return csv_file(f"{view.file(values)}.csv", _refusing(lambda: view.frame(result)))


def record(workshop: AppWorkshop, view: View, values: Any) -> File:
    """Return a view's result as JSON: the parameters, the result's numbers and texts, the rows of its table, and of a
    circuit its graph."""
    result = workshop.result(view, values)
    frame = _refusing(lambda: view.frame(result))
    rows = [
        {name: _exact(value) for name, value in row.items()}
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records")
    ]
    params = dict(values) if isinstance(values, Mapping) else _fields(values)
    plain = {name: _exact(value) for name, value in {**params, **_fields(result)}.items() if _is_plain(value)}
    graph = {"graph": result.to_graph()} if hasattr(result, "to_graph") else {}
    return json_file(f"{view.file(values)}.json", {**plain, "rows": rows, **graph})


def _fields(held: Any) -> dict[str, Any]:
    return {each.name: getattr(held, each.name) for each in fields(held)}


def _exact(value: Any) -> Any:
    """A whole number beyond what JSON's readers take for one as text, and null for what is no number."""
    if isinstance(value, tuple):
        return [_exact(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _refusing(work: Callable[[], Any]) -> Any:
    """Return what `work` gives; what a result refuses to show, somebody at the browser has asked for."""
    try:
        return work()
    except ValueError as error:
        raise RequestError(str(error)) from error


def show_views(
    app: App,
    workshop: AppWorkshop,
    views: Mapping[str, View | Own],
    values: Callable[..., Any],
    *,
    shown: str,
    keys: str,
    inputs: Props,
    likely: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]] | None = None,
    form: FormLimits | None = None,
) -> None:
    """Show panels by their ids that follow the store `shown`: one callback for all, which computes what is in view and
    no longer what was drawn, and says of each what went wrong with it alone.

    `values(shown, **inputs)` are the parameters. The store `keys` holds what each picture was of. `likely` gives the
    fields that may be set next: results of panels in view are made for them while nobody asks for anything. The limits
    of the page's `form` are answered, too.
    """
    when_seen(app, shown, [*views, *([] if form is None else [form.form])])
    panels = {name: each if isinstance(each, Own) else Own(view=each, parts=_PARTS) for name, each in views.items()}
    titles = {panel.view.name: panel.view.title for panel in panels.values()}
    outputs = {
        name: {each: part(name, each) for each in (*panel.parts, "notice")}
        | as_role(Output, panel.outputs)
        | ({"run": Output(ids.start(name), "className")} if panel.view.starts else {})
        for name, panel in panels.items()
    }
    nothing = {name: {**emptied(outputs[name]), **panel.empty} for name, panel in panels.items()}
    asked = {place: name for name, place in inputs.items()}
    limits = {} if form is None else {"limits": Output(form.store, "data"), "notice": part(form.form, "notice")}

    @app.callback(
        output={"panels": outputs, "keys": Output(keys, "data"), "form": limits},
        inputs={
            "form_seen": {} if form is None else {"form": Input(ids.seen(form.form), "data")},
            "seen": {panel: Input(ids.seen(panel), "data") for panel in views},
            "made": {name: Input(ids.made(name), "data") for name, panel in panels.items() if panel.view.starts},
            "theme": Input(ids.THEME, "data"),
            "given": as_role(Input, inputs),
        },
        state={"before": State(keys, "data")},
        prevent_initial_call=True,
    )
    def draw(
        form_seen: dict[str, Any], seen: dict[str, Any], made: dict[str, Any], theme: Theme | None,
        given: dict[str, Any], before: dict[str, str] | None,
    ) -> Any:  # fmt: skip
        answers: dict[str, Any] = {}
        drawn = dict(before) if isinstance(before, dict) else {}
        for name, panel in panels.items():
            drawn[name], answer = _drawn(
                workshop, panel, values, seen[name], theme or "light", given, drawn.get(name), nothing[name], titles
            )
            answers[name] = {**dict.fromkeys(outputs[name], no_update), **(answer or {})}
            for output in answer or ():
                place = outputs[name][output].component_id, outputs[name][output].component_property
                told = answers[name][output]
                if place in asked and told == given[asked[place]]:
                    answers[name][output] = no_update  # another one may be selected meanwhile
                elif place[1] == "data" and told is not no_update:  # choices that are offered
                    app.asked.sent(place[0], told)
        offered: dict[str, Any] = dict.fromkeys(limits, no_update)
        if form is not None and form_seen["form"]:
            drawn[form.form], offered = _offered(form, form_seen["form"], drawn.get(form.form))
        app.asked.sent(keys, drawn)
        now = next(filter(None, seen.values()), None)
        if likely is not None and now is not None:
            in_view = {name: each for name, each in seen.items() if each and _agree(each, now)}
            app.ahead.offer(
                partial(_prepare, workshop, panels[name].view, values, {**each, **then}, given)
                for then in likely(now) for name, each in in_view.items()
            )  # fmt: skip
        return {"panels": answers, "keys": drawn, "form": offered}


def _agree(seen: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a panel has seen what another one has, of the fields that concern both: others hold what was before."""
    return all(seen.get(name, value) == value for name, value in now.items())


def _before(view: View, values: Any, titles: Mapping[str, str]) -> str:
    """What a panel states before its result is made."""
    if view.made_by:
        return _MADE_BY.format(titles[view.made_by])
    return _NOT_MADE if view.before is None else view.before(values)


def _offered(form: FormLimits, shown: Mapping[str, Any], before: str | None) -> tuple[str, dict[str, Any]]:
    """Return what the limits depend on, and the limits if they are others than before."""
    limits, problem = spoken(lambda: form.answer(shown), f"limits of {form.form}")
    if limits is None:
        return "!", {"limits": no_update, "notice": problem}
    key = hashlib.sha256(repr(limits).encode()).hexdigest()[:16]
    return key, {"limits": no_update if key == before else limits, "notice": None}


def _prepare(
    workshop: AppWorkshop, view: View, values: Callable[..., Any], shown: Mapping[str, Any], given: dict[str, Any]
) -> None:
    params = values(shown, **given)
    if view.missing(params) is None and not workshop.waits(view, params) and view.cost(params) <= _AHEAD:
        workshop.result(view, params)


def _drawn(
    workshop: AppWorkshop, panel: Own, values: Callable[..., Any], shown: Any, theme: Theme, given: dict[str, Any],
    before: str | None, nothing: dict[str, Any], titles: Mapping[str, str],
) -> tuple[str, dict[str, Any] | None]:  # fmt: skip
    """Return what a panel's picture is of, and the panel; None for one that is drawn already."""
    if not shown:
        return "", nothing if before else None
    view = panel.view

    def compute() -> tuple[str, dict[str, Any] | None]:
        params = values(shown, **given)
        known = not workshop.waits(view, params)
        of = f"{theme}{known}{view.key(params)}{panel.reads(params)}"
        key = hashlib.sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        if key == before:
            return key, None
        missing = view.missing(params)
        if missing is not None and panel.quiet:
            return key, {**nothing, "notice": None, **({"caption": missing} if "caption" in nothing else {})}
        if not known and missing is None:
            run = {"run": ""} if view.starts else {}
            return key, {**nothing, "notice": None, **run, "caption": _before(view, params, titles)}
        answer = {"notice": None, **({"run": "hidden"} if view.starts else {})}
        if panel.draw is None or {"figure", "matrix"} & {*panel.parts}:
            answer |= picture(workshop, view, params, theme)
            answer["figure"].layout.meta = {**answer["figure"].layout.meta, "key": key}
        if "matrix" in panel.parts:
            answer["matrix"] = entries_of(answer.pop("figure"))
        if panel.draw is not None:
            answer |= panel.draw(params, workshop.result(view, params))
        if isinstance(answer.get("caption"), str):
            answer["caption"] = finding_first(answer["caption"])
        return key, answer

    answer, problem = spoken(compute, f"drawing {view.name}")
    return ("!", {**nothing, "notice": problem}) if answer is None else answer


def follow_views(
    app: App,
    jobs: Jobs,
    workshop: AppWorkshop,
    views: Mapping[str, View],
    values: Callable[[Mapping[str, Any]], Any],
    *,
    shown: str,
) -> None:
    """Register the callbacks of views that are slow: each is started by its panel's button, for what the store `shown`
    holds, and drawn by `show_views` once it is made."""
    for panel, view in views.items():
        if view.starts:
            _follow(app, jobs, workshop, panel, view, values, shown)


def _follow(
    app: App, jobs: Jobs, workshop: AppWorkshop, panel: str, view: View, values: Callable[..., Any], shown: str
) -> None:
    def start(session: str, shown: Any) -> Job:
        if not shown:
            raise RequestError("Nothing is selected to start.")
        params = values(shown)
        missing = view.missing(params)
        if missing is not None:
            raise RequestError(missing)

        def work(report: Report) -> None:  # the workshop keeps what it gives
            workshop.told(lambda done, total: report(done, total, view.slow)).result(view, params)

        key = f"{panel}:{(view.slow_part or view.call)(params).source}"
        if not workshop.known(view, params):
            jobs.forget(key)  # its result was, and no longer fits
        return jobs.start(key, view.title, work, session=session)

    def done(job: Job) -> dict[str, Any]:
        return {"made": job.key}

    app.asked.declare({ids.made(panel): "key"})
    follow_job(
        app, jobs, panel, form=stores(shown=shown), start=start, done=done, output=stores(made=ids.made(panel)),
        units=view.slow, failed=f"{view.title}: this could not be computed",
    )  # fmt: skip


def python_lines(view: View, values: Any) -> list[str]:
    """Write lines that give a view's result, table and figure. Raises RequestError where something is missing."""
    lines: str = _refusing(lambda: view.python(values))
    return lines.splitlines()


def tables(
    workshop: AppWorkshop,
    views: Mapping[str, View],
    values: Callable[..., Any],
    kind: str = "csv",
    write: Callable[[AppWorkshop, View, Any], File] = table,
) -> dict[str, Callable[..., File]]:
    """Return what `write` gives of every panel, by default its CSV, for `sharing.save_files`."""

    def of(view: View) -> Callable[..., File]:
        def make(shown: Any, **given: Any) -> File:
            if not shown:
                raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
            return write(workshop, view, values(shown, **given))

        return make

    return {ids.export(panel, kind): of(view) for panel, view in views.items()}
