"""Every declared page without a browser: its address, its controls, which panels a field concerns, and an empty app."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from aotlens.heads import attention_patterns
from aotlens.views import family, make
from aotlens.views import parameters as declare
from aotlens.views.regression import MAP, MAPS, SUPPORT
from app.core import Core
from app.core.errors import RequestError
from app.pages import PAGES
from app.shell.app import App
from app.shell.arrange import Columns, Form, Panel, Rows, Tabs, walk
from app.shell.props import components
from app.shell.view_page import view_page
from app.shell.view_service import Views
from app.shell.views import table
from tests.messages import refused, says

#: The pages that are made of views.
DECLARED = {page.name: page for page in PAGES if page.declared is not None}


@pytest.fixture(scope="module")
def core(regression_app: App) -> Core:
    return regression_app.core


@pytest.fixture(scope="module")
def service(core: Core) -> Views:
    return Views(core, family("regression"))


@pytest.mark.parametrize("name", DECLARED)
def test_each_parameter_is_a_field_of_the_address_and_has_one_component(core: Core, name: str):
    page, of = DECLARED[name], family(name)
    state = page.address.parse(None)
    laid = list(components(page.layout(core, page.service(core), state)))
    ids = [component.id for component in laid]
    for field in page.address.names():
        assert ids.count(f"{name}-field-{field}") == 1, field
    assert set(of.fields) <= set(page.address.names())
    assert len(ids) == len(set(ids)), "a view and a parameter of one name do not clash"


@pytest.mark.parametrize("name", DECLARED)
def test_a_panel_is_asked_of_what_its_view_reads(core: Core, name: str):
    """Attribute access is traced while the call, the options of the figure and the file's name are made."""
    page = DECLARED[name]
    service = page.service(core)
    for panel in page.declared.panels.values():
        try:
            values = service.values({})
        except RequestError:
            return  # no checkpoint of this kind here
        seen: set[str] = set()
        traced = _traced(values, seen)
        if panel.view.missing(traced) is None:
            panel.view.call(traced)
            panel.view.drawn(traced)
            panel.view.file(traced)
        left = seen & set(page.declared.leaves(panel)) - {panel.frames}  # the browser goes to the frame
        assert not left, f"{panel.view.name} reads {left}"


def _traced(values: Any, seen: set[str]) -> Any:
    class Traced(type(values)):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            seen.add(name)
            return super().__getattribute__(name)

    fields = {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
    made = Traced(**fields)
    seen.clear()
    return made


def test_checkpoints_that_are_compared_have_inputs_of_one_width(service: Views):
    assert service.groups() == {"2": ["two"], "3": ["three-mhsa", "three-mssa"]}
    params = service.values({"models": ["three-mssa"], "checkpoint": "three-mhsa"})
    assert (params.models, params.checkpoint, params.d) == (("three-mssa",), "three-mhsa", 3)
    assert set(params.points.values()) == {7}
    assert service.values({"checkpoint": "two"}).models == service.values({}).models == ("two",)
    assert service.values({"models": ["three-mssa", "two"]}).models == ("three-mssa",)
    assert service.values({"checkpoint": "nowhere"}).checkpoint == "two", "the first of the first group"
    for name in (7, True, ["three-mhsa"]):
        with refused("name of a checkpoint", error=RequestError):
            Views(service.core, family("lens")).values({"checkpoint": name})


def test_a_choice_is_within_its_limits(service: Views):
    three = {"checkpoint": "three-mhsa"}
    assert service.values({**three, "dims": 9}).dims is None, "as many as there are"
    assert service.values({**three, "dims": 2, "nonzero": 3}).nonzero is None, "all that are left count"
    assert service.values({**three, "head": [9, 9]}).head == (0, 0)
    assert service.values({**three, "query": 99}).query is None
    assert service.values({"checkpoint": "two", "dims": 1}).dims == 1
    with refused("noise: expected a number from 0 to 2", error=RequestError):
        service.values({**three, "noise": 3.5})
    page = DECLARED["regression"]
    state, sentences = page.address.read("?checkpoint=three-mhsa&head=9.9&query=99&dims=9", service.core)
    assert (state.head, state.query, state.dims) == ((0, 0), None, None)
    assert len(sentences) == 3 and "a head of 2 layers of 3 heads" in " ".join(sentences)
    state, sentences = page.address.read("?models=three-mhsa,two&checkpoint=tiny-mhsa", service.core)
    assert state.models == ("three-mhsa",) and state.checkpoint == "three-mhsa" and len(sentences) == 2


def test_maps_are_the_models_patterns_on_the_prompt(service: Views, core: Core):
    params = service.values({"checkpoint": "three-mhsa", "skew": 1.0, "seed": 2, "prompt": 5, "head": [1, 2]})
    maps = service.workshop.result(MAP, params)
    tokens = params.task.run().sample(32, 7, 2).tokens[5]
    expected = attention_patterns(core.catalog.load("three-mhsa").model, tokens)
    np.testing.assert_array_equal(maps.patterns.pattern, expected.pattern)
    assert maps.patterns.str_tokens[:3] == ("x1", "y1", "x2") and len(maps.patterns.str_tokens) == 13
    rows = table(service.workshop, MAP, params).content.decode().splitlines()
    assert len(rows) == 1 + int(expected.visible[0].sum()) and rows[0].count(",") == 4
    says(MAP.caption(dataclasses.replace(params, query=4), maps), "at x3", "From x3 head 1.2 attends to")
    says(MAP.caption(dataclasses.replace(params, query=3), maps), "y2 is a label", "nothing is asked there")
    assert service.workshop.result(MAPS, params).patterns is maps.patterns, "computed once"


def test_what_belongs_to_a_panel_concerns_no_other(service: Views):
    """The fields that a panel's element names as those that do not concern it."""
    page = DECLARED["regression"].declared
    left = {id.removeprefix("regression-"): set(page.leaves(panel)) for id, panel in page.panels.items()}
    assert "axis" not in left["errors"] | left["layers"] and "axis" in left["support"]
    assert {"head", "query"} <= left["maps"] and not {"head", "query", "prompt", "quantity"} & left["map"]
    assert all("tab" in fields for fields in left.values()) and "seed" not in set().union(*left.values())
    assert page.form == ["models", "dims", "nonzero", "noise", "scale", "mean", "skew", "seed"]


@pytest.mark.parametrize("name", DECLARED)
def test_a_form_of_more_than_five_controls_is_a_column(name: str):
    page = DECLARED[name].declared
    holders = [
        part
        for part in walk(page.arranged)
        for each in getattr(part, "parts", ())
        if isinstance(each, Form) and each.view is None  # a form with a view is a strip, however long
    ]
    assert [isinstance(holder, Columns) for holder in holders] == [len(page.form) > 5] * len(holders), page.form


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parameters(declare.OfNone):
    kinds: str = declare.choice({"a": "a", "b": "b"}, label="Kinds")
    side: int = declare.whole(0, most=3, label="Side")


def test_a_view_and_a_parameter_may_have_one_name(core: Core):
    view = dataclasses.replace(SUPPORT, name="kinds", call=lambda params: make("builtins.dict"))
    of = dataclasses.replace(family("denoising"), name="clash", views=(view,), schema=_Parameters)
    page = view_page(of, "Clash", arranged=Rows(Columns(Form(), Panel(view)), Tabs("side_by", {"a": ("A", Rows())})))
    ids = [each.id for each in components(page.layout(core, page.service(core), page.address.parse(None)))]
    assert len(ids) == len(set(ids)) and {"clash-kinds", "clash-field-kinds", "clash-field-side_by"} <= set(ids)
