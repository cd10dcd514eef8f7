"""The evidence pages: every item of the papers, theirs beside ours, with verdict, command and functions.

    python -m analyses.evidence [--check] [--docs docs]

Writes docs/evidence/NAME.md for each paper, docs/evidence/index.md and docs/papers.md (the index from each equation,
theorem and figure to the function, the analysis and the verdict) from analyses/papers/*.toml and analyses/outcomes, and
from the same outcomes the analyses' sections of the other pages and how many claims hold in analyses/README.md.
--check writes nothing and fails where a page is not what they say, and where a section of docs/ is not its outcome's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from analyses._evidence_pages import analysis_of, index, overview, paper_page
from analyses._outcomes import ROOT, Outcome
from analyses._papers import PAPERS, evidence, load_paper, outcomes
from aotlens.files import read_section, write_section


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
        if read_section(page, outcome.name) != outcome.text.strip()
    ]
    listed = _readme(docs).read_text(encoding="utf-8")
    if counted(listed, stored) != listed:
        faults.append("analyses/README.md: how many claims hold is not what analyses/outcomes says")
    return faults


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="where docs/ is")
    options.add_argument("--check", action="store_true", help="write nothing; say what does not follow")
    chosen = options.parse_args(argv)
    stored = outcomes()
    if chosen.check:
        faults = problems(chosen.docs, stored)
        print(*faults or ["Every page and section follows from what is stored."], sep="\n")
        return 1 if faults else 0
    for name, text in pages(stored).items():
        path = chosen.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    for page, outcome in sections(chosen.docs, stored):
        write_section(page, outcome.name, outcome.text)
    readme = _readme(chosen.docs)
    readme.write_text(counted(readme.read_text(encoding="utf-8"), stored), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
