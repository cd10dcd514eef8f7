"""`aotlens evaluate` prints the library's figures, several checkpoints below each other."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.data.images import ImageProcessor, open_images
from aotlens.evaluate import evaluate_zero_shot
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.commands.conftest import Run
from tests.messages import says


@pytest.fixture
def lambada(tmp_path: Path) -> str:
    path = tmp_path / "lambada.txt"
    path.write_text("the cat sat on the mat\nthat was that and the cat\n")
    return str(path)


def test_two_checkpoints_side_by_side(run: Run, home: Path, lambada: str, tmp_path: Path) -> None:
    shutil.copytree(home / "small", home / "other")
    config = home / "other" / "config.json"
    config.write_text(config.read_text().replace('"name": "small"', '"name": "other"'))
    code, out, err = run("evaluate", "small", "other", "--suite", "zero-shot", "--lambada", lambada)
    assert (code, err) == (0, "")
    model = load("small", "cpu")
    result = evaluate_zero_shot({"small": model}, lambada=lambada)
    figures, differences, notes = out.strip().split("\n\n")
    of_small = [line for line in figures.splitlines() if line.startswith("small  ")]
    assert len(of_small) == len(result.measures) == 6
    for line, each in zip(of_small, result.measures, strict=True):
        value = f"{each.value:.4g}"
        assert each.measure in line and each.unit in line and f" {value} " in line
    assert differences.splitlines()[1].split()[:3] == ["small", "other", "LAMBADA"]
    assert notes.splitlines() == list(result.notes)
    file = tmp_path / "figures.csv"
    assert run("evaluate", "small", "other", "--lambada", lambada, "--csv", str(file)) == (0, f"{file}: 12 rows\n", "")
    assert list(pd.read_csv(file).value[:6]) == pytest.approx([each.value for each in result.measures])


def test_baselines_stand_beside_them(run: Run, lambada: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and that was that. " * 20)
    code, out, _ = run("evaluate", "small", "--lambada", lambada, "--baselines", f"file:{text}", "--limit", "1")
    assert code == 0 and "  unigram " in out and "  bigram " in out and "1 passages" in out


def test_what_cannot_be_is_one_line(run: Run, lambada: str) -> None:
    code, _, err = run("evaluate", "small", "--lambada", "none.txt")
    assert code == 2 and err.count("\n") == 1
    says(err, "none.txt", "does not exist", "hf:NAME")
    code, _, err = run("evaluate", "small", "--lambada", lambada, "--protocol", "aot")
    assert code == 2
    says(err, "LAMBADA", "more than 11 tokens", "got 6")


def test_a_model_of_images(run: Run, home: Path, tmp_path: Path) -> None:
    cfg = ModelConfig(
        n_layers=1, d_model=8, n_heads=2, d_head=4, n_ctx=4, read_in="patches", image_size=8, patch_size=4,
        read_out="classes", d_out=10, causal=False, pooling="mean",
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg)
    digits = open_images("digits")
    names = tuple(f"the {name}" for name in digits.classes)
    model.image_processor = dataclasses.replace(ImageProcessor.of(digits.train, "digits"), classes=names)
    recipe, corpus = {"images": {"validation": 0.1}}, {"sha256": digits.named(names).sha256()}
    save_checkpoint(home / "seeing", model, CheckpointInfo(name="seeing", recipe=recipe, corpus=corpus))
    model = load("seeing", "cpu")
    for split, images in (("test", digits.test), ("validation", digits.split(0.1)[1])):
        code, out, err = run("evaluate", "seeing", "--data", "digits", "--split", split, "--device", "cpu")
        assert (code, err) == (0, "")
        right = int((model(images.images).argmax(-1) == images.labels).sum())
        assert f"{split} images: {len(images)}" in out and f"{right / len(images):.2%} right" in out
        assert "the 7" in out and "Expected calibration error" in out
    file = tmp_path / "classes.csv"
    assert run("evaluate", "seeing", "--data", "digits", "--csv", str(file))[1] == f"{file}: 10 rows\n"
    assert set(pd.read_csv(file).checkpoint) == {"seeing"}
    code, _, err = run("evaluate", "small", "--data", "digits")
    assert code == 2
    says(err, "expected models of images", "small", "tokens")
    code, _, err = run("evaluate", "seeing", "--data", "digits", "--limit", "3")
    assert code == 2
    says(err, "options of text")
    other = tmp_path / "other.npz"
    pixels, labels = np.zeros((20, 8, 8), dtype=np.uint8), np.arange(20) % 10
    np.savez(other, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    code, _, err = run("evaluate", "seeing", "--data", f"npz:{other}", "--split", "validation")
    assert code == 2
    says(err, "expected the data it was trained on", "digits")
