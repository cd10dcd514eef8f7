"""The site needs no network: nothing that a page loads comes from elsewhere, and every link within it resolves."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ELSEWHERE = re.compile(r"(?:https?:)?//")
#: What a style loads: images, fonts, other styles.
IN_STYLES = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Parsed(HTMLParser):
    """What a page loads, where it links to, and what can be linked to on it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.loads += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]
        if "href" in values:
            loaded = tag in ("link", "image", "use") and values.get("rel") not in ("canonical", "next", "prev")
            (self.loads if loaded else self.links).append(values["href"])
        self.loads += [first or second for first, second in IN_STYLES.findall(values.get("style", ""))]


@pytest.fixture(scope="module")
def parsed(pages: list[Path]) -> dict[Path, Parsed]:
    return {page: Parsed(page) for page in pages}


def test_no_page_loads_anything_from_elsewhere(parsed: dict[Path, Parsed]) -> None:
    wrong = [f"{page.name}: {each}" for page, found in parsed.items() for each in found.loads if ELSEWHERE.match(each)]
    assert not wrong


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = list(site.rglob("*.css"))
    assert styles
    wrong = [
        f"{path.name}: {first or second}"
        for path in styles
        for first, second in IN_STYLES.findall(path.read_text(encoding="utf-8"))
        if ELSEWHERE.match(first or second)
    ]
    assert not wrong


def test_every_link_within_the_site_leads_somewhere(parsed: dict[Path, Parsed]) -> None:
    broken = []
    for page, found in parsed.items():
        for address in {*found.links, *found.loads}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            fragment = unquote(parts.fragment)
            known = parsed[target].ids if target in parsed else None
            if not target.is_file() or (fragment and known is not None and fragment not in known):
                broken.append(f"{page.name}: {address}")
    assert not broken
