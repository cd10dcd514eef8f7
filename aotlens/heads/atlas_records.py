"""Atlases with where they come from: on disk, and those of the bundled checkpoints.

    aotlens.heads.stored_atlas("novels-2l-mhsa").atlas.to_frame()

The bundled ones were made by `aotlens atlas NAME --corpus SPEC --tokens 65536 --how position_mean --how fixed_pattern
--out FILE` on documents that were held out from the training. A file has the windows that were read, so that
`atlas(aotlens.load(NAME), record.atlas.examples.tokens)` measures the same again without the corpus. It is safetensors
with JSON in its header and a hash of both; never pickle. What the caller gave to the atlas (a distillation,
skip-trigrams) is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from aotlens.files import without_folder
from aotlens.heads.atlas import Atlas
from aotlens.results import OfCheckpoint, load

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class AtlasRecord(OfCheckpoint):
    """An atlas and what it was made of."""

    atlas: Atlas
    schema_version: ClassVar[int] = 5

    @property
    def headline(self) -> str:
        return self.atlas.headline


def bundled_atlases_folder() -> Path:
    """Return the folder of the atlases that come with aotlens."""
    return Path(__file__).parent / "bundled"


def bundled_atlas_path(checkpoint: str) -> Path:
    """Return the path that the atlas of a bundled checkpoint has, if there is one."""
    return bundled_atlases_folder() / f"{checkpoint}.safetensors"


def stored_atlas(checkpoint: str, *, distillation: Any = None) -> AtlasRecord:
    """Return the bundled atlas of a bundled checkpoint; a `distillation` is shown next to the rest, as by `atlas`.

    Raises `ValueError`, which names them, for a checkpoint that has none.
    """
    path = bundled_atlas_path(checkpoint)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.safetensors"))) or "none"
        raise ValueError(f"no atlas of {checkpoint!r} is bundled; there are: {known}. Make it: heads.atlas(…).")
    record = _load(path, path.stat().st_mtime_ns)
    return record if distillation is None else replace(record, atlas=replace(record.atlas, distillation=distillation))


def find_atlas(info: CheckpointInfo) -> AtlasRecord | None:
    """Return the bundled atlas of a checkpoint; None if there is none, or if it belongs to other weights of that name.
    Raises `ValueError` for a file that cannot be read."""
    record = stored_atlas(info.name) if bundled_atlas_path(info.name).exists() else None
    return record if record is not None and record.belongs_to(info) else None


@lru_cache(maxsize=16)
def _load(path: Path, stamp: int) -> AtlasRecord:
    try:
        record: AtlasRecord = load(path, AtlasRecord)
    except ValueError as error:
        raise ValueError(f"The atlas can't be read. {without_folder(error, path)}") from error
    return record
