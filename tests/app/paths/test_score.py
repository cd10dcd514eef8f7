"""A score as the target of the Paths page: what the server answers, against the library, and the page in Chromium."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.views.scores import PAIRS, SCORE, TRACE, ScoreParameters
from app.core import Core
from app.core.errors import RequestError
from app.pages.heads.ids import ids as heads
from app.pages.paths.address import ADDRESS, PathsState
from app.pages.paths.ids import SCORE_VIEWS, ids
from app.pages.paths.score_tables import trace_lines
from app.pages.paths.service import Paths
from app.shell import ids as shell
from app.shell.views import record, table
from tests.app.conftest import SCHEMES, choose, fits, head_drawn, in_the_first_screen, seen, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."


def asked(paths: Paths, head: Any, query: Any, key: Any, against: Any = None, at: str = "tiny-mhsa") -> ScoreParameters:
    cell = {"head": head, "query": query, "key": key, "against": against}
    return paths.score({"checkpoint": at, "text": SHORT}, cell)


@pytest.mark.parametrize("against", ["mean", "plain", 1])
def test_every_sum_is_the_models_own_score(services: Core, paths: Paths, against: Any):
    chosen = asked(paths, (1, 2), 5, 2, against)
    assert not chosen.said and chosen.against == (None if against == "plain" else against)
    own = services.inference.analyse("tiny-mhsa", SHORT).patterns.scores[1, 2, 5, :6].astype(float)
    weights = np.exp(own) / np.exp(own).sum()
    expected = pytest.approx(own[2] - {"mean": weights @ own, "plain": 0.0, 1: own[1]}[against], abs=1e-4)
    for panel in (ids.BY_HEADS, ids.BY_SOURCES, ids.BY_ORDERS):
        sums = paths.workshop.result(SCORE_VIEWS[panel], chosen)
        assert sums.values.shape == (len(sums.names), len(sums.names))
        assert float(sums.values.sum()) == expected and sums.total == expected
    sides = paths.workshop.result(SCORE, chosen).to_frame()
    assert sides["query"].sum() == expected and sides["key"].sum() == expected


def test_what_is_asked_where_nothing_is_chosen(services: Core, paths: Paths):
    pattern = np.array(services.inference.analyse("tiny-mhsa", SHORT).patterns.pattern)
    last = pattern.shape[-1] - 1
    chosen = asked(paths, None, None, None)
    others = pattern[1, :, last, 1:last]
    assert (chosen.head[0], chosen.query) == (1, last)
    assert others[chosen.head[1], chosen.key - 1] == others.max()
    chosen = asked(paths, (0, 1), 3, 5)
    assert "does not see key 5" in chosen.said and chosen.key == 1 + int(pattern[0, 1, 3, 1:3].argmax())
    chosen = asked(paths, (9, 9), 400, None)
    assert chosen.head[0] == 1 and chosen.query == last
    chosen = asked(paths, (1, 0), 0, None)
    assert (chosen.query, chosen.key) == (0, 0)
    with pytest.raises(RequestError, match="has no scores"):
        asked(paths, (0, 0), 3, 1, at="tiny-fixed")


def test_the_trace_in_words_has_every_edge_and_leads_to_heads(paths: Paths):
    chosen = asked(paths, (1, 2), 5, 2, 1)
    trace = paths.workshop.result(TRACE, chosen)
    lines = [part.to_plotly_json() for part in trace_lines(paths, chosen, trace)]
    text = json.dumps(lines, default=_plain, ensure_ascii=False)
    for node in trace.nodes:
        assert trace.name(node) in text
        for edge in node.edges:
            if edge.cell is not None:
                (layer, head), query, key = edge.cell
                assert f"head={layer}.{head}" in text and f"cell={query}.{key}" in text
    assert text.count("times in size what they add up to") + text.count("cancel altogether") == 2 * len(trace.nodes)


def _plain(part: Any) -> Any:
    return part.to_plotly_json()


def test_files(paths: Paths):
    chosen = asked(paths, (1, 2), 5, 2, 1)
    for panel in (ids.PAIRS, ids.BY_HEADS, ids.BY_SOURCES, ids.BY_ORDERS):
        result = paths.workshop.result(SCORE_VIEWS[panel], chosen)
        content = json.loads(record(paths.workshop, SCORE_VIEWS[panel], chosen).content)
        nats = list(result.to_frame()["nats"])
        assert content["head"] == [1, 2] and [row["nats"] for row in content["rows"]] == nats
        rows = csv.DictReader(io.StringIO(table(paths.workshop, SCORE_VIEWS[panel], chosen).content.decode()))
        assert [float(row["nats"]) for row in rows] == pytest.approx(nats)
    pairs = json.loads(record(paths.workshop, PAIRS, chosen).content)
    assert pairs["rows"][0]["pair"].count("; ") == 1 and pairs["n_proven"] <= len(pairs["rows"])


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────


def at(**state: Any) -> str:
    named = {"checkpoint": "tiny-mhsa", "text": SHORT, "of": "score", "head": (1, 2), "query": 5, "key": 2, **state}
    return ADDRESS.format(PathsState(**named))


def explained(page: Page, cell: str) -> None:
    """Waits until the page explains that cell, and what is in view is there."""
    expect(page.locator(".score-says").first).to_contain_text(cell)
    page.wait_for_function(
        """() => [...document.querySelectorAll(".panel[aria-busy]")].every(
            panel => !panel.checkVisibility() || panel.getBoundingClientRect().top > innerHeight)"""
    )
    settled(page)


def test_choose_a_score_and_follow_its_trace(open_page, paths: Paths):
    page = open_page(ADDRESS.format(PathsState(checkpoint="tiny-mhsa", text=SHORT)))
    seen(page, ids.TOP)
    choose(page, page.get_by_role("tab", name="An attention score", exact=True).click)
    written(page, "of", "score")
    first = asked(paths, None, None, None)
    explained(page, f"Head {first.head[0]}.{first.head[1]} attends")
    choose(page, page.get_by_label("Head", exact=True).select_option, "1.2")
    explained(page, "Head 1.2 attends")
    choose(page, page.locator(".score-strip[data-side=query] .chip").nth(5).click)
    written(page, "query", "5")
    choose(page, page.locator(".score-strip[data-side=key] .chip").nth(2).click)
    written(page, "key", "2")
    chosen = asked(paths, (1, 2), 5, 2)
    explained(page, paths.workshop.result(SCORE, chosen).words.cell)
    seen(page, ids.PAIRS)
    lines = page.locator("table.pairs tbody tr td:nth-child(2)")
    expect(lines).to_have_text(list(paths.workshop.result(PAIRS, chosen).sentences))
    choose(page, page.get_by_label("Compared with").select_option, "plain")
    written(page, "against", "plain")
    expect(page.locator("table.pairs th.number")).to_have_text("nats")
    address = page.url

    # A box of the trace is a cell that can be explained; a cell's name leads to Heads.
    seen(page, ids.TRACE)
    boxes = paths.workshop.result(TRACE, asked(paths, (1, 2), 5, 2, "plain")).layout().boxes
    number = next(at for at, box in enumerate(boxes) if at and box.cell is not None)
    cell: Any = boxes[number].cell
    page.wait_for_function("() => document.querySelector('#paths-trace-graph .js-plotly-plot')?.data?.[0]?.customdata")
    page.evaluate(
        """number => {
            const plot = document.querySelector("#paths-trace-graph .js-plotly-plot");
            plot.emit("plotly_click", { points: [{ curveNumber: 0, pointNumber: number }] });
        }""",
        number,
    )
    explained(page, f"Head {cell[0][0]}.{cell[0][1]} attends")
    written(page, "head", f"{cell[0][0]}.{cell[0][1]}")
    again = open_page(address.partition("/paths")[1] + address.partition("/paths")[2], load=True)
    explained(again, "Head 1.2 attends")
    seen(again, ids.PAIRS)
    link = again.locator("table.pairs a[data-query]:not([data-query=''])").first
    layer, head = (link.get_attribute(f"data-{name}") for name in ("layer", "head"))
    choose(page, link.click)
    head_drawn(again, f"Head {layer}.{head}")
    expect(again.locator(f"#{heads.WHY_BUTTON}")).to_be_visible()


def test_files_of_a_trace_are_the_librarys(open_page):
    page = open_page(at(part="trace"))
    explained(page, "Head 1.2 attends")
    seen(page, ids.TRACE)
    for kind, start in (("svg", "<svg"), ("html", "<!DOCTYPE html>"), ("json", "{")):
        choose(page, page.click, f"#{ids.TRACE}-export")
        with page.expect_download() as download:
            choose(page, page.click, f"#{shell.export(ids.TRACE, kind)}")
        with open(download.value.path(), encoding="utf-8") as file:
            assert file.read(40).startswith(start), kind


def test_what_is_refused_is_said(open_page):
    page = open_page(at(checkpoint="tiny-fixed", text="a b", head=(0, 0), query=1, key=0))
    expect(page.locator(f"#{shell.notice(ids.SCORE)}")).to_contain_text("has no scores; its pattern is a tensor")
    choose(page, page.get_by_role("tab", name="A logit", exact=True).click)
    seen(page, ids.TOP)
    expect(page.locator("table.paths tbody tr")).not_to_have_count(0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1440, 800])
def test_a_score_fits(open_page, width: int, scheme: Any):
    page = open_page(at(), width=width, scheme=scheme)
    explained(page, "Head 1.2 attends")
    for panel in SCORE_VIEWS:
        seen(page, panel)
    fits(page)
    if width == 1440:
        page.evaluate("scrollTo(0, 0)")
        in_the_first_screen(page, ids.BY_ORDERS)
