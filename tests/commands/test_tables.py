"""Commands that print the table of a library's result: `--csv` has it unrounded, and the text has its numbers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.circuits import composition
from aotlens.commands.shared import frame_text
from aotlens.data import Encoding, open_corpus, spread_windows
from aotlens.denoise import audit
from aotlens.distill import held_out_windows
from aotlens.heads import head_scores, match_heads, motif_scores, subspaces
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.commands.conftest import Run
from tests.messages import says

Result = Callable[[AttentionOnlyTransformer, Any], Any]


def _on_text(model: AttentionOnlyTransformer, corpus: Any) -> Any:
    windows = spread_windows(corpus, corpus.names(), Encoding.of(model.tokenizer), 5, model.cfg.n_ctx)
    return composition(model, "k", data=windows, about_mean=False)


#: For each command the library's result, whose first row is printed, too, if the command prints the table as it is.
RESULTS: dict[str, tuple[Result, bool]] = {
    "composition small --mode v --folded": (lambda model, _: composition(model, "v", folded=True), True),
    "composition small --mode k --data TEXT --sequences 5 --second-moment": (_on_text, True),
    "subspaces small": (lambda model, _: subspaces(model), True),
    "compare small small": (lambda model, _: match_heads(model, model), True),
    "audit small --corpus TEXT --tokens 60 --draws 2 --seed 3": (
        lambda model, corpus: audit(model, held_out_windows(model, corpus, 60), n_draws=2, seed=3), True,
    ),
    "motifs small --motif induction --motif first_token --start none --half-length 3": (
        lambda model, _: motif_scores(model, motifs=("induction", "first_token"), start=None, half_length=3), False,
    ),
    "head-scores small --score anti_induction --seed 3": (
        lambda model, _: head_scores(model, scores="anti_induction", seed=3), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", RESULTS)
def test_the_table_is_the_results(run: Run, tmp_path: Path, command: str) -> None:
    text, file = tmp_path / "text.txt", tmp_path / "table.csv"
    text.write_text("the cat sat on the mat, the rat sat on the cat. " * 60, encoding="utf-8")
    words = [word.replace("TEXT", f"file:{text}") for word in shlex.split(command)]
    result, is_printed = RESULTS[command]
    frame = result(load("small", "cpu"), open_corpus(f"file:{text}")).to_frame()
    assert run(*words, "--csv", str(file)) == (0, f"{file}: {len(frame)} rows\n", "")
    pd.testing.assert_frame_equal(pd.read_csv(file), frame, check_dtype=False)
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    if is_printed:
        numbers = [cell.lstrip("+") for cell in frame_text(frame.dropna(axis=1)).splitlines()[1].split()]
        printed = {cell.lstrip("+") for line in out.splitlines() for cell in line.split()}
        assert set(numbers) <= printed
    assert "exists already" in run(*words, "--csv", str(file))[2]


def test_cells_are_written_for_people() -> None:
    frame = pd.DataFrame(
        {"layer": [1, 0], "head": [2, 3], "token": [" the", ""], "token_id": [7, 9], "gain": [0.123456, -2.0],
         "mean_loss": [1.5, float("nan")], "edge": [True, False], "others": [("a", "b", "c", "d"), ()]}
    )  # fmt: skip
    head, first, second = frame_text(frame).splitlines()
    assert head.split("  ")[0] == "head" and "mean loss" in head and "token id" not in head and "layer" not in head
    assert first.split() == ["1.2", '"', 'the"', "+0.1235", "1.5", "yes", '"a"', '"b"', '"c"', "…"]
    assert second.split() == ["0.3", "#9", "-2", "no"]


def test_what_stands_around_the_tables(run: Run) -> None:
    model = load("small", "cpu")
    out = run("composition", "small", "--mode", "v", "--folded", "--top", "3")[1]
    result = composition(model, "v", folded=True)
    says(out, f"v composition. {result.edges.sum()} of 4 pairs above their null, z ≥ 3", f"{result.random_rms:.4f}")
    assert len(out.splitlines()) == 3 + 3
    titles, first = (line.split("  ") for line in out.splitlines()[2:4])
    titles, first = ([cell.strip() for cell in line if cell] for line in (titles, first))
    row, printed = result.to_frame().iloc[0], dict(zip(titles, first, strict=True))
    for title, name in (("z", "z_signs"), ("z rotated", "z")):  # the null that decides is z
        assert float(printed[title]) == pytest.approx(row[name], rel=1e-3)
    out = [run("composition", "small", "--mode", mode)[1].splitlines() for mode in ("q", "k")]
    assert out[0][1:] == out[1][1:] and out[0][0].startswith("q composition (and k composition: MSSA")
    out = run("subspaces", "small", "--top", "2")[1]
    says(out, "7 dimensions", "8 dimensions cannot be orthogonal", "16 of all layers cannot")
    scores = motif_scores(model, n_sequences=3, half_length=2, seed=1)
    out = run("motifs", "small", "--half-length", "2", "--sequences", "3", "--seed", "1")[1]
    says(out, f"Mean attention on {scores.about}.", *(f"not measured, {reason}." for reason in scores.reasons.values()))
    measured = [name for name in scores.motifs if name not in scores.reasons]
    rows = {line.split()[0]: line.split()[1 : 1 + len(measured)] for line in out.splitlines()[3:]}
    assert rows["1.1"] == [f"{scores[name][1, 1]:.3f}" for name in measured] and scores.uniform is not None
    assert rows["uniform"] == [f"{scores.uniform[scores.motifs.index(name)].mean():.3f}" for name in measured]
    scores = head_scores(model, scores="anti_induction", seed=3)
    out = run("head-scores", "small", "--score", "anti_induction", "--seed", "3")[1]
    says(out.splitlines()[4], "1.1", f"{scores.values[0, 1, 1]:.3f} ({scores.chance[0, 1, 1]:.3f})")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("composition small --second-moment", ("--second-moment", "expected --data")),
        ("motifs small --motif copying", ("no motif 'copying'; there are previous_token",)),
        ("motifs small --start first", ("--start", "expected a token id", "first")),
        ("head-scores small --score fuzzy", ("'fuzzy'", "anti_induction")),
    ],
)
def test_what_is_refused(run: Run, command: str, words: tuple[str, ...]) -> None:
    code, out, err = run(*command.split())
    assert (code, out) == (2, "")
    says(err, *words)


def test_one_layer_has_no_composition(run: Run, home: Path) -> None:
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6)
    save_checkpoint(home / "flat", AttentionOnlyTransformer(cfg), CheckpointInfo(name="flat"), history=[])
    code, out, err = run("composition", "flat")
    assert (code, err) == (0, "") and out.count("\n") == 1
    says(out, "one layer")
