"""The analyses of denoising print claims that hold and a verdict for each, and write them into their page."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotlens.checkpoints import bundled_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def real_bundled_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The app's tests hide the bundled checkpoints for a whole session; and none of the user's own come in between."""
    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", bundled_folder)
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROOT / "docs" / "denoising.md", tmp_path))


def section(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


def claims(text: str) -> list[str]:
    """The claims of a table of claims, and of one of verdicts."""
    return [line.split(" | ")[0] for line in text.splitlines() if " | yes" in line or line.endswith("| reproduced")]


def test_in_context_denoising(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analyses import in_context_denoising

    before = page.read_text("utf-8")
    assert in_context_denoising.main(["--quick", "--html", str(tmp_path), "--docs", str(page)]) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "linear, subspaces: αβ | 0.327 | 0.3265 (" in out
    assert "softmax, mixtures: β | 5.127" in out and "differs: " in out
    written = section(page.read_text("utf-8"), "in_context_denoising")
    assert set(claims(written)) >= {"one step of size γ = α, Eq. 16 is softmax attention", "softmax, subspaces: αβ"}
    # What stands in the page is the whole run's, with the same claims.
    names = [line.split(" | ")[0] for line in written.splitlines()]
    stands = [line.split(" | ")[0] for line in section(before, "in_context_denoising").splitlines()]
    assert names[: names.index("")] == stands[: stands.index("")]
    assert (tmp_path / "landscape_mixtures.html").exists() and (tmp_path / "training_spheres_linear.html").exists()


@pytest.mark.minutes
def test_subspace_denoising(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analyses import subspace_denoising

    arguments = ["--quick", "--html", str(tmp_path), "--docs", str(page)]
    assert subspace_denoising.main(arguments) == 0
    out = capsys.readouterr().out
    assert "**NO**" not in out and "δ = 0.01: SNR(l + 1) ÷ SNR(l) in the first nine layers is 1 + ητ | 0 | " in out
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith(("thresholded softmax |", "softmax |"))]
    sizes = {(row[0], int(row[1])): (row[5], row[7]) for row in rows if len(row) == 8}
    for phi in ("thresholded softmax", "softmax"):
        assert sizes[phi, 8] == ("rises", "rises") and sizes[phi, 64] == ("falls", "falls")
    assert "novels-2l-gpt | pattern | 1.00" in out and (tmp_path / "where_the_rate_breaks.html").exists()
    written = section(page.read_text("utf-8"), "subspace_denoising")
    stands = section((ROOT / "docs" / "denoising.md").read_text("utf-8"), "subspace_denoising")
    assert len(claims(written)) >= 11
    assert [claim.replace("10 seeds", "2 seeds") for claim in claims(stands)[:11]] == claims(written)[:11]
    # The audits are stored, so that the page's are these to the last digit.
    for text in ("writes rotated", "novels-2l-mhsa | subspace | 1.00"):
        assert [line for line in stands.splitlines() if text in line] == [
            line for line in written.splitlines() if text in line
        ]


@pytest.mark.minutes
def test_denoising_depth(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from analyses import denoising_depth

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
    assert section(page.read_text("utf-8"), "denoising_depth") == first.out.strip()
    assert (tmp_path / "depth_mixtures.html").exists()
    # What is kept is not trained again, and other settings are not taken for it.
    assert denoising_depth.main(arguments) == 0 and capsys.readouterr() == (first.out, "")
    from dataclasses import replace

    kind = denoising_depth.Kind(task="spheres", n_layers=1)
    with pytest.raises(ValueError, match="another settings"):
        denoising_depth.trained(kind, replace(denoising_depth.QUICK, learning_rate=0.5), tmp_path / "kept")


def test_a_verdict_says_why() -> None:
    from analyses._claims import Verdict, spread, verdicts_table

    table = verdicts_table(
        [Verdict(claim="a", paper="1", ours="1"), Verdict(claim="b", paper="2", ours="3", because="of the weather")]
    )
    assert table.splitlines()[2:] == ["a | 1 | 1 | reproduced", "b | 2 | 3 | differs: of the weather"]
    assert spread([1.0, 2.0, 3.0]) == "2 (1 to 3)"
