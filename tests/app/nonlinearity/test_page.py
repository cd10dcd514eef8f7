"""The Non-linearity page without a browser: its files and its callbacks."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from dash import Dash
from safetensors.torch import load, safe_open
from torch import nn

from aotlens.checkpoints import load_folder
from aotlens.distill import compile_ffn
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from app.core import Core
from app.core.errors import RequestError
from app.pages.nonlinearity import captions
from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.callbacks import make_file
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.layout import layout
from app.pages.nonlinearity.service import Nonlinearity, from_dict, slider_of, starting_x, to_dict
from app.shell import ids as shell

State = NonlinearityState

# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


def file(compiler: Nonlinearity, entry: str, state: State, head: tuple[int, int] = (0, 1)) -> bytes:
    shown = {"layer": head[0], "head": head[1], "x": [0.5] * state.inputs}
    return make_file(compiler, entry, to_dict(state), shown).content


def test_saved_weights_are_the_model_and_the_network(compiler: Nonlinearity, tmp_path: Path):
    state = State(preset="random", inputs=2, width=4, depth=2, auxiliary="random")
    made = compiler.compile(state)
    x = torch.rand(1, 4, 2, dtype=torch.float64)

    path = tmp_path / "model.safetensors"
    path.write_bytes(file(compiler, shell.export(ids.COMPILED, "safetensors"), state))
    with safe_open(path, "pt") as opened:
        about = opened.metadata()
    model = AttentionOnlyTransformer(ModelConfig(**json.loads(about["model"]))).double()
    model.load_state_dict(load(path.read_bytes()))
    torch.testing.assert_close(
        model(made.compiled.embed(x)), made.compiled.model(made.compiled.embed(x)), atol=0, rtol=0
    )
    assert float(about["proven_error"]) == made.compiled.proven_error

    ffn = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    ffn.load_state_dict(load(file(compiler, shell.export(ids.COMPILED, "ffn"), state)))
    torch.testing.assert_close(ffn(x[0]), made.compiled.ffn(x[0]), atol=1e-14, rtol=0)

    with zipfile.ZipFile(io.BytesIO(file(compiler, shell.export(ids.COMPILED, "zip"), state))) as archive:
        archive.extractall(tmp_path)
    loaded = load_folder(tmp_path / "compiled-random-2d-relu-lean", device="cpu")
    wide = loaded.double()(made.compiled.embed(x))
    torch.testing.assert_close(wide, made.compiled.model(made.compiled.embed(x)), atol=1e-4, rtol=0)
    assert "rounded to float32" in loaded.card.description


def test_tables_are_csv(compiler: Nonlinearity):
    state = State(construction="narrow")
    for entry, columns in {
        shell.export(ids.ERROR, "csv"): ["x", "ffn", "model", "error"],
        shell.export(ids.HEADS, "csv"): ["layer", "head", "job", "reads", "writes", "kink", "sees", "eta"],
        shell.export(ids.ONE, "csv"): ["query", "query_x", "key", "key_x", "attention"],
    }.items():
        rows = list(csv.reader(io.StringIO(file(compiler, entry, state).decode())))
        assert rows[0] == columns and len(rows) > 3, entry
    assert file(compiler, shell.export(ids.COMPILED, "csv"), state).startswith(b'"layer","units"')
    with pytest.raises(RequestError, match="Nothing is compiled"):
        make_file(compiler, shell.export(ids.COMPILED, "csv"), None, None)
    with pytest.raises(RequestError, match="choose one first"):
        make_file(compiler, shell.export(ids.ONE, "csv"), to_dict(state), None)


@pytest.mark.parametrize(
    "state",
    [
        State(eta=0.05, auxiliary="0.5,-1,2"),
        State(preset="random", inputs=2, width=3, depth=2, activation="silu", auxiliary="random"),
        State(preset="sine", construction="paper"),
        State(preset="ramp", inputs=2),
        State(preset="drawn", knots="0,0;1,2;1.5,-1"),
    ],
)
def test_the_snippet_gives_the_same(compiler: Nonlinearity, state: State):
    made = compiler.compile(state)
    space: dict[str, Any] = {"print": lambda *_: None}
    exec(captions.snippet(made, made.roles[0], starting_x(state)), space)
    again = space["compiled"]
    assert again.etas == made.compiled.etas and again.proven_error == made.compiled.proven_error
    torch.testing.assert_close(again.model.W_Q, made.compiled.model.W_Q, atol=0, rtol=0)
    torch.testing.assert_close(again.auxiliary, made.compiled.auxiliary, atol=0, rtol=0)


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────────────────

FORM = {
    ids.PRESET: "hat", ids.INPUTS: "1", ids.ACTIVATION: "relu",
    ids.WIDTH: 6, ids.DEPTH: 2, ids.SEED: 0, ids.KNOTS: "0,0\n1,1",
    ids.BOUND: "2", ids.TOLERANCE: "0.05", ids.CONSTRUCTION: "lean",
    ids.AUXILIARY: "unit", ids.VECTOR: "", ids.ETA: None,
}  # fmt: skip


def ask(app: Dash, output: str, values: dict[str, Any], states: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the callback that has this output."""
    callback = next(one for one in app._callback_list if re.search(rf"\.\.{output}\.\w+\.\.", one["output"]))
    parts = [part.rsplit(".", 1) for part in callback["output"].strip(".").split("...")]
    body = {
        "output": callback["output"],
        "outputs": [{"id": component, "property": prop} for component, prop in parts],
        "inputs": [{**one, "value": values.get(one["id"])} for one in callback["inputs"]],
        "state": [{**one, "value": (states or {}).get(one["id"])} for one in callback["state"]],
        "changedPropIds": [],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body, headers={"Host": "localhost"})
    assert answer.status_code == 200, answer.text
    return answer.get_json()["response"]


def test_the_form_is_compiled_and_the_slider_stands_at_the_proofs_eta(app: Dash):
    answer = ask(app, ids.SHOWN, FORM)
    shown = answer[ids.SHOWN]["data"]
    ours = compile_ffn([(torch.ones(1, 3), torch.tensor([1.0, 0, -1])), (torch.tensor([[1.0], [-2], [1]]), None)],
                       bound=2, tolerance=0.05, activation="relu")  # fmt: skip
    assert shown["slider"] == answer[ids.ETA_SLIDER]["value"] == slider_of(ours.etas[0])
    assert from_dict(shown) == State() and answer[ids.X1]["max"] == 2
    chosen = ask(app, ids.SHOWN, {**FORM, ids.ETA: 0.25, ids.PRESET: "drawn"})
    assert from_dict(chosen[ids.SHOWN]["data"]) == State(preset="drawn", knots="0,0;1,1", eta=0.25)
    assert "value" not in chosen[ids.ETA_SLIDER]  # the hand that slides is not moved


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({ids.BOUND: "two"}, "Inputs up to M: expected"),
        ({ids.TOLERANCE: ""}, "Tolerance: expected a number"),
        ({ids.TOLERANCE: "1e-17"}, "below what float64"),
        ({ids.AUXILIARY: "own"}, "Auxiliary token: expected"),
        ({ids.PRESET: "drawn", ids.KNOTS: "0,0\noops"}, "got “oops”"),
        (
            {ids.PRESET: "random", ids.WIDTH: 64, ids.DEPTH: 6,
             ids.CONSTRUCTION: "paper"},
            "at most 400",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_a_notice(app: Dash, changes: dict[str, Any], why: str):
    answer = ask(app, ids.SHOWN, {**FORM, **changes})
    assert answer[ids.SHOWN]["data"] is None
    notice = json.dumps(answer[shell.notice(ids.PANEL)], ensure_ascii=False)
    assert why in notice and "Something went wrong" not in notice


def test_every_panel_is_filled_or_empty(app: Dash):
    shown = ask(app, ids.SHOWN, FORM)[ids.SHOWN]["data"]
    values = {ids.SHOWN: shown, shell.THEME: "dark", ids.SCALE: "log", ids.HEAD: [0, 2],
              ids.X1: 0.1, ids.X2: 0.5}  # fmt: skip
    look = ask(app, ids.LOOK, values)
    assert look[ids.LOOK]["data"] == {"layer": 0, "head": 2, "x": [0.1]}
    assert (
        look[shell.title(ids.ONE)]["children"] == "Head 0.2" and len(look[shell.graph(ids.GATE)]["figure"]["data"]) > 3
    )
    again = ask(app, ids.LOOK, values, {ids.LOOK: look[ids.LOOK]["data"]})
    assert ids.LOOK not in again
    panels = {
        ids.FACTS: "children",
        shell.graph(ids.MASK): "figure",
        shell.graph(ids.ERROR): "figure",
        shell.table(ids.HEADS): "rowData",
    }
    stores = {shell.seen(panel) for panel in (ids.COMPILED, ids.MASK, ids.ERROR, ids.HEADS)}
    for output, part in panels.items():
        filled = ask(app, output, {**values, **dict.fromkeys(stores, shown)})
        assert filled[output][part] and all(
            value["children"] is None for id, value in filled.items() if id.endswith("-notice")
        )
        nothing = ask(app, output, {**values, **dict.fromkeys(stores, None)})[output][part]
        assert not (nothing["data"] if part == "figure" else nothing)


@pytest.mark.parametrize("query", ["", "?bound=-3&eta=-1&x=9,9", "?preset=drawn&knots=9,9&auxiliary=1,2&bound=0"])
def test_any_address_has_a_page(services: Core, compiler: Nonlinearity, query: str):
    layout(services, compiler, ADDRESS.parse(query))
