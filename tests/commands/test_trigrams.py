"""`aotlens trigrams` prints what the library finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.data import open_corpus
from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams import evidence, fold_rows, skip_trigram_bugs, skip_trigrams
from tests.commands.conftest import Run
from tests.messages import says

TEXT = "the cat sat on the mat, and the rat sat on the cat. " * 20


@pytest.fixture
def counted(home: Path, small: AttentionOnlyTransformer) -> str:
    """The small model with training counts."""
    small.unigram_counts = torch.arange(1, small.cfg.d_vocab + 1)
    try:
        save_checkpoint(home / "counted", small, CheckpointInfo(name="counted"), history=[])
    finally:
        small.unigram_counts = None
    return "counted"


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text(TEXT)
    return f"file:{tmp_path / 'text.txt'}"


@pytest.fixture
def texts(tmp_path: Path) -> str:
    (tmp_path / "texts").mkdir()
    for name in ("one", "two", "three"):
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name} {TEXT}")
    return f"dir:{tmp_path / 'texts'}"


@pytest.mark.parametrize("command", ["trigrams", "bigrams"])
def test_of_training_text_the_documents_held_out_are_read(
    run: Run, home: Path, small: AttentionOnlyTransformer, texts: str, command: str
) -> None:
    small.unigram_counts = torch.arange(1, small.cfg.d_vocab + 1)
    try:
        save_checkpoint(
            home / "trained", small, CheckpointInfo(name="trained", corpus={"validation": ["two", "four"]}), history=[]
        )
    finally:
        small.unigram_counts = None
    arguments = ["trigrams", "trained", "--head", "0.1", "--k", "3", "--evidence", texts]
    if command == "bigrams":
        arguments = ["bigrams", "trained", "--k", "3", "--corpus", texts]

    def last(*more: str) -> str:
        code, out, err = run(*arguments, *more)
        assert code == 0 and err == ""
        return out.strip().splitlines()[-1]

    def count(line: str) -> int:
        return int(line.split()[0].replace(",", ""))

    usual, named, every = last(), last("--document", "two"), last("--all-documents")
    says(usual, f"1 document in {texts}", "trained was not trained on", "--all-documents")
    assert f"two in {texts}" in named and count(usual) == count(named)
    assert "not trained on" not in every and 2.9 * count(usual) < count(every) < 3.1 * count(usual)
    code, _, err = run(*arguments, "--document", "two", "--all-documents")
    assert code == 2
    says(err, "--document", "--all-documents")


def test_the_table(run: Run, counted: str) -> None:
    code, out, err = run("trigrams", counted, "--head", "0.1", "--k", "4")
    assert (code, err) == (0, "")
    first, empty, head, *rows = out.splitlines()
    assert first.startswith("Head 0.1. Relative, since tokens: the norm divides") and empty == ""
    assert head.split() == ["source", "destination", "out", "qk", "attention", "ov", "effect"] and len(rows) == 4
    best = skip_trigrams(load(counted, "cpu"), (0, 1), k=4)
    assert rows[0].split()[-1] == f"{best.effect[0]:.4g}"


def test_csv_with_evidence_is_the_librarys(run: Run, counted: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    options = ("--k", "30", "--evidence", text, "--max-tokens", "200", "--source", " the", "--source", "#7")
    code, out, err = run("trigrams", counted, "--head", "1.0", *options, "--csv", str(file))
    assert (code, err) == (0, "") and out.splitlines()[0] == f"{file}: 30 rows"
    model = load(counted, "cpu")
    table = skip_trigrams(model, (1, 0), k=30, sources=[" the", 7])
    frame = evidence(model, table, open_corpus(text), max_tokens=200).to_frame()
    written = pd.read_csv(file, keep_default_na=False, na_values=[""], dtype={"source": str})
    assert written.columns.tolist() == frame.columns.tolist()
    np.testing.assert_allclose(written.effect, frame.effect)
    np.testing.assert_array_equal(written.occurrences, frame.occurrences)
    assert written.verdict.tolist() == frame.verdict.tolist()
    code, out, err = run("trigrams", counted, "--head", "1.0", *options, "--csv", str(file))
    assert code == 2 and "exists already" in err


def test_evidence_on_the_screen(run: Run, counted: str, text: str) -> None:
    code, out, err = run(
        "trigrams", counted, "--head", "0.0", "--k", "3", "--evidence", text, "--lowest", "--distance", "1",
        "--destination", " the", "--out", "#40", "--score", "sum",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "  verdict" in out.splitlines()[2]
    assert "tokens of file:" in out.splitlines()[-1] and "too rare" in out.splitlines()[-1]


def test_what_the_rows_force(run: Run, counted: str, text: str, tmp_path: Path) -> None:
    options = ("--k", "12", "--source", " the", "--destination", "on", "--destination", "sat", "--evidence", text)
    options = (*options, "--max-tokens", "900", "--min-count", "40", "--out", "#255", "--out", "#250", "--out", "#32")
    code, out, err = run("trigrams", counted, "--head", "0.0", *options, "--bugs", "all")
    assert (code, err) == (0, "")
    model = load(counted, "cpu")
    table = skip_trigrams(model, (0, 0), k=12, sources=[" the"], destinations=["on", "sat"], outs=[255, 250, 32])
    corpus = open_corpus(text)
    held = evidence(model, table, corpus, max_tokens=900)
    forced = skip_trigram_bugs(model, held, corpus, max_tokens=900, only_confirmed=False)
    lines = out.splitlines()
    says(lines[-1], f"{len(forced)} triples forced", f"false: {int(forced.false.sum())}.")
    assert len(forced) == 6 and "  false" in lines[2] and lines[3].split()[0] == '"'
    assert lines[3].startswith('" the"') and lines[3].split()[-1] in ("yes", "no")
    least = run(
        "trigrams", counted, "--head", "0.0", "--k", "40", "--min-count", "260", "--csv", str(tmp_path / "a.csv")
    )
    rows = pd.read_csv(tmp_path / "a.csv")
    assert least[0] == 0 and rows[["source_id", "destination_id", "out_id"]].min().min() >= 259  # counts are id + 1
    short = run("trigrams", counted, "--head", "0.0", "--k", "3", *options[2:], "--bugs", "confirmed")
    assert short[0] == 0
    says(short[1], "0 triples forced", "confirmed rows", "nothing is forced")
    file = tmp_path / "bugs.csv"
    assert run("trigrams", counted, "--head", "0.0", *options, "--bugs", "all", "--csv", str(file))[0] == 0
    written = pd.read_csv(file, keep_default_na=False, na_values=[""])
    assert written.columns.tolist() == forced.to_frame().columns.tolist() and len(written) == len(forced)


def test_more_forced_triples_than_rows_asked_for(run: Run, counted: str, text: str) -> None:
    options = ("--k", "3", "--source", " the", "--destination", "on", "--destination", "sat", "--evidence", text)
    code, out, err = run("trigrams", counted, "--head", "0.0", *options, "--bugs", "all", "--out", "#9", "--out", "#7")
    assert (code, err) == (0, "")
    n = int(out.splitlines()[-1].split()[0])
    assert ("more: --k N" in out) == (n > 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["counted", "--head", "7"], "a layer and a head"),
        (["counted", "--head", "0.9"], "head 0.9"),
        (["counted", "--head", "0.0", "--source", "the cat sat"], "expected one"),
        (["counted", "--head", "0.0", "--distance", "far"], "'mean'"),
        (["counted", "--head", "0.0", "--evidence", "nowhere"], "expected a corpus"),
        (["counted", "--head", "0.0", "--bugs", "all"], "--bugs: needs text"),
        (["counted", "--head", "0.0", "--document", "one"], "--document: needs text"),
        (["counted", "--head", "0.0", "--bugs", "some", "--evidence", "stdlib"], "expected confirmed or all"),
        (["counted", "--head", "0.0", "--min-count", "9999"], "no token has as many"),
        (["small", "--head", "0.0"], "no training counts"),
    ],
)
def test_mistakes(run: Run, counted: str, arguments: list[str], message: str) -> None:
    code, out, err = run("trigrams", *arguments)
    assert code == 2 and message in err and out == ""


def test_folded_rows_are_the_librarys(run: Run, counted: str, text: str, tmp_path: Path) -> None:
    arguments = ["trigrams", counted, "--head", "0.1", "--fold", "source", "--depth", "200", "--k", "4"]
    folded = fold_rows(skip_trigrams(load(counted), (0, 1), k=200), "source")
    frame = folded.to_frame().head(4)
    code, out, err = run(*arguments)
    assert code == 0 and err == ""
    lines = out.strip().splitlines()[2:]
    assert len(lines) == 5
    says(lines[0], "rows", "other sources")
    for line, row in zip(lines[1:], frame.itertuples(), strict=True):
        assert f"{row.effect:.4g}" in line and f"  {row.rows}  " in line
        assert ("…" in line) == (row.rows > 4)
    file = tmp_path / "held.csv"
    code, _, err = run(*arguments, "--fold", "destination", "--evidence", text, "--csv", str(file))
    assert code == 0
    held, both = pd.read_csv(file), fold_rows(skip_trigrams(load(counted), (0, 1), k=200), ("source", "destination"))
    np.testing.assert_array_equal(held["rows"], both.to_frame()["rows"].head(4))
    np.testing.assert_array_equal(held["out_id"], both.groups.out[:4])
    assert {"verdict", "other_sources", "other_destinations"} <= set(held.columns)
    code, _, err = run(*arguments, "--fold", "word")
    assert code != 0
    says(err, "expected one or more of", "'source'")
