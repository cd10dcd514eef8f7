"""The analysis of heads as feed-forward networks, on two small models instead of the bundled ones."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses import head_distillation
from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    folder = tmp_path / "novels"
    folder.mkdir()
    generator = np.random.default_rng(0)
    words = ["the", "a", "cat", "dog", "rat", "sat", "on", "in", "mat", "and", "then", "but", "he", "it", "was"]
    for name in ("one", "two", "three"):
        (folder / f"{name}.txt").write_text(" ".join(generator.choice(words, 4000)), encoding="utf-8")
    return f"dir:{folder}"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], 265)
    cfg = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, d_vocab=265, n_ctx=32, positions="qk", bias=True)
    model = AttentionOnlyTransformer(cfg, tokenizer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.6 * torch.randn(parameter.shape, generator=generator)
    monkeypatch.setattr(head_distillation, "_load", lambda name: model.eval())
    few = {"train_tokens": 4000, "held_out_tokens": 3000, "wide": 8, "neighbours": 500, "batch_size": 100}
    monkeypatch.setattr(head_distillation, "QUICK_TEXT", few)


@pytest.mark.minutes
def test_it_runs_and_writes_what_it_found(
    corpus: str, small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- head_distillation -->\n<!-- /head_distillation -->\n")
    arguments = ["--quick", "--corpus", corpus, "--out", str(out), "--page", str(page)]
    assert head_distillation.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "claim | expected | measured | tolerance | holds | n" in printed and "Remark 4.1" in printed
    assert "nan" not in printed.lower() and "claims hold" in page.read_text()
    content = json.loads((out / "head_distillation.json").read_text(encoding="utf-8"))
    assert content["seeds"] == [0, 1, 2] and len(content["data"]["novels-2l-mhsa"]["error"]) == 4 * (1 + 3 * 3)
    names = {path.name for path in out.iterdir()}
    assert {"novels-2l-mhsa.safetensors", "head_distillation.html", "head_substitution_novels-2l-mhsa.html"} <= names
    assert not [name for name in names if name.endswith(".state")]
    before = (out / "novels-2l-gpt.safetensors").read_bytes()
    assert head_distillation.main([*arguments[:-2], "--resume"]) == 0
    assert (out / "novels-2l-gpt.safetensors").read_bytes() == before
    again = capsys.readouterr().out
    assert again.splitlines()[2:] == printed.splitlines()[2:], "the same numbers from what was kept"


def test_heads_are_compared_within_a_checkpoint() -> None:
    """Intervals hold the estimate, and what a checkpoint has no heads for is left out, not a number."""
    generator = np.random.default_rng(0)
    label = np.array(["first_token"] * 6 + ["current_token"] * 10)
    error = np.where(label == "first_token", 0.2, 0.5) + 0.01 * generator.standard_normal(16)
    shares = {"first_token": generator.random(16), "separator": generator.random(16)}
    scores = SimpleNamespace(
        motifs=tuple(shares), n_queries=np.array([40, 10]), rests=lambda: (label == "first_token")[None]
    )
    attending = SimpleNamespace(
        attends=tuple(np.where(label == "first_token", "previous_token", label)), to=shares.__getitem__,
        heads=tuple((0, head) for head in range(16)),
        scores=scores, pattern_consistency=1 - error**2,
    )  # fmt: skip
    found = SimpleNamespace(
        attending=attending,
        width_index=lambda width: 0,
        error=error[:, None, None],
        error_after_first=-error[:, None, None],
    )
    heads = head_distillation.Heads(found)  # type: ignore[arg-type]
    assert heads.difference("first_token") == pytest.approx(-0.3, abs=0.02)
    low, high = heads.interval(lambda drawn: heads.difference("first_token", drawn))
    assert -0.33 < low < heads.difference("first_token") < high < -0.27
    np.testing.assert_allclose(heads.special, shares["first_token"] + shares["separator"] / 4)
    assert heads.correlation("pattern_consistency") == pytest.approx(-1.0)
    assert heads.correlation("pattern_consistency", "error_after_first") == pytest.approx(1.0)
    assert np.isnan(heads.difference("previous_token"))
    assert head_distillation._estimate(heads, partial(heads.difference, "previous_token")) == "no such heads"
