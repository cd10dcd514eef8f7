"""`aotlens audit` prints and keeps what the library measures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotlens import results
from aotlens.checkpoints import load
from aotlens.data import open_corpus
from aotlens.denoise import audit
from aotlens.distill import held_out_windows
from tests.commands.conftest import Run
from tests.messages import says


@pytest.fixture
def spec(tmp_path: Path) -> str:
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat, the rat sat on the cat, and that was that " * 60)
    return f"file:{book}"


def test_the_table_and_the_file(run: Run, spec: str, tmp_path: Path) -> None:
    file = tmp_path / "small-audit.safetensors"
    sizes = ("--tokens", "60", "--draws", "2", "--seed", "3")
    code, out, err = run("audit", "small", "--corpus", spec, *sizes, "--out", str(file))
    assert (code, err) == (0, "")
    model = load("small", "cpu")
    windows = held_out_windows(model, open_corpus(spec), 60)
    expected = audit(model, windows, n_draws=2, seed=3)
    lines = out.splitlines()
    says(lines[0], "SNR", "10 windows of 6 tokens", "2 rotations")
    assert lines[-1] == f"{file}: saved" and len(lines) == 3 + 6 + 1
    record = results.load(file)
    assert torch.equal(record.tokens, windows) and record.seed == 3 and record.documents == ()
    assert record.command == "aotlens audit small --corpus file:PATH --tokens 60 --draws 2 --seed 3"
    assert record.corpus.startswith("file:PATH (sha256 ")
    torch.testing.assert_close(record.audit.snr, expected.snr, rtol=1e-6, atol=0, equal_nan=True)
    assert "exists already" in run("audit", "small", "--corpus", spec, *sizes, "--out", str(file))[2]


def test_other_files_are_left_alone(run: Run, spec: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.safetensors"
    file.write_text("mine")
    code, _, err = run("audit", "small", "--corpus", spec, "--out", str(file), "--force")
    assert code == 2 and file.read_text() == "mine"
    says(err, file, "AuditRecord")
    code, _, err = run("audit", "small", "--corpus", spec, "--out", str(tmp_path / "audit.json"))
    assert code == 2 and "ends in .safetensors" in err
