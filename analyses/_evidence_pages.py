"""The text of the evidence pages: an entry an item, the overview with what differs, and the papers' index.

`evidence.py` writes what is made here into docs/. Everything follows from the items of papers/*.toml (`_papers.py`) and
from the stored outcomes; page titles are those of docs/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from analyses._claims import Claim, Stated, Verdict, markdown
from analyses._outcomes import ROOT, Outcome
from analyses._papers import Evidence, Paper

_MADE = (
    "<!-- Made by `python -m analyses.evidence` from analyses/papers and analyses/outcomes; not written by hand. -->"
)
_VERDICTS = ("reproduced", "reproduced in part", "differs", "kept by tests", "not run")
#: The verdicts whose items the overview lists with their reasons, under these headings, the worst first.
_LISTED = {"differs": "What differs", "reproduced in part": "Reproduced in part", "not run": "Not run"}


def paper_page(paper: Paper, entries: list[Evidence]) -> str:
    """Return one paper: a table of contents with verdicts, then an entry an item."""
    contents = [(f"[{each.item.id}](#{each.item.anchor})", each.item.says, each.verdict) for each in entries]
    parts = [
        _MADE,
        f"# {paper.title}",
        f"*{paper.name}*: {_tally(entries)}. Ours beside theirs, item by item; numbers are as an analysis stored them "
        "(analyses/outcomes), a verdict is computed from them, and `python -m analyses.evidence --check` holds this "
        "page against both.",
        _table(("item", "what it says", "verdict"), contents),
    ]
    for each in entries:
        parts += entry(paper, each)
    return "\n\n".join(parts) + "\n"


def entry(paper: Paper, each: Evidence) -> Iterator[str]:
    """Yield an item: what it says, the verdict, theirs and ours, commands, functions and the page with the details."""
    item = each.item
    yield f"## {item.id}"
    yield item.says
    because = f": {_linked(each.because)}" if each.because else ""
    count = f" ({_held(each)})" if each.failed else ""
    yield f"**{each.verdict.capitalize()}**{count}{because}."
    if item.slip:
        yield f"*As printed:* {item.slip}"
    if item.note:
        yield f"*Note:* {item.note}"
    if each.answers:
        yield _claims([claim for _, claim in each.answers])
    rows = [f"Command: {', '.join(f'`{command}`' for command in each.commands)}"] if each.commands else []
    if item.functions:
        rows.append(f"Functions: {', '.join(f'`{name}`' for name in item.functions)}")
    rows.append(f"Details: {_linked(f'docs/{item.docs or paper.docs}')}")
    yield "\n".join(f"- {row}" for row in rows)


def _claims(claims: list[Stated]) -> str:
    """The table of an item's claims; without the column of tolerances where all are stated in words."""
    header = ["claim", "theirs", "counts as reproduced", "ours", "verdict"]
    rows = [_row(claim) for claim in claims]
    if not any(row[2] for row in rows):
        header, rows = header[:2] + header[3:], [row[:2] + row[3:] for row in rows]
    return _table(header, rows)


def _row(claim: Stated) -> list[str]:
    holds = "reproduced" if claim.holds else "**differs**"
    if isinstance(claim, Verdict):
        return [claim.claim, claim.paper, "", claim.ours, holds]
    expected, measured, tolerance, _, n = claim.cells
    if isinstance(claim, Claim):
        return [claim.claim, expected, f"± {tolerance}" if claim.tolerance else f"exactly {expected}", measured, holds]
    return [claim.claim, expected, tolerance, f"{measured} (n = {n})" if n != "1" else measured, holds]


def overview(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """Count each paper's items by verdict; list those that differ, hold in part or were not run, with why."""
    rows = []
    for paper, entries in papers:
        counts = Counter(each.verdict for each in entries)
        numbers = [
            f"[{counts[verdict]}](#{_LISTED[verdict].lower().replace(' ', '-')})"
            if verdict in _LISTED and counts[verdict]
            else counts[verdict]
            for verdict in _VERDICTS
        ]
        rows.append((f"[{paper.title}]({paper.name}.md) (*{paper.name}*)", *numbers))
    names = "\n".join(paper.name for paper, _ in papers)
    parts = [
        _MADE,
        "# Evidence",
        "One page a paper, an entry for each of its figures, tables, theorems and equations: theirs, ours, the "
        "verdict, and the command that makes our number again. *Reproduced*: every claim on it holds, by the tolerance "
        "that stands beside it. *In part*: some do, or something of the statement is left open; *differs*: none does. "
        "*Kept by tests*: an identity or a definition that the test suite holds.",
        _table(("paper", *_VERDICTS), rows),
        "From an equation or a figure to the function that computes it: [the papers' index](../papers.md). Theorems "
        "and counts that no figure shows: [statements](../statements.md).",
    ]
    for verdict, heading in _LISTED.items():
        reasons = [
            (f"*{paper.name}*, [{each.item.id}]({paper.name}.md#{each.item.anchor})", each.item.says, _reason(each))
            for paper, entries in papers
            for each in entries
            if each.verdict == verdict
        ]
        parts += [f"## {heading}", _table(("item", "what it says", "why"), reasons)] if reasons else []
    parts.append(f":::{{toctree}}\n:hidden:\n\n{names}\n../papers\n../statements\n:::")
    return "\n\n".join(parts) + "\n"


def index(papers: list[tuple[Paper, list[Evidence]]]) -> str:
    """Return every item of every paper: functions, analysis and verdict."""
    parts = [
        _MADE,
        "# The papers, item by item",
        "From each equation, definition, theorem, figure and table to the function that computes it, the analysis that "
        "measures it and the verdict, which leads to the numbers. Tokens are columns in the papers and rows here; "
        "`aotlens.conventions` has the translation.",
    ]
    for paper, entries in papers:
        rows = []
        for each in entries:
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
    """Return the module of `analyses` that its command runs."""
    match = re.search(r"analyses[. ](\w+)", outcome.command)
    if match is None:
        raise ValueError(f"{outcome.name}: its command runs no analysis: {outcome.command}.")
    return match[1]


def _reason(each: Evidence) -> str:
    """Say how many of its claims hold where some do not, and why."""
    return f"{_held(each)}: {_linked(each.because)}" if each.failed else _linked(each.because)


def _held(each: Evidence) -> str:
    return f"{len(each.answers) - each.failed} of {len(each.answers)} claims hold"


def _tally(entries: list[Evidence]) -> str:
    counts = Counter(each.verdict for each in entries)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


def _linked(text: str) -> str:
    """Write `docs/NAME.md` as a link with that page's title, from a page of docs/evidence."""
    return re.sub(r"docs/(\w+\.md)", lambda match: f"[{_title(match[1])}](../{match[1]})", text)


@cache
def _title(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _table(header: tuple[str, ...] | list[str], rows: list[tuple[object, ...]] | list[list[str]]) -> str:
    """A table with outer bars."""
    return "\n".join(f"| {line} |" for line in markdown(header, rows).splitlines())
