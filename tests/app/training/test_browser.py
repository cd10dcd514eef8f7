"""Training in the browser: the maps of a step are that step's, steps come from slider, keys, link and curve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from app.pages import PAGES
from app.shell.app import App
from tests.app.conftest import choose, opened, save_tiny, serve, settled
from tests.app.declared_pages import alone
from tests.app.training.numbers import STEPS, TEXT, save_run

FILM = "#training-film"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with alone(tmp_path_factory, save_run, partial(save_tiny, name="tiny-mhsa")) as app:
        yield app


@pytest.fixture(scope="module")
def address(made: App) -> Iterator[str]:
    with serve(made) as address:
        yield address


def at_step(page: Page, step: int) -> None:
    expect(page.locator(FILM)).to_have_attribute("data-step", str(step))
    expect(page.locator(f"{FILM} output")).to_have_text(f"step {step}")


def shown(page: Page) -> list[float]:
    """A row of the large map, as the widget knows it."""
    return page.evaluate(
        "() => { const { maps } = document.querySelector('#training-film aotlens-heads').heads;"
        " return Array.from({ length: maps.n }, (_, key) => maps.value(1, 0, maps.n - 1, key)); }"
    )


@pytest.mark.parametrize("search", ["heads?checkpoint", "circuits?checkpoint", "compare?left"])
def test_an_address_opens_a_step(made: App, search: str) -> None:
    name, field = search.split("?")
    page = next(page for page in PAGES if page.name == name)
    state, sentences = page.address.read(f"{field}=tiny-run%4013", made.core)
    assert (page.address.format(state), sentences) == (f"/{search}=tiny-run%4013", [])
    assert "'value': 'tiny-run@13'" in str(page.layout(made.core, made.services[name], state))
    state, (sentence,) = page.address.read(f"{field}=tiny-run%4014", made.core)
    assert "tiny-run@14" in sentence and "tiny-run@14" not in page.address.format(state)


@pytest.mark.visit
def test_the_maps_are_those_of_the_step(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, step="13"))
    at_step(page, 13)
    model = made.core.catalog.load("tiny-run@13").model
    _, cache = model.run_with_cache(TEXT)
    assert shown(page) == pytest.approx(cache["pattern", 1][0, 0, -1].tolist(), abs=1 / 400)
    expect(page.get_by_role("link", name="Heads", exact=True).last).to_have_attribute(
        "href", re.compile("tiny-run%4013")
    )


@pytest.mark.visit
def test_a_step_is_gone_to_by_keys_buttons_and_the_address_follows(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, step="13"))
    at_step(page, 13)
    before = shown(page)
    choose(page, page.locator(f"{FILM} input[type=range]").press, "ArrowRight")
    at_step(page, 21)
    expect(page).to_have_url(re.compile("step=21"))
    assert shown(page) != before
    choose(page, page.get_by_role("button", name="Previous step").click)
    at_step(page, 13)
    assert shown(page) == before
    choose(page, page.get_by_role("button", name="Play all steps").click)
    at_step(page, STEPS[-1])
    expect(page).not_to_have_url(re.compile("step="))
    expect(page.get_by_role("button", name="Play all steps")).to_have_text("Play")


def test_maps_that_did_not_come_are_not_named_and_are_asked_for_again(open_page, made: App) -> None:
    # A text that no other test asks for, whose maps the browser would have.
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text="A dog barked.", step="1"))
    at_step(page, 1)  # with those of steps 2, 3 and 5
    before, refused = shown(page), re.compile("/maps.*tiny-run%4013&")
    page.route(refused, lambda route: route.fulfill(status=200, json="Too many at once; try again."))
    slider, says = page.locator(f"{FILM} input[type=range]"), page.locator(f"{FILM} > [role=status]")
    choose(page, slider.fill, str(STEPS.index(13)))
    expect(says).to_have_text("Too many at once; try again. The maps are still those of step 1.")
    expect(page.locator(FILM)).to_have_attribute("data-step", "1")
    assert shown(page) == before
    expect(page).to_have_url(re.compile("step=13"))
    page.unroute(refused)
    choose(page, slider.fill, str(STEPS.index(21)))
    at_step(page, 21)
    choose(page, slider.fill, str(STEPS.index(13)))
    at_step(page, 13)
    expect(says).to_have_text("")
    assert shown(page) != before
    page.route("**/maps?**", lambda route: route.fulfill(status=200, json="Too many at once; try again."))
    other = {"checkpoint": "tiny-run", "text": "A cat.", "measure": "losses", "step": "13", "head": ""}
    page.evaluate('shown => aotlens.setProps("training-shown", { data: shown })', other)
    expect(says).to_have_text("Too many at once; try again.")
    expect(page.locator(f"{FILM}[data-step]")).to_have_count(0)
    page.unroute_all()


def test_an_address_that_is_told_late_does_not_move_the_slider_back(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, step="13"))
    at_step(page, 13)
    settled(page)
    page.evaluate(
        """late => {
            const { setProps } = aotlens, output = document.querySelector("#training-film output");
            window.said = [];
            new MutationObserver(() => said.push(output.textContent)).observe(output, { childList: true });
            aotlens.setProps = function (id, props) {
                aotlens.setProps = setProps;
                setProps("training-shown", { data: late });
                setTimeout(() => setProps(id, props), 100); // Dash takes what is set at once for one
            };
        }""",
        {"checkpoint": "tiny-run", "text": TEXT, "measure": "losses", "step": "13", "head": ""},
    )
    choose(page, page.locator(f"{FILM} input[type=range]").press, "ArrowRight")
    expect(page).to_have_url(re.compile("step=21"))
    at_step(page, 21)
    assert page.evaluate("said") == ["step 21"]


def test_what_was_fetched_ahead_is_not_asked_for_again(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, step="1"))
    at_step(page, 1)
    with page.expect_response(re.compile("maps.*tiny-run%408&")):
        choose(page, page.get_by_role("button", name="Next step").click)
        at_step(page, 2)
        choose(page, page.get_by_role("button", name="Next step").click)
        at_step(page, 3)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/maps?" in request.url else None)
    choose(page, page.get_by_role("button", name="Previous step").click)
    at_step(page, 2)
    assert asked == []


def test_the_measures_are_started_and_a_click_on_the_curve_goes_to_its_step(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, measure="copying"))
    at_step(page, STEPS[-1])
    panel = page.locator("#training-measures")
    choose(page, panel.get_by_role("button", name="Run").click)
    expect(page.locator("#training-measures-caption")).to_contain_text("12 snapshots", timeout=60_000)
    plot = page.locator("#training-measures-graph .js-plotly-plot")
    expect(plot.locator(".scatterlayer .trace")).to_have_count(6)
    click_a_point(page, "measures", trace=4, point=4)
    at_step(page, STEPS[4])
    expect(page.locator(f"{FILM} aotlens-heads")).to_have_attribute("data-head", "1.1")


def click_a_point(page: Page, panel: str, *, trace: int, point: int) -> None:
    plot = page.locator(f"#training-{panel}-graph .js-plotly-plot")
    plot.scroll_into_view_if_needed()
    x, y = plot.evaluate(
        "(plot, [trace, point]) => { const { xaxis, yaxis } = plot._fullLayout, at = plot.calcdata[trace][point];"
        " const box = plot.getBoundingClientRect();"
        " return [box.x + xaxis._offset + xaxis.c2p(at.x), box.y + yaxis._offset + yaxis.c2p(at.s ?? at.y)]; }",
        [trace, point],
    )
    page.mouse.move(x, y)
    expect(plot.locator(".hoverlayer .hovertext")).not_to_have_count(0)
    choose(page, page.mouse.click, x, y)


def test_a_click_on_the_ledger_shows_its_head_and_a_head_that_is_chosen_goes_along(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, head="0.1"))
    at_step(page, STEPS[-1])
    widget = page.locator(f"{FILM} aotlens-heads")
    expect(widget).to_have_attribute("data-head", "0.1")
    opened(page, "Change of the loss by circuit")
    choose(page, page.locator("#training-ledger").get_by_role("button", name="Run").click)
    expect(page.locator("#training-ledger-caption")).to_contain_text("passes", timeout=60_000)
    trace = page.evaluate(
        "() => { const plot = document.querySelector('#training-ledger-graph .js-plotly-plot');"
        " plot.on('plotly_click', ({ points }) => { window.clicked = points[0].data.name; });"
        " return plot.data.findIndex(({ name }) => name === '1.0 OV'); }"
    )
    click_a_point(page, "ledger", trace=trace, point=6)
    at_step(page, STEPS[6])
    # Areas end close to each other: plotly says which one the click was on.
    head, circuit = page.evaluate("() => window.clicked").split()
    assert head != "0.1" and circuit in ("QK", "OV")
    expect(widget).to_have_attribute("data-head", head)
    expect(page).to_have_url(re.compile(f"head={head}"))
    choose(page, widget.get_by_role("button", name="0.1").first.click)
    expect(page).to_have_url(re.compile("head=0.1"))
    expect(page.get_by_role("link", name="Heads", exact=True).last).to_have_attribute("href", re.compile("head=0.1"))


def test_a_head_that_is_not_there_is_said(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT, head="7.0"))
    at_step(page, STEPS[-1])
    page.locator("#training-measures").scroll_into_view_if_needed()
    expect(page.locator("#training-measures")).to_contain_text("head 7.0: this model has layers 0 to 1")


def test_influences_are_shown_and_windows_follow_their_measure(open_page, made: App) -> None:
    page = open_page(made.core.links.to("training", checkpoint="tiny-run", text=TEXT))
    at_step(page, STEPS[-1])
    opened(page, "Influential sequences")
    for panel, caption in (
        ("influence", "36 windows of 9 steps"),
        ("windows", "The most helpful window for loss has influence -"),
        ("check", "with 6 retrainings without 10%"),
    ):
        page.locator(f"#training-{panel}").scroll_into_view_if_needed()
        expect(page.locator(f"#training-{panel}-caption")).to_contain_text(caption)
    expect(page.locator("#training-influence-graph .scatterlayer .trace")).to_have_count(2)
    table = page.locator("#training-windows-graph .table")
    expect(table.get_by_text("helps").first).to_be_attached()
    field, windows = page.locator("#training-field-influence_on"), page.locator("#training-windows")
    choose(page, field.fill, "induction 1.0")
    windows.scroll_into_view_if_needed()  # only what is in view is asked for
    expect(page.locator("#training-windows-caption")).to_contain_text("for induction 1.0 has influence +")
    expect(page).to_have_url(re.compile("influence_on=induction"))
    choose(page, field.fill, "copying 1.0")
    windows.scroll_into_view_if_needed()
    expect(page.locator("#training-windows-notice")).to_contain_text("expected one of 'loss', 'induction 1.0'")
