"""What an analysis stores: claims come back as they were, pages are written from them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from analyses import _outcomes, superposition
from analyses._claims import Claim, Finding, Verdict, restored, stored
from analyses._outcomes import Outcome, load, of_run, parse
from tests.messages import refused

CLAIMS = (Claim("one is one", 1, 1.0000001, 1e-6, seed=3), Claim("a count | of two", 1200, 1200, 0))
FINDINGS = (
    Finding(claim="rises", expected="above 1", bounds=(1, math.inf), measured=(1.25, 2.0, 4.0)),
    Finding(claim="falls", expected="below 0", bounds=(-math.inf, 0), measured=(0.5,)),
    Finding(claim="is five", expected="5", bounds=(5, 5), measured=(5.0, 6.0)),
    Finding(claim="is nearly one", expected="1", bounds=(1, 1.001), measured=(1.0,)),
    Finding(claim="is not there", expected="something", bounds=(0, 1), measured=(math.nan,)),
)
VERDICTS = (
    Verdict(claim="one valley", paper="yes", ours="1.1", because="off", measured=(1.1,), bounds=(0, 1.2)),
    Verdict(claim="a slope", paper="2", ours="3", because="of the weather"),
)


@pytest.mark.parametrize("stated", [*CLAIMS, *FINDINGS[:4], *VERDICTS])
def test_a_claim_comes_back(stated: Claim | Finding | Verdict) -> None:
    content = json.loads(json.dumps(stored(stated), allow_nan=False))
    assert restored(content) == stated and restored(content).holds == stated.holds


def test_what_is_no_number_comes_back_as_none() -> None:
    back = restored(stored(FINDINGS[4]))
    assert isinstance(back, Finding) and math.isnan(back.measured[0]) and not back.holds
    with refused("finding, verdict", "'guess'"):
        restored({"kind": "guess"})


def test_numbers_decide_a_verdict_that_has_them() -> None:
    assert VERDICTS[0].verdict == "reproduced" and VERDICTS[1].verdict == "differs: of the weather"
    with pytest.raises(ValueError, match=r"\(2\.0,\) is outside \(0, 1\); say why"):
        Verdict(claim="a", paper="1", ours="2", measured=(2.0,), bounds=(0, 1))
    with pytest.raises(ValueError, match="expected numbers"):
        Verdict(claim="a", paper="1", ours="2", bounds=(0, 1))


def test_an_outcome_writes_its_section_and_is_read_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- both -->\n<!-- /both -->\nafter\n", encoding="utf-8")
    table = "a | b\n--- | ---\n1 \\| 2 | `x`"
    long = "\n".join(["n | m", "--- | ---", *(f"{n} | 0" for n in range(20))])
    content = [CLAIMS, "Text.", FINDINGS[:4], VERDICTS, table, long]
    made = of_run("both", "python -m analyses both", "docs/page.md", content)
    made.publish(page, store=False)
    assert made.section == (
        f"Text.\n\n{table}\n\nA table of 20 rows (n, m, …) is in `analyses/outcomes/both.json`.\n\n"
        "5 of 8 claims hold: [Evidence](evidence/index.md)."
    )
    assert long in made.text and "falls | below 0 | 0.5 | ≤ 0 | **NO** | 1" in made.text
    assert "is five | 5 | 5.5 (5 to 6) | exactly 5 | **NO** | 2" in made.text
    assert "is nearly one | 1 | 1 | 1 to 1.001 | yes | 1" in made.text
    made.save(tmp_path)
    again = load("both", tmp_path)
    assert again == made and again.text == made.text and again.claims == (*CLAIMS, *FINDINGS[:4], *VERDICTS)
    assert "before" in page.read_text("utf-8") and made.section in page.read_text("utf-8")
    with refused("neither", "both"):
        load("neither", tmp_path)


def test_tables_with_outer_bars_are_tables() -> None:
    assert list(parse("| a | b |\n| --- | --- |\n| 1 | x \\| y |")) == [(["a", "b"], [["1", "x | y"]])]


def test_only_a_whole_run_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        superposition.main(["--quick", "--store"])
    assert "leave --quick out" in capsys.readouterr().err
    monkeypatch.setattr(_outcomes, "ROOT", tmp_path)
    monkeypatch.setattr(Outcome, "save", lambda self: tmp_path / f"{self.name}.json")
    of_run("one", "c", "docs/page.md", [CLAIMS]).publish(None, store=True)
    assert capsys.readouterr().out == "stored: one.json\n"
