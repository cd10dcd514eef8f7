"""What a page that is made of views consists of, from its family and its arrangement: fields, panels, its address."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from aotlens.views import Family, Parameter, View
from aotlens.views.kinds import CorpusParameter, OwnImagesParameter
from aotlens.views.parameters import key_of
from app.core import Core, address
from app.core.address_checks import Check, Unfit
from app.core.errors import RequestError
from app.core.labels import Labels
from app.shell import fields as kinds
from app.shell.arrange import Form, Panel, Tabs, walk
from app.shell.moving import HeadMaps
from app.shell.view_service import Views, first_of, fitting

#: `labels(service, params)`: the names of what a field is searched among.
FieldLabels = Callable[[Views, Any], Labels]


class Declared:
    """What a page consists of, from its declaration."""

    def __init__(
        self, family: Family, arranged: Any, labels: Mapping[str, FieldLabels], carries: Mapping[str, Any]
    ) -> None:
        self.family, self.name, self.arranged = family, family.name, arranged
        self.labels, self.carries = labels, carries
        parts = list(walk(arranged))
        self.panels = {f"{self.name}-{part.view.name}": part for part in parts if isinstance(part, Panel)}
        self.tabs = {part.field: part for part in parts if isinstance(part, Tabs)}
        self.strip = any(isinstance(part, Form) and part.view is not None for part in parts)
        self.maps = next((part for part in parts if isinstance(part, HeadMaps)), None)
        #: Parts with callbacks of their own: `register(app, page, service, address)`.
        self.registering = [part for part in parts if hasattr(part, "register")]
        self.links = list(dict.fromkeys(link for panel in self.panels.values() for link in panel.links))
        #: The fields that say which checkpoints: of one checkpoint, or of several and the inspected one.
        self.of = [] if family.reads is None else ["models"] if family.several else ["checkpoint"]
        self.of = [f"{side}_model" for side in family.sides] or self.of
        self.of += ["checkpoint"] if family.several and family.alike is not None else []
        self.fields = [*self.of, *family.fields, *self.tabs, *carries]
        panels = self.panels.values()
        owned = {field for panel in panels for field in (*panel.own, *panel.moves)}
        placed = {field for panel in panels for field in (*panel.controls, *panel.over, *panel.foot, *panel.moves)}
        self.local = [field for field in self.fields if field in owned or field in {*self.tabs, *carries}]
        #: Fields without a control, which only clicks set: stores hold them.
        self.hidden = [field for field in self.local if field not in placed and field not in self.tabs]
        self.form = [field for field in self.fields if field not in {*self.local, *placed}]
        limiting = {field for part in parts if isinstance(part, Form) for field in part.reads}
        self.form_leaves = [field for field in self.local if field not in limiting]
        self.at = {field: f"{self.name}-field-{field}" for field in self.fields}
        self.shown, self.keys, self.limits = (f"{self.name}-{store}" for store in ("shown", "keys", "limits"))
        self.form_id = f"{self.name}-form"
        #: Fields whose control is the buttons of all heads.
        self.heads = [
            name for name, each in family.fields.items() if name not in self.hidden and kinds.is_picked_head(each)
        ]
        self.search, self.found = f"{self.name}-search", f"{self.name}-found"
        self.keys_apart = f"{self.keys}-apart"
        self.further_stores = [self.search, self.found] if labels else []
        self.further_stores += [self.keys_apart] if any(panel.apart for panel in panels) else []
        self.small = {field for panel in panels for field in (*panel.controls, *panel.foot)}
        self.live = {field for panel in panels for field in panel.moves}
        #: The panels that have a text to choose, or the user's images, by that field.
        self.texts, self.own_images = (
            {field: self._holder(field) for field, each in family.fields.items() if isinstance(each, kind)}
            for kind in (CorpusParameter, OwnImagesParameter)
        )
        self.picked = {name for view in family.views if view.picks for name in _picked(view)}

    def _holder(self, field: str) -> str:
        """The panel that has a field's control, or the form."""
        panels = (id for id, panel in self.panels.items() if field in (*panel.controls, *panel.over))
        return next(panels, self.form_id)

    def leaves(self, panel: Panel) -> list[str]:
        """Return the fields that do not concern a panel."""
        return [field for field in (*self.local, *self.form) if field in panel.ignores or self._is_others(field, panel)]

    def _is_others(self, field: str, panel: Panel) -> bool:
        return field in self.local and field not in panel.own

    def place(self, field: str) -> tuple[str, str]:
        """Return the component that holds a field, and the property."""
        if field in self.carries or field in self.hidden:
            return self.at[field], "data"
        parameter = self.family.fields.get(field)
        return self.at[field], "value" if parameter is None else kinds.property_of(parameter)

    def facts(self, groups: Mapping[str, list[str]]) -> str:
        """Return what the page's script needs to know (static/view_page.js), as JSON."""
        parameters = self.family.fields
        read_as = {
            name: kinds.kind_of(each, small=name in self.small)
            for name, each in parameters.items()
            if name not in self.hidden
        }
        cleared = {name: list(by) for name, each in parameters.items() if (by := getattr(each, "cleared_by", ()))}
        maps = [f"{self.name}-{panel.view.name}" for panel in self.maps.parts] if self.maps else []
        facts = {"kinds": read_as, "cleared_by": cleared, "groups": groups, "maps": maps, "heads": self.heads}
        facts["searched"] = list(self.labels)
        facts["frames"] = {id: panel.frames for id, panel in self.panels.items() if panel.frames}
        facts["steps"] = {id: step for id, panel in self.panels.items() for step in panel.moves}
        return json.dumps({name: fact for name, fact in facts.items() if fact})


def _picked(view: View) -> list[str]:
    """The parameters that a click on the view's figure sets."""
    return [rule.split("=")[0].strip(" +") for rule in view.picks.split(";")]


def state_of(page: Declared) -> type[Any]:
    """The dataclass of the page's address."""
    family = page.family

    def check(core: Core, state: Any, value: str | tuple[str, ...]) -> None:
        available, several = fitting(core, family), not isinstance(value, str)
        fit = [name for name in (value if several else [value]) if core.catalog.has(name, available)]
        if family.alike is not None and fit:
            shared = family.alike(core.catalog.info(fit[0]))
            fit = [name for name in fit if family.alike(core.catalog.info(name)) == shared]
        if fit == [*(value if several else [value])]:
            return
        kind = "checkpoints" if several else "a checkpoint"
        same = " that can be compared" if family.alike is not None and several else ""
        expected = f"{kind} that this page accepts{same} ({', '.join(available) or 'there are none'})"
        raise Unfit(expected, tuple(fit) if several else first_of(core, family, available))

    def within(field: str, parameter: Parameter) -> Check:
        def check_limit(core: Core, state: Any, value: Any) -> None:
            try:
                limit = Views(core, family).of_address(state, made=False).all_limits().get(field)
            except RequestError:
                return
            nearest = value if limit is None else limit.nearest(parameter, value)
            if limit is not None and nearest != value:
                raise Unfit(limit.expected, nearest)

        return check_limit

    named: dict[str, tuple[Any, Any]] = {
        "checkpoint": (str | None, address.text(check=check)),
        "models": (tuple[str, ...], address.texts(most=family.most, longest=80, check=check)),
    }
    for side in family.sides:
        named[f"{side}_model"] = str | None, address.text(key=side, check=check)
    of = [(field, *named[field]) for field in page.of]
    rest = []
    for name, parameter in family.fields.items():
        limited = None if kinds.is_typed(parameter) else within(name, parameter)
        rest.append((name, Any, kinds.address_field(parameter, key_of(family.schema, name), limited)))
    tabs = [
        (field, str, address.choice(list(tab.sections), next(iter(tab.sections)))) for field, tab in page.tabs.items()
    ]
    carried = [(field, Any, each) for field, each in page.carries.items()]
    return dataclasses.make_dataclass("State", [*of, *rest, *tabs, *carried], frozen=True, kw_only=True)
