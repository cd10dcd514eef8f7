"""The Atlas page: its tables are the library's; an atlas is made from the form; cells open heads and pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from aotlens.heads import atlas, find_heads, head_summary, stored_atlas
from aotlens.plots import glyphs
from aotlens.views.atlas import FAMILY, HEADS, HOWS, N_ABLATED, SCORES
from app.core.errors import RequestError
from app.pages.atlas import listed_heads, passages
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import TEXT, choose, fits, opened, query, settled, written
from tests.messages import refused

_GRAPH = "document.querySelector('#atlas-scores-graph .js-plotly-plot')"
_CLICK = f"""() => {{
    const [{{ x, y, customdata }}] = {_GRAPH}.data;
    {_GRAPH}.emit("plotly_click", {{ points: [
        {{ curveNumber: 0, pointNumber: 0, x: x[0], y: y[0], customdata: customdata[0] }}] }});
}}"""
STORED = stored_atlas("novels-2l-mhsa").atlas


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["atlas"]


@pytest.fixture
def key(app: App) -> Iterator[str]:
    """The key of a text that is kept."""
    own = app.core.corpora.own
    yield (key := own.keep_text("a book", 30 * TEXT).key)
    own.delete(key)


@pytest.mark.usefixtures("real_bundled_folder")
def test_passages_mark_where_a_head_attends() -> None:
    import aotlens

    model = aotlens.load("novels-2l-mhsa", device="cpu")
    params = FAMILY.parse("novels-2l-mhsa", head="1.3", bin="4")
    summary = head_summary(STORED, "1.3", 4, model=model)
    (table,) = passages(params, summary)

    def kind(piece: Any) -> str:
        return "" if isinstance(piece, str) else piece["class"].removeprefix("token ")

    assert len(table["rows"]) == len(summary.examples) == 4
    for (away, pieces, link), example in zip(table["rows"], summary.examples, strict=True):
        ids = STORED.examples.tokens[example.sequence].tolist()
        strings = model.to_str_tokens(ids)
        assert away == f"{example.away:.2f}"
        assert [piece["text"] for piece in pieces if kind(piece) == "query"] == [glyphs(strings[example.query])]
        weights = dict(zip(example.keys, example.weights, strict=True))
        keys = sorted(key for key, weight in weights.items() if weight >= 0.05 and key != example.query)
        marked = [(piece["text"], piece["heat"]) for piece in pieces if kind(piece) == "key"]
        assert marked == [(glyphs(strings[key]), weights[key]) for key in keys]
        if link:
            assert model.to_tokens(link["fields"]["text"])[0].tolist() == ids[: example.query + 2]


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_search_lists_what_it_names_and_a_number_has_a_minus() -> None:
    params = FAMILY.parse("novels-2l-mhsa", where="x_same_word < 0.5 and layer = 1")
    (table,) = listed_heads(params, find_heads(STORED, params.where))
    titles = [column["title"] for column in table["columns"]]
    assert "same word − chance" in titles and len(set(titles)) == len(titles)
    assert [row[0]["pick"] for row in table["rows"]] == [{"head": [1, n], "tab": "head"} for n in range(4)]
    expected = STORED.to_frame()["x_same_word"][4:]
    said = [float(row[titles.index("same word − chance")].replace("−", "-")) for row in table["rows"]]
    assert said == pytest.approx(expected.tolist(), abs=0.005)
    resting = [row[titles.index("does")] for row in table["rows"]]
    assert resting.count("induction, otherwise at the first token") == 3


def test_an_atlas_of_a_text_is_the_librarys_once_it_is_made(app: App, service: Views, key: str) -> None:
    params = service.values({"checkpoint": "tiny-mhsa", "corpus": key, "where": "layer = 1", "tokens": 9000})
    for view in (HEADS, SCORES):
        assert service.workshop.waits(view, params)
        with refused("start it first", error=RequestError):
            service.workshop.result(view, params)
    assert HEADS.missing(service.values({"checkpoint": "tiny-mhsa"})).startswith("No atlas of tiny-mhsa is stored")
    service.workshop.told(lambda *_: None).result(HEADS, params)
    own = app.core.corpora.own
    expected = atlas(
        app.core.catalog.load("tiny-mhsa").model, own.corpus(own.get(key)), n_tokens=params.tokens, hows=HOWS,
        n_ablated=N_ABLATED, cache=None,
    )  # fmt: skip
    found = service.workshop.result(HEADS, params)
    pd.testing.assert_frame_equal(found.to_frame(), expected.to_frame()[3:])
    shorter = service.values({"checkpoint": "tiny-mhsa", "corpus": key, "tokens": 64})
    assert service.workshop.waits(HEADS, shorter), "another atlas"


@pytest.mark.visit
def test_an_atlas_is_made_from_the_form_and_its_cells_open_heads_and_pages(open_page, key: str) -> None:
    page = open_page("/atlas?checkpoint=tiny-mhsa&tab=heads", load=True)
    caption, button = page.locator("#atlas-summary-caption"), page.locator("#atlas-summary-start")
    expect(caption).to_contain_text("No atlas of tiny-mhsa is stored")
    expect(page.locator("#atlas-scores-caption")).to_contain_text("No atlas of tiny-mhsa is stored")
    choose(page, page.click, "#atlas-field-corpus")
    choose(page, page.get_by_role("option", name="a book (yours)").click)
    written(page, "corpus", key)
    expect(page.locator("#atlas-heads-caption")).to_contain_text("Run in the panel ‹What every head does›")
    choose(page, button.click)
    names = page.locator("#atlas-heads-lines td:first-child button")
    expect(names).to_have_text([f"{layer}.{head}" for layer in (0, 1) for head in range(3)], timeout=120_000)
    expect(button).to_be_hidden()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "_dash-update" in request.url else None)
    choose(page, page.locator("#atlas-field-where").fill, "layer = 1")
    expect(names).to_have_text(["1.0", "1.1", "1.2"])
    assert len(requests) == 1
    choose(page, names.nth(1).click)
    expect(caption).to_contain_text("Head 1.1:")
    link = page.locator("#atlas-examples-lines a").first
    expect(link).to_be_visible()
    weights = page.locator("#atlas-weights-lines tbody tr").first.locator("td.tokens .token")
    expect(weights).to_have_count(3)
    expect(weights.locator("sub")).to_have_text([re.compile(r"^\d")] * 3)
    settled(page)
    assert {name: query(page)[name] for name in ("head", "tab", "where")} == {
        "head": "1.1", "tab": "head", "where": "layer = 1",
    }  # fmt: skip
    fits(page)
    opened(page, "All heads")
    page.locator("#atlas-scores-graph .scatterlayer .point").first.wait_for()
    head = page.evaluate(f"{_GRAPH}.data[0].customdata[0]")
    choose(page, page.evaluate, _CLICK)
    written(page, "head", head)
    expect(page.locator("#atlas-field-head-heads [aria-pressed='true']")).to_have_text(head)
    opened(page, "One head")
    choose(page, link.click)
    page.wait_for_function("() => location.pathname === '/heads'")
    assert query(page)["head"] == head and page.locator(".taken-instead").count() == 0
