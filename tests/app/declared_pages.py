"""What tests of declared pages share: an app of some checkpoints, a page's addresses, what its panels show and ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from app.core.settings import Settings
from app.factory import create_app
from app.shell.app import App
from tests.app.conftest import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page


@contextmanager
def alone(folders: pytest.TempPathFactory, *saves: Callable[[Path], Any], **settings: Any) -> Iterator[App]:
    """An app of the checkpoints that these functions save, without bundled ones and the user's own."""
    folder = folders.mktemp("checkpoints")
    for save in saves:
        save(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(folders.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield create_app(Settings(checkpoints=(folder,), device="cpu", **settings))


def addresses(page: Any, **usual: Any) -> Callable[..., str]:
    """Return the address of a choice on a page; `usual` are the fields that it has by default."""
    return lambda **state: page.address.format(page.address.state({**usual, **state}))


def shows(page: Page, service: Any, *views: Any, **state: Any) -> None:
    """Wait until the panels of some views have the captions of a choice."""
    params = service.values(state)
    for view in views:
        caption = view.caption(params, service.workshop.result(view, params))
        expect(page.locator(f"#{service.family.name}-{view.name}-caption")).to_have_text(caption)
    settled(page)


def asked(page: Page) -> list[str]:
    """What changed in each request for panels from now on."""
    requests: list[str] = []
    page.on("request", lambda each: requests.append(each.post_data or "") if "_dash-update" in each.url else None)
    return requests
