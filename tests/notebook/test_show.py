"""`aotlens.show`: a piece of HTML that a notebook carries, looked at from disk with the network off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aotlens
from tests.small_models import SMALL, maker, small_tokenizer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXT = "the cat </script><b> sat on the mat"
MODEL = maker({**SMALL, "d_vocab": 270, "n_ctx": 64})(tokenizer=small_tokenizer())


def test_it_says_what_it_is_and_carries_no_text_that_could_run() -> None:
    grid = aotlens.show(MODEL, TEXT, head="1.2")
    n = grid.patterns.n_pos
    assert repr(grid) == f"HeadGrid: 2 layers × 3 heads on {n} tokens"
    html = grid._repr_html_()
    assert html.count("</script>") == 1 and "<b>" not in html and "http" not in html
    assert grid.maps.head == (1, 2) and "".join(grid.maps.str_tokens[1:]) == TEXT


def test_what_is_too_large_and_a_head_that_is_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"2\.0"):
        aotlens.show(MODEL, TEXT, head="2.0")
    monkeypatch.setattr("aotlens.notebook.heads.MAX_ENTRIES", 100)
    with pytest.raises(ValueError, match="give a shorter text"):
        aotlens.show(MODEL, TEXT)


def test_two_on_one_page_are_drawn_without_a_network_and_apart(chromium: Browser, tmp_path: Path) -> None:
    cells = "\n".join(f'<div class="cell">{aotlens.show(MODEL, TEXT)._repr_html_()}</div>' for _ in range(2))
    page_file = tmp_path / "notebook.html"
    page_file.write_text(f'<!doctype html><meta charset="utf-8"><body>{cells}</body>', encoding="utf-8")
    trouble: list[str] = []
    context = chromium.new_context(color_scheme="dark")
    context.set_offline(True)
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function("() => document.querySelectorAll('[data-drawn=yes]').length === 2")
    first, second = (page.locator("[data-drawn]").nth(place) for place in (0, 1))
    first.locator(".token").nth(4).hover()
    assert first.get_attribute("data-query") == "4" and second.get_attribute("data-query") == ""
    assert re.search(r"\(4\) looks at", first.locator(".said").inner_text())
    first.locator(".token").nth(4).click()
    assert first.get_attribute("data-held") == "true" and page.locator("b").count() == 0
    light = page.evaluate("() => document.querySelector('[data-drawn]').style.getPropertyValue('--ink')")
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
    page.wait_for_function(
        "ink => document.querySelector('[data-drawn]').style.getPropertyValue('--ink') !== ink", arg=light
    )
    context.close()
    assert trouble == []
