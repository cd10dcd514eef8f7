"""The server stops while a page is open, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from dash import Dash

from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids as heads
from app.shell import ids
from tests.app.conftest import act, new_page, settled
from tests.test_structure import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Server(ThreadingMixIn, WSGIServer):
    """One connection a request, so that none is left when it stops; waitress keeps them, and its process ends."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serve(app: Dash, port: int = 0) -> Iterator[str]:
    server = make_server("127.0.0.1", port, app.server, server_class=Server, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


TEXT = "The captain bowed to the captain."
NOTICE = f"#{ids.CONNECTION}"


def lock(page: Page, position: int) -> None:
    """A click on a token, without a pointer that rests on it and wants exact numbers."""
    page.locator("#heads-strip .chip").nth(position).dispatch_event("click")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    with new_page(chromium, viewport={"width": 800, "height": 900}) as page:
        yield page


def test_a_stopped_server_is_named_and_what_was_asked_is_answered_when_it_is_back(page: Page, app: Dash):
    trouble: list[str] = []
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(urlsplit(request.url).path))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    with serve(app) as address:
        page.goto(address + HEADS.format(HeadsState(checkpoint="tiny-mhsa", text=TEXT, tab="predictions")))
        page.locator("#heads-next-body table").wait_for()
        settled(page)
        assert not page.locator(NOTICE).is_visible()
    assert trouble == []

    # The predictions of two tokens in a row: the second replaces the first, which is never sent.
    lock(page, 1)
    page.locator(NOTICE).wait_for(state="visible")
    lock(page, 2)
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/healthz")):
        act(page.locator(f"{NOTICE} button").click)
    assert page.locator(NOTICE).is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    assert all("ERR_CONNECTION_REFUSED" in one for one in trouble), trouble
    # What was asked first has shown that nobody is there; since then it is looked for, ever less often.
    assert [one for one in failed if "_dash-" in one] == ["/_dash-update-component"]
    assert failed.count("/healthz") < 12

    with serve(app, port=urlsplit(address).port or 0):
        page.locator(f"{NOTICE} button").dispatch_event("click")  # it may be gone by itself already
        page.locator(NOTICE).wait_for(state="hidden")
        page.locator("#heads-next-body >> text=at position 2").wait_for()
        lock(page, 3)
        page.locator("#heads-next-body >> text=at position 3").wait_for()
    assert all("ERR_CONNECTION_REFUSED" in one for one in trouble), trouble


def test_it_goes_by_itself(page: Page, app: Dash):
    with serve(app) as address:
        page.goto(address + "/checkpoints")
        page.wait_for_selector("#checkpoints-table .ag-row")
        settled(page)
    page.locator(".nav-name", has_text="Heads").hover()
    act(page.locator(".nav-link").get_by_text("Heads", exact=True).click)
    page.locator(NOTICE).wait_for(state="visible")
    with serve(app, port=urlsplit(address).port or 0):
        page.locator(NOTICE).wait_for(state="hidden")
        page.locator(f"#{heads.PROMPT_PANEL}").wait_for()


#: A server that answers after 300 ms; it is asked for a slider's values, one each 30 ms for six seconds, and by clicks.
ASKS = """() => {
    Object.assign(window, { sent: [], flying: 0, most: 0, answers: [] });
    window.fetch = async function (path, { body }) {
        const { inputs: [value] } = JSON.parse(body);
        sent.push(value);
        most = Math.max(most, value === "click" ? 0 : ++flying);
        await new Promise((done) => setTimeout(done, 300));
        if (value !== "click") flying--;
        return new Response("{}");
    };
}"""
DRAGS = """() => {
    const ask = (value, id) => fetch("/_dash-update-component", {
        body: JSON.stringify({ output: "panel.children", inputs: [value], changedPropIds: [id] }),
    }).then((answer) => answers.push([value, answer.status]));
    for (let place = 0; place < 200; place++) setTimeout(() => ask(place, "noise.value"), 30 * place);
    for (let place = 0; place < 3; place++) setTimeout(() => ask("click", "start.n_clicks"), 100 * place);
}"""


def test_of_a_sliders_values_one_is_under_way_the_last_is_answered_and_clicks_all_go(page: Page):
    page.clock.install()
    page.set_content("<p>")
    page.evaluate(ASKS)
    page.add_script_tag(path=ROOT / "app/shell/static/connection.js")
    page.evaluate(DRAGS)
    page.clock.run_for(8000)
    sent, most, answers = page.evaluate("[sent, most, answers]")
    values = [value for value in sent if value != "click"]
    assert most == 1 and 15 <= len(values) <= 25 and sent.count("click") == 3
    assert values[0] == 0 and values[-1] == 199 and values == sorted(values)
    assert dict(map(tuple, answers))[199] == 200 and len(answers) == 203
