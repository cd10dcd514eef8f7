"""The measurements compare like with like: equal outputs, paired times, a peak that is the call's own."""

from __future__ import annotations

import json

import pytest
import torch

from aotlens.models import ModelConfig
from benchmarks import _common, cache_memory, circuits, forward, universality

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@torch.no_grad()
def test_the_plain_model_is_the_same_model():
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, d_vocab=11, n_ctx=8, bias=True)
    model = _common.build(cfg)
    tokens = torch.randint(11, (2, 7))
    torch.testing.assert_close(forward.Plain(model)(tokens), model(tokens))
    assert model.b_Q.any() and model.b_U.any() and model.ln_final.b.any(), "or equality would say little"


def test_runs_alternate_and_medians_count():
    calls: list[str] = []
    timing = _common.time_in_turn(lambda: calls.append("a"), lambda: calls.append("b"), pairs=3)
    assert "".join(calls) == "ab" + "abbaab"
    assert timing.pairs == 3 and timing.ratio > 0


def test_figures_are_printed_and_gathered_in_one_file(tmp_path, capsys):
    path = tmp_path / "figures.json"
    _common.report("one", [{"x": 1, "ratio": 0.123456}], path)
    _common.report("two", [{"x": 2}], path)
    assert "1 | 0.1235" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["one"]["rows"] == [{"x": 1, "ratio": 0.123456}]
    assert figures["two"]["rows"] == [{"x": 2}] and figures["two"]["machine"]["torch"] == torch.__version__


def test_the_peak_of_a_fresh_process_holds_the_patterns():
    """Patterns of two layers and two heads, 256 × 256 in float32, for four sequences: the call adds 4 MB."""
    measured = cache_memory.measure_memory("ours", ["--quick", "--batch", "4"])
    assert 4 * 2 * 2 * 256 * 256 * 4 < measured < 1e9


def test_forward_runs_from_the_command_line(tmp_path):
    path = tmp_path / "figures.json"
    arguments = ["--quick", "--d-vocab", "50", "--pairs", "1", "--bridge-pairs", "1", "--json", str(path)]
    assert forward.main(arguments) == 0
    row = json.loads(path.read_text())["forward"]["rows"][0]
    assert row["d_vocab"] == 50 and row["ours ÷ plain"] > 0 and row["bridge ÷ ours"] > 0


@pytest.mark.minutes
def test_circuits_runs_from_the_command_line(tmp_path):
    path = tmp_path / "figures.json"
    assert circuits.main(["--quick", "--d-vocab", "300", "--heads", "1", "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["circuits"]["rows"]
    assert len(rows) == 8 and all(row["ours ÷ theirs"] > 0 for row in rows) and rows[1]["ours (MB)"] > 0


def test_universality_runs_from_the_command_line(tmp_path):
    path = tmp_path / "figures.json"
    assert universality.main(["--quick", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["universality"]["rows"]
    assert row["processor time, s"] > row["of it surrogates of texts, s"] > 0
