"""The analyses print claims that hold and a verdict for each, write them into their pages, and say what fails."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from analyses import (
    denoising_depth,
    image_heads,
    in_context_denoising,
    in_context_regression,
    path_expansion,
    subspace_denoising,
    superposition,
)
from analyses._claims import Claim, Verdict, markdown, report, spread, verdicts_table
from analyses._outcomes import load
from aotlens.files import write_section
from tests.messages import refused, says

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROOT / "docs" / "denoising.md", tmp_path))


def section(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


def claims(text: str) -> list[str]:
    """The claims of a table of claims, and of one of verdicts."""
    return [line.split(" | ")[0] for line in text.splitlines() if " | yes" in line or line.endswith("| reproduced")]


def test_in_context_denoising(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = page.read_text("utf-8")
    assert in_context_denoising.main(["--quick", "--html", str(tmp_path), "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "linear, subspaces: αβ | 0.327 | 0.3265 (" in out
    assert "softmax, mixtures: β | 5.127" in out and "differs: " in out
    written, stands = (section(text, "in_context_denoising") for text in (page.read_text("utf-8"), before))
    assert {"one step of size γ = α, Eq. 16 is softmax attention", "softmax, subspaces: αβ"} <= set(claims(out))
    assert written.splitlines()[-1].split(" of ")[1] == stands.splitlines()[-1].split(" of ")[1]
    assert (tmp_path / "landscape_mixtures.html").exists() and (tmp_path / "training_spheres_linear.html").exists()


@pytest.mark.minutes
def test_subspace_denoising(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--html", str(tmp_path), "--docs", str(page)]
    assert subspace_denoising.main(arguments) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "δ = 0.01: SNR(l + 1) ÷ SNR(l) in the first nine layers is 1 + ητ | 0 | " in out
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith(("thresholded softmax |", "softmax |"))]
    sizes = {(row[0], int(row[1])): (row[5], row[7]) for row in rows if len(row) == 8}
    for phi in ("thresholded softmax", "softmax"):
        assert sizes[phi, 8] == ("rises", "rises") and sizes[phi, 64] == ("falls", "falls")
    assert "novels-2l-gpt | pattern | 1.00" in out and (tmp_path / "where_the_rate_breaks.html").exists()
    kept = load("subspace_denoising")
    assert [claim.claim.replace("10 seeds", "2 seeds") for claim in kept.claims[:11]] == claims(out)[:11]
    # The audits are stored, so that these are equal to the last digit.
    audits = markdown(*kept.parts[-1])  # type: ignore[arg-type]
    assert audits.splitlines()[2:] and set(audits.splitlines()) <= set(out.splitlines())
    assert "claims hold" in section(page.read_text("utf-8"), "subspace_denoising")


@pytest.mark.minutes
def test_denoising_depth(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--out", str(tmp_path / "kept"), "--html", str(tmp_path), "--docs", str(page)]
    assert denoising_depth.main(arguments) == 0
    first = capsys.readouterr()
    assert first.err.count("mean test loss") == 27 == len(list((tmp_path / "kept").iterdir()))
    rows = [
        line.split(" | ") for line in first.out.splitlines() if line.startswith(("subspaces", "spheres", "mixtures"))
    ]
    assert len(rows) == 6 + 6 + 9 + 9 and all("takes away" in row[0] for row in rows[:6])
    clean, noisy = rows[12:21], rows[21:]
    assert [row[1:3] for row in clean[:3]] == [["1", ""], ["2", "untied"], ["2", "tied"]]
    assert [row[1:3] for row in noisy[:3]] == [["1", ""], ["2", "tied"], ["2", "tied, long skip"]]
    for table in (clean, noisy):  # the context as given is the same prior at every depth
        for task in ("subspaces", "spheres", "mixtures"):
            assert len({row[-1].split(", ")[0] for row in table if row[0] == task}) == 1
    assert float(noisy[0][-1]) > float(clean[0][-1])
    assert "of 6 claims hold" in section(page.read_text("utf-8"), "denoising_depth")
    assert (tmp_path / "depth_mixtures.html").exists()
    # What is kept is not trained again, and other settings are not taken for it.
    assert denoising_depth.main(arguments) == 0 and capsys.readouterr() == (first.out, "")
    kind = denoising_depth.Kind(task="spheres", n_layers=1)
    with pytest.raises(ValueError, match="another settings"):
        denoising_depth.trained(kind, replace(denoising_depth.QUICK, learning_rate=0.5), tmp_path / "kept")


def test_a_verdict_says_why() -> None:
    table = verdicts_table(
        [Verdict(claim="a", paper="1", ours="1"), Verdict(claim="b", paper="2", ours="3", because="of the weather")]
    )
    assert table.splitlines()[2:] == ["a | 1 | 1 | reproduced", "b | 2 | 3 | differs: of the weather"]
    assert spread([1.0, 2.0, 3.0]) == "2 (1 to 3)"


def test_path_expansion(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = Path(shutil.copy(ROOT / "docs" / "paths.md", tmp_path))
    before = page.read_text(encoding="utf-8")
    assert path_expansion.main(["--quick", "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "Proposition 22" in out and "**NO**" not in out and "loss with paths up to here" in out
    assert "of the 20 largest of 488,281,250 paths the search proves | 20 | 20 | 0 | yes | none" in out
    assert claims(out) == [claim.claim for claim in load("path_expansion").claims if claim.holds]
    assert "22 of 22 claims hold" in page.read_text("utf-8")
    assert before.split("<!-- path_expansion -->")[0] == page.read_text("utf-8").split("<!-- path_expansion -->")[0]


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- name -->\n", encoding="utf-8")
    with refused("<!-- name -->", "<!-- /name -->"):
        write_section(page, "name", "text")
    assert page.read_text("utf-8") == "<!-- name -->\n"


def test_superposition(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert superposition.main(["--quick", "--html", str(tmp_path / "plot.html")]) == 0
    assert "30 points" in (tmp_path / "plot.html").read_text(encoding="utf-8")
    out = capsys.readouterr().out
    assert "output 3 is erased too" in out and "**NO**" not in out and "(fitted)" in out


def test_a_claim_that_fails_ends_with_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    good = Claim("one is one", 1, 1.0, 0)
    bad = Claim("pi is three", 3, 3.14, 0.1)
    nothing = Claim("not a number", 0, float("nan"), 1)
    assert report([good]) == 0 and report([good, bad]) == 1 and report([nothing]) == 1
    captured = capsys.readouterr()
    says(captured.out, "pi is three | 3 | 3.14 | 0.1 | **NO** | none")
    says(captured.err, "1 of 2 claims")


@pytest.mark.minutes
def test_in_context_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(shutil.copy(ROOT / "docs" / "regression.md", tmp_path))
    before = page.read_text("utf-8")
    assert in_context_regression.main(["--quick", "--html", str(tmp_path), "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "regression-5d-mhsa | 4 | " in out
    written, stands = (section(text, "in_context_regression") for text in (page.read_text("utf-8"), before))
    rows, kept = ([line.split(" | ")[0] for line in text.splitlines()] for text in (written, stands))
    assert rows == kept and "of 11 claims hold" in written
    assert (tmp_path / "figure_6_5d.html").exists() and (tmp_path / "layers_regression-5d-mhsa.html").exists()


@pytest.mark.minutes
def test_image_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert image_heads.main(["--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("**fashion-vit: ") == 4 and "nan" not in text
    assert "query [CLS]" in text and "share outside (median)" in text and "the mean of 60 images" in text
    figures = {path.name for path in tmp_path.glob("*.html")}
    assert figures == {f"fashion-vit-{kind}.html" for kind in ("consistency", "maps", "curves", "snr")}
    with Image.open(tmp_path / "fashion-vit-maps.png") as picture:  # ten classes, and five heads beneath them
        assert picture.size == (10 * 64 + 9 * 2, 6 * 64 + 5 * 2)
