"""The page that asks for the token, in a browser: a wrong one, the right one, and what the browser keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from tests.app.conftest import choose, new_page, serve, settled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def address(settings: Settings, services: Core) -> Iterator[str]:
    given = replace(settings, token=TOKEN)
    with serve(create_app(given, replace(services, settings=given))) as address:
        yield address


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (800, "dark")])
def test_a_person_without_the_token_is_asked_and_goes_on_where_they_were(
    chromium: Browser, address: str, width: int, scheme: Any
):
    from playwright.sync_api import expect

    with new_page(chromium, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        trouble: list[str] = []
        answers: dict[str, list[Any]] = {}
        page.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("response", lambda answer: answers.setdefault(_path(answer.url), []).append(answer))

        page.goto(f"{address}/checkpoints?checkpoint=tiny-mssa")
        expect(page).to_have_title("Sign in · aotlens")
        expect(page.get_by_label("Token")).to_be_focused()
        assert set(answers) == {"/checkpoints", "/sign-in"}, "nothing of the app has been fetched"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(25, 25, 25)"
        assert dark == (scheme == "dark")

        choose(page, page.get_by_label("Token").fill, "wrong-horse-battery")
        choose(page, page.get_by_role("button", name="Sign in").click)
        expect(page.get_by_role("alert")).to_have_text("This is not the token.")
        expect(page.get_by_label("Token")).to_be_focused()
        assert page.get_by_label("Token").input_value() == "" and not signed_in(page)
        assert [said for said in trouble if "403" not in said] == []  # Chromium names a page with such a status
        trouble.clear()

        choose(page, page.get_by_label("Token").fill, TOKEN)
        choose(page, page.keyboard.press, "Enter")
        page.wait_for_selector("#checkpoints-table")
        settled(page)
        assert page.url.startswith(f"{address}/checkpoints?") and "checkpoint=tiny-mssa" in page.url
        assert TOKEN not in page.url and trouble == []

        (cookie,) = signed_in(page)
        assert cookie["httpOnly"] and cookie["sameSite"] == "Lax" and cookie["expires"] == -1
        assert TOKEN not in cookie["value"] and "signed-in" not in page.evaluate("document.cookie")
        for path in ("/_dash-layout", "/_dash-update-component", "/sign-in"):
            assert answers[path] and all(one.headers["cache-control"] == "no-store" for one in answers[path]), path


def test_the_printed_address_opens_the_page_and_leaves_no_token(chromium: Browser, address: str):
    with new_page(chromium, viewport={"width": 1440, "height": 900}) as page:
        page.goto(f"{address}/checkpoints?checkpoint=tiny-mhsa&token={TOKEN}")
        page.wait_for_selector("#checkpoints-table")
        settled(page)
        assert TOKEN not in page.url and "checkpoint=tiny-mhsa" in page.url
        page.go_back()
        assert TOKEN not in page.url


def test_the_page_of_another_site_cannot_sign_in_or_ask(chromium: Browser, address: str):
    """A form that another origin sends, with this browser's cookies: refused, and nobody is signed in."""
    with new_page(chromium) as page:
        form = (
            f'<form method="post" action="{address}/sign-in"><input name="token" value="{TOKEN}"><button>Win</button>'
        )
        page.route("http://elsewhere.example/**", lambda route: route.fulfill(body=form, content_type="text/html"))
        page.goto("http://elsewhere.example/")
        with page.expect_navigation() as went:
            choose(page, page.get_by_role("button").click)
        assert went.value is not None and went.value.status == 400 and not signed_in(page)


def signed_in(page: Page) -> list[Any]:
    """The cookies that let a browser in."""
    return [one for one in page.context.cookies() if one["name"].startswith("aotlens-signed-in")]


def _path(url: str) -> str:
    return "/" + url.split("/", 3)[3].partition("?")[0]
