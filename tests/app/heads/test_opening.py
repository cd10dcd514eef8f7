"""Which head Heads opens on, where Back leads from it, and the order in which Run asks."""

from __future__ import annotations

import re
import threading
from typing import Any

from playwright.sync_api import Route, expect

from app.core import Core
from app.pages.heads.ids import ids
from app.shell import ids as shell
from tests.app.conftest import act, choose, head_drawn, opened, query, settled, written
from tests.app.heads.numbers import SHORT, heads


def test_a_head_and_a_tab_are_steps_of_back(open_page):
    """At most one a second; Back shows them in the page that is there, and asks for nothing."""
    page = open_page(heads(head=(0, 0)))
    head_drawn(page, "Head 0.0")
    settled(page)
    page.evaluate("document.getElementById('heads-columns').same = true")
    cell = '#heads-grid-cells .cell[data-layer="1"][data-head="{}"] .cell-label'
    for head in (0, 1, 2):
        choose(page, page.click, cell.format(head))
        head_drawn(page, f"Head 1.{head}")
        written(page, "head", f"1.{head}")
        if head != 1:  # 1.2 takes the place of 1.1 within a second of it, or is a step of its own on a slow machine
            page.evaluate("() => { const now = Date.now; Date.now = () => now() + 1100; }")
    opened(page, "Loss")
    written(page, "tab", "loss")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or ""))
    page.go_back()
    written(page, "tab", None)
    expect(page.get_by_role("tab", name="Map", exact=True)).to_have_attribute("aria-selected", "true")
    page.go_back()
    page.wait_for_function("() => ['1.0', '1.1'].includes(document.getElementById('heads-map-canvas').dataset.head)")
    if query(page)["head"] == "1.1":
        page.go_back()
    head_drawn(page, "Head 1.0")
    page.go_forward()
    page.wait_for_function("() => document.getElementById('heads-map-canvas').dataset.head !== '1.0'")
    settled(page)
    assert page.evaluate("document.getElementById('heads-columns').same") is True
    assert not any('"page.children"' in body or '"page"' in body for body in asked)


def test_without_a_head_in_the_address_the_clearest_is_shown_and_why(open_page, services: Core, monkeypatch):
    from aotlens.heads.patterns import ClearestHead

    clearest = ClearestHead(head=(1, 2), motif="induction", score=0.7, n_queries=4, token=" captain")
    monkeypatch.setattr(type(services.inference), "clearest", lambda self, result: clearest)
    for load in (True, False):
        page = open_page(heads(), load=load)
        head_drawn(page, "Head 1.2")
        expect(page.locator(f"#{ids.MOTIFS_LINE}")).to_have_text(clearest.sentence)
        written(page, "head", "1.2")
    choose(page, page.click, '#heads-grid-cells .cell[data-layer="1"][data-head="1"] .cell-label')
    expect(page.locator(f"#{ids.MOTIFS_LINE}")).not_to_contain_text("repeated tokens")
    page = open_page(heads(head=(0, 1)), load=True)
    head_drawn(page, "Head 0.1")


def test_run_asks_for_maps_first_and_dash_hears_without_them(open_page):
    page = open_page(heads())
    head_drawn(page, "Head 0.0")
    count, held = page.locator(f"#{ids.COUNT}").text_content() or "", list[Route]()
    page.route("**/maps?*", lambda route: held.append(route))
    choose(page, page.fill, f"#{ids.TEXT}", "The captain")
    with page.expect_request(re.compile("/maps|_dash-update")) as first:
        act(page.click, f"#{ids.RUN}")
    assert "/maps?" in first.value.url
    expect(page.locator(f"#{ids.COUNT}")).not_to_have_text(count)
    for route in held:
        route.continue_()
    expect(page.locator("#heads-strip .chip")).to_have_count(3)
    page.unroute("**/maps?*")


def test_run_is_of_the_text_at_the_click_though_the_page_was_left_with_another_under_way(open_page):
    """Maps of a text that was run before the page was left come while a click on the new page's Run is held back."""
    page = open_page(heads(), load=True)
    head_drawn(page, "Head 0.0")
    before, since = list[Route](), list[Route]()
    page.route("**/maps?*", lambda route: (before if "danced" in route.request.url else since).append(route))
    choose(page, page.fill, f"#{ids.TEXT}", "danced danced")
    act(page.click, f"#{ids.RUN}")
    written(page, "text", "danced danced")
    open_page("/checkpoints")
    page.locator("#checkpoints-table tbody tr").first.wait_for()
    open_page(heads())
    expect(page.locator(f"#{ids.TEXT}")).to_have_value(SHORT)
    for route in since:
        route.continue_()
    head_drawn(page, "Head 0.0")
    since.clear()
    act(page.fill, f"#{ids.TEXT}", "The captain")
    page.focus(f"#{ids.TEXT}")
    act(page.keyboard.press, "Control+Enter")
    for route in before:
        route.continue_()
    act(page.keyboard.type, " danced")
    written(page, "text", "The captain")
    for route in since:
        route.continue_()
    expect(page.locator("#heads-strip .chip")).to_have_count(3)
    page.unroute("**/maps?*")


def test_badges_go_with_their_model_and_heads_that_could_not_be_scored_are_scored_at_the_next_run(
    open_page, services: Core, monkeypatch
):
    from app.core.errors import RequestError

    page = open_page(heads())
    head_drawn(page, "Head 0.0")
    says = page.locator(f"#{ids.MOTIFS_LINE}")
    expect(says).to_contain_text("induction")
    real, fails, release = type(services.inference).motifs, [True], threading.Event()

    def motifs(self: Any, checkpoint: str) -> Any:
        if fails and fails.pop():
            release.wait(60)
            raise RequestError("Scored later.")
        return real(self, checkpoint)

    monkeypatch.setattr(type(services.inference), "motifs", motifs)
    page.evaluate("id => aotlens.setProps(id, {value: 'tiny-mssa'})", ids.CHECKPOINT)
    expect(says).to_be_empty()
    release.set()
    notice = page.locator(f"#{shell.notice(ids.GRID)}")
    expect(notice).to_contain_text("Scored later.")
    choose(page, page.fill, f"#{ids.TEXT}", "The captain danced")
    choose(page, page.click, f"#{ids.RUN}")
    expect(says).to_contain_text("induction")
    expect(notice).to_be_empty()
