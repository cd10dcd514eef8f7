"""The evidence pages and the sections of docs/ follow from what is stored, and what is stored from its command."""

from __future__ import annotations

import importlib
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analyses import evidence, statements
from analyses._claims import Claim, Finding, Stated, Verdict
from analyses._outcomes import ROOT, load, parse
from analyses._papers import PAPERS, Evidence, Item, load_paper, outcomes
from analyses._papers import evidence as evidence_of
from aotlens.results.exports import exports
from tests.messages import refused

DOCS = ROOT / "docs"


def test_docs_follow_from_what_is_stored() -> None:
    assert evidence.problems(DOCS, outcomes()) == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "analyses").mkdir()
    shutil.copy(ROOT / "analyses" / "README.md", tmp_path / "analyses")
    return Path(
        shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "auto_gallery", "*.png"))
    )


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("paths.md", "22 of 22 claims hold", "23 of 23 claims hold"),
        ("evidence/nonlinearity.md", "0.051 (0.0435 to 0.0633)", "0.051 (0.0435 to 0.0632)"),
        ("evidence/structures.md", "19 reproduced", "21 reproduced"),
        ("papers.md", "| [`statements`](statements.md) | reproduced |", "| [`statements`](statements.md) | differs |"),
        ("../analyses/README.md", "46 of 51 claims hold", "51 of 51 claims hold"),
    ],
)
def test_a_number_that_was_changed_by_hand_is_found(copy: Path, page: str, before: str, after: str) -> None:
    text = (copy / page).read_text(encoding="utf-8")
    assert before in text
    (copy / page).write_text(text.replace(before, after), encoding="utf-8")
    (problem,) = evidence.problems(copy, outcomes())
    assert Path(page).name in problem
    # One command makes it right again.
    assert evidence.main(["--docs", str(copy)]) == 0 and evidence.main(["--docs", str(copy), "--check"]) == 0


def test_an_outcome_that_was_changed_is_found_and_changes_the_verdict(copy: Path) -> None:
    stored = outcomes()
    outcome = stored["path_expansion"]
    claim = next(c for c in outcome.claims if c.claim.startswith("Lemma 16"))
    assert isinstance(claim, Claim)
    parts = tuple(
        tuple(replace(c, measured=0.5) if c is claim else c for c in part) if isinstance(part, tuple) and claim in part
        else part for part in outcome.parts
    )  # fmt: skip
    stored["path_expansion"] = replace(outcome, parts=parts)
    problems = evidence.problems(copy, stored)
    assert any("path_expansion" in line for line in problems) and any("structures" in line for line in problems)
    found = evidence_of(load_paper("structures"), stored)
    assert next(each for each in found if each.item.id == "Lemma 16").verdict == "differs"


@pytest.mark.parametrize("name", PAPERS)
def test_every_reference_of_a_paper_leads_somewhere(name: str) -> None:
    paper = load_paper(name)
    assert len({item.id for item in paper.items}) == len(paper.items)
    for each in evidence_of(paper, outcomes()):
        assert bool(each.because) == (each.verdict in ("reproduced in part", "differs", "not run")), each.item.id
        assert (DOCS / (each.item.docs or paper.docs)).exists(), each.item.id
        for function in each.item.functions:
            module, _, attribute = function.rpartition(".")
            package = importlib.import_module(module)
            assert hasattr(package, attribute), f"{each.item.id}: {function}"
            assert module.startswith("analyses.") or attribute in exports()[module], f"{each.item.id}: {function}"
        for test in each.item.tests:
            assert (ROOT / test).exists(), f"{each.item.id}: {test}"


def test_every_stored_claim_answers_an_item_and_every_outcome_names_its_analysis() -> None:
    stored = outcomes()
    answered = {
        id(claim)
        for name in PAPERS
        for each in evidence_of(load_paper(name), stored)
        for _, claim in each.answers
    }  # fmt: skip
    ours = ("2 layers: paths of every order",)  # Elhage et al.
    for name, outcome in stored.items():
        assert outcome.name == name and (ROOT / "analyses" / f"{evidence.analysis_of(outcome)}.py").is_file()
        for claim in outcome.claims:
            assert id(claim) in answered or claim.claim.startswith(ours), f"{name}: {claim.claim}"


#: What each paper numbers, so that nothing is left out of its list.
NUMBERED = {
    "structures": {"": range(1, 29), "Figure": range(1, 2), "Table": range(1, 2)},
    "nonlinearity": {"Figure": range(1, 11)},
    "aot": {"Figure": range(1, 8), "Table": range(1, 6), "Eq": range(1, 36)},
    "in-context-denoising": {"Figure": range(1, 9), "Proposition": range(1, 7), "Eq": range(1, 18), "A": range(1, 20)},
}


@pytest.mark.parametrize("name", PAPERS)
def test_every_numbered_item_of_a_paper_is_listed(name: str) -> None:
    listed = ", ".join(item.id for item in load_paper(name).items)
    for kind, numbers in NUMBERED[name].items():
        found: set[int] = set()
        word = rf"{kind}[a-z]*\.? ?" if kind else r"(?:[A-Z][a-z]+ |, )"
        for match in re.finditer(rf"{word}(\d+)(?![.\d])(?: (to|and) (?:A\.)?(\d+)(?![.\d]))?", listed):
            first, last = int(match[1]), int(match[3] or match[1])
            found |= set(range(first, last + 1)) if match[2] == "to" else {first, last}
        assert set(numbers) <= found, f"{name}, {kind or 'numbered'}: {sorted(set(numbers) - found)}"


def test_every_difference_has_its_reason() -> None:
    stored = outcomes()
    papers = [(paper := load_paper(name), evidence_of(paper, stored)) for name in PAPERS]
    made = evidence.pages(stored)
    listed = made["evidence/index.md"].split("## What differs")[1]
    names = re.findall(r"^\| \*\[([\w-]+)\]\(\1\.md\)\*, (.+?) \|", listed, re.MULTILINE)
    assert names == [(paper.name, e.item.id) for paper, found in papers for e in found if e.verdict == "differs"]
    assert len(names) > 2
    for _, found in papers:
        for entry in found:
            assert entry.because.split("docs/")[0] in made["papers.md"], entry.item.id


def test_reasons_that_differ_in_a_number_are_one_with_a_range() -> None:
    answers = [
        Verdict(claim=f"claim {n}", paper="1", ours="2", because=because)
        for n, because in enumerate(["it grows 1.51 times", "of v2.0", "it grows 0.9 times", "it grows 1.50 times"])
    ]
    outcome = load("statements")
    item = Item(id="Eq. 1", says="something", claims=("statements:",))
    assert Evidence(item, tuple((outcome, each) for each in answers)).because == "it grows 0.9 to 1.51 times; of v2.0"


def test_pages_are_named_by_their_titles() -> None:
    for name, text in evidence.pages(outcomes()).items():
        for words, link in re.findall(r"\[([^]]+)\]\(\.\./(\w+\.md)\)", text):
            lines = (DOCS / link).read_text(encoding="utf-8").splitlines()
            title = next(line for line in lines if line.startswith("# "))
            assert title == f"# {words}" or (name == "evidence/index.md" and not words.startswith("docs/")), words


def test_an_item_without_an_answer_is_refused() -> None:
    with refused("Figure 1", "claims", "not_run"):
        Item(id="Figure 1", says="something")
    paper = load_paper("aot")
    with refused("no stored claim", "statements: Nothing"):
        evidence_of(replace(paper, items=(Item(id="x", says="y", claims=("statements: Nothing",)),)), outcomes())


def test_tables_of_the_page_of_images_are_what_was_stored() -> None:
    tables = [part for part in load("image_heads").parts if isinstance(part, tuple) and isinstance(part[0], list)]
    rows = {"".join(cells).replace(" ", "") for _, cells_of in tables for cells in cells_of}  # type: ignore[arg-type]
    text = (DOCS / "images.md").read_text(encoding="utf-8")
    printed = [part for part in parse(text[text.index("Ten images, and beneath") : text.index("## In the app")])
               if isinstance(part, tuple)]  # fmt: skip
    assert len(printed) == 3
    for _, cells_of in printed:
        for cells in cells_of:
            numbers = "".join(cell for cell in cells if not cell.startswith("`")).replace(" ", "")  # type: ignore[union-attr]
            assert any(row.endswith(numbers) for row in rows), cells


def close(new: Stated, old: Stated) -> bool:
    """Whether a run says what is stored, to rounding, or within the claim's own tolerance where it is drawn."""
    if isinstance(new, Claim) and isinstance(old, Claim):
        return math.isclose(new.measured, old.measured, rel_tol=1e-3, abs_tol=max(float(new.tolerance), 1e-9))
    assert isinstance(new, Finding) and isinstance(old, Finding)
    return all(math.isclose(a, b, rel_tol=0.01, abs_tol=1e-6) for a, b in zip(new.spread, old.spread, strict=True))


@pytest.mark.minutes
@pytest.mark.usefixtures("real_bundled_folder")
def test_statements_that_are_run_again_are_those_that_are_stored() -> None:
    run = [claim for of_paper in statements.claims(quick=True).values() for claim in of_paper]
    kept = load("statements").claims
    assert [re.sub(r"\d+", "", claim.claim) for claim in run] == [re.sub(r"\d+", "", claim.claim) for claim in kept]
    assert [claim.holds for claim in run] == [claim.holds for claim in kept]


@pytest.mark.minutes
@pytest.mark.parametrize("name", ["statements", "path_expansion", "superposition"])
@pytest.mark.usefixtures("real_bundled_folder")
def test_a_run_says_what_is_stored(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("analyses._outcomes.ROOT", tmp_path)
    monkeypatch.setattr("analyses._outcomes.Outcome.save", lambda self: _kept.append(self) or tmp_path / "x")
    _kept: list[object] = []
    importlib.import_module(f"analyses.{name}").main(["--store"])
    (made,) = _kept
    kept = load(name)
    assert [claim.claim for claim in made.claims] == [claim.claim for claim in kept.claims]  # type: ignore[attr-defined]
    for new, old in zip(made.claims, kept.claims, strict=True):  # type: ignore[attr-defined]
        assert new.holds == old.holds and close(new, old), (new, old)


@pytest.mark.minutes
@pytest.mark.usefixtures("real_bundled_folder")
def test_what_is_stored_of_the_distillations_is_what_the_bundled_ones_say() -> None:
    from analyses import head_distillation

    made = head_distillation.bundled()
    for new, old in zip(made.findings, load("head_distillation").claims, strict=True):
        assert new.claim == old.claim and close(new, old), (new, old)
