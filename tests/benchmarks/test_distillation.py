"""What the measurement of distillation compares is comparable."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import repeated_random_tokens
from aotlens.distill import distill_heads
from benchmarks import distillation


def test_errors_of_both_are_of_the_same_thing() -> None:
    """A linear map has the same error through the benchmark's activations as in the distillation."""
    model = distillation.load_model(quick=True)
    train, held_out = (repeated_random_tokens(64, n, 15, seed) for seed, n in enumerate((60, 20)))
    found = distill_heads(
        model, (train, held_out, held_out), 0, train_tokens=train.numel(), batch_size=60, wide=None, neighbours=0
    )
    x, y = distillation.activations(model, train, (1, 0))
    x_new, y_new = distillation.activations(model, held_out, (1, 0))
    design = np.c_[x, np.ones(len(x))].astype(np.float64)
    guess = np.c_[x_new, np.ones(len(x_new))] @ np.linalg.lstsq(design, y, rcond=1e-7)[0]
    mean = distillation.activations_mean(found, model, (1, 0))
    np.testing.assert_allclose(mean, y.mean(0), atol=1e-4)
    error = ((y_new - guess) ** 2).sum() / ((y_new - mean) ** 2).sum()
    assert error == pytest.approx(found.error[found.place((1, 0)), 0, 0], rel=1e-3)


@pytest.mark.minutes
def test_it_runs_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert distillation.main(["--quick", "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "times faster" in out and out.count("\n") == 6


def test_time_to_an_error_is_of_the_slowest_seed() -> None:
    model = distillation.load_model(quick=True)
    train, held_out = (repeated_random_tokens(64, n, 15, seed) for seed, n in enumerate((60, 20)))
    found = distill_heads(
        model, (train, held_out, held_out), 4, train_tokens=2000, batch_size=50, wide=None, neighbours=0, evaluations=5
    )
    curve = found.curve[:, 0, 0]
    worst = float(curve[-1].max())
    seconds = distillation.seconds_to_reach(found, 1.0, found.heads[0], 4, worst)
    assert seconds <= 1.0 + found.curve_seconds[-1]
    assert distillation.seconds_to_reach(found, 1.0, found.heads[0], 4, 0.0) == float("inf")
    first = float(np.minimum.accumulate(curve, axis=0)[1].max())
    assert distillation.seconds_to_reach(found, 0.0, found.heads[0], 4, first) <= found.curve_seconds[1]
