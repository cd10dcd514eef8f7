"""``aotlens film`` prints what the library measures."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints.snapshots import SnapshotWriter
from aotlens.cli import main
from aotlens.data import Encoding, Tokenizer, open_corpus, spread_windows
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import says

TEXT = "the cat sat on the mat. the dog sat on the cat. " * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 13 snapshots whose weights move at random."""
    folder = tmp_path_factory.mktemp("film") / "small"
    tokenizer = Tokenizer.train([TEXT], 270)
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=16, d_vocab=270)
    model = AttentionOnlyTransformer(cfg, tokenizer).requires_grad_(False)
    writer = SnapshotWriter(folder, 0)
    for step in range(13):
        writer.add(step, 16 * step, model.state_dict())
        for parameter in model.parameters():
            parameter *= 1.1
    save_checkpoint(folder, model, CheckpointInfo(name="small"))
    return folder


@pytest.mark.long
def test_table_events_ledger_and_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    (tmp_path / "text.txt").write_text(TEXT)
    page, csv = tmp_path / "film.html", tmp_path / "film.csv"
    command = ["film", str(folder), "--corpus", f"file:{tmp_path / 'text.txt'}", "--sequences", "4", "--random", "19"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--html", str(page), "--ledger", "--start", "10", "--device", "cpu"])
    said = capsys.readouterr().out
    assert not ended.value.code, said
    says(
        said,
        "4 windows of 16 tokens",
        "induction",
        "no lasting change found",
        "Ledger from step 10 to 12",
        "residual",
        "embedding",
    )
    steps = [line.split()[0] for line in said.split("\n\n")[1].splitlines()[1:]]
    assert steps == [str(step) for step in range(13)]
    text = page.read_text(encoding="utf-8")
    assert "Plotly.animate" in text or "addFrames" in text
    assert 'src="http' not in text, "it plays without a network"
    movie = tmp_path / "film.gif"
    with pytest.raises(SystemExit) as ended:
        main([*command, "--csv", str(csv), "--movie", str(movie), "--text", "the cat sat"])
    assert not ended.value.code
    with Image.open(movie) as frames:
        assert (frames.n_frames, frames.format) == (13, "GIF")
    frame = pd.read_csv(csv)
    losses = frame[frame.measure == "loss"]
    assert losses.step.tolist() == list(range(13))
    model = aotlens.load(f"{folder}@12", "cpu")
    corpus = open_corpus(f"file:{tmp_path / 'text.txt'}")
    windows = spread_windows(corpus, corpus.names(), Encoding.of(model.tokenizer), 4, 16)
    assert losses.value.iloc[12] == pytest.approx(float(model(windows, return_type="loss")), rel=1e-5)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--start", "3"])
    assert ended.value.code == 2
    says(capsys.readouterr().err, "--ledger")
    with pytest.raises(SystemExit):
        main(["film", str(shutil.copytree(folder, tmp_path / "bare")), *command[2:]])
    says(capsys.readouterr().err, "snapshots", "found none")


def test_the_film_has_a_frame_a_step(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aotlens.plots.film import film_figure

    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    tokens = torch.randint(270, (2, 16), generator=torch.Generator().manual_seed(0))
    measures = aotlens.dynamics.film(aotlens.load_run(folder, device="cpu"), tokens, steps=[0, 6, 12], n_random=0)
    figure = film_figure(measures)
    assert [frame.name for frame in figure.frames] == ["0", "6", "12"]
    heat, loss, _ = figure.frames[1].data
    induction = measures["motif_scores"][1, measures.results[0].motifs.index("induction")]
    np.testing.assert_allclose(heat.z[:, list(heat.x).index("induction")], induction.reshape(-1))
    np.testing.assert_allclose(loss.y, measures["loss"][:2])
