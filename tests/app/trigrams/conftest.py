"""What the tests of the Skip-trigrams page share: small checkpoints, a folder of text, rows checked against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints import load as load_checkpoint
from aotlens.views.trigrams import CHECK
from app.core import Core
from app.core.links import Links
from app.core.settings import Settings
from app.factory import create_app
from app.pages import PAGES
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.service import Shown, Trigrams
from tests.app.conftest import TEXT, save_tiny, serve


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


def state(**changes: Any) -> TrigramsState:
    usual = {"checkpoint": "tiny-one", "head": (0, 1), "k": 40, "fold": "none", "least": 0, "tokens": 3000}
    return TrigramsState(**{**usual, **changes})


@pytest.fixture(scope="module")
def checked(more: Trigrams) -> Shown:
    """Rows that were checked against text, of tokens that are in it."""
    asked = state(source="captain", destination="·", within="all")
    more.workshop.told(lambda *_: None).result(CHECK, more.of_address(asked))
    return more.of_address(asked)


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
        app.services["trigrams"].jobs.stop()
