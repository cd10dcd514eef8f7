"""The analysis of heads on images runs from the command line, on a model that it trains on digits."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from analyses import image_heads


@pytest.mark.minutes
def test_it_runs_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert image_heads.main(["--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("**digits-mssa: ") == 4 and "nan" not in text
    assert "query [CLS]" in text and "share outside (median)" in text and "the mean of 60 images" in text
    figures = {path.name for path in tmp_path.glob("*.html")}
    assert figures == {f"digits-mssa-{kind}.html" for kind in ("consistency", "maps", "curves", "snr")}
    with Image.open(tmp_path / "digits-mssa-maps.png") as picture:  # ten digits, and five heads beneath them
        assert picture.size == (10 * 64 + 9 * 2, 6 * 64 + 5 * 2)
