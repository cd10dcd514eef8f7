"""Published models are found by their hash, opened, and compared: on files that are made here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from analyses import published
from analyses._claims import Verdict
from analyses.published import PublishedModel, blocks, compare, ratio
from aotlens.conventions import IGNORED
from aotlens.data import make_task
from aotlens.evaluate import exhaustive
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction
from tests.messages import refused, says


def _measure(model: AttentionOnlyTransformer, quick: bool) -> list[Verdict]:
    result = exhaustive(model, make_task("induction", "1-3", "0 x x x x"))
    return [ratio("margin", 2.5, [result.margin], (0.999, 1.001), "no"),
            ratio("twice the margin", 5.0, [result.margin], (0.999, 1.001), "it was built so")]  # fmt: skip


def _model(path: Path, name: str, **options: object) -> PublishedModel:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "0" * 64
    return PublishedModel(name=name, source=f"nobody/nothing: {name}.pt", sha256=sha256, measure=_measure,
                          options=options)  # fmt: skip


@pytest.fixture
def models(tmp_path: Path) -> list[PublishedModel]:
    built = induction(3, 2.5)
    (tmp_path / "below").mkdir()
    torch.save(built.state_dict(), tmp_path / "below" / "renamed.bin.pt")
    torch.save({"a.b": torch.ones(2)}, tmp_path / "other.pt")
    (tmp_path / "notes.txt").write_text("another file")
    return [
        _model(tmp_path / "below" / "renamed.bin.pt", "built", config=built.cfg),
        _model(tmp_path / "other.pt", "another format"),
        _model(tmp_path / "absent.pt", "absent"),
    ]


def test_files_are_known_by_their_hash_and_compared(
    models: list[PublishedModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, notes, missing = compare(models, tmp_path, False)
    assert missing == ["absent"] and not notes
    assert [row.holds for row in verdicts] == [True, False, False]
    says(verdicts[0].ours, "2.5000", "published ÷ ours 1.0000")
    says(verdicts[1].verdict, "differs: it was built so")
    says(verdicts[2].claim + verdicts[2].verdict, "another format: opens", "a.b")
    assert str(tmp_path) not in str(verdicts)
    assert published.main(["--models", str(tmp_path), "--quick"], models) == 0
    printed = capsys.readouterr().out
    says(printed, "nobody/nothing: absent.pt", models[0].sha256, "Not in", "built: margin | 2.5000", "| reproduced")


def test_without_a_folder_it_says_where_the_files_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert published.main(["--quick"]) == 0
    printed = capsys.readouterr().out
    says(printed, "--models DIR", *(each.sha256 for each in published.MODELS), "neelnanda-io/Grokking")
    with refused("expected a folder"):
        published.main(["--models", str(tmp_path / "nowhere")])
    with refused("some files are missing"):
        published.main(["--models", str(tmp_path), "--store"])


def test_blocks_repeat_sixteen_tokens() -> None:
    tokens, targets = blocks(5, 0)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert row[0] == 0 and sum(each != IGNORED for each in wanted) == 30
        predicted = [place + 1 for place, each in enumerate(wanted) if each != IGNORED]
        assert all(row[place] == wanted[place - 1] for place in predicted)
        first = [row[predicted[0] - 1 + step] for step in range(16)]
        assert any(row[start : start + 16] == first for start in range(1, 14))
