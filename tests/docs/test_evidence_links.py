"""The evidence pages of the built site: every function of the library in the papers' index leads to its description."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analyses._papers import PAPERS, load_paper


@pytest.mark.parametrize("name", PAPERS)
def test_every_function_of_a_paper_leads_to_the_reference(site: Path, name: str) -> None:
    for page in (site / "papers.html",):
        text = page.read_text(encoding="utf-8")
        functions = {function for item in load_paper(name).items for function in item.functions}
        for function in (each for each in functions if each.startswith("aotlens.")):
            code = re.escape(function.rsplit(".", 1)[-1])
            link = re.search(
                rf'href="([^"#]+)#([^"]+)"[^>]*><code[^>]*><span class="pre">[\w.]*\b{code}</span></code></a>', text
            )
            assert link is not None, f"{page.name}: {function}"
            assert f'id="{link[2]}"' in (page.parent / link[1]).resolve().read_text(encoding="utf-8"), function
