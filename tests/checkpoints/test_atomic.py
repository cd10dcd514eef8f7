"""Killed anywhere, or on a full disk, a save leaves a whole checkpoint: the old one or the new one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from aotlens.checkpoints import CheckpointError, CheckpointInfo, layout, load_folder, save_checkpoint, verify
from aotlens.models import AttentionOnlyTransformer
from tests.checkpoints.killing import DIE_AT
from tests.messages import refused

ROOT = Path(__file__).parents[2]

# Replaces the files of a folder in forked children, each killed just before or just after its nth system call,
# and reports what a reader finds after each death and after the save that follows it. The number of calls is
# found by going on until a child survives. It imports no torch, so that forking is cheap and safe.
KILLED_EVERYWHERE = (
    DIE_AT
    + r"""
from aotlens.checkpoints import layout

def save(folder, text):
    with layout.replacing(folder) as incoming:
        for name in layout.FILES:
            layout.write_file(incoming / name, text.encode())

def read(folder):
    found = {}
    for name in layout.FILES:
        path = layout.locate(folder, name)
        found[name] = path.read_text() if path.exists() else None
    return [layout.is_checkpoint(folder), *sorted({str(text) for text in found.values()})]

root, old = Path(sys.argv[1]), sys.argv[2] == "old"
report, alive, n = [], False, 0
while not alive:
    n += 1
    for before in (True, False):
        folder = root / f"{n}{before}"
        if old:
            save(folder, "old")
        child = os.fork()
        if child == 0:
            die_at(n, before)
            save(folder, "new")
            os._exit(0)
        alive = os.waitpid(child, 0)[1] == 0
        dead = read(folder)
        save(folder, "next")
        report.append([alive, dead, read(folder), sorted(os.listdir(folder))])
print(json.dumps(report))
"""
)

SAVES_FOR_EVER = r"""
import itertools, sys, time
from pathlib import Path
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.models import AttentionOnlyTransformer, ModelConfig

for seed in itertools.count():
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=50, n_ctx=5, seed=seed)
    info = CheckpointInfo(name="m", seed=seed)
    save_checkpoint(sys.argv[1], AttentionOnlyTransformer(cfg), info, history=[{"seed": seed}])
    if seed == 3:
        print("ready", flush=True)
    time.sleep(seed % 7 / 100)  # else a reader on a busy machine never finds a moment without a save
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks; run it on Linux or macOS")
@pytest.mark.parametrize("start", ["old", "none"])
def test_killed_at_any_system_call(start: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EVERYWHERE, str(tmp_path), start],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    report = json.loads(done.stdout)
    whole = [[True, "old"], [True, "new"]] if start == "old" else [[False, "None"], [True, "new"]]
    assert all(dead in whole for _, dead, _, _ in report), report
    assert [dead for _, dead, _, _ in report] == sorted((d for _, d, _, _ in report), key=whole.index), "old, then new"
    assert all(dead in [entry[1] for entry in report] for dead in whole), "both sides of the commit were reached"
    assert all(after == [True, "next"] and files == sorted(layout.FILES) for _, _, after, files in report)
    assert [alive for alive, *_ in report] == [False] * (len(report) - 2) + [True] * 2 and len(report) > 30


def test_readers_and_a_kill_while_another_process_saves(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    command = [sys.executable, "-c", SAVES_FOR_EVER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            seen: set[int] = set()
            reads = 0
            while reads < 20 or len(seen) < 2:  # a busy machine may let this process read often before the other saves
                assert process.poll() is None
                loaded = load_folder(folder, device="cpu")
                assert loaded.card.seed == loaded.cfg.seed
                expected = AttentionOnlyTransformer(loaded.cfg).state_dict()
                assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())
                seen.add(loaded.cfg.seed)
                reads += 1
                time.sleep(0.003)
        finally:
            process.kill()
    assert verify(folder) == []
    save_checkpoint(folder, loaded, CheckpointInfo(name="m"))
    assert verify(folder) == [] and sorted(os.listdir(folder)) == sorted({*layout.FILES} - {"tokenizer.json"})


@pytest.mark.parametrize("file", layout.FILES)
@pytest.mark.parametrize("exists", [True, False])
def test_a_full_disk(
    file: str, exists: bool, copy: Path, tmp_path: Path, model: AttentionOnlyTransformer, monkeypatch: Any
) -> None:
    folder = copy if exists else tmp_path / "new"
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    write = layout.write_file

    def full(path: Path, data: bytes) -> None:
        if path.name == file:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    monkeypatch.setattr("aotlens.checkpoints.writing.write_file", full)
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        save_checkpoint(folder, model, CheckpointInfo(name="other"))
    assert str(folder) in str(caught.value) and "Free some space" in str(caught.value)
    assert ("is whole" in str(caught.value)) == exists
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before and verify(copy) == []
    assert exists or not folder.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes there; run it on Linux or macOS")
def test_a_real_limit_of_the_operating_system(copy: Path, model: AttentionOnlyTransformer) -> None:
    """As above, with the kernel refusing to write on: a limit of 4 kB a file stands in for the full disk."""
    import resource
    import signal

    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with refused("File too large", "whole", error=CheckpointError):
            save_checkpoint(copy, model, CheckpointInfo(name="other"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_nothing_is_left_of_a_save_that_fails_otherwise(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), layout.replacing(copy):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), layout.replacing(tmp_path / "new"):
        raise KeyboardInterrupt
    assert verify(copy) == [] and sorted(os.listdir(tmp_path)) == ["small"]
    assert sorted(os.listdir(copy)) == sorted(layout.FILES)


def test_a_folder_that_cannot_be_made(tmp_path: Path, model: AttentionOnlyTransformer) -> None:
    (tmp_path / "file").write_text("")
    with refused("m:", "could not be written", "Not a directory", error=CheckpointError):
        save_checkpoint(tmp_path / "file" / "m", model, CheckpointInfo(name="m"))
