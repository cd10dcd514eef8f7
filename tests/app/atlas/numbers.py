"""Atlases as if they were bundled, for the lines that give what the page shows (tests/app/test_python.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, find_checkpoint, save_checkpoint
from aotlens.heads import AtlasRecord, atlas
from aotlens.results import save_stored
from app.pages.atlas import PAGE
from tests.heads.hand_built import induction, repeated
from tests.stored_results import store_in

#: A circuit that was built by hand, under the name of a bundled checkpoint.
CHECKPOINT = "novels-2l-mhsa"
OF_CIRCUIT = PAGE.address.state({"checkpoint": CHECKPOINT})
STATE = PAGE.address.state(
    {"checkpoint": "tiny-mhsa", "where": "layer = 1", "head": [1, 0], "y": "entropy", "bin": "9"}
)


def save_path_checkpoint(checkpoints: Path) -> None:
    """A circuit of induction heads that was built by hand, under the name of a bundled checkpoint."""
    model = induction(12, 8.0, decoys=2).float()
    save_checkpoint(checkpoints / CHECKPOINT, model, CheckpointInfo(name=CHECKPOINT, description="Built by hand."))


def stored_atlases(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As if atlases of the tiny checkpoint and of the circuit's were bundled."""
    folder.mkdir()
    store_in("atlas", folder, patch)
    texts = {
        "tiny-mhsa": torch.randint(0, 300, (6, 24), generator=torch.Generator().manual_seed(0)),
        CHECKPOINT: repeated(12, 8)[0],
    }
    for name, tokens in texts.items():
        info, model = find_checkpoint(name), aotlens.load(name, device="cpu")
        made = atlas(model, tokens, hows=("position_mean",), n_ablated=4, cache=None)
        record = AtlasRecord(
            atlas=made, checkpoint=name, weights_sha256=info.weights_sha256, corpus="", documents=(), command=""
        )
        save_stored("atlas", name, record)
