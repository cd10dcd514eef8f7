"""The analyses of *nonlinearity*: end to end on small settings, and honest where a claim does not hold."""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import (
    _texts,
    ffn_approximation,
    head_patterns,
    mask_similarity,
    masked_language_modeling,
    value_norms,
)
from analyses._nonlinearity import Clock, Finding, Results, kept, options, publish
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import Tokenizer, open_corpus
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused, says

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

STORY = (
    "The cat sat on the mat. A dog ran far, and it was he. She sat on it; the dog was on the mat, far from the cat. "
)
TINY = {"d": 4, "n_pos": 3, "ffn_width": 6, "n_train": 8, "n_test": 4, "epochs": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("texts")
    for name, word in (("one", "cat"), ("two", "dog")):
        sentences = random.Random(word).choices(STORY.split(". "), k=270)  # periodic text has the same windows twice
        (folder / f"{name}.txt").write_text(". ".join([*sentences, word]), encoding="utf-8")
    return f"dir:{folder}"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A masked language model with random weights."""
    tokenizer = Tokenizer.train([STORY * 20], 290).with_mask()
    cfg = ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=40, d_vocab=291, causal=False)
    folder = tmp_path_factory.mktemp("model") / "masked"
    save_checkpoint(folder, AttentionOnlyTransformer(cfg, tokenizer), CheckpointInfo(name="masked"))
    return str(folder)


def written(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8"))


def test_findings_hold_only_where_every_seed_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = {"expected": "small", "bounds": (0.0, 1.0)}
    good, bad, nothing, missing = (
        Finding(claim=name, measured=values, **shared)
        for name, values in (("good", (0.5, 1.0)), ("bad", (0.5, 1.1)), ("nothing", ()), ("nan", (float("nan"),)))
    )
    assert [f.holds for f in (good, bad, nothing, missing)] == [True, False, False, False]
    results = Results(name="both", findings=[good, bad], settings={"n": 3}, seeds=(0, 1), data={"x": np.array([1.0])})
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- both -->\nwhat was there\n<!-- /both -->\nafter\n")
    chosen = options("").parse_args(["--out", str(tmp_path), "--page", str(page)])
    assert publish(results, chosen, "python -m analyses.both", 3.0) == 0
    captured = capsys.readouterr()
    assert "bad | small | 0.8 (0.5 to 1.1) | 0 to 1 | **NO** | 2" in captured.out
    says(captured.err, "1 of 2 claims")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before") and text.endswith("after\n") and "what was there" not in text
    assert "1 of 2 claims hold" in text
    assert [f["holds"] for f in written(tmp_path, "both")["findings"]] == [True, False]


def _slow_square(x: int) -> int:
    time.sleep(0.05)
    return x * x


def test_what_is_kept_counts_with_the_time_that_it_took(tmp_path: Path) -> None:
    chosen = argparse.Namespace(out=tmp_path)
    made, read = Clock(), Clock()
    assert kept(chosen, _slow_square, made)(7) == kept(chosen, _slow_square, read)(7) == 49
    before = read()
    assert kept(chosen, _slow_square, read)(7) == 49
    assert read() - before >= 0.05


def test_ffn_approximation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    full = ffn_approximation.approximate_ffn
    monkeypatch.setattr(ffn_approximation, "approximate_ffn", lambda *a, **k: full(*a, **{**k, **TINY}))
    monkeypatch.setattr(ffn_approximation, "EPOCHS_QUICK", 2)
    monkeypatch.setattr(ffn_approximation, "kept", lambda chosen, work, clock: work)
    assert ffn_approximation.main(["--quick", "--out", str(tmp_path)]) == 0
    for figure in (4, 5, 6):
        for batch in (16, 1):
            found = written(tmp_path, f"ffn_approximation_{figure}_batch_{batch}")
            assert found["findings"][0]["claim"].startswith(f"Figure {figure}, batch {batch}")
            assert found["command"].endswith(f"--quick --figure {figure} --batch {batch}")
            assert all(len(f["measured"]) == 3 for f in found["findings"])
    assert (tmp_path / "ffn-approximation-layers-batch-16.html").exists()
    assert capsys.readouterr().out.count("layers of F with the least error") == 2


def test_masked_language_modeling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = masked_language_modeling.train_recall
    small = {"d_vocab": 40, "d": 6, "epochs": 60, "learning_rate": 0.003}
    monkeypatch.setattr(
        masked_language_modeling, "train_recall",
        lambda kind, heads, n, seeds, **k: full(kind, 8, 16, seeds, **{**k, **small}),
    )  # fmt: skip
    monkeypatch.setattr(masked_language_modeling, "kept", lambda chosen, work, clock: work)
    assert masked_language_modeling.main(["--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    for readout in ("classes", "number"):
        found = written(tmp_path, f"masked_language_modeling_{readout}")
        assert len(found["findings"]) == 4 + 4 + 2 and found["seeds"] == [0, 1]
        assert np.array(found["data"]["F+R"]["epoch_loss"]).shape == (2, 60)
    monkeypatch.setattr(
        masked_language_modeling, "heads_needed", lambda n, grid, seed, epochs: n // 16 if n < 900 else None
    )
    arguments = ["--heads-needed", "--sequences", "512", "640", "768", "1024", "--out", str(tmp_path)]
    assert masked_language_modeling.main(arguments) == 0
    found = written(tmp_path, "heads_needed")
    line, slope = found["findings"]
    assert line["holds"] and line["measured"] == pytest.approx([1, 1, 1])
    assert slope["measured"] == pytest.approx([62.5] * 3)
    assert found["data"]["heads_needed"][0] == [32.0, 40.0, 48.0, None]
    monkeypatch.setattr(masked_language_modeling, "heads_needed", lambda n, grid, seed, epochs: grid[n // 512])
    assert masked_language_modeling.main([*arguments, "--step", "4", "--most", "20"]) == 0
    fine = written(tmp_path, "heads_needed_step_4")
    assert fine["data"]["heads_needed"][0] == [8.0, 8.0, 8.0, 12.0] and "--step 4 --most 20" in fine["command"]
    assert fine["settings"]["heads tried"] == "4, 8, …, 20"
    # Too few sizes for a line: the table only.
    assert masked_language_modeling.main([*arguments[:3], "--out", str(tmp_path)]) == 0
    assert written(tmp_path, "heads_needed")["findings"] == []
    # All alike: no R², a slope of 0, which is not what the paper says.
    monkeypatch.setattr(masked_language_modeling, "heads_needed", lambda n, grid, seed, epochs: 32)
    assert masked_language_modeling.main(arguments) == 0
    (slope,) = written(tmp_path, "heads_needed")["findings"]
    assert slope["measured"] == [0, 0, 0] and not slope["holds"]


def test_epochs_to_a_level_count_from_one() -> None:
    from analyses._tiny import Recall

    losses = np.array([[3.0, 1.0, 0.1], [3.0, 2.9, 2.8]])
    found = Recall(kind="F", readout="classes", n_heads=1, n_sequences=1, seeds=(0, 1), epoch_loss=losses,
                   loss=losses[:, -1], accuracy=losses[:, -1])  # fmt: skip
    assert masked_language_modeling.epochs_to(found, 1.5).tolist() == [2, 4]


def test_head_patterns(corpus: str, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_patterns, "bundled_novels", lambda: ["novels-2l-mhsa"])
    arguments = ["--quick", "--corpus", corpus, "--bert", str(tiny_bert), "--out", str(tmp_path)]
    assert head_patterns.main(arguments) == 0
    found = written(tmp_path, "head_patterns")
    claims = {f["claim"]: f for f in found["findings"]}
    assert claims["novels-2l-mhsa: heads that give first token half their attention"]["holds"]
    assert any(claim.startswith(f"{tiny_bert}: heads that give next token") for claim in claims)
    assert found["data"]["novels-2l-mhsa"]["previous_token"][0][3] > 0.5, "head 0.3"
    assert (tmp_path / "head-patterns-novels-2l-mhsa.html").exists()


def test_value_norms(corpus: str, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_norms, "bundled_novels", lambda: ["novels-2l-mhsa"])
    arguments = ["--quick", "--corpus", corpus, "--bert", str(tiny_bert), "--out", str(tmp_path)]
    assert value_norms.main(arguments) == 0
    found = written(tmp_path, "value_norms")
    assert (
        found["findings"][0]["claim"].startswith("novels-2l-mhsa: ‖v‖ of the start token")
        and found["findings"][0]["holds"]
    )
    assert len(found["data"][str(tiny_bert)]["[SEP]"]) == 3


def test_mask_similarity(corpus: str, masked: str, tiny_bert: Path, tmp_path: Path) -> None:
    arguments = [
        "--quick",
        "--corpus",
        corpus,
        "--checkpoint",
        masked,
        "--bert",
        str(tiny_bert),
        "--out",
        str(tmp_path),
    ]
    assert mask_similarity.main(arguments) == 0
    found = written(tmp_path, "mask_similarity")
    for name, depths in ((masked, 3), (str(tiny_bert), 4)):
        for values in found["data"][name].values():
            array = np.array(values)
            assert array.shape == (3, depths)
            np.testing.assert_allclose(array[:, 0], 1, atol=1e-5)  # the mask's embedding, whatever the context
            assert (array[:, -1] < (1 - 1e-6 if name == masked else 1 + 1e-9)).all()


def test_windows_are_held_out_text(corpus: str, masked: str) -> None:
    import aotlens

    model = aotlens.load(masked, "cpu")
    samples = _texts.windows(model, open_corpus(corpus), 12, 20, 3)
    text = "\n".join(document.text for document in open_corpus(corpus).documents())
    assert len(samples) == 3 and len({tuple(row) for rows in samples for row in rows.tolist()}) > 20
    for rows in samples:
        assert rows.shape == (20, 12) and (rows[:, 0] == model.tokenizer.eot_id).all()
        for row in rows:  # the last of a document runs on into the next
            assert all(part in text for part in model.tokenizer.decode(row[1:]).split("<|endoftext|>"))
    with refused("300 windows", "100 tokens", "got"):
        _texts.windows(model, open_corpus(corpus), 100, 100, 3)
    assert len(_texts.sentences(open_corpus(corpus), 10, 0)) == 10
    with pytest.raises(ValueError, match="at least 10000 sentences"):
        _texts.sentences(open_corpus(corpus), 10000, 0)


def test_the_page_has_a_place_for_every_analysis() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "nonlinearity.md").read_text(encoding="utf-8")
    names = ["head_patterns", "mask_similarity", "value_norms", "heads_needed_step_4"]
    for name in names:
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1, name
