"""Two tiny models, a distillation of each, a broken file, a corpus, and the app that serves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.settings import Settings
from app.factory import create_app
from app.shell.app import App
from app.shell.view_service import Views
from tests.app.conftest import TEXT, save_tiny, serve
from tests.stored_results import store_in

FAST = {"train_tokens": 2000, "held_out_tokens": 600, "batch_size": 128, "wide": 8, "neighbours": 200}


def distil(folder: Path, name: str, checkpoints: Path, hidden: list[int], *, costs: bool, light: bool = False) -> Path:
    """A file as the library writes it."""
    import torch

    from aotlens.checkpoints import find_checkpoint, load_folder
    from aotlens.distill import Record, compress, distill_heads, substitution_costs

    model, info = load_folder(checkpoints / name, "cpu"), find_checkpoint(checkpoints / name)
    ids = torch.tensor(model.tokenizer.encode(TEXT * 40))
    windows = torch.cat([torch.zeros(60, 1, dtype=torch.int64), ids[: 60 * 23].reshape(60, 23)], dim=1)
    found = distill_heads(model, (windows[:45], windows[45:]), hidden, seeds=2, evaluations=4, **FAST)
    cost = substitution_costs(model, found, windows[50:], width=4, n_random=2) if costs else None
    path = folder / f"{name}.safetensors"
    kept = compress(found, 4) if light else found
    record = Record(
        distillation=kept, checkpoint=name, weights_sha256=info.weights_sha256, corpus="a text", command="a test",
        costs=cost,
    )  # fmt: skip
    record.save(path)
    return path


@pytest.fixture(scope="module")
def distilled_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """One result with costs and FFNs of width 4 only, one whole without costs, one that is damaged."""
    models, folder = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("results")
    save_tiny(models, "tiny-mhsa")
    save_tiny(models, "tiny-mssa", n_layers=3, n_heads=2, attention="mssa")
    files = [
        distil(folder, "tiny-mhsa", models, [0, 4], costs=True, light=True),
        distil(folder, "tiny-mssa", models, [2, 4], costs=False),
        folder / "bad.safetensors",
    ]
    files[-1].write_bytes(files[0].read_bytes()[:-7])
    book = tmp_path_factory.mktemp("text") / "book.txt"
    book.write_text(TEXT * 40, encoding="utf-8")
    settings = Settings(
        checkpoints=(models,), device="cpu", corpora=(f"file:{book}",), first_checkpoint="tiny-mhsa",
        distillations=tuple(files),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        store_in("distillation", "/nonexistent", patch)
        app = create_app(settings)
        yield app
        app.services["distillation"].jobs.stop()


@pytest.fixture(scope="module")
def distilled(distilled_app: App) -> Views:
    """The page's service."""
    service: Views = distilled_app.services["distillation"]
    return service


@pytest.fixture(scope="module")
def address(distilled_app: App) -> Iterator[str]:
    with serve(distilled_app) as address:
        yield address
