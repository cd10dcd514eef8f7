"""`aotlens circuits` and `aotlens spectrum` against the dense circuit and the library."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aotlens.checkpoints import load
from aotlens.circuits import copying_rate, ov_circuit, qk_circuit, spectrum
from aotlens.models import AttentionOnlyTransformer
from tests.commands.conftest import Run
from tests.messages import says


@pytest.fixture
def stored(home: Path) -> AttentionOnlyTransformer:
    """The checkpoint as it is read."""
    return load("small", "cpu")


def test_the_best_of_the_whole_circuit(run: Run, stored: AttentionOnlyTransformer) -> None:
    code, out, err = run("circuits", "small", "--head", "1.0", "--top", "3")
    assert (code, err) == (0, "")
    first, second, empty, head, *rows = out.splitlines()
    says(first, "QK circuit", "1.0", "nats", "destinations (tokens, 265) × sources (tokens, 265)")
    assert second.startswith("Relative, since tokens: layer 1's norm") and empty == ""
    assert head.split() == ["destination", "id", "source", "id", "nats", "above", "row", "level"]
    dense = qk_circuit(stored, (1, 0)).AB.double()
    best = dense.flatten().topk(3)
    assert len(rows) == 3
    for row, value, at in zip(rows, best.values, best.indices, strict=True):
        i, j = divmod(int(at), 265)
        tokens = re.findall(r'"(?:[^"\\]|\\.)*"', row)
        ids = [int(number) for number in re.findall(r'"\s+(\d+)', row)]
        assert sorted(ids) == sorted([i, j]) and len(tokens) == 2  # symmetric, so a tie may be either way round
        assert f"{value:.3f}" in row
        above = float(row.split()[-1])
        assert above == pytest.approx(float(value - dense[ids[0]].exp().mean().log()), abs=2e-3)


def test_one_token_both_ways_as_csv(run: Run, stored: AttentionOnlyTransformer, tmp_path: Path) -> None:
    file = tmp_path / "the.csv"
    options = ("--head", "0.1", "--kind", "ov", "--token", " the", "--top", "4", "--smallest")
    assert run("circuits", "small", *options, "--csv", str(file)) == (0, f"{file}: 8 rows\n", "")
    frame = pd.read_csv(file)
    assert list(frame.columns) == ["source", "source_id", "output", "output_id", "logits", "list"]
    dense = ov_circuit(stored, (0, 1)).AB.double()
    the = stored.to_single_token(" the")
    row, column = frame[:4], frame[4:]
    assert (row.source_id == the).all() and (row.source == '" the"').all() and (column.output_id == the).all()
    np.testing.assert_allclose(row.logits, dense[the].sort().values[:4], atol=1e-4)
    np.testing.assert_allclose(column.logits, dense[:, the].sort().values[:4], atol=1e-4)
    of_row, of_column = frame.list.unique()
    says(of_row, "Outputs that source", '" the"', "suppresses")
    says(of_column, "Sources that suppress", '" the"')
    for line in frame.itertuples():
        assert line.logits == pytest.approx(float(dense[line.source_id, line.output_id]), abs=1e-4)
    by_id = run("circuits", "small", "--head", "0.1", "--kind", "ov", "--token-id", str(the))
    assert by_id == run("circuits", "small", "--head", "0.1", "--kind", "ov", "--token", " the")
    says(by_id[1], 'Outputs that source " the" promotes', 'Sources that promote " the"')


def test_other_sides(run: Run, stored: AttentionOnlyTransformer) -> None:
    _, out, _ = run("circuits", "small", "--head", "1.1", "--left", "positions", "--right", "bias", "--top", "99")
    assert out.count("position ") == 6 and out.count("bias") > 6  # fewer than were asked for
    _, out, _ = run("circuits", "small", "--head", "1.1", "--left", "0.1", "--token", " the", "--top", "1")
    assert "destinations (tokens through 0.1, 265)" in out and 'Highest attention scores of destination " the"' in out
    _, out, _ = run("circuits", "small", "--head", "1.1", "--left", "bias", "--right", "positions:0.1", "--top", "2")
    assert "sources (positions through 0.1" in out and out.count("position ") == 2
    _, out, _ = run("circuits", "small", "--head", "0.1", "--kind", "ov", "--right", "1.0", "--top", "1")
    assert "outputs (tokens through 1.0, 265)" in out
    _, out, _ = run("circuits", "small", "--head", "1.1", "--left", "positions", "--token", " the", "--top", "1")
    assert "of destination" not in out and 'Highest attention scores of source " the"' in out


def test_spectrum(run: Run, stored: AttentionOnlyTransformer, tmp_path: Path) -> None:
    code, out, err = run("spectrum", "small", "--head", "0.1", "--rate")
    result, rate = spectrum(ov_circuit(stored, (0, 1))), copying_rate(stored, (0, 1))
    assert (code, err) == (0, "")
    assert f"{result.sentences()}\n" in out
    says(out, f"{rate.top1:.1%} of 265 tokens", f"{rate.top5:.1%}")
    assert (
        f"{result.singular_values[0]:.3g}" in out
        and sum(line[:1].isdecimal() and "eigenvalues" not in line for line in out.splitlines()) == 4
    )
    file = tmp_path / "pairs.csv"
    assert run("spectrum", "small", "--head", "0.1", "--csv", str(file))[0] == 0
    frame = pd.read_csv(file)
    assert len(frame) == 4 * 2 * 2 * 5 and set(frame.side) == {"left", "right"}
    top = frame.iloc[0]
    assert top.label.startswith('"') and top.value == pytest.approx(result.left_vectors[top.id, top.vector])


def test_spectrum_says_when_the_score_is_no_news(run: Run) -> None:
    _, out, _ = run("spectrum", "small", "--head", "0.1", "--kind", "qk")
    says(out, "= 1.000", "by construction", "MSSA")
    _, out, _ = run("spectrum", "small", "--head", "0.1", "--kind", "qk", "--right", "positions")
    says(out, "eigenvalues", "tokens", "positions")


@pytest.mark.parametrize("command", ["circuits", "spectrum", "composition"])
def test_nothing_is_overwritten_unasked(run: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "table.csv"
    file.write_text("mine")
    options = ["small", "--csv", str(file), *([] if command == "composition" else ["--head", "0.0"])]
    code, out, err = run(command, *options)
    assert (code, out) == (2, "") and err.startswith("aotlens: ") and err.count("\n") == 1
    says(err, file, "exists already", "--force")
    assert file.read_text() == "mine"
    assert run(command, *options, "--force")[0] == 0 and len(pd.read_csv(file)) > 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["circuits", "smal", "--head", "1.0"], "Did you mean small?"),
        (["circuits", "small", "--head", "14"], "--head 14: expected a layer and a head"),
        (["circuits", "small", "--head", "5.0"], "head 5.0: this model has layers 0 to 1"),
        (["circuits", "small", "--head", "1.0", "--kind", "vo"], "--kind vo: expected qk or ov"),
        (["circuits", "small", "--head", "1.0", "--left", "token"], "'token'"),
        (["circuits", "small", "--head", "1.0", "--left", "prompt"], "--left prompt: needs a prompt's activations"),
        (["circuits", "small", "--head", "0.0", "--left", "1.0"], "a head of a layer before 0"),
        (["circuits", "small", "--head", "1.0", "--kind", "ov", "--right", "tokens"], "one of logits, residual"),
        (["circuits", "small", "--head", "1.0", "--token", "the cat and that"], "tokens"),
        (["circuits", "small", "--head", "1.0", "--token-id", "265"], "expected an id from 0 to 264"),
        (["circuits", "small", "--head", "1.0", "--token-id", "5", "--token", "a"], "expected one of them"),
        (["circuits", "small", "--head", "1.0", "--left", "bias", "--right", "bias", "--token", "a"], "side of tokens"),
        (["circuits", "small", "--head", "1.0", "--device", "tpu"], "device 'tpu'"),
        (["circuits", "small", "--head", "1.0", "--csv", "/nowhere/at/all.csv"], "/nowhere/at"),
        (["spectrum", "small", "--head", "1.0", "--kind", "qk", "--rate"], "--rate: expected the OV circuit"),
        (["composition", "small", "--mode", "Q"], "mode='Q': expected one of 'q', 'k', 'v'"),
    ],
)  # fmt: skip
def test_errors_are_one_line(run: Run, arguments: list[str], expected: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and err.startswith("aotlens: ") and expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["circuits"], ["--head", "--kind", "--left", "--right", "--token", "--smallest", "--csv", "--force", "nats"]),
        (["spectrum"], ["--head", "--rate", "eigenvalues", "--csv"]),
        (["composition"], ["--mode", "--folded", "standard deviations", "--csv"]),
    ],
)
def test_help(run: Run, arguments: list[str], expected: list[str]) -> None:
    code, out, err = run(*arguments, "--help")
    assert (code, err) == (0, "") and all(word in out for word in expected) and out.isascii()
    code, out, err = run(
        *arguments, "small", "--top", "0", *([] if arguments == ["composition"] else ["--head", "0.0"])
    )
    assert (code, out) == (2, "") and "--help" in err
    assert run(*arguments)[0] == 2
