"""The Non-linearity page without a browser: its address, what stands in its controls, its files and its answer."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load, safe_open
from torch import nn

from aotlens.checkpoints import load_folder
from aotlens.distill import compile_ffn
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views.nonlinearity import LAYERS
from app.core import Core
from app.core.address_values import number
from app.core.errors import RequestError
from app.core.settings import Settings
from app.pages.nonlinearity import files
from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.callbacks import choose, describe, list_heads
from app.pages.nonlinearity.ids import CONTROLS, VIEWS, ids
from app.pages.nonlinearity.layout import layout
from app.pages.nonlinearity.service import Nonlinearity, from_form, slider_of
from app.shell.views import record, table
from tests.messages import refused

State = NonlinearityState
FLOATS = st.floats(-1e6, 1e6, allow_nan=False).map(float)

# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────

STATES = st.builds(
    State,
    preset=st.sampled_from(["abs", "hat", "ramp", "sawtooth", "square", "sine", "random", "drawn"]),
    inputs=st.sampled_from([1, 2]),
    activation=st.sampled_from(["relu", "silu"]),
    width=st.integers(1, 64),
    depth=st.integers(1, 6),
    seed=st.integers(0, 999_999),
    knots=st.sampled_from(["0,1;1,2", "-1e-05,.5;2.5,-3", "0,0;1,1;2,0"]),
    bound=FLOATS,
    tolerance=FLOATS,
    construction=st.sampled_from(["lean", "narrow", "paper"]),
    auxiliary=st.sampled_from(["unit", "random", "0.5,-1,2e-3"]),
    eta=st.none() | st.sampled_from([0.01, 3e-7, 2.0]),
    head=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
    x=st.none() | st.tuples(FLOATS) | st.tuples(FLOATS, FLOATS),
    scale=st.sampled_from(["linear", "log"]),
)


@given(STATES)
@example(State(tolerance=0.0009518017726863155, knots="0,0.00012345678901234567;1,2"))
def test_a_state_comes_back_from_its_address(state: State):
    path, _, query = ADDRESS.format(state).partition("?")
    assert path == "/nonlinearity"
    assert ADDRESS.parse("?" + query if query else "") == state


@given(st.text(max_size=100))
def test_any_query_is_read(query: str):
    assert isinstance(ADDRESS.parse("?" + query), State)


def test_nonsense_is_left_out():
    query = (
        "?preset=cube&inputs=3&width=x&bound=nan&tolerance=inf&eta=1e999&knots=0,1;&auxiliary=,&x=1,2,3&head=1&scale=up"
    )
    assert ADDRESS.parse(query) == State(inputs=2)
    assert ADDRESS.parse("?width=999&depth=0") == State(width=64, depth=1)
    for text in ("1e", "0x1", "1_000", "٣", "", "1" * 50, "--1", "1e99999"):
        assert number(text) is None
    assert [number("1e-3"), number("-.5"), number("2.")] == [1e-3, -0.5, 2.0]


@pytest.mark.parametrize("query", ["", "?bound=-3&eta=-1&x=9,9", "?preset=drawn&knots=9,9&auxiliary=1,2&bound=0"])
def test_any_address_has_a_page(services: Core, compiler: Nonlinearity, query: str):
    layout(services, compiler, ADDRESS.parse(query))


# ── what stands in the controls ──────────────────────────────────────────────────────────────────────────────

FIRST: dict[str, Any] = {
    "preset": "hat", "inputs": "1", "activation": "relu", "width": 6, "depth": 2, "seed": 0, "knots": "0,0\n1,1",
    "bound": "2", "tolerance": "0.05", "construction": "lean", "auxiliary": "unit", "vector": "", "eta": None,
    "head": None, "x1": 0.5, "x2": 0.5, "scale": "linear",
}  # fmt: skip


def form(**changes: Any) -> dict[str, Any]:
    """What the browser sends, by the controls' ids."""
    return {CONTROLS[name]: value for name, value in {**FIRST, **changes}.items()}


def test_controls_say_an_address():
    assert from_form(form()) == State(x=(0.5,))
    changed = from_form(
        form(preset="drawn", knots="-1, 0\n1,−2e-3", eta=0.25, head=[0, 3], auxiliary="own", vector="1,2")
    )
    assert changed == State(preset="drawn", knots="-1,0;1,-0.002", eta=0.25, head=(0, 3), auxiliary="1,2", x=(0.5,))
    # Boxes say anything while somebody types.
    assert from_form(form(width=999, depth="", seed=None)) == State(width=64, x=(0.5,))
    assert from_form(form(inputs="2", x2=None)) == State(inputs=2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bound": "two"}, "Input bound M: expected"),
        ({"bound": "-1"}, "expected a positive"),
        ({"tolerance": ""}, "Tolerance: expected a number"),
        ({"tolerance": "1e-17"}, "below what float64"),
        ({"auxiliary": "own"}, "Auxiliary token: expected"),
        ({"preset": "drawn", "knots": "0,0\noops"}, "got “oops”"),
        ({"preset": "cube"}, "Expected what the address could say"),
        ({"eta": "fast"}, "Expected what the address could say"),
    ],
)
def test_what_cannot_be_compiled_is_said(compiler: Nonlinearity, changes: dict[str, Any], why: str):
    chosen = compiler.values(form(**changes))
    assert why in str(chosen.problem)
    for view in VIEWS.values():
        with refused(why, error=RequestError):
            compiler.workshop.result(view, chosen)


def test_a_network_beyond_the_limit_is_refused_before_it_starts(compiler: Nonlinearity):
    core = Core.start(Settings(max_operations=1e7))
    chosen = Nonlinearity(core).of_address(State(preset="random", width=64, depth=6))
    assert chosen.problem is not None and "operations" in chosen.problem
    # What could be compiled with 400 heads at most still can.
    largest = State(preset="random", width=64, depth=6, inputs=2)
    assert compiler.of_address(largest).problem is None
    assert VIEWS[ids.ERROR].cost(compiler.of_address(largest)) < compiler.workshop._settings.max_operations


def test_what_the_network_does_not_use_is_left_out_and_kept_once(compiler: Nonlinearity):
    chosen = compiler.of_address(State(preset="abs", width=9, knots="0,0;1,1"))
    assert (chosen.width, chosen.knots) == (State().width, State().knots)
    assert compiler.of_address(State(activation="silu", eta=0.3)).eta is None
    again = compiler.of_address(State(preset="abs", width=3, x=(0.3,), head=(0, 2), scale="log"))
    assert compiler.workshop.result(LAYERS, again) is compiler.workshop.result(LAYERS, chosen)


def test_a_head_and_an_input_that_there_are_not(compiler: Nonlinearity):
    chosen = compiler.of_address(State(head=(5, 5)))
    assert chosen.head == (0, 1) and "head=5.5: expected a head of this model" in chosen.said[0]
    assert compiler.of_address(State(head=(5, 5)), {"preset": "abs"}).said == ()  # another network was shown before
    linear = compiler.of_address(State(head=(0, 0)))
    assert not linear.gated and "no gate" in str(VIEWS[ids.GATE].missing(linear))
    assert compiler.of_address(State(x=(7.0,))).point == (2.0,)
    assert compiler.of_address(State(inputs=2, x=(0.1, -9))).point == (0.1, -2.0)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_slider_stands_at_the_proofs_eta(compiler: Nonlinearity):
    chosen = compiler.values(form())
    compiled = compiler.workshop.result(LAYERS, chosen)
    answer = choose(compiler, chosen, compiled)
    ours = compile_ffn([(torch.ones(1, 3), torch.tensor([1.0, 0, -1])), (torch.tensor([[1.0], [-2], [1]]), None)],
                       bound=2, tolerance=0.05, activation="relu")  # fmt: skip
    shown = answer["shown"]
    assert shown["slider"] == answer["slider"] == slider_of(ours.etas[0])
    assert (shown["layer"], shown["head"], shown["x"]) == (0, 1, [0.5]) and answer["max of x1"] == 2
    assert len(answer["heads"][0].children) == 4
    moved = compiler.values(form(eta=0.25), json.loads(json.dumps(shown)))
    again = choose(compiler, moved, compiler.workshop.result(LAYERS, moved))
    assert not isinstance(again["slider"], float)  # the hand that slides is not moved
    assert moved.same_heads and not isinstance(again["heads"], list)
    assert not compiler.values(form(construction="paper"), shown).same_heads


def test_tables_and_facts_are_the_models(compiler: Nonlinearity):
    chosen = compiler.values(form(construction="narrow"))
    compiled = compiler.workshop.result(LAYERS, chosen)
    answer = describe(compiler, chosen, compiled)
    assert len(answer["facts"][0].children) == 6
    assert answer["layers"][0]["rows"] == [["0", "3 ReLU", f"{compiled.etas[0]:.3g}", "≤ 0.0125", "4", "4", "7"]]
    rows = list_heads(chosen, compiler.workshop.result(VIEWS[ids.HEADS], chosen))["rows"]
    assert [row["head"] for row in rows] == ["0.0", "0.1", "0.2", "0.3"]
    assert [row["eta"] for row in rows].count(None) == 1  # NaN is no JSON


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_saved_weights_are_the_model_and_the_network(compiler: Nonlinearity, tmp_path: Path):
    chosen = compiler.of_address(State(preset="random", inputs=2, width=4, depth=2, auxiliary="random"))
    compiled = compiler.workshop.result(LAYERS, chosen)
    x = torch.rand(1, 4, 2, dtype=torch.float64)

    path = tmp_path / "model.safetensors"
    path.write_bytes(files.model_safetensors(compiler.workshop, LAYERS, chosen).content)
    with safe_open(path, "pt") as opened:
        about = opened.metadata()
    model = AttentionOnlyTransformer(ModelConfig(**json.loads(about["model"]))).double()
    model.load_state_dict(load(path.read_bytes()))
    torch.testing.assert_close(model(compiled.embed(x)), compiled.model(compiled.embed(x)), atol=0, rtol=0)
    assert float(about["proven_error"]) == compiled.proven_error

    ffn = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    ffn.load_state_dict(load(files.ffn_safetensors(compiler.workshop, LAYERS, chosen).content))
    torch.testing.assert_close(ffn(x[0]), compiled.ffn(x[0]), atol=1e-14, rtol=0)

    file = files.model_zip(compiler.workshop, LAYERS, chosen)
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        archive.extractall(tmp_path)
    loaded = load_folder(tmp_path / file.name.removesuffix(".zip"), device="cpu")
    wide = loaded.double()(compiled.embed(x))
    torch.testing.assert_close(wide, compiled.model(compiled.embed(x)), atol=1e-4, rtol=0)
    assert "rounded to float32" in loaded.card.description


def test_tables_are_csv_and_json(compiler: Nonlinearity):
    chosen = compiler.of_address(State(construction="narrow"))
    for panel, columns in {
        ids.ERROR: "x,ffn,model,error",
        ids.HEADS: "layer,head,job,reads,writes,kink,sees,eta",
        ids.ONE: "query,query_x,key,key_x,attention",
        ids.COMPILED: "layer,units,activation,eta,unit_error,heads,paper_heads,proof_heads",
    }.items():
        head, *rows = table(compiler.workshop, VIEWS[panel], chosen).content.decode().splitlines()
        assert head.replace('"', "") == columns and rows
        saved = json.loads(record(compiler.workshop, VIEWS[panel], chosen).content)
        assert saved["construction"] == "narrow" and len(saved["rows"]) == len(rows)
