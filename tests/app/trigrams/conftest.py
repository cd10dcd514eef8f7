"""What the tests of the Skip-trigrams page share: small checkpoints, a folder of text, a table held against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints import load as load_checkpoint
from app.core import Core
from app.core.links import Links
from app.core.settings import Settings
from app.factory import create_app
from app.pages import PAGES
from app.pages.trigrams.service import Choice, Reading, Trigrams
from tests.app.conftest import TEXT, save_tiny, serve, wait

READING = Reading(text="books", tokens=3000)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("somewhere") / "books"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(TEXT * 12, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory, checkpoints: Path, books: Path) -> Iterator[Trigrams]:
    folder = tmp_path_factory.mktemp("trigrams")
    save_tiny(folder, "tiny-one", n_layers=1, norm=None, positions="qk")
    save_tiny(folder, "tiny-nowhere", n_layers=1, norm=None, positions=None)
    counted = load_checkpoint(folder / "tiny-one", "cpu")
    counted.unigram_counts = torch.arange(1, 301)
    save_checkpoint(folder / "tiny-counted", counted, CheckpointInfo(name="tiny-counted"), history=[])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        corpora = (f"dir:{books}", f"file:{books / 'one.txt'}")
        core = Core.start(Settings(checkpoints=(checkpoints, folder), device="cpu", corpora=corpora))
        yield Trigrams(replace(core, links=Links(page.address for page in PAGES)))


def choice(**changes: Any) -> Choice:
    usual = {"checkpoint": "tiny-one", "layer": 0, "head": 1, "score": "effect", "end": "top", "distance": None}
    return Choice(**{**usual, "k": 40, **changes})


@pytest.fixture(scope="module")
def checked(more: Trigrams) -> Choice:
    """A table that has been held against text."""
    wanted = choice(source="captain", destination="·")  # tokens that are in the text
    assert wait(more.search(wanted)).state == "done"
    job = wait(more.check(wanted, READING))
    assert job.state == "done", job.error
    return wanted


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Trigrams]]:
    """An app with a corpus, and models of one layer and of two."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder, "tiny-one", n_layers=1, norm=None, positions="qk")
    save_tiny(folder, "tiny-two")
    save_tiny(folder, "tiny-deep", n_layers=12, n_heads=2, norm=None)
    save_tiny(folder, "tiny-fixed", n_layers=1, phi="fixed", fixed_pattern="random")
    book = tmp_path_factory.mktemp("text") / "book.txt"
    book.write_text(TEXT * 30, encoding="utf-8")
    settings = Settings(
        checkpoints=(folder,), device="cpu", corpora=(f"file:{book}",), first_checkpoint="tiny-one",
        evidence_tokens=(3000, 100_000),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        app = create_app(settings)
        with serve(app) as address:
            yield address, app.services["trigrams"]
        app.services["trigrams"].checks.stop()
