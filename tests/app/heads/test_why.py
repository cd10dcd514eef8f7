"""Why a head attends where it does: what the server says, against the library and against the model's own scores."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from aotlens.paths import Path as ModelPath
from aotlens.paths import expand
from aotlens.views.scores import N_PAIRS, SCORE, cancellation, cell_says, counted
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.heads.address import ADDRESS as HEADS
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads, WhyParameters
from app.pages.heads.why import contrasts
from app.shell import ids as shell
from app.shell.views import record, table
from tests.app.conftest import (
    choose,
    entry,
    fits,
    head_drawn,
    in_the_first_screen,
    opened,
    save_tiny,
    settled,
    written,
)
from tests.app.heads.numbers import SHORT, heads

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from aotlens.paths import ScoreExpansion

PAIRS = f"#{ids.WHY_PAIRS} table.values"


def ask(
    services: Core, checkpoint: str = "tiny-mhsa", *, head: tuple[int, ...] = (1, 2), query: int = 5, key: int = 2,
    against: Any = None,
) -> tuple[WhyParameters, ScoreExpansion]:  # fmt: skip
    """Return what the tab explains if this entry is locked, and the score."""
    service, prompt = Heads(services), {"checkpoint": checkpoint, "text": SHORT}
    entry = {"cell": [query, key], "position": None, "direction": "to", "against": against}
    params = service.score({"prompt": prompt, "head": head, **entry})
    return params, service.workshop.result(SCORE, params)


# ── what is explained ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("against", ["mean", "plain", 1])
def test_the_pairs_and_the_rest_are_the_models_own_score(services: Core, against: Any):
    params, score = ask(services, against=against)
    top, row = score.top(20), _scores(services, params)
    softmax = np.exp(row) / np.exp(row).sum()
    expected = row[2] - {"mean": float(softmax @ row), "plain": 0.0, 1: row[1]}[against]
    assert sum(top.values) + top.remainder == pytest.approx(expected, abs=1e-4)
    assert params.against == against
    assert float(score.by_head_pair().values.sum()) == pytest.approx(expected, abs=1e-4)


def _scores(services: Core, params: WhyParameters) -> np.ndarray:
    """The model's own scores of the query, as far as it sees."""
    patterns = services.inference.analyse(params.checkpoint, params.text).patterns
    assert params.head is not None and params.query is not None
    return np.asarray(patterns.scores[(*params.head, params.query)][: params.query + 1], dtype=float)


def test_what_a_key_is_compared_with_by_itself(services: Core):
    """The average key; where the key is a quarter of it, the first token, unless that has about as much."""
    shares: dict[Any, list[float]] = {}
    for head in np.ndindex(2, 3):
        for query in range(1, 6):
            for key in range(query + 1):
                params, _ = ask(services, head=head, query=query, key=key)
                row = _scores(services, params)
                share = float(np.exp(row[key]) / np.exp(row).sum())
                against = params.against
                assert (against == "mean") == (share < 0.25) == (params.reason == "")
                if against == "mean":
                    continue
                others = [0, *(k for k in np.argsort(-row) if k)]
                others.remove(key)
                far = [k for k in others if abs(row[key] - row[k]) >= 1]
                assert against == (far or others)[0] and f"{share:.0%} of the query's" in params.reason
                assert ("the first token" in params.reason) == (against == 0)
                shares.setdefault(against, []).append(share)
    assert shares  # tiny models spread their attention: some key has a quarter of it all the same


def test_a_query_that_sees_one_key_has_its_plain_score(services: Core):
    params, score = ask(services, query=0, key=0)
    assert params.against == "plain" and "sees no other key" in params.reason
    assert contrasts(score) == [("plain", "raw score")]


def test_another_key_that_is_none_is_said(services: Core):
    for wrong in (5, 40, 2):  # hidden, not there, the key itself
        params, _ = ask(services, query=4, against=wrong)
        assert params.against != wrong and f"no other key at position {wrong}" in params.reason


def test_what_has_no_score_is_refused_in_a_sentence(services: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(RequestError, match="can't be explained: a model with phi='fixed' has no scores"):
        ask(services, "tiny-fixed", head=(0, 0))
    with pytest.raises(RequestError, match=r"can't be explained: .*hidden"):
        ask(services, query=2, key=5)
    with pytest.raises(RequestError, match="can't be explained"):
        ask(services, query=400)
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    save_tiny(tmp_path, "tiny-linear", phi="linear")
    save_tiny(tmp_path, "tiny-threshold", phi="thresholded_softmax", threshold=0.05)
    core = Core.start(Settings(checkpoints=(tmp_path,), device="cpu"))
    linear, score = ask(core, "tiny-linear")
    assert linear.against == "plain" and "no softmax" in linear.reason and score.words.unit == "nats"
    mean, score = ask(core, "tiny-linear", against="mean")
    assert "from the mean over all keys" in cell_says(score, mean.reason)[1]
    threshold, score = ask(core, "tiny-threshold")
    assert "the softmax before the threshold" in cell_says(score, threshold.reason)[1]


# ── words ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_pairs_in_words(services: Core):
    _, score = ask(services, query=5, key=2, against=0)
    names = [score.words.at(at) for at in range(6)]
    token, quoted = ModelPath("token", (), 5), names[5].rpartition("@")[0]

    def said(key: ModelPath, query: ModelPath = token) -> str:
        return str(score.words.line((query, key)))

    assert said(ModelPath("token", (), 2)).startswith(f"the key is {names[2].rpartition('@')[0]} itself; ")
    assert said(ModelPath("token", (), 2)).endswith(f"; the query is {quoted} itself")
    assert said(ModelPath("token", (), 0)).startswith("the other key is ")
    assert (
        said(ModelPath("position", (), 2), ModelPath("bias", (), 5))
        == "the key stands at position 2; biases in the query"
    )
    through = said(ModelPath("token", ((0, 1),), 1), ModelPath("token", ((0, 2),), 5))
    assert through == f"0.1 moved {names[1]} into the key; 0.2 moved {names[5]} from the query itself"
    assert score.words.unit == "nats above the first token"
    _, mean = ask(services, query=5, key=2, against="mean")
    assert mean.words.line((token, ModelPath("token", (), 4))).startswith(f"other keys include {names[4]}; ")
    assert mean.words.unit == "nats above the average key"


def test_a_path_to_other_keys_is_said_to_go_there(services: Core):
    """The library's own parts of a path decide: what comes in at the key, and at those it is compared with."""
    model = services.catalog.load("tiny-mhsa").model
    _, score = ask(services, query=5, key=2, against=0)
    side = expand(model, model.to_tokens(SHORT)[0], split_sources=True).score((1, 2), 5, 2, against=0).sides[1]
    places = set()
    for head in range(3):
        path = ModelPath("token", ((0, head),), 0)
        arrivals = side.arrivals(path)
        here = bool(arrivals[2] >= arrivals[0])
        text = score.words.line((ModelPath("token", (), 5), path))
        assert ("to the key;" in text) == here and ("to the other key;" in text) == (not here)
        places.add(here)
    assert False in places


def test_large_numbers_and_cancellation_in_words():
    assert counted(81_225) == "81,225" and counted(35 * 10**18) == "3.5 · 10¹⁹"
    assert cancellation(5.0, 2.0) == "" and "10.0 times" in cancellation(20.0, -2.0)
    assert "add up to nothing" in cancellation(3.0, 0.0) and cancellation(0.0, 0.0) == ""


# ── which entry, and files ──────────────────────────────────────────────────────────────────────────────────


def chosen(services: Core, **rest: Any) -> WhyParameters:
    asked = {"head": (1, 2), "cell": None, "position": None, "direction": "to", "against": None, **rest}
    return Heads(services).score({"prompt": {"checkpoint": "tiny-mhsa", "text": SHORT}, **asked})


def test_without_a_locked_entry_the_most_attended_key_is_taken(services: Core):
    pattern = services.inference.analyse("tiny-mhsa", SHORT).patterns.pattern[1, 2]
    last = len(pattern) - 1
    for position, direction, expected in [
        (None, "to", (last, int(pattern[last].argmax()))),
        (4, "to", (4, int(pattern[4].argmax()))),
        (4, "from", (int(pattern[:, 4].argmax()), 4)),
    ]:
        score = chosen(services, position=position, direction=direction)
        assert (score.query, score.key) == expected and score.said.startswith("No entry is locked")
    score = chosen(services, cell=[5, 3], position=4, against=1)
    assert (score.query, score.key, score.against, score.said) == (5, 3, 1, "")
    ablated = chosen(services, cell=[5, 3], off=[[0, 1], [1, 0], [9, 9]])
    assert ablated.said == "This explains the full model, without the ablation of 0.1, 1.0."
    with pytest.raises(RequestError, match="Position 400"):
        chosen(services, position=400)


def test_the_list_as_files(services: Core):
    service, view = Heads(services), VIEWS[ids.WHY]
    score, top = chosen(services, cell=[5, 2], against=1), ask(services, against=1)[1].top(N_PAIRS)
    rows = list(csv.DictReader(io.StringIO(table(service.workshop, view, score).content.decode())))
    assert [float(row["nats"]) for row in rows] == pytest.approx(top.values)
    assert rows[0]["pair"] == top.descriptions[0]
    content = json.loads(record(service.workshop, view, score).content)
    assert content["against"] == 1 and content["total"] == pytest.approx(top.total)
    assert [row["nats"] for row in content["rows"]] == pytest.approx(top.values)


def test_the_address_names_an_entry(services: Core):
    state, taken = HEADS.read("?checkpoint=tiny-mhsa&text=a+b&cell=2.1&against=mean", services)
    assert state.cell == (2, 1) and state.against == "mean" and not taken
    state, taken = HEADS.read("?checkpoint=tiny-mhsa&text=a+b&cell=40.1&against=7", services)
    assert state.cell is None and state.against == 7 and "the position of one of the text's" in taken[0]


# ── in the browser ──────────────────────────────────────────────────────────────────────────────────────────


def explained(page: Page, title: str) -> None:
    """Waits until the tab explains that entry."""
    expect(page.locator(f"#{shell.title(ids.WHY)}")).to_contain_text(title)
    page.wait_for_function("id => !document.getElementById(id).hasAttribute('aria-busy')", arg=ids.WHY)
    expect(page.locator(f"{PAIRS} tbody tr").first).to_be_visible()
    settled(page)


def test_lock_an_entry_ask_why_and_follow_a_head(open_page, services: Core):
    page = open_page(heads(head=(1, 2)))
    head_drawn(page, "Head 1.2")
    settled(page)
    button = page.locator(f"#{ids.WHY_BUTTON}")
    expect(button).to_be_hidden()
    choose(page, page.mouse.click, *entry(page, 5, 2))
    written(page, "cell", "5.2")
    written(page, "position", "5")
    expect(button).to_be_visible()
    choose(page, button.click)
    explained(page, "Why 1.2 attends from")
    top = ask(services)[1].top(N_PAIRS)
    shown = page.locator(f"{PAIRS} tbody tr td:nth-child(2)").all_inner_texts()
    assert shown == list(top.descriptions)
    numbers = page.locator(f"{PAIRS} tbody tr td:first-child").all_inner_texts()
    assert [float(text.replace("−", "-")) for text in numbers] == pytest.approx(top.values, abs=0.005)
    written(page, "tab", "why")

    # Another comparison, and from there to a head's own entry.
    choose(page, page.locator(".why-against", has_text="raw score").click)
    written(page, "against", "plain")
    expect(page.locator(f"{PAIRS} th.number")).to_have_text("nats")
    link = page.locator(f"{PAIRS} a[href*='cell=']").first
    query = parse_qs(urlsplit(str(link.get_attribute("href"))).query)
    (head,), (cell,) = query["head"], query["cell"]
    choose(page, link.click)
    head_drawn(page, f"Head {head}")
    written(page, "cell", cell)
    written(page, "tab", None)
    written(page, "against", None)
    choose(page, page.keyboard.press, "w")
    explained(page, f"Why {head} attends from")
    first_url = page.url
    again = open_page(first_url.partition("/heads")[1] + first_url.partition("/heads")[2], load=True)
    explained(again, f"Why {head} attends from")
    assert again.url == first_url


def test_a_key_w_that_is_typed_asks_nothing(open_page):
    page = open_page(heads(head=(1, 2)))
    head_drawn(page, "Head 1.2")
    choose(page, page.locator(f"#{ids.TEXT}").press, "w")
    assert "tab=" not in page.url
    choose(page, page.locator("#heads-strip .chip").nth(3).click)
    choose(page, page.keyboard.press, "w")
    explained(page, "Why 1.2 attends from")
    expect(page.locator("#heads-why-body")).to_contain_text("the key that the locked token attends to most")
    # Another text has no such entry, and heads that are off are said to be on here.
    choose(page, page.locator('#heads-grid-cells .head-switch[data-layer="0"][data-head="1"]').click)
    expect(page.locator("#heads-why-body")).to_contain_text("the full model, without the ablation of 0.1")


def test_what_is_refused_is_said_in_the_tab(open_page):
    page = open_page(heads(checkpoint="tiny-fixed", text="a b", tab="why", head=(0, 0)))
    expect(page.locator(f"#{shell.notice(ids.WHY)}")).to_contain_text("has no scores; its pattern is a tensor")
    expect(page.locator(PAIRS)).to_have_count(0)
    opened(page, "Map")
    head_drawn(page, "Head 0.0")


def test_the_explanation_fits(open_page):
    page = open_page(heads(head=(1, 2), cell=(5, 2), position=5, tab="why"))
    explained(page, "Why 1.2 attends from")
    in_the_first_screen(page, ids.WHY)
    opened(page, "Map")
    head_drawn(page, "Head 1.2")
    in_the_first_screen(page, ids.MAP)
    fits(page)
