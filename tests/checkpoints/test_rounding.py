"""A run whose snapshots are rounded: small, within half a step of itself at every moment, refused when damaged."""

from __future__ import annotations

import lzma
import math
import shutil
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointError, CheckpointInfo, compress_run, load_run, save_checkpoint
from aotlens.checkpoints.snapshots import (
    SnapshotWriter,
    read_snapshot,
    snapshot_file,
    snapshot_steps,
    snapshots_folder,
)
from aotlens.files import contents_hash, write_record
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

ERROR = 0.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 snapshots of a model whose weights drift."""
    folder = tmp_path_factory.mktemp("runs") / "drift"
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=64, n_heads=2, d_head=32, n_ctx=16, d_vocab=300))
    torch.manual_seed(0)
    writer = SnapshotWriter(folder, 0)
    for step in range(25):
        writer.add(step, 100 * step, model.state_dict())
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * weight.std(unbiased=False) * torch.randn_like(weight))
    save_checkpoint(folder, model, CheckpointInfo(name="drift"))
    return folder


@pytest.mark.slow
def test_every_weight_is_within_half_a_step_at_every_snapshot(folder: Path, tmp_path: Path) -> None:
    run = compress_run(folder, tmp_path / "small", error=ERROR)
    assert run.bytes_after == sum(path.stat().st_size for path in (tmp_path / "small.snapshots").iterdir())
    assert run.bytes_after < 0.2 * run.bytes_before
    assert snapshot_steps(run.folder) == snapshot_steps(folder)
    for step in (24, *range(25)):  # the last one first, from 25 files
        exact, rounded = read_snapshot(folder, step), read_snapshot(run.folder, step)
        assert (rounded.tokens, rounded.rounding_error, exact.rounding_error) == (100 * step, ERROR, 0.0)
        for name, weights in exact.tensors.items():
            moved = (rounded.tensors[name] - weights).double().numpy()
            size = math.sqrt(float(weights.double().square().mean()))
            if weights.numel() < 4096:
                assert not moved.any(), name
            else:
                assert np.abs(moved).max() <= math.sqrt(12) * ERROR * size / 2 * (1 + 1e-5)
                assert np.sqrt(np.square(moved).mean()) == pytest.approx(ERROR * size, rel=0.1)


def test_a_tensor_may_be_rounded_more(folder: Path, tmp_path: Path) -> None:
    compress_run(folder, tmp_path / "small", error=0.02, errors={"embed.W_E": 0.3}, steps=(0, 7, 24))
    exact, rounded = (read_snapshot(each, 24).tensors for each in (folder, tmp_path / "small"))
    assert snapshot_steps(tmp_path / "small") == [0, 7, 24]
    moved = {name: float((rounded[name] - exact[name]).square().mean().sqrt()) for name in exact}
    sizes = {name: float(exact[name].square().mean().sqrt()) for name in exact}
    assert moved["embed.W_E"] == pytest.approx(0.3 * sizes["embed.W_E"], rel=0.1)
    assert moved["unembed.W_U"] == pytest.approx(0.02 * sizes["unembed.W_U"], rel=0.1)


def test_a_rounded_run_is_a_run(folder: Path, tmp_path: Path) -> None:
    compress_run(folder, tmp_path / "small", error=0.01)
    tokens = torch.arange(16)[None]
    small, exact = load_run(tmp_path / "small", "cpu"), load_run(folder, "cpu")
    torch.testing.assert_close(small[24](tokens), exact[24](tokens), rtol=0.0, atol=0.3)
    assert small[24].card.weights_sha256 == read_snapshot(tmp_path / "small", 24).sha256
    torch.testing.assert_close(small.at(1_250)(tokens), small[12](tokens), rtol=0.0, atol=0.0)


def test_what_cannot_be_rounded_is_refused(folder: Path, tmp_path: Path) -> None:
    with refused("error=0.7", "at most 0.5"):
        compress_run(folder, tmp_path / "a", error=0.7)
    with refused("errors", "'W_X'", "embed.W_E"):
        compress_run(folder, tmp_path / "c", errors={"W_X": 0.1})
    with refused("drift@9999", "from 0 to 24"):
        compress_run(folder, tmp_path / "c", steps=[3, 9999])
    with refused("exists already", "another folder"):
        compress_run(folder, folder)
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    with refused("expected a checkpoint with snapshots"):
        compress_run(bare, tmp_path / "b")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_copied_as_they_are(tmp_path: Path, value: float) -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=64, n_heads=2, d_head=32, n_ctx=16, d_vocab=300))
    writer = SnapshotWriter(tmp_path / "run", 0)
    for step in range(3):
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        if step == 1:
            weights["embed.W_E"][0, 0] = value
        writer.add(step, step, weights)
    save_checkpoint(tmp_path / "run", model, CheckpointInfo(name="run"))
    compress_run(tmp_path / "run", tmp_path / "small")
    for step in range(3):
        exact, rounded = (read_snapshot(tmp_path / each, step).tensors["embed.W_E"] for each in ("run", "small"))
        assert torch.equal(exact.isfinite(), rounded.isfinite())


@pytest.mark.parametrize(("change", "words"), [
    (lambda about, stored: about | {"rounding_error": []}, "another version"),
    (lambda about, stored: about | {"rounding_error": 10**400}, "64 bits"),
    (lambda about, stored: about | {"rounding_error": math.nan}, "another version"),
    (lambda about, stored: stored.update({"difference of embed.W_E": torch.zeros(64, dtype=torch.bfloat16)}),
     "leads nowhere"),
    (lambda about, stored: stored.update({"difference of embed.W_E": torch.frombuffer(
        bytearray((1 << 20).to_bytes(8, "little") + zlib.compress(bytes(1 << 26))), dtype=torch.uint8)}),
     "leads nowhere"),
])  # fmt: skip
def test_a_hostile_snapshot_with_a_valid_hash_is_refused_by_name(
    folder: Path, tmp_path: Path, change: Any, words: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    shutil.copytree(snapshots_folder(folder), snapshots_folder(run))
    stored = dict(read_snapshot(run, 5).tensors)
    about = {"schema_version": 1, "step": 6, "tokens": 600, "base": 5, "sha256": "x"}
    about = change(about, stored) or about
    if "difference of embed.W_E" in stored:
        del stored["embed.W_E"]
    write_record(snapshot_file(run, 6), "snapshot", stored, about)
    with refused(words, error=CheckpointError):
        read_snapshot(run, 6)
    with refused(words, error=CheckpointError):
        compress_run(run, tmp_path / "small")
    assert not (tmp_path / "small").exists() and not snapshots_folder(tmp_path / "small").exists()


def test_snapshots_of_different_tensors_are_not_rounded(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    shutil.copytree(snapshots_folder(folder), snapshots_folder(run))
    stored = dict(read_snapshot(run, 5).tensors)
    del stored["embed.W_E"]
    about = {"schema_version": 1, "step": 5, "tokens": 500, "base": None, "sha256": contents_hash(stored, {})}
    write_record(snapshot_file(run, 5), "snapshot", stored, about)
    with refused("step-000000005", "other tensors than the model has", "embed.W_E", error=CheckpointError):
        compress_run(run, tmp_path / "small", steps=[0, 5])


def _steps_of(n_zeros: int) -> torch.Tensor:
    """A tensor of zeros as its steps: some hundred bytes a megabyte."""
    header = struct.pack("<fBBQ", 0.1, 1, 1, n_zeros)
    return torch.frombuffer(bytearray(header + lzma.compress(bytes(n_zeros))), dtype=torch.uint8)


@pytest.mark.parametrize("names", [["steps from embed.W_E"], ["embed.W_E", *(f"steps from x{i}" for i in range(99))],
                                   ["embed.W_E", "steps from embed.W_E"]])  # fmt: skip
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_small_file_that_claims_much_is_refused_before_it_is_unpacked(
    folder: Path, tmp_path: Path, names: list[str], has_checkpoint: bool
) -> None:
    run, n_zeros = tmp_path / "run", 2**24
    shutil.copytree(snapshots_folder(folder), snapshots_folder(run))
    if has_checkpoint:
        shutil.copytree(folder, run)
    whole, bomb = read_snapshot(run, 0).tensors, _steps_of(n_zeros)
    stored = {name: tensor for name, tensor in whole.items() if name != "embed.W_E"}
    stored |= {name: whole[name] if name in whole else bomb.clone() for name in names}
    about = {"schema_version": 1, "step": 7, "tokens": 700, "base": None, "sha256": "x"}
    write_record(snapshot_file(run, 7), "snapshot", stored, about)
    tracemalloc.start()
    with refused("step-000000007", error=CheckpointError):
        aotlens.load(tmp_path / "run@7") if has_checkpoint else read_snapshot(run, 7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_zeros / 2, f"{peak / 1e6:.0f} MB"


@pytest.mark.slow
def test_a_damaged_difference_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    compress_run(folder, tmp_path / "small")
    third, fourth = (snapshot_file(tmp_path / "small", step) for step in (3, 4))
    shutil.copyfile(third, fourth)
    with pytest.raises(CheckpointError, match="step-000000004"):
        read_snapshot(tmp_path / "small", 5)
