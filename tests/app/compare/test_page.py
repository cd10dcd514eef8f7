"""The Compare page without a browser: what it asks of its views, its maps and its addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aotlens.heads import run_prompt
from aotlens.views.compare import RUNS
from aotlens.views.compare_choice import CompareParameters
from app.core import Core
from app.core.errors import RequestError
from app.core.own_texts import key_of
from app.pages.compare import callbacks
from app.pages.compare.address import ADDRESS, CompareState
from app.pages.compare.ids import PRESETS, VIEWS, ids
from app.pages.compare.layout import layout
from app.pages.compare.service import Compare
from app.shell.props import components
from tests.messages import refused, says
from tests.widget.decoded import decoded, unpacked

SHORT = "The captain bowed to the captain, and the captain of a ship danced."
OTHER = "She said that the captain must dance."


@pytest.fixture(scope="module")
def service(services: Core) -> Compare:
    return Compare(services)


@pytest.fixture
def chosen(service: Compare) -> Callable[..., CompareParameters]:
    """What an address says."""
    return lambda **state: service.of_address(CompareState(**{"left": "tiny-mhsa", "text": SHORT, **state}))


# ── panes and maps ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_browser_is_told_what_both_panes_hold(service: Compare, chosen):
    def shown(**state: Any) -> dict[str, Any]:
        asked = chosen(**state)
        return callbacks.choose(service, asked, service.workshop.result(RUNS, asked))["shown"]

    one = shown(right_off=((0, 1),))
    assert one["one_model"] and one["aligned"] and one["right"]["off"] == [[0, 1]] and one["other"] is None
    assert one["places"] == [[place, place] for place in range(one["left"]["size"])] and one["says"] == ""
    two = shown(right="tiny-mssa", other=OTHER)
    assert not two["one_model"] and not two["aligned"] and two["right"]["layers"] == 3 and two["other"] == OTHER
    assert 2 <= len(two["places"]) < two["left"]["size"] and two["key"] != one["key"]
    says(two["says"], f"{len(two['places'])} tokens that both texts have")
    with refused("At the right", error=RequestError):
        chosen(other=60 * OTHER)


def test_two_models_are_matched_once_for_all_texts(service: Compare, chosen, monkeypatch: pytest.MonkeyPatch):
    from aotlens.heads import match_heads

    calls = []
    monkeypatch.setattr("aotlens.heads.match_heads", lambda a, b: calls.append(1) or match_heads(a, b))
    for text in (OTHER, SHORT, OTHER):
        asked = chosen(left="tiny-mssa", right="tiny-mhsa", text=text)
        listed = callbacks.list_pairs(service, asked, service.workshop.result(VIEWS[ids.PAIRS], asked))["matched"]
        assert len(listed["pairs"]) == 6 and listed["key"] == service.key(asked)
    assert calls == [1]


def test_two_strips_where_losses_do_not_correspond(service: Compare, chosen):
    def strips(**state: Any) -> dict[str, Any]:
        asked = chosen(**state)
        return callbacks.draw_losses(service, asked, service.workshop.result(VIEWS[ids.LOSSES], asked))

    one, two = strips(right_off=((0, 1),)), strips(other=OTHER)
    assert not one["other"] and "without 0.1" in one["caption"] and "at the left" in one["strip"][3].title
    assert len(two["other"]) != len(two["strip"]) and "different texts" in two["caption"]


@pytest.mark.parametrize("view", ["attention", "weighted", "scores"])
def test_maps_are_the_librarys_to_a_fine_step(app, services: Core, view: Any):
    def maps(**state: Any) -> tuple[np.ndarray, np.ndarray]:
        question = ADDRESS.format(CompareState(left="tiny-mhsa", text=SHORT, view=view, **state)).partition("?")[2]
        answer = app.server.test_client().get(f"/compare/maps?{question}", headers={"Host": "localhost"})
        header, (steps, _, finer) = unpacked(answer.data)
        values, half = decoded(header, steps)
        shape = values.shape
        return values + (finer.reshape(shape).astype(float) - 128) / 254 * 2 * half, half / 254

    model = services.catalog.load("tiny-mhsa").model
    for ablated in ((), ((0, 1),)):
        exact = run_prompt(model, SHORT, ablated=ablated).patterns
        seen = np.broadcast_to(exact.visible, exact.pattern.shape)
        values, step = maps(left_off=ablated)
        assert (np.abs(values - exact.quantity(view))[seen] <= 1.1 * step[seen] + 2e-6).all()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("left=tiny-fixed&text=ab&view=scores", "no scores"),
        ("left=tiny-mhsa&text=" + "x" * 3000, "shorten the text"),
        ("left=tiny-mhsa&text=ab&left-off=0.1&how=mean", "choose a corpus"),
        ("left=none&text=ab", "none"),
    ],
)
def test_what_has_no_maps_is_said(app, question: str, said: str):
    answer = app.server.test_client().get(f"/compare/maps?{question}", headers={"Host": "localhost"})
    assert answer.status_code == 200 and answer.mimetype == "application/json"
    says(answer.get_data(as_text=True), said)


# ── addresses ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_address_comes_back(services: Core):
    state = CompareState(
        left="tiny-mhsa", left_off=((0, 1), (1, 2)), right="tiny-mssa", right_off=((2, 1),), how="uniform", text=SHORT,
        other=OTHER, head=(1, 2), other_head=(2, 0), position=3, other_position=4, view="scores", hide_first=True,
        tab="pairs",
    )  # fmt: skip
    path = ADDRESS.format(state)
    assert "left-off=0.1%2C1.2" in path and "right-off=2.1" in path
    assert ADDRESS.read(path.partition("?")[2], services) == (state, [])


def test_what_is_not_there_is_said(services: Core):
    search = (
        "left=tiny-mhsa&right=tiny-mssa&right-off=2.1,2.2&head=3.0&other-head=0.2&text=ab&position=99&other=ab"
        "&other-position=9"
    )
    state, sentences = ADDRESS.read(search, services)
    assert state.right_off == ((2, 1),) and state.head == (0, 0) and state.other_head == (0, 0)
    assert state.position is None and state.other_position is None and len(sentences) == 5
    gone, sentences = ADDRESS.read("text=text-0123456789abcdef", services)
    assert gone.text is None
    says(sentences[0], "key", "kept here")


def test_a_long_text_is_addressed_by_its_hash(service: Compare, services: Core):
    text = " ".join(["The captain danced."] * 40)
    addressed = services.corpora.addressed(text)
    assert addressed == key_of(text) and services.corpora.prompt(addressed) == text
    assert services.corpora.addressed(SHORT) == SHORT and services.corpora.prompt("text-0000000000000000") != text
    assert service.asked_of(CompareState(text=addressed, other=SHORT))["text"] == text
    read, sentences = ADDRESS.read(f"text={addressed}", services)
    assert read.text == text and not sentences
    # A text that is kept in another form would not come back as it is.
    assert services.corpora.addressed(text.replace(". ", ".\r\n")).startswith("The captain")


def test_an_empty_address_shows_a_model_without_a_head(services: Core, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(services.catalog, "default", lambda: "tiny-mhsa")
    service = Compare(services)
    asked = service.asked_of(CompareState())
    assert asked["left"] == {"checkpoint": "tiny-mhsa", "off": []} and asked["right"]["off"] == [[0, 2]]
    assert service.first_of(CompareState()).head == (1, 0)
    assert service.first_of(CompareState(text=SHORT)) == CompareState(text=SHORT)


def test_presets_are_offered_where_their_checkpoints_are(service: Compare, app, monkeypatch: pytest.MonkeyPatch):
    def hidden() -> dict[str, bool]:
        tree = layout(app.core, service, CompareState())
        return {one.id: "hidden" in one.className for one in components(tree) if "-preset-" in one.id}

    assert hidden() == {ids.PRESET_OFF: False, **dict.fromkeys(PRESETS, True)}
    monkeypatch.setitem(PRESETS, ids.PRESET_MSSA_GPT, ("MSSA | GPT", "tiny-mssa", "tiny-mhsa"))
    assert hidden()[ids.PRESET_MSSA_GPT] is False
