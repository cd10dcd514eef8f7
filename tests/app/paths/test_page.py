"""The Paths page without a browser: what the server answers, against the library and against the model itself."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
import torch
from dash import Dash
from hypothesis import given
from hypothesis import strategies as st
from plotly.utils import PlotlyJSONEncoder

from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.paths import figures, files, words
from app.pages.paths.address import ADDRESS, MAX_K, PathsState
from app.pages.paths.callbacks import make_file
from app.pages.paths.ids import ids
from app.pages.paths.layout import layout
from app.pages.paths.service import Paths, Question, format_path, parse_path
from app.shell import ids as shell
from tests.app.conftest import save_tiny
from tests.messages import refused, says

SHORT = "The captain bowed to the captain."
NUMBERS = st.integers(0, 999_999)


@pytest.fixture
def question(paths: Paths) -> Question:
    expanded = paths.expand("tiny-mhsa", SHORT)
    return paths.question(expanded, 5, None, None, "abs", 12)


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────

STATES = st.builds(
    PathsState,
    checkpoint=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=50),
    text=st.none() | st.text(st.characters(codec="utf-8"), max_size=100),
    position=st.none() | NUMBERS,
    target=st.none() | NUMBERS,
    versus=st.none() | NUMBERS,
    by=st.sampled_from(["abs", "pos", "neg"]),
    through=st.none() | st.sampled_from([(1, 0), (11, 15)]),
    k=st.integers(1, MAX_K),
    without=st.none() | st.sampled_from(["1.0", "11.15", "token@4-0.2-1.3", "position", "bias@0-3.1"]),
)


@given(STATES)
def test_a_state_comes_back_from_its_address(state: PathsState):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/paths"
    assert ADDRESS.parse("?" + query if query else "") == state


@given(st.text(max_size=100))
def test_any_query_is_read(query: str):
    assert isinstance(ADDRESS.parse("?" + query), PathsState)


def test_nonsense_is_left_out():
    assert ADDRESS.parse("?by=size&target=-1&position=x&without=../etc&k=") == PathsState()
    assert ADDRESS.parse("?without=token@1-&k=9999999&through=token@1-0.1") == PathsState()
    assert ADDRESS.parse(f"?k={MAX_K + 1}").k == MAX_K and ADDRESS.parse("?k=0").k == 1


def test_a_path_comes_back_from_its_name(paths: Paths, question: Question):
    for path in paths.top(question).paths:
        assert parse_path(format_path(path)) == path
    for other in ("1.0", "tokens@1", "token@1-", "token@1-0.1-", "", "token@x"):
        assert parse_path(other) is None


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_everything_adds_up_to_the_models_own_logit(services: Core, paths: Paths, question: Question):
    loaded = services.catalog.load("tiny-mhsa")
    logits = loaded.model(SHORT)[0, 5]
    assert question.target == int(logits.argmax())
    logit = float(logits[question.target])
    values, counts = paths.orders(question)
    sources, bias = paths.sources(question)
    found = paths.top(question)
    assert values.sum() == pytest.approx(logit, abs=1e-4)
    assert sources.sum() + bias == pytest.approx(logit, abs=1e-4)
    assert found.logit == pytest.approx(logit, abs=1e-4)
    assert sum(counts) == found.n_paths
    assert abs(paths.total_error(question)) < 1e-4
    assert paths.probability(paths.asked(question), 5, question.target) == pytest.approx(
        float(logits.softmax(-1).max()), abs=1e-6
    )
    direct, through = paths.heads(question)
    assert direct.shape == through.shape == (2, 3)
    np.testing.assert_allclose(direct[-1], through[-1], atol=1e-5)


def test_the_model_without_a_head_is_the_model_with_its_output_silenced(
    services: Core, paths: Paths, question: Question
):
    model = services.catalog.load("tiny-mhsa").model

    def silence(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, 2] = 0
        return z

    logits = model.run_with_hooks(SHORT, fwd_hooks=[("blocks.0.attn.hook_z", silence)])[0, 5]
    effect = paths.without(question, "0.2")
    assert effect.frame.loc["logit", "forward"] == pytest.approx(float(logits[question.target]), abs=1e-5)
    best = logits.softmax(-1).max()
    assert effect.after[0][1] == pytest.approx(float(best), abs=1e-6)
    rows = {row["quantity"]: row for row in words.rows(paths, paths.asked(question), question, effect)}
    assert set(rows) == {"logit", "probability", "loss", "mean_loss"}
    assert effect.next_token is not None and effect.next_token in str(rows["loss"]["name"])


def test_a_path_taken_away_lowers_the_linear_estimate_by_itself(paths: Paths, question: Question):
    row = figures.top_rows(paths, question)[0]
    frame = paths.without(question, row.key).frame
    assert frame.loc["logit", "clean"] - frame.loc["logit", "linear"] == pytest.approx(row.value, abs=1e-4)


def test_two_tokens_are_contrasted(paths: Paths):
    expanded = paths.expand("tiny-mssa", SHORT)
    one = paths.question(expanded, None, 17, None, "pos", 5)
    other = paths.question(expanded, None, 30, None, "pos", 5)
    both = paths.question(expanded, None, 17, 30, "pos", 5)
    np.testing.assert_allclose(paths.orders(both)[0], paths.orders(one)[0] - paths.orders(other)[0], atol=1e-4)
    assert "−" in words.target(paths, expanded, both)
    values = [row.value for row in figures.top_rows(paths, both)]
    assert values == sorted(values, reverse=True)
    assert paths.question(expanded, None, 17, 17, "pos", 5).versus is None, "a token minus itself is nothing"


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100.0%"), (0.0123, "1.2%"), (0.0032, "0.32%"), (0.00032, "0.032%"), (2e-7, "2e-07")]
)
def test_small_probabilities_can_be_read(share: float, text: str):
    assert words.percent(share) == text


def test_nothing_has_no_minus():
    assert (words.signed(-0.0004), words.signed(-0.0006), words.signed(-0.04, 1)) == ("+0.000", "−0.001", "+0.0")


def test_paths_through_a_head_are_listed_apart(paths: Paths):
    expanded = paths.expand("tiny-mssa", SHORT)
    question = paths.question(expanded, 4, None, None, "abs", 7, "1.1")
    rows, found = figures.top_rows(paths, question), paths.top(question)
    assert len(rows) == 7 and all("1.1" in [step.head for step in row.steps] for row in rows)
    assert found.total == pytest.approx(paths.heads(question)[1][1, 1], abs=1e-5)
    assert words.listed(question) == "Largest paths through 1.1"
    proof = words.proof(found, question)
    assert "through head 1.1 (" in proof and f"All of them together: {words.signed(found.total)} logits" in proof
    assert json.loads(files.top_json(paths, question).content)["all_together"] == found.total
    assert files.top_csv(paths, question).name == "tiny-mssa-paths-top-through-1.1-after-4.csv"
    assert paths.question(expanded, 4, None, None, "abs", 7, "9.9").through is None
    assert words.listed(paths.question(expanded, 4, None, None, "abs", 7)) == "Largest paths"


def test_what_is_not_there_is_replaced_by_what_is(paths: Paths):
    expanded = paths.expand("tiny-mhsa", SHORT)
    found = paths.question(expanded, 400, 99_999, 99_999, "abs", 3)
    n_pos = expanded.expansion.n_pos
    assert (found.position, found.versus) == (n_pos - 1, None)
    assert found.target == int(expanded.expansion.frozen.logits[-1].argmax())


def test_each_head_of_a_sentence_leads_to_itself(paths: Paths, question: Question):
    rows = figures.top_rows(paths, question)
    row = next(row for row in rows if len(row.steps) == 2)
    first, last = row.steps
    assert f"head={first.head}" in first.href and "direction=from" in first.href
    assert f"head={last.head}" in last.href and f"position={question.position}" in last.href
    assert row.sentence == " → ".join([row.start, first.head, last.head, row.end])


# ── refusals and notes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("checkpoint", "text", "message"),
    [
        ("tiny-mhsa", "x" * 400, "at most 48"),
        ("tiny-mhsa", "\ud800", "can't be tokenised"),
        ("broken", SHORT, "can't be opened"),
    ],
)
def test_what_cannot_be_expanded_is_refused(paths: Paths, checkpoint: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        paths.expand(checkpoint, text)


def test_what_mlps_write_is_a_source(tmp_path: File, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    save_tiny(tmp_path, "tiny-mlp", d_mlp=16)
    core = Core.start(Settings(checkpoints=(tmp_path,), device="cpu"))
    paths = Paths(core)
    expanded = paths.expand("tiny-mlp", SHORT)
    assert expanded.residual.within_tolerance
    says(" ".join(expanded.notes), "MLPs (d_mlp = 16)", "source of its own")
    question = paths.question(expanded, None, None, None, "abs", 300)
    path = next(path for path in paths.top(question).paths if path.start == "mlp_0" and path.heads)
    key = format_path(path)
    assert parse_path(key) == path and key.startswith(f"mlp_0@{path.source_position}-1.")
    assert paths.without(question, key).name == expanded.expansion.describe(path, question.logit)
    flow = paths.flow(question)
    assert "MLP 0" in [node.label for node in figures.flow_nodes(paths, expanded, question, flow)]
    page = json.dumps(layout(core, paths, ADDRESS.parse(None)), cls=PlotlyJSONEncoder)
    assert "tiny-mlp (has MLPs)" in page


def test_weights_that_overflow_are_said_to(tmp_path: File, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    save_tiny(tmp_path, "tiny-huge", norm=None, n_layers=1)
    core = Core.start(Settings(checkpoints=(tmp_path,), device="cpu"))
    paths = Paths(core)
    model = core.catalog.load("tiny-huge").model
    expanded = paths.expand("tiny-huge", SHORT)
    question = paths.question(expanded, None, None, None, "abs", 3)
    with torch.no_grad():
        expanded.expansion.frozen.W_O.mul_(torch.inf)
        model.W_E.mul_(torch.inf)
    with refused("can't be listed", "contribution", "torch.float32", error=RequestError):
        paths.top(question)
    with refused("can't be expanded", "W_E", "not finite", error=RequestError):
        paths.expand("tiny-huge", "Another text")


@pytest.mark.parametrize("what", ["7.0", "token@40-0.0", "position@1", "token@1-1.0-0.0"])
def test_what_cannot_be_taken_away_is_refused(paths: Paths, what: str):
    expanded = paths.expand("tiny-fixed", "a b")
    question = paths.question(expanded, None, None, None, "abs", 5)
    if what == "position@1" and "position" in expanded.expansion.source_names:
        return
    with pytest.raises(RequestError, match="can't be taken away"):
        paths.without(question, what)


def test_one_layer_and_fixed_patterns_are_said(paths: Paths):
    notes = " ".join(paths.expand("tiny-fixed", "a b").notes)
    assert "one layer" in notes and "patterns are fixed" in notes
    assert paths.expand("tiny-mssa", "a b").notes == ()


def test_a_proof_says_what_is_left(paths: Paths, question: Question):
    found = paths.top(question)
    text = words.proof(found, question)
    says(text, "All 12 ranks", words.signed(found.remainder))
    assert f"{found.bound:.3f} in size" in text
    expanded = paths.expand("tiny-mssa", "a")
    everything = paths.question(expanded, None, None, None, "abs", MAX_K)
    total = paths.top(everything)
    assert len(total.paths) < total.n_paths or "all paths there are" in words.proof(total, everything)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_table_is_a_csv_and_every_figure_json(paths: Paths, question: Question):
    data = {**question.to_dict(), "key": "x", "tokens": []}
    for panel in (ids.ORDERS, ids.TOP, ids.FLOW, ids.HEADS, ids.WITHOUT):
        file = make_file(paths, shell.export(panel, "csv"), data, "1.0")
        rows = list(csv.reader(io.StringIO(file.content.decode())))
        assert len(rows) > 2 and file.name.endswith(".csv"), panel
    for panel in (ids.ORDERS, ids.TOP, ids.FLOW, ids.WITHOUT):
        content = json.loads(make_file(paths, shell.export(panel, "json"), data, "token@1-0.0").content)
        assert content["target"] == question.target and content["checkpoint"] == "tiny-mhsa", panel
    listed = json.loads(files.top_json(paths, question).content)
    assert listed["n_proven"] == 12 and len(listed["paths"]) == 12
    with pytest.raises(RequestError, match="run a text first"):
        make_file(paths, shell.export(ids.ORDERS, "csv"), None, None)
    with refused("choose a path", error=RequestError):
        make_file(paths, shell.export(ids.WITHOUT, "csv"), data, None)


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────────────────


def ask(app: Dash, values: dict[str, Any], asked: dict[str, Any] | None = None, before: Any = None) -> dict[str, Any]:
    """The answer to a choice."""
    callback = next(one for one in app._callback_list if one["output"].startswith(f"..{ids.SHOWN}.data"))
    parts = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    first = {ids.BY: "abs", ids.K: 20, **values}
    given_state = {
        ids.ASKED: {"checkpoint": None, "text": None, "target": None, "versus": None, **(asked or {})},
        ids.SHOWN: before,
    }
    body = {
        "output": callback["output"],
        "outputs": [{"id": component, "property": prop} for component, prop in parts],
        "inputs": [{**one, "value": first.get(one["id"])} for one in callback["inputs"]],
        "state": [{**one, "value": given_state[one["id"]]} for one in callback["state"]],
        "changedPropIds": [f"{ids.PROMPT}.data"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body, headers={"Host": "localhost"})
    assert answer.status_code == 200, answer.text
    return answer.get_json()["response"]


PROMPT = {"checkpoint": "tiny-mhsa", "text": SHORT}


def test_the_target_of_the_address_holds_for_its_text_and_place_only(app: Dash):
    asked = {**PROMPT, "target": 40, "versus": 41}
    shown = ask(app, {ids.PROMPT: PROMPT, ids.POSITION: 3}, asked)[ids.SHOWN]["data"]
    assert (shown["position"], shown["target"], shown["versus"]) == (3, 40, 41)
    other = ask(app, {ids.PROMPT: {**PROMPT, "text": "a b"}, ids.POSITION: 1}, asked)[ids.SHOWN]["data"]
    assert other["target"] != 40 and other["versus"] is None

    chosen = {ids.PROMPT: PROMPT, ids.TARGET: "40", ids.VERSUS: "41"}
    again = ask(app, {**chosen, ids.POSITION: 3, ids.K: 5}, asked, shown)[ids.SHOWN]["data"]
    assert (again["target"], again["versus"], again["k"]) == (40, 41, 5)
    head = ask(app, {**chosen, ids.POSITION: 3, ids.THROUGH: "1.2"}, asked, shown)
    assert head[ids.SHOWN]["data"]["through"] == "1.2" and "value" not in head[ids.THROUGH]  # it stays
    assert head[ids.THROUGH]["data"] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    none = ask(app, {**chosen, ids.POSITION: 3, ids.THROUGH: "2.0"}, asked, shown)
    assert none[ids.THROUGH]["value"] is None and ids.SHOWN not in none  # that is what is shown
    moved = ask(app, {**chosen, ids.POSITION: 4}, asked, shown)[ids.SHOWN]["data"]
    assert moved["position"] == 4 and moved["target"] != 40 and moved["versus"] is None


def test_the_sum_is_always_there_and_refusals_are_said(app: Dash):
    answer = ask(app, {ids.PROMPT: PROMPT})
    assert "Sum of paths − model logit" in json.dumps(answer[ids.SUM], ensure_ascii=False)
    assert len(answer[shell.drawn(ids.STRIP)]["data"]) == len(answer[ids.SHOWN]["data"]["tokens"])
    for prompt, message in (
        ({**PROMPT, "checkpoint": "broken"}, "can't be opened"),
        ({**PROMPT, "text": "x" * 400}, "at most 48"),
        ({**PROMPT, "text": "", "length": 10**7}, "10,000,000 characters"),
    ):
        answer = ask(app, {ids.PROMPT: prompt})
        assert answer[ids.SHOWN]["data"] is None
        assert message in json.dumps(answer[shell.notice(ids.PANEL)], ensure_ascii=False)
