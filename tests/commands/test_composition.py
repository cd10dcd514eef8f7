"""`aotlens composition` prints what the library finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.circuits import composition
from aotlens.models import AttentionOnlyTransformer, ModelConfig

Run = Callable[..., tuple[int, str, str]]


def test_the_table(run: Run) -> None:
    code, out, err = run("composition", "small", "--mode", "v", "--top", "3", "--folded")
    result = composition(load("small", "cpu"), "v", folded=True)
    assert (code, err) == (0, "")
    first, empty, head, *rows = out.splitlines()
    assert first == (
        f"v composition. Independent random heads: mean {result.random_mean:.4f}, "
        f"standard deviation {result.random_std:.4f}."
    )
    assert empty == "" and head.split() == ["earlier", "later", "composition", "z"] and len(rows) == 3
    best = result.to_frame().iloc[0]
    pair = [f"{best.earlier_layer:.0f}.{best.earlier_head:.0f}", f"{best.later_layer:.0f}.{best.later_head:.0f}"]
    assert rows[0].split() == [*pair, f"{best.composition:.4f}", f"{best.z:.1f}"]


def test_q_and_k_of_mssa_are_named_as_one(run: Run) -> None:
    tables = [run("composition", "small", "--mode", mode)[1].splitlines() for mode in ("q", "k")]
    assert tables[0][1:] == tables[1][1:]
    assert tables[0][0].startswith("q composition (and k composition: MSSA has one matrix for both).")


def test_csv_has_every_pair(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    assert run("composition", "small", "--top", "1", "--csv", str(file)) == (0, f"{file}: 4 rows\n", "")
    frame = composition(load("small", "cpu")).to_frame()
    np.testing.assert_allclose(pd.read_csv(file).to_numpy(), frame.to_numpy())


def test_one_layer(run: Run, home: Path) -> None:
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6)
    save_checkpoint(home / "flat", AttentionOnlyTransformer(cfg), CheckpointInfo(name="flat"), history=[])
    assert run("composition", "flat") == (
        0,
        "This model has one layer, and so no pair of heads that could compose.\n",
        "",
    )
