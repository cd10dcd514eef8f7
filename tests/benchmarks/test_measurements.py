"""The measurements compare equal outputs, with paired times and a peak that is the call's own, and run."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import expand
from aotlens.train.optimiser import make_optimiser
from benchmarks import _common, cache_memory, forward, paths, scores, training_step
from tests.small_models import maker

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A measurement sets PyTorch's threads for its process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


#: The rows of a measurement, its options, and the columns that are above 0 in every row.
RUNS = {
    "forward": (1, ["--d-vocab", "50", "--pairs", "1", "--bridge-pairs", "1"], ["ours ÷ plain", "bridge ÷ ours"]),
    "universality": (1, [], ["processor time, s", "of it surrogates of texts, s"]),
    "image_maps": (1, [], ["ours ÷ forward with patterns"]),
    "scoring": (1, ["--pairs", "1"], ["one at a time ÷ ours"]),
    "training_step": (2, ["--pairs", "1"], ["backward (ms)", "ours ÷ plain"]),
    "atlas": (3, [], ["ratio", "seconds"]),
    "denoisers": (2, [], ["plain loop, times"]),
    "circuits": (8, ["--d-vocab", "300", "--heads", "1"], ["ours ÷ theirs"]),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.minutes] * (name == "circuits")) for name in RUNS]
)
def test_a_measurement_runs_from_the_command_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    n_rows, arguments, positive = RUNS[name]
    assert importlib.import_module(f"benchmarks.{name}").main(["--quick", *arguments, "--json", str(path)]) == 0
    rows = [row for figures in json.loads(path.read_text()).values() for row in figures["rows"]]
    assert len(rows) == n_rows and all(row[column] > 0 for row in rows for column in positive)


@torch.no_grad()
def test_the_plain_model_is_the_same_model() -> None:
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, d_vocab=11, n_ctx=8, bias=True)
    model = _common.build(cfg)
    tokens = torch.randint(11, (2, 7))
    torch.testing.assert_close(forward.Plain(model)(tokens), model(tokens))
    assert model.b_Q.any() and model.b_U.any() and model.ln_final.b.any(), "or equality would say little"


def test_runs_alternate_and_medians_count() -> None:
    calls: list[str] = []
    timing = _common.time_in_turn(lambda: calls.append("a"), lambda: calls.append("b"), pairs=3)
    assert "".join(calls) == "ab" + "abbaab"
    assert timing.pairs == 3 and timing.ratio > 0


def test_figures_are_printed_and_gathered_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    _common.report("one", [{"x": 1, "ratio": 0.123456}], path)
    _common.report("two", [{"x": 2}], path)
    assert "1 | 0.1235" in capsys.readouterr().out
    figures = json.loads(path.read_text())
    assert figures["one"]["rows"] == [{"x": 1, "ratio": 0.123456}]
    assert figures["two"]["rows"] == [{"x": 2}] and figures["two"]["machine"]["torch"] == torch.__version__


def test_the_peak_of_a_fresh_process_contains_the_patterns() -> None:
    """Patterns of two layers and two heads, 256 × 256 in float32, for four sequences: the call adds 4 MB."""
    measured = _common.added_bytes(cache_memory.prepared, "ours", 256, 4, True)
    assert 4 * 2 * 2 * 256 * 256 * 4 < measured < 1e9


@torch.inference_mode()
def test_the_batch_of_forward_passes_keeps_one_path_a_row() -> None:
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=6, d_vocab=11, positions="qk")
    model = AttentionOnlyTransformer(cfg).double().requires_grad_(False)
    tokens = torch.tensor([3, 1, 4, 1, 5, 9])
    sequences = list(itertools.product(range(3), repeat=2))
    batch, hooks = paths.only_path_hooks(model, tokens, sequences)
    kept = model.run_with_hooks(batch, fwd_hooks=hooks)[:, -1, 7]
    torch.testing.assert_close(kept, expand(model, tokens).all_paths(-1, 7).values[0])
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())
    row = paths.measure_all_paths(quick=True, pairs=1)
    assert row["sequences"] == 25 and row["times faster"] > 0


def test_the_largest_pairs_are_measured() -> None:
    model = maker()(n_layers=3).requires_grad_(False)
    row = scores.measure("small", model, torch.arange(8), n_cells=3, pairs=1)
    assert row["cells"] == 3 and row["all 20 proven, share of cells"] == 1
    assert 0 < row["nodes expanded (median)"] <= row["nodes expanded (most)"] and row["forward passes (median)"] > 0


def test_both_sides_of_the_training_step_learn_the_same() -> None:
    """Steps from the same weights on the same rows; without weight decay, which plain AdamW applies to gains too."""
    recipe = dataclasses.replace(training_step.recipe_of("mhsa", quick=True), weight_decay=0.0)
    model = AttentionOnlyTransformer(recipe.model_config(recipe.corpus.d_vocab))
    plain = training_step.PlainMHSA(model)
    rows = torch.randint(recipe.corpus.d_vocab, (8, 256))
    trainable = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trainable, lr=1e-3, betas=recipe.betas, weight_decay=0.0)
    ours = make_optimiser(model, recipe)
    losses = [
        (training_step.our_step(model, ours, rows, recipe), training_step.plain_step(plain, optimiser, rows))
        for _ in range(3)
    ]
    assert losses[2][0] < losses[0][0] and all(a == pytest.approx(b, rel=1e-5) for a, b in losses)
