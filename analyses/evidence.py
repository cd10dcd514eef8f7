"""The evidence pages: every item of the papers, theirs beside ours, with verdict, command and functions.

    python -m analyses.evidence [--check] [--docs docs]

Writes docs/evidence/NAME.md for each paper, docs/evidence/index.md and docs/papers.md (the index from each equation,
theorem and figure to the function, the analysis and the verdict) from analyses/papers/*.toml and analyses/outcomes, and
the analyses' sections of the other pages from the same outcomes.
--check writes nothing and fails where a page is not what they say, and where a section of docs/ is not its outcome's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from analyses._claims import Claim, Finding, Stated, Verdict, markdown
from analyses._docs import read_section, write_section
from analyses._outcomes import ROOT, Outcome
from analyses._papers import PAPERS, Evidence, Paper, evidence, load_paper, outcomes

_MADE = (
    "<!-- Made by `python -m analyses.evidence` from analyses/papers and analyses/outcomes; not written by hand. -->"
)
_VERDICTS = ("reproduced", "reproduced in part", "differs", "kept by tests", "not run")


def pages(stored: Mapping[str, Outcome]) -> dict[str, str]:
    """Every generated page, by its path under docs/."""
    papers = [(paper := load_paper(name), evidence(paper, stored)) for name in PAPERS]
    made = {f"evidence/{paper.name}.md": paper_page(paper, found) for paper, found in papers}
    return {**made, "evidence/index.md": overview(papers), "papers.md": index(papers)}


def paper_page(paper: Paper, found: list[Evidence]) -> str:
    """One paper: a table of contents with verdicts, then an entry an item."""
    contents = [(f"[{each.item.id}](#{each.item.anchor})", each.item.says, each.verdict) for each in found]
    parts = [
        _MADE,
        f"# {paper.title}",
        f"*{paper.name}*: {_tally(found)}. Ours beside theirs, item by item; numbers are as an analysis stored them "
        "(analyses/outcomes), a verdict is computed from them, and `python -m analyses.evidence --check` holds this "
        "page against both.",
        _table(("item", "what it says", "verdict"), contents),
    ]
    for each in found:
        parts += entry(paper, each)
    return "\n\n".join(parts) + "\n"


def entry(paper: Paper, each: Evidence) -> Iterator[str]:
    """An item: what it says, the verdict, theirs and ours, commands, functions and the page with the details."""
    item = each.item
    yield f"## {item.id}"
    yield item.says
    because = f": {each.because}" if each.because else ""
    count = f" ({len(each.answers) - each.failed} of {len(each.answers)} claims hold)" if each.failed else ""
    yield f"**{each.verdict.capitalize()}**{count}{because}."
    if item.slip:
        yield f"*As printed:* {item.slip}"
    if item.note:
        yield f"*Note:* {item.note}"
    if each.answers:
        yield _table(("claim", "theirs", "ours", "verdict"), [_row(claim) for _, claim in each.answers])
    taken = dict.fromkeys(outcome.page for outcome, _ in each.answers if outcome.taken_over)
    if taken:
        yield f"*Provenance:* made by the command below, and taken over with the digits that {', '.join(taken)} had."
    rows = [f"Command: {', '.join(f'`{command}`' for command in each.commands)}"] if each.commands else []
    if item.functions:
        rows.append(f"Functions: {', '.join(f'`{name}`' for name in item.functions)}")
    page = item.docs or paper.docs
    rows.append(f"Details: [docs/{page}](../{page})")
    yield "\n".join(f"- {row}" for row in rows)


def _row(claim: Stated) -> tuple[str, str, str, str]:
    holds = "reproduced" if claim.holds else "**differs**"
    if isinstance(claim, Verdict):
        return claim.claim, claim.paper, claim.ours, holds
    expected, measured, tolerance, _, n = claim.cells
    if isinstance(claim, Finding):
        several = f" (n = {n})" if n != "1" else ""
        return claim.claim, f"{expected}; counted as that: {tolerance}", f"{measured}{several}", holds
    assert isinstance(claim, Claim)
    return claim.claim, f"{expected} ± {tolerance}" if claim.tolerance else expected, measured, holds


def overview(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """How many items of each paper have which verdict."""
    rows = []
    for paper, found in papers:
        counts = Counter(each.verdict for each in found)
        rows.append((f"[{paper.name}]({paper.name}.md)", paper.title, *(counts[verdict] for verdict in _VERDICTS)))
    names = "\n".join(paper.name for paper, _ in papers)
    parts = [
        _MADE,
        "# Evidence",
        "One page a paper, an entry for each of its figures, tables, theorems and equations: theirs, ours, the "
        "verdict, and the command that makes our number again. *Reproduced*: every claim on it holds within the "
        "tolerance beside it. *In part*: some do; *differs*: none does; both say why. *Kept by tests*: an identity or "
        "a definition that the test suite holds. *Not run*: the reason is given.",
        _table(("paper", "title", *_VERDICTS), rows),
        "From an equation or a figure to the function that computes it: [the papers' index](../papers.md). Theorems "
        "and counts that no figure shows: [statements](../statements.md).",
        f":::{{toctree}}\n:hidden:\n\n{names}\n../papers\n../statements\n:::",
    ]
    return "\n\n".join(parts) + "\n"


def index(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """Every item of every paper: functions, analysis and verdict."""
    parts = [
        _MADE,
        "# The papers, item by item",
        "From each equation, definition, theorem, figure and table to the function that computes it, the analysis that "
        "measures it and the verdict, which leads to the numbers. Tokens are columns in the papers and rows here; "
        "`aotlens.conventions` has the translation.",
    ]
    for paper, found in papers:
        rows = []
        for each in found:
            names = dict.fromkeys(analysis_of(outcome) for outcome, _ in each.answers)
            rows.append(
                (
                    each.item.id,
                    each.item.says,
                    ", ".join(f"`{name}`" for name in each.item.functions),
                    ", ".join(f"`{name}`" for name in names) or ", ".join(f"`{name}`" for name in each.item.tests),
                    f"[{each.verdict}](evidence/{paper.name}.md#{each.item.anchor})",
                )
            )
        parts += [
            f"## {paper.title} (*{paper.name}*)",
            _table(("item", "what it says", "functions", "analysis", "verdict"), rows),
        ]
    return "\n\n".join(parts) + "\n"


def analysis_of(outcome: Outcome) -> str:
    """The module of `analyses` that its command runs."""
    match = re.search(r"analyses[. ](\w+)", outcome.command)
    if match is None:
        raise ValueError(f"{outcome.name}: its command runs no analysis: {outcome.command}.")
    return match[1]


def _tally(found: list[Evidence]) -> str:
    counts = Counter(each.verdict for each in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


def _table(header: tuple[str, ...], rows: list[tuple[object, ...]] | list[tuple[str, str, str, str]]) -> str:
    """A table with outer bars."""
    return "\n".join(f"| {line} |" for line in markdown(header, rows).splitlines())


def sections(docs: Path, stored: Mapping[str, Outcome]) -> Iterator[tuple[Path, Outcome]]:
    """The outcomes that have a section between marks, with the page that it is in."""
    for name, outcome in stored.items():
        page = docs / Path(outcome.page).name
        if f"<!-- {name} -->" in page.read_text(encoding="utf-8"):
            yield page, outcome


def problems(docs: Path, stored: Mapping[str, Outcome]) -> list[str]:
    """What of docs/ does not follow from what is stored, one line each."""
    found = [
        f"docs/{name}: not what `python -m analyses.evidence` writes"
        for name, text in pages(stored).items()
        if not (docs / name).exists() or (docs / name).read_text(encoding="utf-8") != text
    ]
    found += [
        f"{outcome.page}: the section {outcome.name} is not what analyses/outcomes/{outcome.name}.json says"
        for page, outcome in sections(docs, stored)
        if read_section(page, outcome.name) != outcome.text.strip()
    ]
    return found


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where docs/ is")
    options.add_argument("--check", action="store_true", help="write nothing; say what does not follow")
    chosen = options.parse_args(argv)
    stored = outcomes()
    if chosen.check:
        found = problems(chosen.docs, stored)
        print(*found or ["Every page and section follows from what is stored."], sep="\n")
        return 1 if found else 0
    for name, text in pages(stored).items():
        path = chosen.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    for page, outcome in sections(chosen.docs, stored):
        write_section(page, outcome.name, outcome.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
