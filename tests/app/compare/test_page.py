"""The Compare page without a browser: what it shows, against the library and a direct computation."""

from __future__ import annotations

import csv
import io
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aotlens.heads import ablate, match_heads
from app.core import Core
from app.core.errors import RequestError
from app.core.own_texts import key_of
from app.pages.compare import captions, differences, files
from app.pages.compare.address import ADDRESS, CompareState
from app.pages.compare.ids import ids
from app.pages.compare.layout import layout
from app.pages.compare.presets import PRESETS
from app.pages.compare.service import Compare, Panes
from app.shell.props import components
from tests.messages import refused, says

SHORT = "The captain bowed to the captain, and the captain of a ship danced."
OTHER = "She said that the captain must dance."


@pytest.fixture(scope="module")
def service(services: Core) -> Compare:
    return Compare(services)


@pytest.fixture
def shown(service: Compare) -> Callable[..., Panes]:
    """The panes of an address."""
    return lambda **state: service.panes(
        service.asked_of(CompareState(**{"left": "tiny-mhsa", "text": SHORT, **state}))
    )


# ── one model, heads off ────────────────────────────────────────────────────────────────────────────────────


def test_a_model_beside_itself_without_heads_loses_what_the_library_says(service: Compare, services: Core, shown):
    panes = shown(right_off=((0, 1), (1, 2)))
    assert panes.one_model and panes.aligned
    losses = service.losses(panes)
    model = services.catalog.load("tiny-mhsa").model
    found = ablate(model, SHORT, ["0.1", "1.2"])
    assert found.clean_loss_per_token is not None and found.ablated_loss_per_token is not None
    np.testing.assert_allclose(losses.left[1:], found.clean_loss_per_token[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(losses.right[1:], found.ablated_loss_per_token[0].numpy(), atol=1e-5)
    assert losses.difference is not None and np.isnan(losses.difference[0])
    np.testing.assert_allclose(losses.difference[1:].mean(), found.change, atol=1e-5)
    line = captions.losses_line(panes, losses)
    assert "tiny-mhsa without 0.1, 1.2" in line
    assert f"{found.change:+.3f}".replace("-", "−") in line


@pytest.mark.parametrize("view", ["attention", "weighted", "scores"])
def test_the_difference_of_two_maps_is_that_of_two_runs(service: Compare, services: Core, shown, view: Any):
    panes = shown(right_off=((0, 1),), head=(1, 0))
    pair = service.pair(panes, (1, 0), None)
    assert (pair.left, pair.right, pair.why) == ((1, 0), (1, 0), "same")
    model = services.catalog.load("tiny-mhsa").model
    tokens = model.to_tokens(SHORT)
    maps = []
    for hooks in ([], [("blocks.0.attn.hook_z", _without_head_1)]):
        with model.hooks(fwd_hooks=hooks), torch.no_grad():
            _, cache = model.run_with_cache(tokens)
        pattern, scores = (cache[f"blocks.1.attn.hook_{name}"][0, 0] for name in ("pattern", "attn_scores"))
        value = cache["blocks.1.attn.hook_v"][0, :, 0]
        maps.append({"attention": pattern, "weighted": pattern * value.norm(dim=-1), "scores": scores}[view].numpy())
    seen = np.tril(np.ones_like(maps[0])) > 0
    expected = np.full_like(maps[0], np.nan)
    expected[seen] = maps[1][seen] - maps[0][seen]
    found = differences.difference_values(panes, pair, view, False)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.nanmax(np.abs(found)) > 1e-3
    hidden = differences.difference_values(panes, pair, view, True)
    assert np.isnan(hidden[:, 0]).all() and np.array_equal(hidden[1:, 1:], found[1:, 1:], equal_nan=True)
    # Its numbers for the pointer are these to the last bit; the picture has zero in the middle.
    line = differences.difference_line(panes, pair, view, False, 4)
    row = np.frombuffer(b64decode(line["row"]), "<f4")
    np.testing.assert_array_equal(row, found[4].astype("<f4"))
    meta = differences.difference_figure(panes, pair, view, False, "light").layout.meta
    assert meta["signed"] and meta["top"] == pytest.approx(np.nanmax(np.abs(found)))
    assert all(meta[name] == line[name] for name in ("key", "layer", "head", "view", "hide_first"))
    saved = _rows(files.difference_csv(panes, pair, view, False).content)
    assert len(saved) == np.isfinite(found).sum()
    assert float(saved[-1]["right"]) - float(saved[-1]["left"]) == pytest.approx(
        float(saved[-1]["difference"]), abs=1e-6
    )


def _without_head_1(z: torch.Tensor, hook: object) -> torch.Tensor:
    z = z.clone()
    z[:, :, 1] = 0
    return z


def test_both_maps_have_one_scale(service: Compare, shown):
    panes = shown(right="tiny-mssa")
    pair = service.beside(panes, (1, 0), (2, 1))
    tops = {
        differences.pane_figure(panes, pair, side, "scores", False, "light").layout.meta["top"]
        for side in panes.results
    }
    largest = max(
        np.nanmax(np.abs(differences.pane_values(panes, pair, side, "scores", False))) for side in panes.results
    )
    assert len(tops) == 1 and tops.pop() == pytest.approx(float(largest))


# ── two models ──────────────────────────────────────────────────────────────────────────────────────────────


def test_heads_of_two_models_are_matched_as_the_library_does(service: Compare, services: Core, shown):
    panes = shown(right="tiny-mssa", right_off=((0, 0),))
    models = [services.catalog.load(name).model for name in ("tiny-mhsa", "tiny-mssa")]
    expected = match_heads(*models, SHORT)
    pairs = service.pairs(panes)
    assert [(pair.left, pair.right) for pair in pairs] == list(expected.pairs)
    frame = expected.to_frame()
    for name in ("ov", "qk", "pattern", "similarity"):
        np.testing.assert_allclose([pair.cosines[name] for pair in pairs], frame[name])
    np.testing.assert_allclose([pair.margin for pair in pairs], frame["margin"])
    assert "matched with" in captions.pair_line(panes, pairs[0], None)
    assert len(_rows(files.pairs_csv(panes, pairs).content)) == len(pairs)
    assert len(_rows(files.similarity_csv(panes, expected).content)) == 36
    # On another text at the right, patterns have nothing to say.
    apart = shown(right="tiny-mssa", other=OTHER)
    assert [(pair.left, pair.right) for pair in service.pairs(apart)] == list(match_heads(*models).pairs)
    assert "pattern" not in service.pairs(apart)[0].cosines


def test_matching_takes_the_circuits_once(services: Core, monkeypatch: pytest.MonkeyPatch):
    calls = []
    monkeypatch.setattr("aotlens.heads.match_heads", lambda a, b: calls.append(1) or match_heads(a, b))
    service = Compare(services)
    for text in (SHORT, OTHER, SHORT):
        panes = service.panes(service.asked_of(CompareState(left="tiny-mhsa", right="tiny-mssa", text=text)))
        service.pairs(panes)
    assert calls == [1]


def test_a_head_left_over_stands_beside_the_one_most_like_it(service: Compare, services: Core, shown):
    panes = shown(left="tiny-mhsa", right="tiny-fixed")  # 6 heads and 3; a fixed pattern has no QK circuit
    matched = service.matching(panes)
    assert matched is not None and matched.qk is None
    left = next(head for head in matched.left if matched.partner(head) is None)
    pair = service.pair(panes, left, None)
    assert pair.why == "alike" and pair.margin is None
    assert pair.right == matched.right[int(np.argmax(matched.similarity[matched.left.index(left)]))]
    says(captions.pair_line(panes, pair, None), "no partner")
    assert service.pair(panes, left, (0, 1)).right == (0, 1)


def test_models_of_other_tokens_are_shown_and_not_matched(service: Compare, shown, monkeypatch: pytest.MonkeyPatch):
    panes = shown(right="tiny-mssa")
    names = tuple(reversed(panes.right.patterns.str_tokens))
    cut = replace(panes, right=replace(panes.right, patterns=replace(panes.right.patterns, str_tokens=names)))
    assert not cut.aligned and "different pieces" in captions.why_not_aligned(cut)
    assert service.losses(cut).difference is None

    def refuse(*_: Any) -> None:
        raise ValueError("expected models with the same tokens")

    monkeypatch.setattr(service._by_function, "get", refuse)
    pair = service.pair(cut, (1, 1), None)
    assert (pair.right, pair.why) == ((1, 1), "unmatched")
    assert "same tokens" in captions.pair_line(cut, pair, service.why_unmatched(cut))


def test_other_texts_have_losses_and_no_difference(service: Compare, shown):
    panes = shown(other=OTHER)
    losses = service.losses(panes)
    assert losses.difference is None and len(losses.left) != len(losses.right)
    assert "different texts" in captions.why_not_aligned(panes)
    assert not panes.aligned and panes.places  # positions correspond all the same
    assert {row["pane"] for row in _rows(files.losses_csv(panes, losses).content)} == {"left", "right"}
    with refused("At the right", error=RequestError):
        shown(other=60 * OTHER)


def test_two_texts_are_compared_where_their_positions_correspond(service: Compare, shown):
    def difference(panes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pair = service.beside(panes, (1, 1), (1, 1))
        left, right = (differences.pane_values(panes, pair, side, "attention", False) for side in ("left", "right"))
        return differences.difference_values(panes, pair, "attention", False), left, right

    even = shown(text="The captain bowed.", other="The captain towed.")  # as many tokens
    assert even.left.patterns.n_pos == even.right.patterns.n_pos == len(even.places)
    found, left, right = difference(even)
    np.testing.assert_array_equal(found, right - left)
    assert "position by position" in captions.places_line(even)
    longer = shown(text="The captain bowed.", other="So the captain bowed low.")
    found, left, right = difference(longer)
    tokens = [panes.patterns.str_tokens for panes in longer.results.values()]
    assert all(tokens[0][a] == tokens[1][b] for a, b in longer.places) and len(longer.places) > 3
    for a, b in longer.places:
        for c, d in longer.places:
            np.testing.assert_array_equal(found[a, c], right[b, d] - left[a, c])
    without = sorted({*range(len(left))} - {a for a, _ in longer.places})
    assert np.isnan(found[without]).all() and np.isnan(found[:, without]).all()
    says(captions.places_line(longer), f"{len(longer.places)} tokens")
    rows = _rows(files.difference_csv(longer, service.beside(longer, (1, 1), (1, 1)), "attention", False).content)
    assert len(rows) == int(np.isfinite(found).sum())
    cut = replace(longer, one_text=True)  # one text in other pieces
    assert not cut.places and "different pieces" in captions.why_nothing_corresponds(cut)


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


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
    assert read.text == addressed and not sentences
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
