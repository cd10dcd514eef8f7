"""`aotlens report`: one file, never over another's, and what is wrong in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aotlens.cli import main
from tests.messages import says

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_it_writes_the_sections_that_are_named(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "a.html"
    code, said, err = run(capsys, "novels-1l-mhsa", "-o", str(out), "--sections", "card,losses")
    assert (code, err) == (0, "") and said.rstrip().endswith("MB (card, losses)")
    html = out.read_text(encoding="utf-8")
    assert html.index('id="card"') < html.index('id="losses"') and 'id="maps"' not in html
    code, _, err = run(capsys, "novels-1l-mhsa", "-o", str(out))
    assert code == 2 and "exists already" in err
    assert run(capsys, "novels-1l-mhsa", "-o", str(out), "--force", "--sections", "card")[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "a.txt"], "ends in .html"),
        (["-o", "a.html", "--sections", "maps,mops"], "got 'mops'"),
        (["-o", "a.html", "--heads", "7.0"], "7.0"),
        (["-o", "a.html", "--corpus", "dir:nowhere"], "nowhere"),
    ],
)
def test_what_can_be_put_right_is_one_line(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "novels-1l-mhsa", *options)
    assert code == 2 and out == "" and words in err and err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))


def test_an_image_is_shown_and_a_bad_one_is_a_line(tmp_path: Path, capsys: Any) -> None:
    from PIL import Image

    Image.new("L", (30, 20), 200).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    out = str(tmp_path / "a.html")
    first, second = str(tmp_path / "a.png"), str(tmp_path / "b.png")
    code, said, err = run(capsys, "fashion-mssa", "-o", out, "--sections", "maps", "--image", first, "--image", first)
    assert (code, err) == (0, "") and "(maps)" in said
    code, said, err = run(capsys, "fashion-mssa", "-o", out, "--force", "--image", second)
    assert code == 2 and said == "" and "b.png: expected a whole image" in err and err.count("\n") == 1
    code, _, err = run(capsys, "novels-1l-mhsa", "-o", out, "--force", "--image", first)
    assert code == 2 and err.count("\n") == 1
    says(err, "novels-1l-mhsa", "tokens", "images")
