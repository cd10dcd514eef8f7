"""The analysis of in-context regression prints claims that hold, and writes them into its page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.minutes
@pytest.mark.usefixtures("real_bundled_folder")
def test_in_context_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analyses import in_context_regression

    page = Path(shutil.copy(ROOT / "docs" / "regression.md", tmp_path))
    before = page.read_text("utf-8")
    assert in_context_regression.main(["--quick", "--html", str(tmp_path), "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "regression-5d-mhsa | 4 | " in out
    mark, end = "<!-- in_context_regression -->", "<!-- /in_context_regression -->"
    written, stands = (text.split(mark)[1].split(end)[0].strip() for text in (page.read_text("utf-8"), before))
    # What stands in the page is the whole run's, with the same claims.
    claims, kept = ([line.split(" | ")[0] for line in text.splitlines()] for text in (written, stands))
    assert claims[: claims.index("")] == kept[: kept.index("")] and len(claims) == len(kept)
    assert (tmp_path / "figure_6_5d.html").exists() and (tmp_path / "layers_regression-5d-mhsa.html").exists()
