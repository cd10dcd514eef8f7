"""The study of what taught an induction head, whole, on a run of a second; its tables have its numbers."""

from __future__ import annotations

import pytest

from analyses import influence as study
from aotlens.dynamics import Influence, InfluenceCheck, Removal
from aotlens.results import load
from tests.dynamics.small_runs import text

RECIPE = """
name = "influence-small"
[corpus]
d_vocab = 270
validation = ["doc3"]
[model]
n_layers = 2
d_model = 16
n_heads = 2
d_head = 8
n_ctx = 32
[[stages]]
tokens = 2048
batch_size = 4
sequence_length = 32
learning_rate = 3e-3
repeat_fraction = 0.5
"""


@pytest.mark.long
def test_the_study_of_a_small_run(tmp_path, capsys):
    (tmp_path / "small.toml").write_text(RECIPE)
    spec, out = text(tmp_path / "texts"), tmp_path / "out"
    options = [f"{tmp_path / 'small.toml'}@4", "--corpus", spec, "--out", str(out), "--processes", "1"]
    assert study.main(options) == 0
    printed = capsys.readouterr().out
    found = load(out / "small-4.safetensors", Influence)
    checked = load(out / "small-4-check.safetensors", InfluenceCheck)
    removed = load(out / "small-4-removal.safetensors", Removal)
    assert found.n_steps == 16 and checked.found.shape == (2, 40) and removed.measure == found.measures[1]
    for measure in found.measures:
        low, high = checked.interval(measure)
        assert f"{checked.correlation(measure):+.2f} ({low:+.2f} to {high:+.2f})" in printed
    assert f"{removed.without_helpful[-1]:.3f} ({removed.effects[0]:+.1f})" in printed
    again = (out / "small-4.safetensors").stat().st_mtime_ns
    assert study.main(options) == 0 and (out / "small-4.safetensors").stat().st_mtime_ns == again
    assert capsys.readouterr().out.endswith(printed[printed.index("run | ") :])
