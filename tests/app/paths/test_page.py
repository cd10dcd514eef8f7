"""The Paths page without a browser: what the server answers, against the library and against the model itself."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plotly.utils import PlotlyJSONEncoder

from aotlens.views.paths import FLOW, HEADS, ORDERS, SOURCES, TOP, WITHOUT, PathsParameters, summary, total
from app.core import Core
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.paths import tables
from app.pages.paths.address import ADDRESS, MAX_K, PathsState
from app.pages.paths.callbacks import choose
from app.pages.paths.ids import VIEWS, ids
from app.pages.paths.layout import layout
from app.pages.paths.service import Paths
from app.shell import ids as shell
from app.shell.views import record, table
from tests.app.conftest import save_tiny
from tests.messages import refused, says

SHORT = "The captain bowed to the captain."
PROMPT = {"checkpoint": "tiny-mhsa", "text": SHORT}
NUMBERS = st.integers(0, 999_999)


@pytest.fixture
def chosen(paths: Paths) -> PathsParameters:
    return paths.values(PROMPT, 5, k=12)


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
    without=st.none() | st.sampled_from(["1.0", "11.15", "token@4-0.2-1.3", "position", "bias@0-3.1", "mlp_0@2-1.1"]),
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


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_chosen_is_the_models_first_choice_and_its_logit_adds_up(
    services: Core, paths: Paths, chosen: PathsParameters
):
    logits = services.catalog.load("tiny-mhsa").model(SHORT)[0, 5]
    assert chosen.target == int(logits.argmax())
    sources = paths.workshop.result(SOURCES, chosen)
    logit = pytest.approx(float(logits.max()), abs=1e-4)
    assert sources.of_tokens.sum() + sources.of_biases == logit
    assert sources.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)
    says(summary(sources), "at position 5", tables.signed(sources.logit), tables.percent(sources.probability))
    says(total(sources), "Sum of paths − model logit", "tolerance")
    answer = choose(paths, chosen, sources)
    assert answer["target"] == str(chosen.target) and answer["versus"] is None
    assert answer["heads"] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert len(answer["strip"]) == sources.values.shape[1] == len(answer["shown"]["tokens"])


def test_paths_through_a_head_are_listed_apart(paths: Paths):
    of = {"checkpoint": "tiny-mssa", "text": SHORT}
    chosen = paths.values(of, 4, k=7, through="1.1")
    top = paths.workshop.result(TOP, chosen)
    assert len(top.paths) == 7 and all((1, 1) in path.heads for path in top.paths)
    assert top.total == pytest.approx(paths.workshop.result(HEADS, chosen).through[1, 1], abs=1e-5)
    says(TOP.caption(chosen, top), "through head 1.1 (", f"All of them together: {tables.signed(top.total)} logits")
    assert table(paths.workshop, TOP, chosen).name == "tiny-mssa-paths-top-through-1.1-after-4.csv"
    assert paths.values(of, 4, k=7, through="9.9").through is None


def test_what_is_not_there_is_replaced_by_what_is(services: Core, paths: Paths):
    chosen = paths.values(PROMPT, 400, 99_999, 99_999, k=None)
    logits = services.catalog.load("tiny-mhsa").model(SHORT)[0]
    assert (chosen.position, chosen.target) == (len(logits) - 1, int(logits[-1].argmax()))
    assert chosen.versus is None and chosen.k == 20
    assert paths.values(PROMPT, None, 17, 17).versus is None, "a token minus itself is nothing"


def test_each_head_of_a_sentence_leads_to_itself(paths: Paths, chosen: PathsParameters):
    top = paths.workshop.result(TOP, chosen)
    rows = tables.path_table(paths.core.links, chosen, top).children[1].children
    place = next(at for at, path in enumerate(top.paths) if path.order == 2 and path.source_position is not None)
    first, last = [part for part in rows[place].children[1].children if getattr(part, "className", "") == "step"]
    assert f"head={first.children}" in first.href and "direction=from" in first.href
    assert f"head={last.children}" in last.href and f"position={chosen.position}" in last.href
    said = "".join(part if isinstance(part, str) else part.children for part in rows[place].children[1].children)
    assert said == top.sentences[place] and rows[place].children[4].children.to_plotly_json()["props"][
        "data-without"
    ] == top.paths[place].key  # fmt: skip


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100.0%"), (0.0123, "1.2%"), (0.0032, "0.32%"), (0.00032, "0.032%"), (2e-7, "2e-07")]
)
def test_small_probabilities_can_be_read(share: float, text: str):
    assert tables.percent(share) == text


def test_nothing_has_no_minus():
    signed = tables.signed
    assert (signed(-0.0004), signed(-0.0006), signed(-0.04, 1)) == ("+0.000", "−0.001", "+0.0")


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
        paths.values({"checkpoint": checkpoint, "text": text})


def test_what_mlps_write_is_a_source(tmp_path: File, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    save_tiny(tmp_path, "tiny-mlp", d_mlp=16)
    core = Core.start(Settings(checkpoints=(tmp_path,), device="cpu"))
    paths = Paths(core)
    chosen = paths.values({"checkpoint": "tiny-mlp", "text": SHORT}, k=200)
    says(" ".join(paths.expanded(chosen).notes), "MLPs (d_mlp = 16)", "source of its own")
    top = paths.workshop.result(TOP, chosen)
    place = next(at for at, path in enumerate(top.paths) if path.start == "mlp_0" and path.heads)
    without = paths.values({"checkpoint": "tiny-mlp", "text": SHORT}, without=top.paths[place].key)
    assert paths.workshop.result(WITHOUT, without).without == top.sentences[place]
    assert ADDRESS.parse(f"?without={without.without}").without == without.without
    page = json.dumps(layout(core, paths, ADDRESS.parse(None)), cls=PlotlyJSONEncoder)
    assert "tiny-mlp (has MLPs)" in page


def test_weights_that_overflow_are_said_to(tmp_path: File, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    save_tiny(tmp_path, "tiny-huge", norm=None, n_layers=1)
    core = Core.start(Settings(checkpoints=(tmp_path,), device="cpu"))
    paths = Paths(core)
    chosen = paths.values({"checkpoint": "tiny-huge", "text": SHORT}, k=3)
    with torch.no_grad():
        paths.expanded(chosen).expansion.frozen.W_O.mul_(torch.inf)
        core.catalog.load("tiny-huge").model.W_E.mul_(torch.inf)
    with refused("contribution", "torch.float32", error=RequestError):
        paths.workshop.result(TOP, chosen)
    with refused("can't be expanded", "W_E", "not finite", error=RequestError):
        paths.values({"checkpoint": "tiny-huge", "text": "Another text"})


@pytest.mark.parametrize("what", ["7.0", "token@40-0.0", "mlp_0@1", "token@1-1.0-0.0"])
def test_what_cannot_be_taken_away_is_refused(paths: Paths, what: str):
    with pytest.raises(RequestError, match=r"expected|this model has"):
        paths.workshop.result(WITHOUT, paths.values({"checkpoint": "tiny-fixed", "text": "a b"}, without=what))


def test_one_layer_and_fixed_patterns_are_said(paths: Paths):
    def notes(checkpoint: str) -> tuple[str, ...]:
        return paths.expanded(paths.values({"checkpoint": checkpoint, "text": "a b"})).notes

    says(" ".join(notes("tiny-fixed")), "one layer", "patterns are fixed")
    assert notes("tiny-mssa") == ()


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_panel_is_a_table_and_json(paths: Paths):
    chosen = paths.values(PROMPT, 5, k=12, without="token@1-0.0")
    for view in (ORDERS, TOP, FLOW, HEADS, WITHOUT):
        file = table(paths.workshop, view, chosen)
        assert len(list(csv.reader(io.StringIO(file.content.decode())))) > 2 and file.name.endswith(".csv"), view.name
        content = json.loads(record(paths.workshop, view, chosen).content)
        frame = view.frame(paths.workshop.result(view, chosen))
        assert content["checkpoint"] == "tiny-mhsa" and len(content["rows"]) == len(frame), view.name
        assert list(content["rows"][0]) == list(frame) and content["position"] == 5, view.name
    listed = json.loads(record(paths.workshop, TOP, chosen).content)
    assert listed["n_proven"] == 12 and listed["rows"][0]["logits"] == paths.workshop.result(TOP, chosen).values[0]
    with refused("Click “without”", error=RequestError):
        table(paths.workshop, WITHOUT, paths.values(PROMPT))


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────────────────


def ask(app: Any, values: dict[str, Any], asked: dict[str, Any] | None = None, before: Any = None) -> dict[str, Any]:
    """The answer to a choice, with the text and the paths in view."""
    callback = next(one for one in app._callback_list if f"...{ids.SHOWN}.data..." in one["output"])
    parts = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    given_values = {
        ids.BY: "abs", ids.K: 20, ids.SHOWN: before, shell.seen(ids.PANEL): PROMPT, shell.seen(ids.TOP): PROMPT,
        ids.ASKED: {"checkpoint": None, "text": None, "target": None, "versus": None, **(asked or {})},
        **values,
    }  # fmt: skip
    body = {
        "output": callback["output"],
        "outputs": [{"id": component, "property": prop} for component, prop in parts],
        "inputs": [{**one, "value": given_values.get(one["id"])} for one in callback["inputs"]],
        "state": [{**one, "value": given_values.get(one["id"])} for one in callback["state"]],
        "changedPropIds": [f"{ids.POSITION}.data"],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body, headers={"Host": "localhost"})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.get_json()["response"]
    return response


def test_the_target_of_the_address_holds_for_its_text_and_place_only(app: Any):
    asked = {**PROMPT, "target": 40, "versus": 41}
    shown = ask(app, {ids.POSITION: 3}, asked)[ids.SHOWN]["data"]
    assert (shown["position"], shown["target"], shown["versus"]) == (3, 40, 41)
    another = {shell.seen(ids.PANEL): {**PROMPT, "text": "a b"}, ids.POSITION: 1}
    other = ask(app, another, asked)[ids.SHOWN]["data"]
    assert other["target"] != 40 and other["versus"] is None
    gone = ask(app, {**another, ids.POSITION: 3, ids.TARGET: "40"}, asked, shown)[ids.SHOWN]["data"]
    assert gone["position"] == len(gone["tokens"]) - 1 and gone["target"] != 40

    chosen = {ids.TARGET: "40", ids.VERSUS: "41"}
    again = ask(app, {**chosen, ids.POSITION: 3, ids.K: 5}, asked, shown)[ids.SHOWN]["data"]
    assert (again["target"], again["versus"], again["k"]) == (40, 41, 5)
    head = ask(app, {**chosen, ids.POSITION: 3, ids.THROUGH: "1.2"}, asked, shown)
    assert head[ids.SHOWN]["data"]["through"] == "1.2" and "value" not in head[ids.THROUGH]  # it stays
    assert head[shell.title(ids.TOP)]["children"] == "Largest paths through 1.2"
    none = ask(app, {**chosen, ids.POSITION: 3, ids.THROUGH: "2.0"}, asked, shown)
    assert none[ids.THROUGH]["value"] is None and ids.SHOWN not in none  # that is what is shown
    moved = ask(app, {**chosen, ids.POSITION: 4}, asked, shown)[ids.SHOWN]["data"]
    assert moved["position"] == 4 and moved["target"] != 40 and moved["versus"] is None


def test_an_answer_is_of_all_panels_in_view_and_of_no_other(app: Any):
    first = ask(app, {ids.POSITION: 3}, PROMPT)
    assert first[shell.drawn(ids.PATHS)]["data"] and shell.graph(ids.FLOW) not in first
    keys, shown = first[ids.DRAWN]["data"], first[ids.SHOWN]["data"]
    same = {ids.POSITION: 3, ids.TARGET: str(shown["target"]), ids.DRAWN: keys}
    assert shell.drawn(ids.PATHS) not in ask(app, same, before=shown)
    seen = ask(app, {**same, shell.seen(ids.ORDERS): PROMPT, ids.TAKEN: "1.0"}, before=shown)
    assert seen[shell.graph(ids.ORDERS)]["figure"]["data"] and shell.drawn(ids.PATHS) not in seen
    refused = ask(app, {shell.seen(ids.PANEL): {**PROMPT, "text": "x" * 400}}, before=shown)
    assert refused[ids.SHOWN]["data"] is None and "at most 48" in json.dumps(refused[shell.notice(ids.PANEL)])
    assert set(keys) == set(VIEWS)


def test_a_prompt_that_would_take_more_than_a_request_may_is_refused(settings: Settings):
    for limit, of in (({"max_operations": 1e3}, "operations"), ({"max_held_bytes": 1000}, "bytes")):
        with refused(of, "shorter text", error=RequestError):
            Paths(Core.start(replace(settings, **limit))).values(PROMPT)
