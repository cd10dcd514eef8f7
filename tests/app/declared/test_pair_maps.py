"""Two runs next to each other: maps of a head of each, pairs, shaded tokens, heads to ablate, presets; on Compare."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.heads import match_heads, reference_windows, run_prompt
from aotlens.views.compare import LOSSES, PAIRS, RUNS
from app.core import Core
from app.core.errors import RequestError
from app.core.examples import FIRST
from app.core.own_texts import key_of
from app.pages.compare import PAGE, PRESETS, first, of_pairs, strips
from app.shell.app import App
from app.shell.pair_maps import of_runs
from app.shell.props import components
from app.shell.view_laid import Laid
from app.shell.view_service import Views
from tests.app.conftest import TEXT, choose, fits, in_the_first_screen, opened, query, settled, written
from tests.app.declared_pages import addresses
from tests.app.test_accessibility import OPTIONS, answered, faults
from tests.messages import refused, says
from tests.widget.decoded import decoded, unpacked

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHORT = "The captain bowed to the captain."
OTHER = "She said that the captain must dance."
HOST = {"Host": "localhost"}
MAPS = ("left", "right", "difference")
at = addresses(PAGE, left_model="tiny-mhsa", text=SHORT)
#: What the maps say of the entry, or of the token, that is pointed at or locked.
SAID = "sides => sides.map(side => document.querySelector(`#compare-${side}-canvas .said`).textContent)"


@pytest.fixture(scope="module")
def service(app: App) -> Views:
    return app.services["compare"]


def values(service: Views, **state: Any) -> Any:
    return service.values({"left_model": "tiny-mhsa", "text": SHORT, **state})


# ── without a browser ───────────────────────────────────────────────────────────────────────────────────────────


def test_scripts_know_which_positions_and_heads_correspond(service: Views):
    def facts(of: Any, view: Any, **state: Any) -> Any:
        params = values(service, **state)
        return of(params, service.workshop.result(view, params))

    one = facts(of_runs, RUNS, right=[[0, 1]])
    assert one["aligned"] and one["places"] == tuple((place, place) for place in range(len(one["places"])))
    assert one["of"] == ["tiny-mhsa", "tiny-mhsa", SHORT, SHORT]
    two = facts(of_runs, RUNS, right_model="tiny-mssa", other=OTHER)
    assert (
        not two["aligned"] and 2 <= len(two["places"]) < len(one["places"]) and two["of"][1::2] == ["tiny-mssa", OTHER]
    )
    models = [service.core.catalog.load(name).model for name in ("tiny-mhsa", "tiny-mssa")]
    expected = match_heads(*models, SHORT)
    matched = facts(of_pairs, PAIRS, right_model="tiny-mssa")["pairs"]
    assert {tuple(pair["left"]): tuple(pair["right"]) for pair in matched if pair["matched"]} == dict(expected.pairs)


def test_two_models_are_matched_once_for_all_texts(service: Views, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr("aotlens.heads.match_heads", lambda a, b: calls.append(1) or match_heads(a, b))
    for text in (OTHER, SHORT, OTHER):
        params = values(service, left_model="tiny-mssa", right_model="tiny-mhsa", text=text)
        assert len(service.workshop.result(PAIRS, params).pairs) == 6
    assert calls == [1]


def test_two_strips_if_losses_do_not_correspond(service: Views):
    def shaded(**state: Any) -> tuple[dict[str, Any], str]:
        params = values(service, **state)
        result = service.workshop.result(LOSSES, params)
        return strips(params, result), LOSSES.caption(params, result)

    (one, said), (two, differing) = shaded(right=[[0, 1]]), shaded(other=OTHER)
    (strip,) = one["left"]
    titles = [chip["title"] for chip in strip["chips"]]
    assert [*one] == ["left"] and "at the left" in titles[3] and "nats" in titles[3]
    assert titles[0].endswith("no loss") and "without 0.1" in said
    assert len(two["right"][0]["chips"]) != len(two["left"][0]["chips"]) and "different texts" in differing


@pytest.mark.parametrize("quantity", ["attention", "weighted", "scores"])
def test_maps_are_the_librarys_to_a_fine_step(app: App, service: Views, quantity: str):
    def maps(**state: Any) -> tuple[np.ndarray, np.ndarray]:
        answer = app.server.test_client().get(at(quantity=quantity, **state).replace("?", "/maps?"), headers=HOST)
        header, (steps, _, finer) = unpacked(answer.data)
        found, half = decoded(header, steps)
        return found + (finer.reshape(found.shape).astype(float) - 128) / 254 * 2 * half, half / 254

    model = service.core.catalog.load("tiny-mhsa").model
    for ablated in ((), ((0, 1),)):
        exact = run_prompt(model, SHORT, ablated=ablated).patterns
        seen = np.broadcast_to(exact.visible, exact.pattern.shape)
        found, step = maps(left=list(map(list, ablated)))
        assert (np.abs(found - exact.quantity(quantity))[seen] <= 1.1 * step[seen] + 2e-6).all()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("left=tiny-fixed&text=ab&view=scores", "no scores"),
        ("left=tiny-mhsa&text=" + "x" * 3000, "shorten the text"),
        ("left=tiny-mhsa&text=ab&left-off=0.1&how=mean", "takes other texts"),
        ("left=none&text=ab", "none"),
        ("left=tiny-mhsa&text=", "expected a text"),
    ],
)
def test_what_has_no_maps_is_said(app: App, question: str, said: str):
    answer = app.server.test_client().get(f"/compare/maps?{question}", headers=HOST)
    assert answer.status_code == 200 and answer.mimetype == "application/json"
    says(answer.get_data(as_text=True), said)


def test_heads_are_replaced_from_a_text(service: Views):
    own = service.core.corpora.own.keep_text("a book", 30 * TEXT)
    try:
        params = values(service, right=[[0, 1]], how="mean", corpus=own.key)
        model = service.core.catalog.load("tiny-mhsa").model
        windows = reference_windows(model, SHORT, service.core.corpora.own.corpus(own))
        assert windows.shape == (32, model.to_tokens(SHORT).shape[1])
        expected = run_prompt(model, SHORT, ablated=["0.1"], how="mean", reference=windows)
        found = service.workshop.result(RUNS, params).right
        np.testing.assert_allclose(found.losses, expected.losses, atol=1e-5)
        assert not np.allclose(found.losses[1:], run_prompt(model, SHORT, ablated=["0.1"]).losses[1:])
    finally:
        service.core.corpora.own.delete(own.key)
    with refused("no longer here", error=RequestError):
        values(service, right=[[0, 1]], how="mean", corpus=own.key)
    with refused("takes other texts", error=RequestError):
        service.workshop.result(LOSSES, values(service, right=[[0, 1]], how="mean"))


def test_a_run_that_cannot_be_says_of_which_side(service: Views):
    with refused("At the right", "48", error=RequestError):
        service.workshop.result(RUNS, values(service, other=60 * OTHER))


def test_an_address_comes_back_within_what_there_is(services: Core):
    state = PAGE.address.state(
        {
            "left_model": "tiny-mhsa", "left": [[0, 1], [1, 2]], "right_model": "tiny-mssa", "right": [[2, 1]],
            "how": "uniform", "text": SHORT, "other": OTHER, "head": [1, 2], "other_head": [2, 0], "position": 3,
            "other_position": 4, "quantity": "scores", "first": "hide", "tab": "pairs",
        }
    )  # fmt: skip
    path = PAGE.address.format(state)
    for part in ("left-off=0.1%2C1.2", "right-off=2.1", "other-head=2.0", "sink=hide", "view=scores"):
        assert part in path
    assert PAGE.address.read(path.partition("?")[2], services) == (state, [])
    beyond = "left=tiny-mhsa&right=tiny-mssa&right-off=2.1,2.2&head=3.0&other-head=0.2&left-off=9.9"
    state, sentences = PAGE.address.read(beyond, services)
    assert (state.right, state.left, state.head, state.other_head) == (((2, 1),), (), (0, 0), None)
    assert len(sentences) == 4
    gone, (sentence,) = PAGE.address.read("text=text-0123456789abcdef", services)
    assert gone.text == PAGE.address.parse(None).text
    says(sentence, "key", "kept here")
    text = " ".join(["The captain danced."] * 40)
    assert services.corpora.addressed(text) == key_of(text)
    assert PAGE.address.read(f"text={key_of(text)}", services)[0].text == text


def test_an_empty_address_shows_a_model_without_a_head(services: Core, service: Views, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services.catalog, "default", lambda: "tiny-mhsa")
    assert first(services) == {"right": ((0, 2),), "head": (1, 0), "text": FIRST}

    def laid(state: Any) -> dict[str, Any]:
        return {each.id: each for each in components(PAGE.layout(services, service, state))}

    fields = laid(PAGE.address.parse(None))
    assert fields["compare-field-right"].data == [[0, 2]] and fields["compare-field-right_model"].value == "tiny-mhsa"
    assert laid(PAGE.address.state({"text": SHORT}))["compare-field-right"].data == []


def test_presets_are_offered_if_their_checkpoints_exist(services: Core, service: Views):
    def hidden(presets: Any) -> list[bool]:
        buttons = Laid(PAGE.declared, services, service, PAGE.address.parse(None)).presets(presets)
        return ["hidden" in each.className for each in buttons]

    single = [preset for preset in PRESETS if not preset.menu]
    assert hidden(single) == [False, True, True, True, False]
    assert hidden([dataclasses.replace(preset, needs=("tiny-mssa", "tiny-mhsa")) for preset in single]) == [False] * 5


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────────


def drawn(page: Page, left: str, right: str) -> None:
    """Waits until the maps are those of these heads."""
    for side, head in (("left", left), ("right", right)):
        expect(page.locator(f"#compare-{side}-title")).to_have_text(f"{side.capitalize()}: {head}")
        expect(page.locator(f"#compare-{side}-canvas")).to_have_attribute("data-head", head)
    settled(page)


def locked(page: Page, *positions: int | None) -> None:
    """Waits until the maps have these rows locked."""
    page.wait_for_function(
        """([sides, wanted]) => JSON.stringify(wanted) === JSON.stringify(
            sides.map(side => document.getElementById(`compare-${side}-canvas`).map.heads.position))""",
        arg=[list(MAPS), list(positions)],
    )


def point(page: Page, side: str, query: int, key: int) -> None:
    """Moves the pointer to an entry of a map."""
    x, y = page.evaluate(
        """([side, query, key]) => {
            const { place, canvas, shown } = document.getElementById(`compare-${side}-canvas`).map;
            const { left, top } = place, unit = place.side / shown[2], box = canvas.getBoundingClientRect();
            return [box.left + left + (key + .5) * unit, box.top + top + (query + .5) * unit]; }""",
        [side, query, key],
    )
    page.mouse.move(x, y)


def asked(page: Page) -> list[str]:
    """The requests from now on."""
    requests: list[str] = []
    page.on("request", lambda each: requests.append(each.url) if "icon" not in each.url else None)
    return requests


@pytest.mark.visit
def test_one_click_ablates_the_head_at_the_right(open_page, services: Core):
    page = open_page(at(head=[0, 1], other_head=[1, 1]), load=True)
    drawn(page, "0.1", "1.1")
    in_the_first_screen(page, "compare-difference")
    requests = asked(page)
    choose(page, page.get_by_role("button", name="Same model, head ablated").click)
    written(page, "right-off", "0.1")
    assert ["maps" in each for each in requests] == [True, False], "the right run's maps, and one request for panels"
    expect(page.locator("#compare-field-right-line")).to_have_text("0.1")
    caption = page.locator("#compare-losses-caption")
    expect(caption).to_contain_text("tiny-mhsa without 0.1")
    whole, without = (services.inference.analyse("tiny-mhsa", SHORT, off=off) for off in ((), ((0, 1),)))
    change = services.inference.losses(without) - services.inference.losses(whole)
    chips = page.locator(".tokens-left .chip")
    expect(chips).to_have_count(len(change))
    shown = chips.evaluate_all("chips => chips.map(chip => chip.dataset.value?.replace('−', '-') ?? null)")
    assert shown[0] is None
    np.testing.assert_allclose(np.array(shown[1:], dtype=float), change[1:], atol=0.006)
    # Another one by hand, with the keyboard; the heads close with Escape and a click elsewhere.
    line, switches = page.locator("#compare-field-right-line"), page.locator("#compare-field-right-heads")
    choose(page, line.click)
    switches.locator(".head-switch").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        choose(page, page.keyboard.press, key)
    written(page, "right-off", "0.1,1.2")
    expect(caption).to_contain_text("without 0.1, 1.2")
    assert faults(page, OPTIONS) == []
    choose(page, page.keyboard.press, "Escape")
    expect(switches).to_be_hidden()
    choose(page, line.click)
    expect(switches).to_be_visible()
    choose(page, caption.click)
    expect(switches).to_be_hidden()
    # Another model has other heads.
    choose(page, page.click, "#compare-field-right_model")
    choose(page, page.get_by_role("option", name="tiny-mssa").click)
    written(page, "right-off", None)
    expect(line).to_have_text("none")


def test_a_hover_and_a_lock_are_in_all_three_maps_and_ask_the_server_nothing(open_page, services: Core):
    page = open_page(at(right=[[0, 1]], head=[1, 0], position=4), load=True)
    drawn(page, "1.0", "1.0")
    locked(page, 4, 4, 4)
    requests = asked(page)
    point(page, "left", 5, 2)
    results = [services.inference.analyse("tiny-mhsa", SHORT, off=off) for off in ((), ((0, 1),))]
    left, right = (float(result.patterns.pattern[1, 0, 5, 2]) for result in results)
    expect(page.locator("#compare-left-canvas .map-tip")).to_contain_text(f"attention {left:.4f}")
    for sentence, value in zip(page.evaluate(SAID, list(MAPS)), (left, right, right - left), strict=True):
        assert f"attention {value:.4f}" in sentence
    here = "chips => chips.map(chip => chip.dataset.position)"
    assert page.eval_on_selector_all(".chip-here, .chip-key", here) == ["2", "5"]
    difference = results[1].patterns.pattern[1, 0] - results[0].patterns.pattern[1, 0]
    query_, key = np.unravel_index(int(np.abs(difference).argmax()), difference.shape)
    says(page.locator("#compare-difference-caption").text_content() or "", f"query {query_}, key {key}.")
    # A token locks its row everywhere; Escape lets go.
    choose(page, page.locator(".tokens-left .chip").nth(7).click)
    written(page, "position", "7")
    locked(page, 7, 7, 7)
    choose(page, page.keyboard.press, "Escape")
    written(page, "position", None)
    locked(page, None, None, None)
    # Another head, without position 0.
    choose(page, page.fill, "#compare-field-head", "1.2")
    choose(page, page.get_by_role("option", name="1.2").click)
    drawn(page, "1.2", "1.2")
    written(page, "head", "1.2")
    choose(page, page.get_by_text("without", exact=True).click)
    written(page, "sink", "hide")
    hides = "sides => sides.map(side => document.getElementById(`compare-${side}-canvas`).map.heads.hidesFirst)"
    assert page.evaluate(hides, list(MAPS)) == [True, True, True]
    assert requests == []


def test_two_models_their_pairs_and_other_texts(open_page):
    page = open_page(at(right_model="tiny-mssa", left=[[0, 1]], right=[[2, 1]], head=[1, 0]))
    expect(page.locator("#compare-right-caption")).to_contain_text("similarity")
    opened(page, "All pairs")
    pairs = page.locator("#compare-pairs-list .pair")
    expect(pairs).to_have_count(6)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.pair canvas')].every(({ width, height }) => width === height)"
    )
    answered(page)
    assert faults(page, OPTIONS, ".tabs") == []
    left, right = (str(pairs.nth(4).get_attribute(f"data-{side}")) for side in ("left", "right"))
    choose(page, pairs.nth(4).click)
    drawn(page, left, right)
    expect(page.locator("#compare-right-caption")).to_contain_text(f"Head {left} is matched with head {right}")
    assert query(page)["other-head"] == right
    # An entry of the similarities leads to its heads.
    opened(page, "All pairs")
    page.locator("#compare-similarity-matrix canvas").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        choose(page, page.keyboard.press, key)
    drawn(page, "0.1", "0.0")
    # Another text: two strips, and a difference where tokens correspond.
    choose(page, page.fill, "#compare-field-other", "She danced.")
    written(page, "other", "She danced.")
    expect(page.locator("#compare-runs-caption")).to_contain_text("that both texts have in this order")
    chips = page.locator(".tokens-right .chip")
    expect(chips).to_have_count(page.evaluate("document.getElementById('compare-right-canvas').map.heads.maps.n"))
    choose(page, chips.nth(2).click)
    written(page, "other-position", "2")
    assert "position" not in query(page)
    # Sides change places, with their ablated heads.
    choose(page, page.get_by_role("button", name="⇄").click)
    written(page, "left", "tiny-mssa")
    written(page, "right", "tiny-mhsa")
    written(page, "left-off", "2.1")
    written(page, "right-off", "0.1")
    # An example replaces the text; nothing is left of maps if a text cannot be run.
    choose(page, page.locator("summary:has-text('Examples')").click)
    choose(page, page.get_by_role("button", name="A novel's first sentence").click)
    expect(page.locator("#compare-field-text")).to_have_value(re.compile("It is a truth"))
    choose(page, page.fill, "#compare-field-text", "word " * 99)
    expect(page.locator("#compare-runs-notice")).to_contain_text("At the left")
    expect(page.locator("#compare-left-canvas canvas")).to_be_hidden()
    expect(page.locator("#compare-left-notice")).to_contain_text("shorten the text")
    # Maps that could not be had are asked for at the next choice.
    page.route(re.compile("/compare/maps"), lambda route: route.fulfill(json="Not now."))
    choose(page, page.fill, "#compare-field-text", "She bowed to the ship.")
    expect(page.locator("#compare-left-notice")).to_have_text("Not now.")
    page.unroute(re.compile("/compare/maps"))
    choose(page, page.get_by_text("without", exact=True).click)
    expect(page.locator("#compare-left-canvas canvas")).to_be_visible()
    expect(page.locator("#compare-left-notice")).to_be_empty()


def test_an_address_leads_to_the_same_view(open_page):
    state = {"right_model": "tiny-mssa", "right": [[2, 1]], "head": [1, 0], "other_head": [2, 0], "position": 3}
    page = open_page(at(quantity="scores", **state), width=800, scheme="dark")
    drawn(page, "1.0", "2.0")
    address = page.url
    assert query(page)["right-off"] == "2.1"
    again = open_page(address[address.index("/compare") :], width=800, load=True)
    drawn(again, "1.0", "2.0")
    assert again.url == address
    fits(again)
    href = again.locator("#compare-right-open").get_attribute("href")
    assert href is not None and all(part in href for part in ("checkpoint=tiny-mssa", "head=2.0", "off=2.1"))
