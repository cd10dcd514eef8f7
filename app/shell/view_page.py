"""A page that is made of a family of views (`aotlens.views`): its address, controls, panels, files and Python.

    PAGE = view_page(lens.FAMILY, "Lenses", arranged=Rows(Form(), Panel(lens.LENS)))

Each parameter of the family is a field of the address and has one component, NAME-field-FIELD, which holds its value.
The store NAME-shown holds all of them: the address is written from it, and panels, files and links follow it.
`arranged` says where controls and panels are (`app.shell.arrange`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from dash import Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from aotlens.views import Family
from aotlens.views.kinds import (
    CorpusParameter,
    HeadParameter,
    ImagesParameter,
    NumberParameter,
    OwnImagesParameter,
    RowParameter,
)
from app.core import Core, address
from app.core.catalog import NO_CHECKPOINT
from app.core.errors import RequestError
from app.shell import fields as kinds
from app.shell import ids as shell_ids
from app.shell import own_images, own_texts
from app.shell.app import App
from app.shell.arrange import Form, Matrix, Panel, Rows
from app.shell.browser import Browser, Link
from app.shell.callbacks import spoken
from app.shell.choices import options
from app.shell.maps import serve_maps
from app.shell.notices import empty
from app.shell.page import Page, Python
from app.shell.props import children, inside, props, stores
from app.shell.sharing import save_files, when_seen
from app.shell.view_declared import Declared, FieldLabels, state_of
from app.shell.view_laid import Laid, hidden_links
from app.shell.view_service import Views
from app.shell.views import FormLimits, follow_views, python_lines, record, show_views, tables

_SCRIPT = "viewPage"


def view_page(
    family: Family,
    title: str,
    *,
    arranged: Any = None,
    file: str | None = None,
    browser: Sequence[Browser] = (),
    around: str = "",
    labels: Mapping[str, FieldLabels] | None = None,
    carries: Mapping[str, Any] | None = None,
    opens: Callable[[Core], Mapping[str, Any]] | None = None,
    older: address.Older | None = None,
) -> Page:
    """Return the page of a family.

    `arranged` has to contain a `Form`; by default the form is above a panel of each view. `browser` is what the script
    next to `file` does. Results of the heads next to that of the parameter `around` are computed while nobody asks for
    anything. `labels` are, by parameter, the names among which a searched row is found. `carries` are further fields of
    the address (`app.core.address`), which links to other pages hand on. An empty address shows the fields that it
    `opens` on. `older` reads the page's older addresses.
    """
    page = Declared(family, arranged or Rows(Form(), *map(Panel, family.views)), labels or {}, carries or {})
    name, shown = family.name, page.shown
    views = {id: panel.view for id, panel in page.panels.items()}
    page_address = address.Address(name, state_of(page), older)

    def layout(core: Core, service: Views, state: Any) -> html.Div:
        if opens is not None and state == page_address.parse(None):
            state = dataclasses.replace(state, **opens(core))
        laid = Laid(page, core, service, state)
        none = family.reads is not None and not family.optional and not laid.available
        return html.Div(
            [
                html.H1(title, className="page-title"),
                *(dcc.Store(id=store) for store in (shown, page.keys, page.limits, *page.further_stores)),
                *(laid.control(field) for field in page.hidden),
                *([empty(family.none or NO_CHECKPOINT)] if none else []),
                laid.lay(page.arranged),
            ],
            id=f"{name}-page", className="view-page",
            **{
                "data-facts": page.facts(laid.groups),
                "data-empty": "" if none else None,
                "data-strip": "" if page.strip else None,
            },
        )  # fmt: skip

    def register(app: App, core: Core, service: Views) -> None:
        _register_controls(app, page)
        drawn = {id: each for id, panel in page.panels.items() if panel.asked and (each := panel.drawn(id)) is not None}
        form = FormLimits(page.form_id, page.limits, lambda shown: _form_limits(page, service, shown))
        likely = _around(service, around) if around else None
        at_once, apart = ({id: each for id, each in drawn.items() if page.panels[id].apart == is_apart}
                          for is_apart in (False, True))  # fmt: skip
        show = partial(show_views, app, service.workshop, values=service.values, shown=shown, inputs={})
        show(at_once, keys=page.keys, form=form, likely=likely)
        if apart:
            show(apart, keys=page.keys_apart)
        if page.labels:
            _search(app, page, service)
        if page.maps is not None:
            when_seen(app, shown, [f"{name}-{page.maps.every.name}"])
            serve_maps(app, name, page.maps.every, service, page_address, shown)
            seen = {part: shell_ids.seen(f"{name}-{panel.view.name}")
                    for part, panel in zip(("every", "one"), page.maps.parts, strict=True)}  # fmt: skip
            app.wiring.register(app, name, Browser("showMaps", inputs=stores(shown=shown, **seen)), script=_SCRIPT)
        for part in page.registering:
            part.register(app, page, service, page_address)
        follow_views(app, service.jobs, service.workshop, views, service.values, shown=shown)
        files: dict[str, Any] = {}
        for id, panel in page.panels.items():
            for kind, write in panel.saves.items():
                files |= tables(service.workshop, {id: panel.view}, service.values, kind, write)
        as_csv = {id: view for id, view in views.items() if "csv" in page.panels[id].exports}
        as_json = {id: view for id, view in as_csv.items() if "json" in page.panels[id].exports}
        files |= tables(service.workshop, as_csv, service.values)
        files |= tables(service.workshop, as_json, service.values, "json", record)
        save_files(app, files, stores(shown=shown))

    def python(core: Core, service: Views, state: Any, panel: str) -> list[str]:
        return python_lines(views[panel], service.of_address(state))

    links = [
        Link(
            link.page, to=f"{name}-open-{link.page}", always=dict(link.always), **inside(shown, *link.fields),
            **{field: (page.limits, f"data.linked.{link.page}.{field}") for field, _ in link.answers},
        )
        for link in page.links
    ]  # fmt: skip
    offered = tuple(id for id, panel in page.panels.items() if "python" in panel.exports)
    return Page(
        title=title, address=page_address, service=lambda core: Views(core, family), layout=layout, register=register,
        python=Python(offered, python), writes=inside(shown, *page.fields), file=file,
        declared=page, sends=_sent(page, page_address), browser=[*browser, *links],
    )  # fmt: skip


def _register_controls(app: App, page: Declared) -> None:
    """Let the browser make one choice of what the controls say, and set their limits."""
    name, family = page.name, page.family
    places = {field: page.place(field) for field in page.fields}
    sliders = [
        field
        for field, each in family.fields.items()
        if isinstance(each, NumberParameter)
        and field not in {*page.small, *page.hidden}
        and kinds.kind_of(each) != "number"
    ]
    values = children(**{f"value_of_{field}": shell_ids.value_of(page.at[field]) for field in sliders})

    def script(entry: Browser) -> None:
        app.wiring.register(app, name, entry, script=_SCRIPT)

    script(Browser("collect", inputs=places, outputs=stores(shown=page.shown) | values, listens=True))
    script(Browser("limit", inputs=stores(limits=page.limits)))
    if family.alike is not None:
        of = {field: places[field] for field in ("models", "checkpoint")}
        script(Browser("regroup", inputs={"group": (f"{name}-group", "value")}, state=of, at_first=False))
    if page.heads:
        script(Browser("showHeads", inputs=stores(shown=page.shown, limits=page.limits)))
    listed = {id: f"{id}-lines" for id, panel in page.panels.items() if panel.tabled}
    if listed:
        drawn = {id.replace("-", "_"): shell_ids.drawn(lines) for id, lines in listed.items()}
        script(Browser("listTables", inputs=stores(shown=page.shown, **drawn)))
    moved = {id.replace("-", "_"): shell_ids.graph(id) for id, panel in page.panels.items() if panel.frames}
    if moved:
        bodies = {
            f"{id.replace('-', '_')}_steps": shell_ids.body(id) for id, panel in page.panels.items() if panel.moves
        }
        inputs = stores(shown=page.shown) | props("figure", **moved) | children(**bodies)
        script(Browser("moveFrames", inputs=inputs))
    for field, panel in page.texts.items():
        own_texts.register(app, panel, page.at[field])
    for field, panel in page.own_images.items():
        own_images.register(app, panel, page.at[field], family.fields[field].most)  # type: ignore[attr-defined]
    matrices = [id for id, panel in page.panels.items() if isinstance(panel, Matrix)]
    if matrices:
        entries = {id.replace("-", "_"): shell_ids.drawn(shell_ids.matrix(id)) for id in matrices}
        script(Browser("drawMatrices", inputs=stores(**entries)))
    clicked = [id for id, panel in page.panels.items() if panel.view.picks]
    if clicked:
        clicks = props("clickData", **{id.replace("-", "_"): shell_ids.graph(id) for id in clicked})
        controls = {field: places[field] for field in sorted(page.picked)}
        script(Browser("pick", inputs=clicks, state=controls, outputs=controls | clicks, at_first=False))


def _form_limits(page: Declared, service: Views, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the form's controls may be set to: properties by field; and what was asked and replaced."""
    parameters = page.family.fields
    params = service.values(shown)
    asked = {
        name: parameters[name].parse(name, value)
        for name, value in shown.items()
        if name in parameters and value and not isinstance(parameters[name], CorpusParameter | ImagesParameter)
    }
    limits = {name: limit for name, limit in params.all_limits().items() if name in parameters}
    properties = {
        name: kinds.limited(parameters[name], limit) for name, limit in limits.items() if name not in page.hidden
    }
    taken = {name: getattr(params, name) for name in asked}
    replaced = {
        name: [shown[name], taken[name]]
        for name, each in asked.items()
        if parameters[name].written(taken[name]) != parameters[name].written(each)
    }
    heads = {
        name: [limit.shape.n_layers, limit.shape.n_heads] for name, limit in limits.items() if limit.shape is not None
    }
    return {
        "props": {name: each for name, each in properties.items() if each}, "replaced": replaced, "heads": heads,
        "hidden": hidden_links(page, params), "options": _first_options(page, service, params),
        "hides": {name: limit.hidden for name, limit in limits.items()},
        "linked": {link.page: {field: of(params) for field, of in link.answers} for link in page.links if link.answers},
    }  # fmt: skip


def _first_options(page: Declared, service: Views, params: Any) -> dict[str, list[dict[str, str]]]:
    """Return what searched fields offer before anybody types, by the fields' names with spaces between."""
    offered = {}
    for labels in dict.fromkeys(page.labels.values()):
        with suppress(RequestError):  # the panels say what is wrong
            names = labels(service, params)
            fields = " ".join(field for field, of in page.labels.items() if of is labels)
            offered[fields] = options(names, names.search("", service.core.settings.n_options))
    return offered


def _around(service: Views, field: str) -> Callable[[Mapping[str, Any]], Iterator[Mapping[str, Any]]]:
    """Return the heads that an arrow key leads to from the one of a choice."""

    def likely(shown: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        params = service.values(shown)
        (layer, head), sizes = getattr(params, field), params.heads_of(field)
        for to in ((layer, head + 1), (layer, head - 1), (layer + 1, head), (layer - 1, head)):
            if 0 <= to[0] < sizes.n_layers and 0 <= to[1] < sizes.n_heads:
                yield {field: list(to)}

    return likely


def _search(app: App, page: Declared, service: Views) -> None:
    """Answer what is typed into a searched field: the browser asks while somebody types there."""
    selected = props("value", **{field: page.at[field] for field in page.labels})
    app.wiring.register(app, page.name, Browser("takeIn", inputs=selected, at_first=False), script=_SCRIPT)
    app.wiring.register(app, page.name, Browser("offer", inputs=stores(found=page.found)), script=_SCRIPT)
    app.asked.declare({page.search: {"field": frozenset(page.labels), "typed": ""}})

    @app.callback(
        Output(page.found, "data"), Input(page.search, "data"), State(page.shown, "data"), prevent_initial_call=True
    )
    def search(asked: Mapping[str, Any] | None, shown: Mapping[str, Any] | None) -> Any:
        def offered() -> dict[str, Any]:
            if asked is None or shown is None or asked["field"] is None:  # no page sends these
                raise PreventUpdate
            names = page.labels[asked["field"]](service, service.values(shown))
            hits = names.search(asked["typed"] or "", service.core.settings.n_options)
            return {**asked, "options": options(names, hits)}

        found, problem = spoken(offered, f"searching {page.name}")
        if problem is not None:
            return no_update
        app.asked.sent(page.found, found)
        return found


def _example(page: Declared, field: str) -> Any:
    """Return an example of what a store of a field holds."""
    parameter = page.family.fields.get(field)
    if parameter is None:
        return ""
    if isinstance(parameter, OwnImagesParameter):
        return [""]
    several = isinstance(parameter, HeadParameter) and parameter.several
    return [(0, 0)] if several else 0 if isinstance(parameter, NumberParameter | RowParameter) else (0, 0)


def _sent(page: Declared, page_address: Any) -> dict[str, Any]:
    """Return an example of what the browser puts into each store (`app.shell.requests`)."""
    example = dataclasses.asdict(page_address.parse(None))
    held = {page.at[field]: _example(page, field) for field in page.fields if page.place(field)[1] == "data"}
    leaves = {id: page.leaves(panel) for id, panel in page.panels.items()} | {page.form_id: page.form_leaves}
    seen = {
        shell_ids.seen(id): {name: value for name, value in example.items() if name not in left}
        for id, left in leaves.items()
    }
    return {page.shown: example, **seen, **held}
