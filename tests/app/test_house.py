"""The house of the app: ids and callbacks are checked at start, static files are served by list, a page is a folder."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dash_mantine_components as dmc
import pytest
from dash import Input, Output, dcc, html

from app.core import Core, address
from app.factory import create_app
from app.pages import PAGES
from app.shell import sign_in, static
from app.shell.app import App
from app.shell.browser import Browser, Link
from app.shell.callbacks import guarded
from app.shell.ids import Ids
from app.shell.page import Page, python_of
from app.shell.panel import panel
from app.shell.props import components
from tests.messages import refused

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class SmallState:
    number: int = address.whole(1, least=1, most=9)


#: What a reader does: in a browser test it goes through `choose`, which waits until the page is at rest.
ACTIONS = {"click", "dblclick", "press", "fill", "type", "press_sequentially", "select_option", "set_input_files"}


def test_browser_tests_wait_for_the_page_and_not_for_time() -> None:
    def is_wait(node: ast.AST) -> bool:
        call = node.func if isinstance(node, ast.Call) else None
        return isinstance(call, ast.Attribute) and call.attr in ("sleep", "wait_for_timeout")

    def is_action(node: ast.AST) -> bool:
        call = node.value if isinstance(node, ast.Expr) else None
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ACTIONS

    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "tests/app").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if is_wait(node) or is_action(node)
    ]
    conftest, *others = sorted(faults, key=lambda fault: "conftest.py" not in fault)
    assert others == [], "use `eventually`, or `choose(page, page.click, …)`"
    assert conftest.startswith("tests/app/conftest.py")  # where `eventually` sleeps


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_whatever_takes_long_starts_with_run(app: App, page: Page) -> None:
    laid = components(page.content(app.core, app.services[page.name], page.address.parse(None)))
    words = {each.id: each.children for each in laid if each.id.endswith("-start") and isinstance(each, dmc.Button)}
    assert set(words.values()) <= {"Run"}, words


def small(name: str = "small", **rest: Any) -> Page:
    """A page with a field, a link and a panel."""

    def layout(core: Any, service: Any, state: SmallState) -> html.Div:
        box = dcc.Input(id=f"{name}-number", value=state.number)
        return html.Div([box, panel(f"{name}-panel", "Small", "", dcc.Link("", id=f"{name}-link", href=""))])

    given = {"address": address.Address(name, SmallState), "layout": layout, **rest}
    return Page(title="Small", **given)


def calling(output: Output, given: Input) -> Page:
    """A page with one callback."""

    def register(app: App, core: Any, service: Any) -> None:
        app.callback(output, given)(lambda value: value)

    return small(register=register)


# ── callbacks against layouts ───────────────────────────────────────────────────────────────────────────────


def test_callbacks_that_fit_start(settings, services: Core):
    page = calling(Output("small-link", "href"), Input("small-number", "value"))
    app = create_app(settings, services, pages=[page])
    assert len(app._callback_list) == 5


@pytest.mark.parametrize(
    ("output", "given", "parts"),
    [
        (Output("small-lnk", "href"), Input("small-number", "value"), ("'small-lnk'", "no layout")),
        (Output("small-link", "href"), Input("small-nmber", "value"), ("'small-nmber'", "no layout")),
        (Output("small-link", "hrfe"), Input("small-number", "value"), ("small-link.hrfe", "a Link has no")),
        (Output("small-link", "href"), Input("small-number", "valu"), ("small-number.valu", "a Input has no")),
    ],
)
def test_a_mistyped_id_or_property_stops_the_start(settings, services: Core, output, given, parts: tuple[str, ...]):
    with refused(*parts):
        create_app(settings, services, pages=[calling(output, given)])


def test_an_id_given_twice_stops_the_start(settings, services: Core):
    with refused("'small-panel'", "2 times"):
        create_app(settings, services, pages=[small(), small("other", layout=small().layout)])
    assert Ids("heads", "map", "row open-paths").OPEN_PATHS == "heads-open-paths"
    with pytest.raises(ValueError, match="names twice: map"):
        Ids("heads", "map row", "map")
    with refused("heads", "OPEN", error=AttributeError):
        _ = Ids("heads", "open-paths").OPEN


def test_python_for_a_view_is_offered_where_it_is_written(settings, services: Core):
    def layout(core: Any, service: Any, state: SmallState) -> html.Div:
        box = dcc.Input(id="small-number", value=state.number)
        return html.Div([box, panel("small-panel", "Small", "", dcc.Link("", id="small-link", href=""), exports=kinds)])

    def python(*panels: str) -> Any:
        return python_of(*panels)(lambda core, service, state, panel: ["result = 1"])

    kinds: tuple[str, ...] = ("csv", "python")
    create_app(settings, services, pages=[small(layout=layout, python=python("small-panel"))])
    for given in (None, python("small-other")):
        with refused("small-panel", "offers Python"):
            create_app(settings, services, pages=[small(layout=layout, python=given)])
    kinds = ("csv",)
    with refused("page small", "small-panel", "does not offer"):
        create_app(settings, services, pages=[small(layout=layout, python=python("small-panel"))])


def test_a_link_to_what_is_not_there_stops_the_start(settings, services: Core):
    for link, message in [
        (Link("larger", to="small-link"), "no page 'larger'"),
        (Link("small", to="small-link", size=("small-number", "value")), "has no size"),
        (Link("small", to="small-link", always={"colour": "red"}), "has no colour"),
    ]:
        with pytest.raises(ValueError, match=message):
            create_app(settings, services, pages=[small(browser=[link])])


def test_every_field_of_an_address_is_written(settings, services: Core):
    with pytest.raises(ValueError, match="differ in colour, number"):
        create_app(settings, services, pages=[small(writes={"colour": ("small-number", "value")})])


def test_a_function_that_the_script_lacks_stops_the_start(settings, services: Core, tmp_path: Path):
    script = tmp_path / "small.js"
    script.write_text('aotlens.page("small", { show({ number }) {} });')
    entry = Browser("show", inputs={"number": Input("small-number", "value")})
    create_app(settings, services, pages=[small(file=str(tmp_path / "__init__.py"), browser=[entry])])
    script.write_text('aotlens.page("small", { shown({ number }) {} });')
    with refused("small", "calls show"):
        create_app(settings, services, pages=[small(file=str(tmp_path / "__init__.py"), browser=[entry])])


def test_the_browsers_side_uses_ids_that_exist(app: App):
    layouts = [page.content(app.core, app.services[page.name], page.address.parse(None)) for page in app.pages]
    there = {one.id for one in components([app.layout, *layouts])}
    files = [page.script for page in PAGES] + [static.HERE / name for name in static.SCRIPTS]
    used = set()
    for path in filter(None, files):
        text = path.read_text()
        used |= set(re.findall(r'getElementById\("([\w-]+)"\)', text))
        used |= set(re.findall(r'(?:setProps|set_props)\("([\w-]+)"', text))
        used |= set(re.findall(r'"#([\w-]+)[ "]', text))
    for path in filter(None, [page.style for page in PAGES]):
        used |= set(re.findall(r"^#([\w-]+)", path.read_text(), re.MULTILINE))
    assert len(used) > 20
    assert used <= there, sorted(used - there)


# ── answers by name ─────────────────────────────────────────────────────────────────────────────────────────


def ask(app: App, number: int) -> dict[str, Any]:
    """What the callback of the small page answers where its number is that."""
    callback = next(one for one in app._callback_list if "small-link.children" in one["output"])
    names = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    body = {
        "output": callback["output"],
        "outputs": [{"id": name, "property": prop} for name, prop in names],
        "inputs": [{"id": "small-number", "property": "value", "value": number}],
        "changedPropIds": ["small-number.value"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body, headers={"Host": "localhost"})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.get_json()["response"]
    return response


def test_an_answer_names_what_it_changes(settings, services: Core):
    def register(app: App, core: Any, service: Any) -> None:
        @guarded(
            app,
            panel="small-panel",
            inputs={"number": Input("small-number", "value")},
            output={"link": Output("small-link", "children"), "href": Output("small-link", "href")},
            empty={"href": "/empty"},
        )
        def answer(number: int) -> Any:
            if number == 3:
                raise address.Unfit("nothing")
            return {0: {"link": "zero"}, 1: None, 2: {"lnk": "two"}}[number]

    app = create_app(settings, services, pages=[small(register=register)])

    assert ask(app, 0) == {"small-link": {"children": "zero"}, "small-panel-notice": {"children": None}}
    assert ask(app, 1) == {"small-link": {"children": None, "href": "/empty"}, "small-panel-notice": {"children": None}}
    for number, said in {2: "answers what is no output: lnk", 3: "Unfit: nothing"}.items():
        answer = ask(app, number)
        assert answer["small-link"] == {"children": None, "href": "/empty"}
        assert said in str(answer["small-panel-notice"])


def test_a_control_is_not_set_to_what_it_was_when_the_question_was_asked(settings, services: Core):
    """Of two quick choices, the answer to the first would undo the second."""

    def register(app: App, core: Any, service: Any) -> None:
        @guarded(
            app,
            panel="small-panel",
            inputs={"number": Input("small-number", "value")},
            output={"within": Output("small-number", "value"), "link": Output("small-link", "children")},
        )
        def answer(number: int) -> Any:
            return {"within": min(number, 2), "link": "asked"}

    app = create_app(settings, services, pages=[small(register=register)])
    expected = {"small-link": {"children": "asked"}, "small-panel-notice": {"children": None}}
    assert ask(app, 2) == expected
    assert ask(app, 3) == {**expected, "small-number": {"value": 2}}


# ── static files ────────────────────────────────────────────────────────────────────────────────────────────


def test_static_files_are_served_by_list_under_their_fingerprints(app: App):
    client = app.server.test_client()
    page = client.get("/", headers={"Host": "localhost"}).text
    paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert {path.rpartition("/")[2] for path in paths} >= {"theme.js", "shell.css", "heads.js", "checkpoints.css"}
    order = [page.index(f"/{name}.js") for name in ("wiring", "heads", "callbacks", "start")]
    assert order == sorted(order)
    waiting = page[page.index("<template") : page.index("</template>")]
    assert page.count("<script") - waiting.count("<script") == page.count('src="/static/') + 1  # and Dash's settings
    assert "dash_renderer" in waiting and 'id="_dash-renderer"' in waiting
    for path in paths:
        with client.get(path, headers={"Host": "localhost"}) as answer:
            assert answer.status_code == 200
            assert "immutable" in answer.headers["Cache-Control"]
            assert answer.mimetype == ("text/css" if path.endswith(".css") else "text/javascript")
    fingerprint = paths[0].split("/")[2]
    for path in (
        f"/static/{'0' * 16}/theme.js", f"/static/{fingerprint}/../static.py", "/static/theme.js", "/assets/theme.js",
        "/assets/shell/app.py", "/assets/factory.py", "/no-assets/factory.py", f"/static/{fingerprint}/factory.py",
    ):  # fmt: skip
        with client.get(path, headers={"Host": "localhost"}) as answer:
            assert answer.status_code == 404, path


def test_a_pages_html_is_small(app: App):
    assert len(app.server.test_client().get("/", headers={"Host": "localhost"}).data) <= 20_000


def test_the_wheel_has_every_static_file():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["app"]
    packaged = {path for pattern in patterns for path in (ROOT / "app").glob(pattern)}
    named = {path for page in PAGES for path in (page.script, page.style) if path is not None}
    named |= {static.HERE / name for name in (*static.EARLY, *static.SCRIPTS, static.LAST, *static.STYLES)} | {
        sign_in.FILE
    }
    assert named == packaged


def test_callbacks_do_not_become_more(app: App):
    """Each costs the browser a walk over the page at every step of every other one: 395 once."""
    assert len(app._callback_list) <= 128
