"""Tiny checkpoints, made here, and an app that serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.factory import create_app
from app.services import Services
from app.settings import Settings

TEXT = (
    "The captain bowed, and Mrs. Pendlebury smiled at the captain. She said that the captain of a ship must dance, "
    "and the captain danced.\n\tHow well he danced! "
)


def save_tiny(folder: Path, name: str, *, n_layers: int = 2, n_heads: int = 3, history: bool = True, **rest) -> None:
    """A checkpoint with random weights, a tokenizer of 300 tokens and a context of 48."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint
    from aotlens.data import Tokenizer
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    tokenizer = Tokenizer.train([TEXT * 3], 300)
    cfg = ModelConfig(
        n_layers=n_layers, d_model=24, n_heads=n_heads, d_head=8, d_vocab=300, n_ctx=48, **{"seed": 1, **rest}
    )
    rows = [{"step": step, "tokens": 64 * step, "loss": 5.0 - step, "induction": 0.1 * step} for step in range(4)]
    save_checkpoint(
        folder / name,
        AttentionOnlyTransformer(cfg, tokenizer),
        CheckpointInfo(
            name=name,
            description="Random weights, for tests.",
            metrics={"validation_loss": 4.25, "bigram_loss": 4.5},
            tokens_seen=192,
        ),
        history=rows if history else [],
    )


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three that load, one that is broken."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_tiny(folder, "tiny-mhsa")
    save_tiny(folder, "tiny-mssa", n_layers=3, n_heads=2, attention="mssa", history=False)
    save_tiny(folder, "tiny-fixed", n_layers=1, phi="fixed", fixed_pattern="random")
    save_tiny(folder, "broken")
    weights = folder / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    return folder


@pytest.fixture(scope="session")
def settings(checkpoints: Path) -> Settings:
    return Settings(checkpoints=(checkpoints,), device="cpu", max_characters=20_000)


@pytest.fixture(scope="session")
def services(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Without the user's own and the bundled checkpoints, so that tests see the same everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield Services.start(settings)


@pytest.fixture(scope="session")
def app(settings: Settings, services: Services):
    return create_app(settings, services)


@pytest.fixture(scope="session")
def address(app) -> Iterator[str]:
    """The app, served by waitress as for users, on a port of its own."""
    from waitress import create_server

    server = create_server(app.server, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()
    thread.join(timeout=5)
