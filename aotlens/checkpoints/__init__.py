"""The on-disk format of a trained model, and the catalog of those at hand.

    layout.py    which files a checkpoint has, and how all of them are replaced at once; CheckpointError
    header.py    names, shapes and dtypes in a safetensors file, without reading the weights; files within their limits
    info.py      CheckpointInfo: what config.json says
    card.py      card.md from a CheckpointInfo
    checks.py    what must agree between config.json and the weights
    writing.py   save_checkpoint
    reading.py   load_folder, verify
    snapshots.py weights at moments of a run, beside its checkpoint, as differences where that is smaller
    rounding.py  weights as whole numbers of steps
    catalog.py   bundled, home and other folders; load by name; text that none of several models was trained on
    external.py   models that others saved: loaded, or brought in as checkpoints
    runs.py      load_run: a run's snapshots as models, or those that others saved by step; compress_run rounds them
    archive.py   export to and import from .tar, .tar.gz, .zip or a folder

Listing needs no torch: only functions of checks.py, writing.py, reading.py and external.py import it, when called.
"""

from __future__ import annotations

from aotlens.checkpoints.archive import export_checkpoint, import_checkpoint
from aotlens.checkpoints.card import render_card
from aotlens.checkpoints.catalog import (
    bundled_folder,
    find_checkpoint,
    home_folder,
    is_external,
    list_checkpoints,
    load,
    shared_held_out_windows,
)
from aotlens.checkpoints.external import Imported, import_external, read_check, read_key_map
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import CheckpointError, user_folder
from aotlens.checkpoints.reading import load_folder, verify
from aotlens.checkpoints.runs import CompressedRun, Run, compress_run, load_run
from aotlens.checkpoints.writing import save_checkpoint
