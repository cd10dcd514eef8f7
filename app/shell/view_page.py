"""A page that is made of a family of views (`aotlens.views`): its address, controls, panels, callbacks and Python.

    PAGE = view_page(sufficient.FAMILY, "Sufficient heads", file=__file__)

Each parameter of the family is a field of the address, under the same name, and a control. Panels follow the controls;
one whose view is slow has a button that starts it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.checkpoints import CheckpointInfo
from aotlens.views import AnyParameter, Choice, Family, Parameter, TextParameter, Values, View
from app.core import Core, address
from app.core.address_checks import Unfit
from app.core.errors import RequestError
from app.core.jobs import Jobs
from app.core.parameters import declared
from app.core.workshop import AppWorkshop
from app.shell import ids as shell_ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.controls import parameter_slider
from app.shell.notices import empty
from app.shell.page import Page, Python
from app.shell.prompt import checkpoint_choice
from app.shell.props import children, inside, props, stores
from app.shell.props import values as values_of
from app.shell.sharing import save_files
from app.shell.views import FILES, drawn_of, follow_views, python_lines, record, show_views, tables, view_panel

#: The message where no checkpoint is fit.
NONE = "There is no checkpoint here that this can be of."


class Views:
    """The computing part of the page: views' results, and the work that takes long."""

    def __init__(self, core: Core, family: Family) -> None:
        self.core, self.family = core, family
        self.workshop = AppWorkshop(core, core.settings.n_views)
        self.jobs = Jobs(core.settings.n_views, memory=core.memory, seconds=core.settings.job_seconds)

    def fitting(self) -> list[str]:
        """Return the checkpoints that it can be of."""
        return fitting(self.core, self.family)

    def values(self, shown: Mapping[str, Any]) -> Values:
        """Return the values that were chosen. Raises RequestError for what the family refuses."""
        given = dict(shown)
        chosen = given.pop(_of(self.family), ())
        named = [chosen] if isinstance(chosen, str | None) else list(chosen)
        if None in named or (self.family.several and not named):
            raise RequestError(self.family.none or NONE)
        try:
            return self.family.chosen(*(self.core.catalog.info(name) for name in named), **given)
        except ValueError as error:
            raise RequestError(str(error)) from error


def fitting(core: Core, family: Family) -> list[str]:
    """Return the checkpoints here that a family can be of."""
    reads = family.reads
    return [] if reads is None else [i.name for i in core.catalog.list() if i.problem is None and reads(i)]


def view_page(
    family: Family,
    title: str,
    *,
    file: str,
    above: Callable[[Core, Views, Mapping[str, Any]], Any] | None = None,
    browser: Sequence[Browser] = (),
) -> Page:
    """Return the page of a family whose views are of one checkpoint, of several, or of none.

    `above(core, service, what was chosen)` is a panel of the page's own that stands before those of the views, and
    `browser` what its script does; what is chosen is in the store NAME-shown.
    """
    name = family.name
    of = _of(family)
    fields = ([of] if of else []) + list(family.parameters)
    ids = {field: f"{name}-{field}" for field in ("page", "shown", "keys", *fields)}
    views = {f"{name}-{view.name}": view for view in family.views}
    clicked = {panel: view for panel, view in views.items() if view.picks}
    picked = dict.fromkeys(each for view in clicked.values() for each in _picked(view))
    controls = {field: ids[field] for field in fields}
    page_address = address.Address(name, _state(family))

    def layout(core: Core, service: Views, state: Any) -> html.Div:
        there = service.fitting()
        none = family.reads is not None and not there
        choices = _said(core, family, there, state)
        form = [_control(core, there, field, family, ids[field], choices[field], field in picked) for field in fields]
        return html.Div(
            [
                *(dcc.Store(id=ids[store], data=None) for store in ("shown", "keys")),
                html.Div(
                    [
                        html.Section(form, className="panel view-parameters", **{"aria-label": "Parameters"}),
                        html.Div(
                            [
                                *([empty(family.none or NONE)] if none else []),
                                *([] if above is None else [above(core, service, choices)]),
                                *(
                                    view_panel(
                                        id,
                                        view,
                                        "graph-strip" if view.low else "graph-tall" if view.tall else "graph-view",
                                        exports=(*FILES, "json"),
                                        follows=ids["shown"],
                                    )
                                    for id, view in views.items()
                                ),
                            ]
                        ),
                    ],
                    className="view-columns",
                ),
            ],
            id=ids["page"],
        )

    def register(app: App, core: Core, service: Views) -> None:
        sliders = [field for field, each in family.parameters.items() if isinstance(each, Parameter)]
        numbers = children(**{f"said_{field}": shell_ids.value_of(ids[field]) for field in sliders})
        outputs = stores(shown=ids["shown"]) | numbers
        collect = Browser("collect", inputs=values_of(**controls), outputs=outputs, listens=True)
        app.wiring.register(app, "shell", collect)
        if clicked:
            clicks = props("clickData", **{panel.replace("-", "_"): shell_ids.graph(panel) for panel in clicked})
            controlled = values_of(**{name: ids[name] for name in picked})
            pick = Browser("pick", inputs=clicks, state=controlled, outputs=controlled | clicks, at_first=False)
            app.wiring.register(app, "shell", pick)
        drawn = {id: drawn_of(view) for id, view in views.items()}
        show_views(app, service.workshop, drawn, service.values, shown=ids["shown"], keys=ids["keys"], inputs={})
        follow_views(app, service.jobs, service.workshop, views, service.values, shown=ids["shown"])
        as_csv = tables(service.workshop, views, service.values)
        as_json = tables(service.workshop, views, service.values, "json", record)
        save_files(app, as_csv | as_json, stores(shown=ids["shown"]))

    def python(core: Core, service: Views, state: Any, panel: str) -> list[str]:
        return python_lines(views[panel], service.values(_said(core, family, service.fitting(), state)))

    return Page(
        title=title, address=page_address, service=lambda core: Views(core, family), layout=layout, register=register,
        python=Python(tuple(views), python), writes=inside(ids["shown"], *fields), file=file,
        sends={ids["shown"]: dataclasses.asdict(page_address.parse(None))}, browser=browser,
    )  # fmt: skip


def _picked(view: View) -> list[str]:
    """The parameters that a click on the view's figure sets."""
    return [rule.split("=")[0].strip(" +") for rule in view.picks.split(";")]


def _of(family: Family) -> str:
    """The field that says which checkpoints it is of; nothing where it is of none."""
    return "" if family.reads is None else "models" if family.several else "checkpoint"


def _said(core: Core, family: Family, there: list[str], state: Any) -> dict[str, Any]:
    """Return the choices that an address says, with the first checkpoints where it says none."""
    choices, of = dataclasses.asdict(state), _of(family)
    if of == "models":
        choices[of] = list(choices[of]) or _first_several(core, there)
    elif of:
        choices[of] = choices[of] or _first(core, there)
    return choices


def _state(family: Family) -> type[Any]:
    """The dataclass of the page's address."""

    def check(core: Core, state: Any, value: str | tuple[str, ...]) -> None:
        there = fitting(core, family)
        several = not isinstance(value, str)
        if not {*(value if several else [value])} <= {*there}:
            taken = tuple(name for name in value if name in there) if several else _first(core, there)
            kind = "checkpoints" if several else "a checkpoint"
            raise Unfit(f"{kind} that this can be of ({', '.join(there) or 'there are none'})", taken)

    single, several = address.text(check=check), address.texts(most=family.most, longest=80, check=check)
    named = {"checkpoint": (str | None, single), "models": (tuple[str, ...], several)}
    checkpoint = [(of, *named[of])] if (of := _of(family)) else []
    rest = [(name, Any, _field(each)) for name, each in family.parameters.items()]
    return dataclasses.make_dataclass("State", [*checkpoint, *rest], frozen=True, kw_only=True)


def _field(each: AnyParameter) -> Any:
    """A parameter as a field of the address."""
    if isinstance(each, Choice):
        return address.choice(tuple(each.options), each.first)
    if isinstance(each, TextParameter):
        return address.text(each.first, most=each.most, blank=bool(each.blank))
    return declared(each)


def _first(core: Core, there: list[str]) -> str | None:
    preferred = core.catalog.default()
    return preferred if preferred in there else next(iter(there), None)


def _first_several(core: Core, there: list[str]) -> list[str]:
    """The first checkpoint, and up to two that have its tokenizer and as many layers, but not its training once more
    (as with snapshots)."""
    first = _first(core, there)
    if first is None:
        return []
    own = core.catalog.info(first)

    def is_beside(other: CheckpointInfo) -> bool:
        shapes = [(info.tokenizer_sha256, info.model["n_layers"]) for info in (own, other)]
        trainings = [(info.seed, info.model, info.recipe.get("stages")) for info in (own, other)]
        return shapes[0] == shapes[1] and (not other.recipe or trainings[0] != trainings[1])

    return [first, *(name for name in there if name != first and is_beside(core.catalog.info(name)))][:3]


def _control(core: Core, there: list[str], field: str, family: Family, id: str, value: Any, picked: bool) -> Any:
    """Lay out the control that a parameter is chosen with. Text that clicks set, too, is told by Enter or when it is
    left: where it waits for more typing (Mantine's `debounce`), two clicks meanwhile can leave the first one's."""
    if field == "checkpoint":
        choice = checkpoint_choice(id, core.catalog, value)
        choice.data = [option for option in choice.data if option["value"] in there]
        return choice
    if field == "models":
        return dmc.MultiSelect(
            id=id, label="Models", data=there, value=value, maxValues=family.most, searchable=True,
            hidePickedOptions=True, size="xs",
        )  # fmt: skip
    each = family.parameters[field]
    if isinstance(each, Choice):
        data = [{"value": option, "label": words} for option, words in each.options.items()]
        return dmc.Select(id=id, label=each.label, data=data, value=value, allowDeselect=False, size="xs")
    if isinstance(each, TextParameter):
        settings = {"id": id, "label": each.label, "value": value, "placeholder": each.blank, "size": "xs"}
        settings["debounce"] = True if picked else 500
        return (
            dmc.TextInput(**settings)
            if each.lines == 1
            else dmc.Textarea(**settings, autosize=True, minRows=each.lines)
        )
    return parameter_slider(id, each, value)
