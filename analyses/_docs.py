"""What the analyses write into the pages of docs/: a section between two marks, made anew each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analyses._claims import Claim


def claims_table(claims: Sequence[Claim]) -> str:
    """Claim, expected, measured, tolerance, whether it holds and the seed, as Markdown."""
    lines = ["claim | expected | measured | tolerance | holds | seed", "--- | --- | --- | --- | --- | ---"]
    for c in claims:
        seed = "none" if c.seed is None else str(c.seed)
        text = c.claim.replace("|", "\\|")
        numbers = f"{_number(c.expected)} | {_number(c.measured)} | {c.tolerance:.2g}"
        lines.append(f"{text} | {numbers} | {'yes' if c.holds else 'NO'} | {seed}")
    return "\n".join(lines)


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def write_section(page: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->`. Raises `ValueError` where the page lacks the marks."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    whole = page.read_text(encoding="utf-8")
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise ValueError(f"{page}: expected the marks {begin} and {end} once each.")
    before, rest = whole.split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
