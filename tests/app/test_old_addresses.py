"""Addresses that somebody has kept open what they named: taken on 2026-11-23, before pages were made of views."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from app.pages import PAGES

#: By address, the fields whose values are not the first ones.
KEPT: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("addresses.json").read_text("utf-8"))


@pytest.mark.parametrize("address", KEPT)
def test_a_kept_address_opens_what_it_named(address: str):
    path, _, search = address.partition("?")
    page = next(page for page in PAGES if path in (page.path, "/"))
    state, sentences = page.address.read(search)
    said = json.loads(json.dumps(dataclasses.asdict(state)))
    first = json.loads(json.dumps(dataclasses.asdict(page.address.parse(None))))
    assert ({name: value for name, value in said.items() if value != first[name]}, sentences) == (KEPT[address], [])


def test_every_page_has_some():
    paths = {address.partition("?")[0] for address in KEPT}
    assert paths >= {page.path for page in PAGES if page.in_navigation} and "/" in paths and len(KEPT) >= 60
