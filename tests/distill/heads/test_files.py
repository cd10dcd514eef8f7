"""Distillations on disk: what was saved comes back; damage and other files are refused; nothing is lost half-way."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from aotlens.distill import Distillation, distill_heads, load_distillation, save_distillation
from tests.messages import refused

from .conftest import FAST


@pytest.fixture
def found(model, windows) -> Distillation:
    return distill_heads(model, windows, [0, 4], seeds=2, **{**FAST, "wide": 8, "neighbours": 100})


def test_round_trip(found, tmp_path: Path):
    path = tmp_path / "folder" / "one.safetensors"
    save_distillation(path, found)
    save_distillation(path, found)  # replaces its own kind
    again = load_distillation(path)
    for field in dataclasses.fields(Distillation):
        before, after = getattr(found, field.name), getattr(again, field.name)
        if isinstance(before, np.ndarray):
            np.testing.assert_array_equal(before, after)
            assert before.dtype == after.dtype
        elif isinstance(before, torch.Tensor):
            assert torch.equal(before, after)
        elif field.name not in ("weights", "attending"):
            assert before == after, field.name
    assert again.to_frame().equals(found.to_frame()) and again.class_frame().equals(found.class_frame())
    x = torch.randn(5, 8, dtype=torch.float64)
    assert torch.equal(again.predict_z((1, 0), x, width=4), found.predict_z((1, 0), x, width=4))
    assert [file.name for file in path.parent.iterdir()] == ["one.safetensors"]


def test_what_was_not_asked_for_stays_absent(model, windows, tmp_path: Path):
    found = distill_heads(model, windows, 4, seeds=1, **FAST)
    save_distillation(tmp_path / "one", found)
    again = load_distillation(tmp_path / "one")
    assert again.wide_error is None and again.neighbour_error is None and again.linear_error is None


def test_damage_is_refused(found, tmp_path: Path):
    path = tmp_path / "one.safetensors"
    save_distillation(path, found)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", b"not a file of ours", whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read"):
            load_distillation(path)
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    path.write_bytes(flipped)
    with refused("damaged"):
        load_distillation(path)
    at = whole.index(b"train_tokens")
    path.write_bytes(whole[:at] + b"tRain" + whole[at + 5 :])
    with pytest.raises(ValueError, match=r"damaged|cannot be read"):
        load_distillation(path)
    with pytest.raises(ValueError, match=r"damaged|cannot be read"):
        save_distillation(path, found)  # what cannot be told to be ours is not replaced


def test_other_files_are_refused_and_kept(found, tmp_path: Path):
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(3)}, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="found another safetensors file"):
        load_distillation(path)
    with pytest.raises(ValueError, match="found another safetensors file"):
        save_distillation(path, found)
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="cannot be read"):
        load_distillation(tmp_path / "none")


def test_a_save_that_fails_leaves_the_old_one(found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "one.safetensors"
    save_distillation(path, found)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("aotlens.files.os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        save_distillation(path, dataclasses.replace(found, model_name="other"))
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
