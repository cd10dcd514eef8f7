"""Atlases with their origin, and those of the bundled checkpoints.

    aotlens.heads.stored_atlas("novels-2l-mhsa").atlas.to_frame()

The bundled ones were made by `aotlens atlas NAME --corpus SPEC --tokens 65536 --how position_mean --how fixed_pattern
--out FILE` on documents that were held out from the training. A file has the windows that were read, so that
`atlas(aotlens.load(NAME), record.atlas.examples.tokens)` measures the same again without the corpus. What the caller
passed to the atlas (a distillation, skip-trigrams) is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from aotlens.heads.atlas import Atlas
from aotlens.results import OfCheckpoint, find_stored, stored

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class AtlasRecord(OfCheckpoint):
    """An atlas and its origin."""

    atlas: Atlas
    schema_version: ClassVar[int] = 5

    @property
    def headline(self) -> str:
        return self.atlas.headline


def stored_atlas(checkpoint: str, *, distillation: Any = None) -> AtlasRecord:
    """Return the bundled atlas of a bundled checkpoint; a `distillation` is shown next to the rest, as by `atlas`.

    Raises `ValueError` for a checkpoint that has none, with the names of those that do.
    """
    record: AtlasRecord = stored("atlas", checkpoint)
    return record if distillation is None else replace(record, atlas=replace(record.atlas, distillation=distillation))


def find_atlas(info: CheckpointInfo) -> AtlasRecord | None:
    """Return `aotlens.results.find_stored("atlas", info)`. The name goes with the next release."""
    record: AtlasRecord | None = find_stored("atlas", info)
    return record
