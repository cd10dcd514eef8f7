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
from pathlib import Path
from typing import Any, ClassVar

from aotlens.heads.atlas import Atlas
from aotlens.results import OfCheckpoint, load


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
    """Load the bundled atlas of a bundled checkpoint; a `distillation` is shown beside the rest, as by `atlas`.

    Raises `ValueError`, which names them, for a checkpoint that has none.
    """
    path = bundled_atlas_path(checkpoint)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.safetensors"))) or "none"
        raise ValueError(f"no atlas of {checkpoint!r} is bundled; there are: {known}. Make it: heads.atlas(…).")
    record: AtlasRecord = load(path, AtlasRecord)
    return record if distillation is None else replace(record, atlas=replace(record.atlas, distillation=distillation))
