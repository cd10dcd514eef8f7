"""`aotlens distill`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from aotlens.data import open_corpus
from aotlens.distill import load_record
from tests.messages import says

from .conftest import Run

QUICK = ("--tokens", "1200", "--held-out-tokens", "300", "--wide", "0", "--neighbours", "0", "--seeds", "2")


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.txt").write_text(f"the cat sat on the mat, {name} " * 100, encoding="utf-8")
    return f"dir:{folder}"


def test_a_table_and_a_file(run: Run, corpus: str, tmp_path: Path):
    out = tmp_path / "heads.safetensors"
    arguments = ("distill", "small", "--corpus", corpus, "--document", "two", "--hidden", "4,0", *QUICK)
    code, text, error = run(*arguments, "--out", str(out))
    assert code == 0 and error == ""
    lines = text.splitlines()
    assert lines[0].split() == ["head", "attends", "to", "linear", "4", "units", "position", "floor"]
    assert {line.split()[0] for line in lines[1:5]} == {"0.0", "0.1", "1.0", "1.1"}
    says(text, "held-out", " two", f"{out}: saved")
    found = load_record(out).distillation
    assert found.hidden == (0, 4) and found.model_name == "small" and found.n_seeds == 2
    assert lines[1].split()[0] == "{}.{}".format(*found.order(4)[0])
    assert {file.name for file in tmp_path.glob("heads*")} == {"heads.safetensors"}
    record = load_record(out)
    assert record.checkpoint == "small" and record.costs is None and record.weights_sha256
    sha256 = open_corpus(corpus).sha256()
    assert record.corpus == f"dir:PATH (sha256 {sha256[:12]})" and record.command.endswith("--corpus dir:PATH")
    assert str(tmp_path).encode() not in out.read_bytes()
    code, _, error = run(*arguments, "--out", str(out))
    assert code == 2 and "exists already" in error
    assert run(*arguments, "--head", "1.1", "--out", str(out), "--force")[0] == 0
    assert load_record(out).distillation.heads == ((1, 1),)


def test_what_the_model_loses(run: Run, corpus: str, tmp_path: Path):
    out = tmp_path / "heads.safetensors"
    options = ("--document", "two", "--hidden", "0,4", "--replace", "200", "--out", str(out))
    code, text, error = run("distill", "small", "--corpus", corpus, *QUICK, *options)
    assert code == 0 and error == ""
    costs = load_record(out).costs
    assert costs is not None and costs.width == 4 and costs.n_tokens >= 200
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][-1] == "cost"
    for line in lines[1:5]:
        layer, head = map(int, line[0].split("."))
        assert float(line[-1]) == pytest.approx(costs.alone[costs.heads.index((layer, head)), 0], abs=5e-5)


def test_a_csv(run: Run, corpus: str, tmp_path: Path):
    csv = tmp_path / "errors.csv"
    code, text, _ = run("distill", "small", "--corpus", corpus, "--csv", str(csv), "--hidden", "4", *QUICK)
    assert code == 0 and f"{csv}: 8 rows" in text
    assert set(pd.read_csv(csv)["seed"]) == {0, 1}


def test_mistakes_are_one_line(run: Run, corpus: str, tmp_path: Path):
    for more, message in [
        (("--hidden", "four"), "--hidden four: expected whole numbers"),
        (("--head", "7.0"), "head 7.0: this model has layers 0 to 1"),
        (("--target", "pattern"), "'result', 'z'"),
        (("--resume",), "--resume: needs --out FILE"),
        (("--out", str(tmp_path / "a")), "expected a name that ends in .safetensors, as a.safetensors"),
    ]:
        code, _, error = run("distill", "small", "--corpus", corpus, *QUICK, *more)
        assert code == 2 and message in error and error.count("\n") == 1
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    a.with_name("a.safetensors.state").write_bytes(b"")
    code, _, error = run("distill", "small", "--corpus", corpus, *QUICK, "--out", str(a))
    assert code == 2 and "a stopped run's" in error
    code, _, error = run("distill", "small", "--corpus", corpus, *QUICK, "--out", str(a), "--resume")
    assert code == 2
    says(error, a.name, "state")
    b.write_text("mine")
    code, _, error = run("distill", "small", "--corpus", corpus, *QUICK, "--out", str(b), "--force")
    assert code == 2 and "expected a distillation" in error and b.read_text() == "mine"
