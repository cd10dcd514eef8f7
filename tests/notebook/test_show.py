"""`aotlens.show`: a piece of HTML that a notebook carries, looked at from disk with the network off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import aotlens
from tests.messages import refused
from tests.small_models import SMALL, maker, small_tokenizer
from tests.widget.decoded import decoded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXT = "the cat </script><b> sat on the mat"
MODEL = maker({**SMALL, "d_vocab": 270, "n_ctx": 64})(tokenizer=small_tokenizer())


def test_it_says_what_it_is_and_carries_no_text_that_could_run() -> None:
    grid = aotlens.show(MODEL, TEXT, head="1.2")
    n = grid.patterns.n_pos
    assert repr(grid) == f"HeadGrid: 2 layers × 3 heads on {n} tokens"
    html = grid._repr_html_()
    assert html.count("</script>") == 1 and "<b>" not in html
    assert html.count("http") == html.count('xmlns="http://www.w3.org/2000/svg"') == 1, "a name, which is not fetched"
    assert grid.head == (1, 2) and "".join(grid.maps.str_tokens[1:]) == TEXT


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
    first.locator(".chip").nth(4).hover()
    expect(first).to_have_attribute("data-query", "4")
    assert second.get_attribute("data-query") == ""
    expect(first.locator(".said")).to_contain_text("(4) attends to")
    first.locator(".chip").nth(4).click()
    expect(first).to_have_attribute("data-held", "true")
    assert page.locator("b").count() == 0
    light = page.evaluate("() => document.querySelector('[data-drawn]').style.getPropertyValue('--ink')")
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
    page.wait_for_function(
        "ink => document.querySelector('[data-drawn]').style.getPropertyValue('--ink') !== ink", arg=light
    )
    context.close()
    assert trouble == []


# ── the live widget ──────────────────────────────────────────────────────────────────────────────────────────


def test_python_and_the_widget_agree_on_what_is_held() -> None:
    view = aotlens.show(MODEL, TEXT)
    messages: list[dict[str, Any]] = []
    view.widget.observe(lambda change: messages.append({change["name"]: change["new"]}), ("head", "query", "key"))
    view.widget.set_state({"head": [1, 2], "query": 5, "key": 3})  # as the browser says it
    assert (view.head, view.query, view.key) == ((1, 2), 5, 3)
    assert messages == [{"head": (1, 2)}, {"query": 5}, {"key": 3}]
    view.look("0.1", np.int64(-1))
    assert (view.widget.head, view.widget.query, view.widget.key) == ((0, 1), view.patterns.n_pos - 1, None)
    view.key = 2
    assert view.widget.key == 2
    view.query = None
    assert (view.widget.query, view.widget.key) == (None, None)


def test_the_widgets_entries_are_bytes_of_the_maps() -> None:
    view = aotlens.show(MODEL, TEXT)
    pattern = view.patterns.pattern
    values, half = decoded(view.maps.header, np.frombuffer(view.widget.get_state(["steps"])["steps"], dtype=np.uint8))
    assert (np.abs(values - pattern) <= half).all()


def test_another_text_asks_the_model_again_and_one_that_is_too_long_says_so() -> None:
    view = aotlens.show(MODEL, TEXT, head="1.1")
    view.look("1.1", 20, 3)
    view.widget.set_state({"text": "a cat"})
    assert (view.text, view.query, view.key, view.head) == ("a cat", None, None, (1, 1))
    expected = aotlens.heads.attention_patterns(MODEL, "a cat").pattern
    np.testing.assert_array_equal(view.patterns.pattern, expected)
    assert view.widget.edition == 1 and len(view.widget.steps) == expected.size
    view.widget.set_state({"text": "a cat " * 60})
    assert "expected" in view.widget.trouble or "takes 1 to 64" in view.widget.trouble
    assert view.text == "a cat" and view.widget.edition == 1
    view.text = "the rat"
    assert view.widget.text == "the rat" and view.widget.trouble == ""


@pytest.mark.parametrize("place", [("1.2", 99), ("1.2", 0, -99), ("2.0",), ("0.0", None, 3)])
def test_places_that_there_are_not_are_refused_and_change_nothing(place: tuple[Any, ...]) -> None:
    view = aotlens.show(MODEL, TEXT, head="1.2")
    view.look("0.0", 4)
    with pytest.raises(ValueError, match=r"expected|a key is held together|head"):
        view.look(*place)
    assert (view.head, view.query, view.key, view.widget.query) == ((0, 0), 4, None, 4)


def test_a_browser_that_says_what_there_is_not_is_put_right() -> None:
    view = aotlens.show(MODEL, TEXT)
    with pytest.raises(ValueError, match="query=777"):
        view.widget.set_state({"query": 777})
    assert view.widget.query is None and view.query is None


def test_without_anywidget_it_is_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotlens.notebook.heads.importlib.util.find_spec", lambda name: None)
    view = aotlens.show(MODEL, TEXT)
    assert set(view._repr_mimebundle_()) == {"text/plain", "text/html"}
    view.look("1.0", 3)
    assert view.query == 3
    with pytest.raises(ImportError, match=r"aotlens\[notebook\]"):
        _ = view.widget


def test_patterns_that_are_not_finite_are_said() -> None:
    model = maker({**SMALL, "d_vocab": 270, "n_ctx": 64})(tokenizer=small_tokenizer())
    with torch.no_grad():
        model.blocks[1].attn.W_Q[2] = 3e38  # finite, and its scores are not
    with refused("head 1.2", "not finite"):
        aotlens.show(model, TEXT)


@pytest.mark.parametrize("text", ["", "a"])
def test_a_text_of_no_or_one_token_is_shown(text: str) -> None:
    view = aotlens.show(MODEL, text)
    assert view.patterns.n_pos == 1 + len(text) and view._repr_html_().count("</script>") == 1
