"""What `aotlens paths` prints and writes, on a tiny checkpoint with a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.cli import main
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import expand
from tests.small_models import randomise

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train([f"{TEXT}, and the rat sat on the cat\n" * 5], 270)
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, n_ctx=16, d_vocab=270)
    model = AttentionOnlyTransformer(cfg, tokenizer)
    randomise(model, scale=0.3)
    folder = tmp_path_factory.mktemp("paths") / "tiny"
    save_checkpoint(folder, model, CheckpointInfo(name="tiny", description="Tiny.", metrics={}, seed=1), history=[])
    return folder


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["paths", *arguments, "--device", "cpu"])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_it_prints_orders_paths_and_the_residual(checkpoint: Path, capsys: Any) -> None:
    code, out, err = run(capsys, str(checkpoint), "--text", TEXT, "--target", " cat", "--top", "5")
    assert (code, err) == (0, "")
    model = load(str(checkpoint), "cpu")
    expansion = expand(model, TEXT)
    token = model.to_single_token(" cat")
    assert out.startswith('Logit " cat" after position 7') and f"{expansion.logit(-1, token):.3f}" in out
    for order, value in enumerate(expansion.by_order(token)[:, -1].tolist()):
        assert f"{order}      {value:+.4f}" in out
    top = expansion.top(5, -1, token)
    for sentence, value in zip(top.descriptions, top.values, strict=True):
        assert f"{value:.4g}" in out and sentence in out
    assert "Exact top 5 among 27 paths" in out and "sum of paths − model" in out


def test_paths_through_one_head(checkpoint: Path, capsys: Any) -> None:
    code, out, _ = run(capsys, str(checkpoint), "--text", TEXT, "--target-id", "5", "--through", "1.0", "--top", "4")
    expansion = expand(load(str(checkpoint), "cpu"), TEXT)
    top = expansion.top(4, -1, 5, through=(1, 0))
    assert code == 0 and all(f"{value:.4g}" in out for value in top.values)
    assert "Exact top 4 among 9 paths through head 1.0" in out and top.sentences() in out


def test_csv_has_the_paths_unrounded(checkpoint: Path, capsys: Any, tmp_path: Path) -> None:
    csv = tmp_path / "paths.csv"
    arguments = [str(checkpoint), "--text", TEXT, "--target-id", "5", "--versus-id", "7", "--split", "--csv", str(csv)]
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "20 rows" in out
    frame = pd.read_csv(csv)
    expansion = expand(load(str(checkpoint), "cpu"), TEXT, split_sources=True)
    top = expansion.top(20, -1, (5, 7))
    assert frame.logits.tolist() == pytest.approx(list(top.values))
    assert frame.path.tolist() == list(top.descriptions)
    assert frame.source_position.notna().all()
    code, _, err = run(capsys, *arguments)
    assert code == 2 and "exists already" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "zebra"], "expected one"),
        (["--target-id", "270"], "--target-id 270: expected an id from 0 to 269"),
        (["--target", " cat", "--target-id", "3"], "expected one of them, got both"),
        (["--position", "9"], "--position 9: expected -8 to 7"),
        (["--through", "nine"], "head 'nine': expected a layer and a head"),
        (["--through", "9.9"], "head 9.9: this model has layers 0 to 1"),
        (["--by", "size"], "expected one of 'abs', 'pos', 'neg'"),
    ],
)
def test_mistakes_are_one_line(checkpoint: Path, capsys: Any, arguments: list[str], message: str) -> None:
    code, out, err = run(capsys, str(checkpoint), "--text", TEXT, *arguments)
    assert code == 2 and out == "" and message in err and err.count("\n") == 1


def test_it_explains_a_score(checkpoint: Path, capsys: Any, tmp_path: Path) -> None:
    code, out, err = run(capsys, str(checkpoint), "--text", TEXT, "--score", "1.0", "5", "3", "--top", "4")
    assert (code, err) == (0, "")
    expansion = expand(load(str(checkpoint), "cpu"), TEXT)
    score = expansion.score("1.0", 5, 3)
    top = score.top(4)
    assert out.startswith(f"Head 1.0, 5 → 3: score {score.score:+.3f}, {score.value:+.3f} against the average key.")
    for row in score.by_pair_of_orders().values.tolist():
        assert "  ".join(f"{value:+.4f}" for value in row) in out
    for pair, value in zip(top.pairs, top.values, strict=True):
        assert f"{value:.4g}" in out and score.describe(pair) in out
    assert f"4 of 4 ranks proven among {score.n_pairs:,} pairs of paths" in out and "nats (tolerance" in out
    target = tmp_path / "pairs.csv"
    arguments = ("--text", TEXT, "--score", "1.0", "5", "3", "--against", "none", "--csv", str(target))
    assert run(capsys, str(checkpoint), *arguments)[0] == 0
    frame, plain = pd.read_csv(target), expansion.score("1.0", 5, 3, None).top(20)
    assert list(frame.nats) == pytest.approx(list(plain.values)) and frame.formula[0] == plain_name(
        expansion, plain.pairs[0]
    )
    code, _, err = run(capsys, str(checkpoint), "--text", TEXT, "--score", "1.0", "3", "5")
    assert code == 2 and "key=5: expected a key that query 3 sees" in err
    code, _, err = run(capsys, str(checkpoint), "--text", TEXT, "--score", "1.0", "5", "3", "--target-id", "3")
    assert code == 2 and "without --target, --versus and --through" in err
    code, _, err = run(capsys, str(checkpoint), "--text", TEXT, "--score", "1.0", "5", "3", "--against", "best")
    assert code == 2 and "against='best'" in err


def test_it_follows_a_score_back(checkpoint: Path, capsys: Any, tmp_path: Path) -> None:
    prompt = (str(checkpoint), "--text", TEXT, "--trace", "1.0", "5", "3")
    trace = expand(load(str(checkpoint), "cpu"), TEXT).trace("1.0", 5, 3)
    code, out, err = run(capsys, *prompt)
    assert (code, err) == (0, "") and out.startswith(f"{len(trace.nodes)} cells behind head 1.0, 5 → 3")
    for node in trace.nodes:
        assert f"{trace.name(node)}: score {node.score:+.3f}, contrast {node.contrast:+.3f}" in out
        for edge in node.edges:
            assert f"{edge.nats:+.4f}" in out and trace.name(edge) in out
    for name, made in (("t.json", trace.to_json()), ("t.svg", trace.to_svg()), ("t.html", trace.to_html())):
        assert run(capsys, *prompt, "--out", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == made
    assert run(capsys, *prompt, "--csv", str(tmp_path / "t.csv"))[0] == 0
    assert list(pd.read_csv(tmp_path / "t.csv").nats) == pytest.approx(list(trace.to_frame().nats))
    for arguments, message in (
        ((*prompt, "--out", str(tmp_path / "t.svg")), "exists already"),
        ((*prompt, "--out", str(tmp_path / "t.png")), "ends in .json, .svg or .html"),
        ((*prompt[:3], "--out", str(tmp_path / "u.svg")), "expected --trace"),
        ((*prompt, "--score", "1.0", "5", "3"), "one of them goes without the other"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 2 and message in err


def plain_name(expansion: Any, pair: Any) -> str:
    return expansion.score("1.0", 5, 3, None).describe(pair)
