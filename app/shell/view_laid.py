"""A page that is made of views while it is laid out: panels, tabs, controls and links for a state of its address."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views import Limit, View
from aotlens.views.kinds import ImagesParameter, OwnImagesParameter
from app.core import Core
from app.core.errors import RequestError
from app.shell import fields as kinds
from app.shell import ids as shell_ids
from app.shell import own_images, own_texts
from app.shell import panel as frames
from app.shell.arrange import PageLink, Panel, Preset, Tabs
from app.shell.choices import options
from app.shell.controls import labelled
from app.shell.page_links import leading
from app.shell.prompt import checkpoint_choice
from app.shell.view_declared import Declared
from app.shell.view_service import Views
from app.shell.views import about_view


class Laid:
    """A page while it is laid out for a state of its address."""

    def __init__(self, page: Declared, core: Core, service: Views, state: Any) -> None:
        self.page, self.core, self.service = page, core, service
        self.available, self.groups = service.fitting(), service.groups()
        self.choices = dataclasses.asdict(state)
        models, inspected = service.selected(self.choices)
        self.choices |= {"models": models, "checkpoint": inspected or next(iter(models), None)}
        self.choices |= dict(zip(page.of, models, strict=True)) if page.family.sides and models else {}
        self.params: Any = None
        with suppress(RequestError):  # the panels say what is wrong
            self.params = service.values(self.choices)
        self.limits: Mapping[str, Limit] = {} if self.params is None else self.params.all_limits()

    def panel_id(self, panel: Panel) -> str:
        """Return the id of a panel."""
        return f"{self.page.name}-{panel.view.name}"

    def lay(self, part: Any) -> Any:
        """Lay a part out; a view as a `Panel`."""
        return (Panel(part) if isinstance(part, View) else part).lay(self)

    def frame(self, panel: Panel, content: Any, *, always: bool = False, links: Any = ()) -> html.Section:
        """Lay out a panel's frame with its header, which has these links; `always`, if it is asked wherever it is."""
        controls = [*(self.control(field, small=True) for field in panel.controls), *links]
        controls += self.presets(panel.presets)
        section = frames.panel(
            self.panel_id(panel), panel.view.title, about_view(panel.view), content, controls=controls,
            exports=panel.exports, follows=self.page.shown if panel.asked else None, always=always,
        )  # fmt: skip
        if panel.asked:
            setattr(section, "data-leaves", " ".join(self.page.leaves(panel)))
        return section

    def presets(self, presets: Sequence[Preset]) -> list[Any]:
        """Lay out buttons that set fields: menus first."""

        def button(preset: Preset) -> html.Button:
            tip = {"data-tip": preset.tip} if preset.tip else {}
            return html.Button(
                preset.words, type="button",
                className="plain-button" if {*preset.needs} <= {*self.available} else "plain-button hidden",
                **{"data-sets": json.dumps(preset.sets), **tip, **frames.QUIET},
            )  # fmt: skip

        laid: list[Any] = []
        for menu in sorted({preset.menu for preset in presets}, reverse=True):
            buttons = [button(preset) for preset in presets if preset.menu == menu]
            box = html.Details([html.Summary(menu), html.Div(buttons)], className="presets popover")
            laid += [box] if menu else buttons
        return laid

    def tabs(self, tabs: Tabs) -> dmc.Tabs:
        """Lay out sections of which one is open."""
        sections = {name: (words, self.lay(part)) for name, (words, part) in tabs.sections.items()}
        return frames.tabs(self.page.at[tabs.field], self.choices[tabs.field], sections, label=tabs.label)

    def control(self, field: str, *, small: bool = False) -> Any:
        """Lay out the control of a field."""
        page, id, value = self.page, self.page.at[field], self.choices.get(field)
        if field in page.of:
            return self._checkpoints(field, id, value)
        if field in page.carries or field in page.hidden:
            return dcc.Store(id=id, data=value)
        parameter = page.family.fields[field]
        if field in page.texts:
            return own_texts.text_field(id, self.core, parameter, value)
        if isinstance(parameter, ImagesParameter | OwnImagesParameter):
            return own_images.control(id, self.core, parameter, value)
        if field in page.heads:
            return kinds.head_buttons(id, parameter, value)
        wide = page.strip and field in page.form
        picked, live = field in page.picked, field in page.live
        control = kinds.control(id, parameter, value, small=small, picked=picked, wide=wide, live=live)
        if field in self.limits:
            limit, kind = self.limits[field], kinds.kind_of(parameter, small=small)
            properties = kinds.limited(parameter, limit)
            rest = properties.get("data-rest")
            at_rest = {
                "most": limit.most, "first": next(iter(limit.options or ()), None), "log": rest, "several": rest
            }  # fmt: skip
            end = {"value": at_rest[kind]} if value in (None, ()) and kind in at_rest else {}
            kinds.with_limits(control, id, properties | end)
            if limit.hidden:
                control.className = f"{getattr(control, 'className', '')} hidden"
        if field in page.labels and value not in (None, ()):
            control.data = self._options(field, value if isinstance(value, tuple) else (value,))
        return control

    def _options(self, field: str, rows: Sequence[int]) -> list[dict[str, str]]:
        """The options of rows that an address has, by their names if these are known."""
        with suppress(RequestError, AttributeError):
            return options(self.page.labels[field](self.service, self.params), rows)
        return [{"value": str(row), "label": str(row)} for row in rows]

    def _checkpoints(self, field: str, id: str, value: Any) -> Any:
        family = self.page.family
        group = next((names for names in self.groups.values() if {*self.choices["models"]} <= {*names}), self.available)
        if field == "models":
            label = "Compared" if family.alike else "Models"
            models = dmc.MultiSelect(
                id=id, label=label, data=group, value=value, maxValues=family.most, searchable=family.alike is None,
                hidePickedOptions=True, size="xs",
            )  # fmt: skip
            if family.alike is None:
                return models
            label, words = family.alike_words
            data = [{"value": key, "label": words.format(key)} for key in self.groups]
            group_key = next((key for key, names in self.groups.items() if names == group), None)
            groups = dmc.Select(
                id=f"{self.page.name}-group", label=label, data=data, value=group_key, allowDeselect=False, size="xs"
            )
            return html.Div([groups, models], className="arranged-controls")
        if family.alike is not None:
            inspected = dmc.Select(
                id=id, data=group, value=value, allowDeselect=False, size="xs", w=230,
                **{"aria-label": "Inspected model"},
            )  # fmt: skip
            return labelled("Inspected model", inspected, size="xs")
        choice = checkpoint_choice(id, self.core.catalog, value)
        choice.data = [option for option in choice.data if option["value"] in (*self.available, value)]
        choice.description = family.none if family.optional and not self.available else None  # else the page says it
        if family.sides:
            choice.label, choice.size = field.removesuffix("_model").capitalize(), "xs"
        return choice

    def links(self, links: Sequence[PageLink]) -> list[Any]:
        """Lay out links to other pages."""
        hidden = [] if self.params is None else hidden_links(self.page, self.params)
        return [
            leading(link.words, self.core.links.to(link.page), id=(id := f"{self.page.name}-open-{link.page}"),
                    hidden=id in hidden)
            for link in links
        ]  # fmt: skip

    def form(self, *, strip: bool = False) -> Any:
        """Lay out the controls of the parameters that belong to no panel: a panel, or a strip inside one."""
        page = self.page
        controls = [self.control(field) for field in page.form]
        waits = [html.Div(id=shell_ids.notice(page.form_id), role="status"), dcc.Store(id=shell_ids.seen(page.form_id))]
        follows = {"data-follows": page.shown, "data-always": "", "data-leaves": " ".join(page.form_leaves)}
        if strip:
            row = html.Div(controls, className="view-strip")
            return html.Div([row, *waits], id=page.form_id, role="group", **{"aria-label": "Parameters", **follows})
        return html.Section(
            [*controls, *waits], id=page.form_id, className="panel view-parameters",
            **{"aria-label": "Parameters", **follows},
        )  # fmt: skip


def hidden_links(page: Declared, params: Any) -> list[str]:
    """Return the ids of the links that are of no use for these parameters."""
    return [f"{page.name}-open-{link.page}" for link in page.links if link.when is not None and not link.when(params)]
