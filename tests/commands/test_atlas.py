"""`aotlens atlas` and `aotlens compare` print what the library finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from aotlens import results
from aotlens.checkpoints import find_checkpoint, load
from aotlens.heads import atlas
from tests.commands.conftest import Run

TEXT = "the cat sat on the mat, the rat sat on the cat, and that was that. "


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(TEXT * 30, encoding="utf-8")
    return f"dir:{tmp_path / 'text'}"


def test_the_table_and_a_summary(run: Run, text: str, home: Path) -> None:
    options = ("atlas", "small", "--corpus", text, "--tokens", "120", "--sequences", "6")
    code, out, err = run(*options)
    assert (code, err) == (0, "")
    made = atlas(load("small", "cpu"), text, n_tokens=120, n_ablated=6, hows=("position_mean",), cache=None)
    first, empty, head, *rows = out.splitlines()
    assert first == f"small on {made.about}." and empty == "" and head.startswith("head  label")
    frame = made.to_frame()
    for name in ("loss_position_mean", "pattern_consistency"):
        assert f"{frame[name][3]:.4g}" in rows[3] and rows[3].startswith("1.1")
    assert rows[-1].startswith(f"all heads at once, position mean: {made.together['position_mean'].change:+.3f} nats")
    assert len(list((home.parent / "atlases").iterdir())) == 1
    code, out, err = run(*options, "--head", "1.0")
    assert (code, err) == (0, "") and f"Head 1.0. {made.sentence('1.0')}" in out
    for name, partners in (("reads", made.reads("1.0")), ("feeds", made.feeds("1.0"))):
        told = [f"{p.head[0]}.{p.head[1]} ({p.mode}, z = {p.z:.1f})" for p in partners]
        assert (f"It {name} {', '.join(told)}." in out) == bool(partners)
    examples = made.examples.of("1.0")
    assert len(out[out.index("off key 0") :].splitlines()) == 1 + len(examples)
    code, _, err = run(*options, "--head", "4.0")
    assert code == 2 and "head 4.0" in err


def test_one_document_has_no_interval(run: Run, text: str) -> None:
    code, out, _ = run("atlas", "small", "--corpus", text, "--tokens", "120", "--sequences", "6", "--fresh")
    assert code == 0 and "1 document." in out and "nan" not in out


def test_csv_is_the_frame(run: Run, text: str, tmp_path: Path) -> None:
    file = tmp_path / "atlas.csv"
    options = ("--tokens", "120", "--sequences", "6", "--how", "zero", "--fresh", "--csv", str(file))
    assert run("atlas", "small", "--corpus", text, *options) == (0, f"{file}: 4 rows\n", "")
    made = atlas(load("small", "cpu"), text, n_tokens=120, n_ablated=6, hows=("zero",), cache=None).to_frame()
    read = pd.read_csv(file)
    assert list(read) == list(made)
    pd.testing.assert_frame_equal(read.select_dtypes("number"), made.select_dtypes("number"), check_dtype=False)
    assert run("atlas", "small", "--corpus", text, *options, "--force", "--where", "layer = 1 and head = 0")[0] == 0
    assert len(pd.read_csv(file)) == 1
    code, _, err = run("atlas", "small", "--corpus", text, *options, "--force", "--where", "leyer = 1")
    assert code == 2 and "Did you mean layer" in err
    code, _, err = run("atlas", "small", "--corpus", text, "--distillation")
    assert code == 2 and "not of small" in err


def test_an_atlas_is_kept_with_where_it_comes_from(run: Run, text: str, tmp_path: Path) -> None:
    file = tmp_path / "small.safetensors"
    options = ("atlas", "small", "--corpus", text, "--tokens", "120", "--sequences", "6", "--out", str(file))
    code, out, err = run(*options)
    assert (code, err) == (0, "") and out.startswith(f"{file}: saved\n")
    record = results.load(file)
    assert record.belongs_to(find_checkpoint("small")) and record.atlas.model == "small"
    assert record.command == ("aotlens atlas small --corpus dir:PATH --tokens 120 --how position_mean --sequences 6")
    code, _, err = run(*options)
    assert code == 2 and "exists already" in err
    assert run(*options, "--force")[0] == 0


def test_two_checkpoints_side_by_side(run: Run, text: str) -> None:
    code, out, err = run("compare", "small", "small", "--corpus", text, "--sequences", "4")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "MSSA" in lines[1] and any(line.startswith("loss, nats") for line in lines)
    assert any(line.startswith("overlap of subspaces") for line in lines)
    assert lines[-1].split()[:2] == ["1.1", "1.1"] and lines[-1].split()[2:6] == ["1"] * 4


def test_heads_of_several_checkpoints_that_come_again(run: Run, text: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    path = find_checkpoint("small").path
    assert path is not None
    shutil.copytree(path, copy)
    several = ("universality", "small", str(copy), "--corpus", text, "--sequences", "4", "--tokens", "12")
    code, out, err = run(*several)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["in", "small", "copy", "pattern", "ov", "q"] in rows
    assert ["0", "pattern", "ov"] in [row[:3] for row in rows] or ["pattern", "ov", "0"] in [row[:3] for row in rows]
    assert "fewer than three models" in out
    assert "where models read different texts" in out  # and the only two documents, a text and its copy, give no error
    assert {tuple(row[1:3]) for row in rows if row[:1] == ["2"]} == {(f"{a}.{b}",) * 2 for a in "01" for b in "01"}
    file = tmp_path / "groups.csv"
    assert run(*several, "--csv", str(file)) == (0, f"{file}: 4 rows\n", "")
    code, _, err = run(*several, "--kind", "small")
    assert code == 2 and "NAME=KIND" in err
    code, _, err = run(*several, "--kind", "small=one")
    assert code == 2 and "'copy'" in err
    code, _, err = run("universality", "small", "small", "--corpus", text)
    assert code == 2 and "different names" in err
