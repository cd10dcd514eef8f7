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
        page.locator("#heads-next table").wait_for()
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
        page.locator("#heads-next >> text=After position 2").wait_for()
        lock(page, 3)
        page.locator("#heads-next >> text=After position 3").wait_for()
    assert all("ERR_CONNECTION_REFUSED" in one for one in trouble), trouble


def test_it_goes_by_itself(page: Page, app: Dash):
    with serve(app) as address:
        page.goto(address + "/checkpoints")
        page.wait_for_selector("#checkpoints-table tbody tr")
        settled(page)
    page.locator(".nav-name", has_text="Heads").hover()
    act(page.locator(".nav-link").get_by_text("Heads", exact=True).click)
    page.locator(NOTICE).wait_for(state="visible")
    with serve(app, port=urlsplit(address).port or 0):
        page.locator(NOTICE).wait_for(state="hidden")
        page.locator(f"#{heads.PROMPT_PANEL}").wait_for()
