"""Atlases as if they were bundled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import aotlens
from aotlens.checkpoints import find_checkpoint
from aotlens.heads import AtlasRecord, atlas, save_atlas
from aotlens.heads.atlas_records import bundled_atlas_path
from app.pages.atlas.service_path import CHECKPOINT


def stored_atlases(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As if an atlas of the tiny checkpoint were bundled, beside that of the path's."""
    stored = bundled_atlas_path(CHECKPOINT)
    folder.mkdir()
    shutil.copy(stored, folder)
    patch.setattr("aotlens.heads.atlas_records.bundled_atlases_folder", lambda: folder)
    info, model = find_checkpoint("tiny-mhsa"), aotlens.load("tiny-mhsa", device="cpu")
    tokens = torch.randint(0, 300, (6, 24), generator=torch.Generator().manual_seed(0))
    made = atlas(model, tokens, hows=("position_mean",), n_ablated=4, cache=None)
    save_atlas(
        bundled_atlas_path("tiny-mhsa"),
        AtlasRecord(atlas=made, checkpoint="tiny-mhsa", weights_sha256=info.weights_sha256, corpus="", documents=(),
                    command=""),
    )  # fmt: skip
