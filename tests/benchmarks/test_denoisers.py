"""The measurement of denoisers compares layers of equal weights, and runs."""

from __future__ import annotations

import pytest
import torch

from benchmarks import denoisers


def test_it_runs_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert denoisers.main(["--quick", "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "plain loop, times" in out and "own prompts ÷ shared prompts, times" in out and out.count("\n") == 6
