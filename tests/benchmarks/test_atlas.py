"""The measurement of the atlas runs, and checks what it times."""

from __future__ import annotations

import pytest
import torch

from benchmarks import atlas


def test_it_runs_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert atlas.main(["--quick", "--threads", "1"]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "atlas's pass ÷ plain pass" in out and "each head ÷ the layers" in out and "peak memory" in out
