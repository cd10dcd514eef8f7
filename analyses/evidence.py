"""The evidence pages: what the papers claim and what was measured, with verdict, analysis and functions.

    python -m analyses.evidence [--check] [--docs docs]

Writes docs/evidence/NAME.md for each paper, docs/evidence/index.md and docs/papers.md (the index from each equation,
theorem and figure to the function, the analysis and the verdict) from analyses/papers/*.toml and analyses/outcomes, and
from the same outcomes the analyses' sections of the other pages and how many claims hold in analyses/README.md.
--check writes nothing and fails if a page or a section of docs/ differs from them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from analyses._claims import Claim, Stated, Verdict, markdown
from analyses._outcomes import ROOT, Outcome
from analyses._papers import PAPERS, Evidence, Paper, evidence, load_paper, outcomes
from aotlens.files import read_section, write_section

_MADE = (
    "<!-- Made by `python -m analyses.evidence` from analyses/papers and analyses/outcomes; not written by hand. -->"
)
_VERDICTS = ("reproduced", "reproduced in part", "differs", "kept by tests", "not run")


def paper_page(paper: Paper, entries: list[Evidence]) -> str:
    """Return the page of one paper: every claim on its items, then errors of the print and notes."""
    items: dict[int, list[str]] = {}
    claims = {id(claim): claim for entry in entries for _, claim in entry.answers}
    for entry in entries:
        for _, claim in entry.answers:
            items.setdefault(id(claim), []).append(entry.item.id)
    rows = _grouped([["; ".join(items[key]), *_row(claim)] for key, claim in claims.items()])
    parts = [
        _MADE,
        f"# {paper.title}",
        f"*{paper.name}*: {_tally(entries)}. What the paper states, what counts as reproduced, and what was measured. "
        "The verdict is computed from the stored numbers. Functions, analyses and reasons for differences: "
        f"[The papers, item by item](../papers.md). Details: [{_title(paper.docs)}](../{paper.docs}).",
        _table(("item", "claim", "theirs", "counts as reproduced", "ours", "verdict"), rows),
    ]
    for heading, field in (("As printed", "slip"), ("Notes", "note")):
        remarks = [
            f"- {entry.item.id}: {getattr(entry.item, field)}" for entry in entries if getattr(entry.item, field)
        ]
        parts += [f"## {heading}", "\n".join(remarks)] if remarks else []
    return "\n\n".join(parts) + "\n"


def _grouped(rows: list[list[str]]) -> list[list[str]]:
    """Join the rows of an item whose claims differ only in what precedes the colon, such as the checkpoint."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for item, claim, theirs, counts, ours, verdict in rows:
        _, colon, statement = claim.partition(": ")
        alike = (item, statement if colon and len(ours) < 300 else claim, theirs, counts)
        groups.setdefault(alike, []).append([claim, ours, verdict])
    joined = []
    for (item, statement, theirs, counts), members in groups.items():
        claims, measured, verdicts = zip(*members, strict=True)
        if len(members) == 1:
            joined.append([item, claims[0], theirs, counts, measured[0], verdicts[0]])
            continue
        ours = "; ".join(f"{claim.partition(': ')[0]}: {ours}" for claim, ours in zip(claims, measured, strict=True))
        held = verdicts.count("reproduced")
        verdict = "reproduced" if held == len(members) else f"**{held} of {len(members)} reproduced**"
        joined.append([item, statement, theirs, counts, ours, verdict])
    return joined


def _row(claim: Stated) -> list[str]:
    holds = "reproduced" if claim.holds else "**differs**"
    if isinstance(claim, Verdict):
        return [claim.claim, claim.paper, "", claim.ours, holds]
    expected, measured, tolerance, _, n = claim.cells
    if isinstance(claim, Claim):
        return [claim.claim, expected, f"± {tolerance}" if claim.tolerance else f"exactly {expected}", measured, holds]
    return [claim.claim, expected, tolerance, f"{measured} (n = {n})" if n != "1" else measured, holds]


def overview(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """Count each paper's items by verdict, and list those that differ with the reason."""
    rows = []
    for paper, entries in papers:
        counts = Counter(entry.verdict for entry in entries)
        rows.append((f"[{paper.title}]({paper.name}.md) (*{paper.name}*)", *(counts[verdict] for verdict in _VERDICTS)))
    differing = [
        (f"*[{paper.name}]({paper.name}.md)*, {entry.item.id}", entry.item.says, _reason(entry, "../"))
        for paper, entries in papers
        for entry in entries
        if entry.verdict == "differs"
    ]
    names = "\n".join(paper.name for paper, _ in papers)
    parts = [
        _MADE,
        "# Evidence",
        "Items are the figures, tables, theorems and equations of each paper; the paper's page has its number, ours "
        "and the verdict for every claim. *Reproduced*: every claim on the item is within its tolerance. *In part*: "
        "some are, or part of the statement was not tested; *differs*: none is. *Kept by tests*: an identity or a "
        "definition that the test suite checks.",
        _table(("paper", *_VERDICTS), rows),
        "Functions, and why an item was not reproduced or not run: [The papers, item by item](../papers.md).",
        "## What differs",
        _table(("item", "what it says", "why"), differing),
    ]
    parts.append(f":::{{toctree}}\n:hidden:\n\n{names}\n../papers\n../statements\n:::")
    return "\n\n".join(parts) + "\n"


def index(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """Return every item of every paper: functions, analysis or tests, and verdict."""
    parts = [
        _MADE,
        "# The papers, item by item",
        "The function that computes each equation, definition, theorem, figure or table, the analysis or test that "
        "checks it, and the verdict. Tokens are columns in the papers and rows here; `aotlens.conventions` has the "
        "translation.",
    ]
    for paper, entries in papers:
        rows = []
        for entry in entries:
            page = entry.item.docs or paper.docs
            names = dict.fromkeys(analysis_of(outcome) for outcome, _ in entry.answers)
            rows.append(
                (
                    entry.item.id,
                    entry.item.says,
                    ", ".join(f"`{name}`" for name in entry.item.functions),
                    ", ".join(f"[`{name}`]({page})" for name in names)
                    or ", ".join(f"`{name}`" for name in entry.item.tests),
                    f"{entry.verdict}: {_reason(entry)}" if entry.because else entry.verdict,
                )
            )
        parts += [
            f"## {paper.title} (*{paper.name}*)",
            f"The numbers: [{paper.name}](evidence/{paper.name}.md).",
            _table(("item", "what it says", "functions", "analysis or tests", "verdict"), rows),
        ]
    return "\n\n".join(parts) + "\n"


def analysis_of(outcome: Outcome) -> str:
    """Return the module of `analyses` that its command runs."""
    match = re.search(r"analyses[. ](\w+)", outcome.command)
    if match is None:
        raise ValueError(f"{outcome.name}: its command runs no analysis: {outcome.command}.")
    return match[1]


def _reason(entry: Evidence, folder: str = "") -> str:
    """Say why an item was not reproduced, and how many of its claims hold; with links to pages of docs/."""
    because = re.sub(r"docs/(\w+\.md)", lambda match: f"[{_title(match[1])}]({folder}{match[1]})", entry.because)
    return f"{_held(entry)}: {because}" if entry.failed else because


def _held(each: Evidence) -> str:
    return f"{len(each.answers) - each.failed} of {len(each.answers)} claims hold"


def _tally(entries: list[Evidence]) -> str:
    counts = Counter(entry.verdict for entry in entries)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


@cache
def _title(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _table(header: tuple[str, ...] | list[str], rows: list[tuple[object, ...]] | list[list[str]]) -> str:
    """A table with outer bars."""
    return "\n".join(f"| {line} |" for line in markdown(header, rows).splitlines())


def pages(stored: Mapping[str, Outcome]) -> dict[str, str]:
    """Return every generated page, by its path under docs/."""
    papers = [(paper := load_paper(name), evidence(paper, stored)) for name in PAPERS]
    of_papers = {f"evidence/{paper.name}.md": paper_page(paper, entries) for paper, entries in papers}
    return {**of_papers, "evidence/index.md": overview(papers), "papers.md": index(papers)}


def sections(docs: Path, stored: Mapping[str, Outcome]) -> Iterator[tuple[Path, Outcome]]:
    """Yield the outcomes that have a section between marks, with the page that it is in."""
    for name, outcome in stored.items():
        page = docs / Path(outcome.page).name
        if f"<!-- {name} -->" in page.read_text(encoding="utf-8"):
            yield page, outcome


def counted(text: str, stored: Mapping[str, Outcome]) -> str:
    """Return analyses/README.md with each row's verdict opening with how many claims of that analysis hold."""
    claims = {
        analysis: [claim for outcome in stored.values() if analysis_of(outcome) == analysis for claim in outcome.claims]
        for analysis in map(analysis_of, stored.values())
    }

    def row(match: re.Match[str]) -> str:
        of_analysis = claims.get(match["analysis"])
        if not of_analysis:
            return match[0]
        held = sum(claim.holds for claim in of_analysis)
        return f"{match['before']}{held} of {len(of_analysis)} claims hold: {match['words']}"

    # The verdict is a row's last cell.
    cells = r"^(?P<before>\| `(?P<analysis>\w+)` \|.*\| )(?:\d+ of \d+ claims hold: )?(?P<words>[^|]+\|)$"
    return re.sub(cells, row, text, flags=re.MULTILINE)


def _readme(docs: Path) -> Path:
    return docs.parent / "analyses" / "README.md"


def problems(docs: Path, stored: Mapping[str, Outcome]) -> list[str]:
    """List what does not follow from what is stored, of docs/ and of analyses/README.md beside it, one line each."""
    faults = [
        f"docs/{name}: not what `python -m analyses.evidence` writes"
        for name, text in pages(stored).items()
        if not (docs / name).exists() or (docs / name).read_text(encoding="utf-8") != text
    ]
    faults += [
        f"{outcome.page}: the section {outcome.name} is not what analyses/outcomes/{outcome.name}.json says"
        for page, outcome in sections(docs, stored)
        if read_section(page, outcome.name) != outcome.section.strip()
    ]
    listed = _readme(docs).read_text(encoding="utf-8")
    if counted(listed, stored) != listed:
        faults.append("analyses/README.md: how many claims hold is not what analyses/outcomes says")
    return faults


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where docs/ is")
    options.add_argument("--check", action="store_true", help="write nothing; say what does not follow")
    arguments = options.parse_args(argv)
    stored = outcomes()
    if arguments.check:
        faults = problems(arguments.docs, stored)
        print(*faults or ["Every page and section follows from what is stored."], sep="\n")
        return 1 if faults else 0
    for name, text in pages(stored).items():
        path = arguments.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    for page, outcome in sections(arguments.docs, stored):
        write_section(page, outcome.name, outcome.section)
    readme = _readme(arguments.docs)
    readme.write_text(counted(readme.read_text(encoding="utf-8"), stored), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
