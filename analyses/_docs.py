"""What the analyses write into the pages of docs/: a section between two marks, made anew each time."""

from __future__ import annotations

from pathlib import Path


def write_section(page: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->`. Raises `ValueError` where the page lacks the marks."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    whole = page.read_text(encoding="utf-8")
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise ValueError(f"{page}: expected the marks {begin} and {end} once each.")
    before, rest = whole.split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
