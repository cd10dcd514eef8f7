"""A score as the target of the Paths page: what the server answers, against the library, and the page in Chromium."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.paths import expand
from app.core import Core
from app.core.errors import RequestError
from app.core.score_words import line
from app.pages.heads.ids import ids as heads
from app.pages.paths import score_figures as figures
from app.pages.paths import score_files as files
from app.pages.paths import score_service as service
from app.pages.paths.address import ADDRESS, PathsState
from app.pages.paths.ids import SCORE_PANELS, ids
from app.pages.paths.score_callbacks import chosen
from app.shell import ids as shell
from app.shell.app import App
from tests.app.conftest import SCHEMES, fits, head_drawn, in_the_first_screen, seen, settled, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."


def question_of(services: Core, *cell: Any, checkpoint: str = "tiny-mhsa", against: Any = None) -> tuple[Any, str]:
    return service.question_of(services, checkpoint, SHORT, *cell, against)


@pytest.mark.parametrize("against", ["mean", "plain", 1])
def test_every_sum_is_the_models_own_score(services: Core, against: Any):
    model = services.catalog.load("tiny-mhsa").model
    question, said = question_of(services, (1, 2), 5, 2, against=against)
    assert not said
    own = services.inference.analyse("tiny-mhsa", SHORT).patterns.scores[1, 2, 5, :6].astype(float)
    weights = np.exp(own) / np.exp(own).sum()
    expected = own[2] - {"mean": weights @ own, "plain": 0.0, 1: own[1]}[against]
    expansion = expand(model, model.to_tokens(SHORT)[0], split_sources=True)
    score = expansion.score((1, 2), 5, 2, against=None if against == "plain" else against)
    of_library = {"heads": score.by_head_pair().values.numpy(), "sources": score.by_source_pair().values.numpy()}
    for by in service.SUMS:
        names, values = service.sums(services, question, by)
        assert values.shape == (len(names), len(names))
        assert values.sum() == pytest.approx(expected, abs=1e-4)
        if by in of_library:
            np.testing.assert_allclose(values, of_library[by], atol=1e-6)
    for side in ("query", "key"):
        assert service.positions(services, question, side).sum() == pytest.approx(expected, abs=1e-4)


def test_what_is_asked_where_nothing_is_chosen(services: Core):
    pattern = np.array(services.inference.analyse("tiny-mhsa", SHORT).patterns.pattern)
    last = pattern.shape[-1] - 1
    question, _ = question_of(services, None, None, None)
    others = pattern[1, :, last, 1:last]
    assert (question.head[0], question.query) == (1, last)
    assert others[question.head[1], question.key - 1] == others.max()
    question, said = question_of(services, (0, 1), 3, 5)
    assert "does not see key 5" in said and question.key == 1 + int(pattern[0, 1, 3, 1:3].argmax())
    question, _ = question_of(services, (9, 9), 400, None)
    assert question.head[0] == 1 and question.query == last
    question, _ = question_of(services, (1, 0), 0, None)
    assert (question.query, question.key) == (0, 0)
    assert chosen(question.to_dict()) == question and chosen(None) is None
    with pytest.raises(RequestError, match="has no scores"):
        services.scores.explain(question_of(services, (0, 0), 3, 1, checkpoint="tiny-fixed")[0])


def test_the_trace_in_words_has_every_edge_and_leads_to_heads(app: App):
    services = app.core
    question, _ = question_of(services, (1, 2), 5, 2, against=1)
    trace = services.scores.trace(question)
    lines = [part.to_plotly_json() for part in figures.trace_lines(services, question)]
    text = json.dumps(lines, default=_plain, ensure_ascii=False)
    for node in trace.nodes:
        assert trace.name(node) in text
        for edge in node.edges:
            if edge.cell is not None:
                (layer, head), query, key = edge.cell
                assert f"head={layer}.{head}" in text and f"cell={query}.{key}" in text
    assert text.count("times in size what they add up to") + text.count("cancel altogether") == 2 * len(trace.nodes)
    figure = figures.trace_figure(services, question, "light")
    boxes = trace.layout().boxes
    cells = [None if box.cell is None else [list(box.cell[0]), *box.cell[1:]] for box in boxes]
    assert cells == list(figure.data[0].customdata)
    links = [link for link in trace.layout().links if link.start == 1]
    assert sum("side of" in note for note in boxes[1].notes) == len(links)


def _plain(part: Any) -> Any:
    return part.to_plotly_json()


def test_files(services: Core):
    question, _ = question_of(services, (1, 2), 5, 2, against=1)
    top, explained = services.scores.top(question, service.N_PAIRS), services.scores.explain(question)
    rows = list(csv.DictReader(io.StringIO(files.pairs_csv(services, question).content.decode())))
    assert rows[0]["pair"] == line(explained, top.pairs[0]) and len(rows) == len(top.pairs)
    content = json.loads(files.pairs_json(services, question).content)
    assert content["head"] == [1, 2] and content["all_together"] == pytest.approx(explained.score.value)
    for by in service.SUMS:
        names, values = service.sums(services, question, by)
        rows = list(csv.DictReader(io.StringIO(files.sums(services, question, by=by, kind="csv").content.decode())))
        assert [float(row["nats"]) for row in rows] == pytest.approx(values.flatten())
        content = json.loads(files.sums(services, question, by=by, kind="json").content)
        assert content["groups"] == list(names) and content["nats"] == values.tolist()
    trace = services.scores.trace(question)
    made = {kind: files.trace(services, question, kind=kind) for kind in ("svg", "html", "json")}
    assert made["svg"].content.decode() == trace.to_svg() and made["html"].content.decode() == trace.to_html()
    assert json.loads(made["json"].content) == json.loads(trace.to_json())
    assert made["svg"].mime == "image/svg+xml"


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


def test_choose_a_score_and_follow_its_trace(open_page, services: Core):
    page = open_page(ADDRESS.format(PathsState(checkpoint="tiny-mhsa", text=SHORT)))
    seen(page, ids.TOP)
    page.get_by_role("tab", name="An attention score", exact=True).click()
    written(page, "of", "score")
    first, _ = question_of(services, None, None, None)
    explained(page, f"Head {first.head[0]}.{first.head[1]} attends")
    page.get_by_label("Head", exact=True).select_option("1.2")
    explained(page, "Head 1.2 attends")
    page.locator(".score-strip[data-side=query] .chip").nth(5).click()
    written(page, "query", "5")
    page.locator(".score-strip[data-side=key] .chip").nth(2).click()
    written(page, "key", "2")
    question, _ = question_of(services, (1, 2), 5, 2)
    shown = services.scores.explain(question)
    explained(page, f"attends from {shown.at(5)} to {shown.at(2)}")
    seen(page, ids.PAIRS)
    top = services.scores.top(question, service.N_PAIRS)
    lines = page.locator("table.pairs tbody tr td:nth-child(2)")
    expect(lines).to_have_text([line(shown, pair) for pair in top.pairs])
    page.get_by_label("Compared with").select_option("plain")
    written(page, "against", "plain")
    expect(page.locator("table.pairs th.number")).to_have_text("nats")
    address = page.url

    # A box of the trace is a cell that can be explained; a cell's name leads to Heads.
    seen(page, ids.TRACE)
    plain, _ = question_of(services, (1, 2), 5, 2, against="plain")
    boxes = services.scores.trace(plain).layout().boxes
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
    link.click()
    head_drawn(again, f"Head {layer}.{head}")
    expect(again.locator(f"#{heads.WHY_BUTTON}")).to_be_visible()


def test_files_of_a_trace_are_the_librarys(open_page):
    page = open_page(at(part="trace"))
    explained(page, "Head 1.2 attends")
    seen(page, ids.TRACE)
    for kind, start in (("svg", "<svg"), ("html", "<!DOCTYPE html>"), ("json", "{")):
        page.click(f"#{ids.TRACE}-export")
        with page.expect_download() as download:
            page.click(f"#{shell.export(ids.TRACE, kind)}")
        with open(download.value.path(), encoding="utf-8") as file:
            assert file.read(40).startswith(start), kind


def test_what_is_refused_is_said(open_page):
    page = open_page(at(checkpoint="tiny-fixed", text="a b", head=(0, 0), query=1, key=0))
    expect(page.locator(f"#{shell.notice(ids.SCORE)}")).to_contain_text("has no scores; its pattern is a tensor")
    page.get_by_role("tab", name="A logit", exact=True).click()
    seen(page, ids.TOP)
    expect(page.locator("table.paths tbody tr")).not_to_have_count(0)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [1440, 800])
def test_a_score_fits(open_page, width: int, scheme: Any):
    page = open_page(at(), width=width, scheme=scheme)
    explained(page, "Head 1.2 attends")
    for panel in SCORE_PANELS:
        seen(page, panel)
    fits(page)
    if width == 1440:
        page.evaluate("scrollTo(0, 0)")
        in_the_first_screen(page, ids.BY_ORDERS)
