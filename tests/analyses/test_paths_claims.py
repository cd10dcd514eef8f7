"""The analyses of *structures* print claims that hold, and say so when one does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotlens.checkpoints import bundled_folder
from tests.messages import refused, says

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def real_bundled_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The app's tests hide the bundled checkpoints for a whole session; and none of the user's own come in between."""
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", bundled_folder)
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))


def claims(text: str) -> list[str]:
    return [line.split(" | ")[0] for line in text.splitlines() if " | yes" in line]


def test_path_expansion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from analyses import path_expansion

    page = Path(shutil.copy(ROOT / "docs" / "paths.md", tmp_path))
    before = page.read_text(encoding="utf-8")
    assert path_expansion.main(["--quick", "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "Proposition 22" in out and "**NO**" not in out and "loss with paths up to here" in out
    assert "of the 20 largest of 488,281,250 paths the search proves | 20 | 20 | 0 | yes | none" in page.read_text(
        "utf-8"
    )
    # What stands in the page has the same claims, from the whole run.
    assert claims(out) == claims(before.split("<!-- path_expansion -->")[1].split("<!-- /path_expansion -->")[0])
    assert before.split("<!-- path_expansion -->")[0] == page.read_text("utf-8").split("<!-- path_expansion -->")[0]


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    from aotlens.files import write_section

    page = tmp_path / "page.md"
    page.write_text("<!-- name -->\n", encoding="utf-8")
    with refused("<!-- name -->", "<!-- /name -->"):
        write_section(page, "name", "text")
    assert page.read_text("utf-8") == "<!-- name -->\n"


def test_superposition(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from analyses import superposition

    assert superposition.main(["--quick", "--html", str(tmp_path / "plot.html")]) == 0
    assert "30 points" in (tmp_path / "plot.html").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert "output 3 is erased too" in out and "**NO**" not in out and "(fitted)" in out


def test_a_claim_that_fails_ends_with_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    from analyses._claims import Claim, report

    good = Claim(claim="one is one", expected=1, measured=1.0, tolerance=0)
    bad = Claim(claim="pi is three", expected=3, measured=3.14, tolerance=0.1)
    nothing = Claim(claim="not a number", expected=0, measured=float("nan"), tolerance=1)
    assert report([good]) == 0 and report([good, bad]) == 1 and report([nothing]) == 1
    captured = capsys.readouterr()
    says(captured.out, "pi is three | 3 | 3.14 | 0.1 | **NO** | none")
    says(captured.err, "1 of 2 claims")
