"""`aotlens composition` prints what the library finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.circuits import composition
from aotlens.data import Encoding, open_corpus, spread_windows
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import says

Run = Callable[..., tuple[int, str, str]]


def test_the_table(run: Run) -> None:
    code, out, err = run("composition", "small", "--mode", "v", "--top", "3", "--folded", "--random", "500")
    result = composition(load("small", "cpu"), "v", folded=True, n_random=500)
    assert (code, err) == (0, "")
    first, empty, head, *rows = out.splitlines()
    assert first.startswith(f"v composition. {result.edges.sum()} of 4 pairs above their null, z ≥ 3.")
    assert first.endswith(f"a root mean square of {result.random_rms:.4f}.")
    assert empty == "" and head.split()[:3] == ["earlier", "later", "composition"] and len(rows) == 3
    best = result.to_frame().iloc[0]
    pair = [f"{best.earlier_layer:.0f}.{best.earlier_head:.0f}", f"{best.later_layer:.0f}.{best.later_head:.0f}"]
    assert rows[0].split()[:3] == [*pair, f"{best.composition:.4g}"]
    values = best[["norm", "z", "z_signs", "random_mean", "random_std", "p_above", "p_below"]].dropna()
    assert {f"{value:.4g}" for value in values} <= {cell.lstrip("+") for cell in rows[0].split()}
    assert ("yes" if best.edge else "no") in rows[0].split()


def test_q_and_k_of_mssa_are_named_as_one(run: Run) -> None:
    tables = [run("composition", "small", "--mode", mode)[1].splitlines() for mode in ("q", "k")]
    assert tables[0][1:] == tables[1][1:]
    assert tables[0][0].startswith("q composition (and k composition: MSSA has one matrix for both).")


def test_csv_has_every_pair(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    assert run("composition", "small", "--top", "1", "--csv", str(file)) == (0, f"{file}: 4 rows\n", "")
    frame = composition(load("small", "cpu")).to_frame()
    pd.testing.assert_frame_equal(pd.read_csv(file), frame)


def test_by_what_was_written_on_a_text(run: Run, tmp_path: Path) -> None:
    text, file = tmp_path / "text.txt", tmp_path / "pairs.csv"
    text.write_text("the cat sat on the mat, the rat sat on the cat. " * 20, encoding="utf-8")
    options = ["composition", "small", "--mode", "k", "--data", f"file:{text}", "--sequences", "5"]
    code, out, err = run(*options)
    model = load("small", "cpu")
    corpus = open_corpus(f"file:{text}")
    windows = spread_windows(corpus, corpus.names(), Encoding.of(model.tokenizer), 5, model.cfg.n_ctx)
    result = composition(model, "k", data=windows)
    assert (code, err) == (0, "")
    says(out, f"5 windows of 6 tokens of file:{text}")
    best = result.to_frame().iloc[0]
    assert f"{best.composition:.4g}" in out
    assert run(*options, "--second-moment", "--csv", str(file))[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv(file), composition(model, "k", data=windows, about_mean=False).to_frame())
    code, _, err = run("composition", "small", "--second-moment")
    assert code == 2
    says(err, "--second-moment", "expected --data")


def test_one_layer(run: Run, home: Path) -> None:
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6)
    save_checkpoint(home / "flat", AttentionOnlyTransformer(cfg), CheckpointInfo(name="flat"), history=[])
    code, out, err = run("composition", "flat")
    assert (code, err) == (0, "") and out.count("\n") == 1
    says(out, "one layer")
