"""`aotlens view` prints what a page shows, by the same declaration."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from aotlens.views import FAMILIES, family
from aotlens.views.denoising import FAMILY
from tests.commands.conftest import Run
from tests.messages import says


def test_every_family_is_listed_and_says_its_parameters(run: Run) -> None:
    code, out, _ = run("view", "--help")
    assert code == 0
    says(out, *FAMILIES)
    for name in FAMILIES:
        code, out, _ = run("view", name, "--help")
        assert code == 0
        says(out, *(f"--{parameter.replace('_', '-')}" for parameter in family(name).parameters))
        says(out, *(view.name for view in family(name).views))


def test_it_prints_the_caption_and_the_table(run: Run) -> None:
    code, out, err = run("view", "denoising", "--steps", "2", "--seed", "4", "--task", "mixtures")
    chosen = FAMILY.parse(steps=2, seed=4, task="mixtures")
    result = FAMILY.views[0].result(chosen)
    assert (code, err) == (0, "")
    caption, empty, head, *rows = out.splitlines()
    assert caption == FAMILY.views[0].caption(chosen, result) and empty == ""
    frame = FAMILY.views[0].frame(result)
    assert head.split() == list(frame.columns) and len(rows) == len(frame) == 3
    assert rows[1].split()[:2] == ["1", f"{frame.squared_error[1]:.4g}"]


class _Scripts(HTMLParser):
    """The code of each script as a browser reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "script":
            self.codes.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.codes[-1] += data


def test_csv_python_and_a_page(run: Run, tmp_path: Path) -> None:
    csv, html = tmp_path / "table.csv", tmp_path / "figure.html"
    options = ("view", "denoising", "--view", "plane", "--steps", "3")
    assert run(*options, "--csv", str(csv), "--html", str(html))[0] == 0
    chosen = FAMILY.parse(steps=3)
    view = FAMILY.view("plane")
    pd.testing.assert_frame_equal(pd.read_csv(csv), view.frame(view.result(chosen)), check_dtype=False)
    page = html.read_text("utf-8")
    policy = re.search('<head><meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert policy is not None and "default-src 'none'" in policy[1] and "Plotly.newPlot" in page
    scripts = _Scripts()
    scripts.feed(page)
    hashes = {base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in scripts.codes}
    assert len(hashes) >= 2 and hashes == set(re.findall("'sha256-([^']*)'", policy[1]))
    code, _, err = run(*options, "--csv", str(csv))
    assert code == 2
    says(err, "exists already")
    assert run(*options, "--python") == (0, view.python(chosen), "")


@pytest.mark.parametrize(
    ("given", "said"),
    [(("view", "nothing"), "nothing"), (("view", "denoising", "--view", "x"), "expected a view of denoising"),
     (("view", "denoising", "--task", "x"), "task: expected one of"), (("view", "denoising", "--steps", "99"), "steps"),
     (("view", "sufficient", "nowhere"), "nowhere"), (("view", "regression"), "CHECKPOINT"),
     (("view", "regression", "small"), "another kind")],
)  # fmt: skip
def test_what_cannot_be_is_said(run: Run, given: tuple[str, ...], said: str) -> None:
    code, out, err = run(*given)
    assert code == 2 and out == ""
    says(err, said)
