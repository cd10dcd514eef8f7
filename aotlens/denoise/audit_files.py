"""Audits of trained models with what they were made on: on disk, and those of the bundled checkpoints.

    aotlens.denoise.stored_audit("novels-12l-mssa").audit.to_frame()

The bundled ones were made by `aotlens audit NAME --corpus SPEC --out FILE` on documents that were held out from the
training. Each file has the windows that were read, so that `audit(aotlens.load(NAME), record.tokens)` measures the same
again without the corpus. A file is safetensors with JSON in its header and a hash of both; never pickle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from jaxtyping import Int64
from torch import Tensor

from aotlens.denoise.audit import DenoisingAudit
from aotlens.files import without_folder
from aotlens.results import OfCheckpoint, load

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditRecord(OfCheckpoint):
    """An audit and what it was made on."""

    audit: DenoisingAudit
    tokens: Int64[Tensor, "window pos"]
    """The windows that were read."""
    seed: int
    """The seed of the rotations and random groups."""
    schema_version: ClassVar[int] = 3

    @property
    def headline(self) -> str:
        return f"{self.checkpoint}: {self.audit.headline}"


def bundled_audits_folder() -> Path:
    """Return the folder of the audits that come with aotlens."""
    return Path(__file__).parent / "bundled" / "audits"


def bundled_audit_path(checkpoint: str) -> Path:
    """Return the path that the audit of a bundled checkpoint has, if there is one."""
    return bundled_audits_folder() / f"{checkpoint}.safetensors"


def stored_audit(checkpoint: str) -> AuditRecord:
    """Return the bundled audit of a bundled checkpoint. Raises `ValueError` for a checkpoint that has none, and for a
    file that cannot be read."""
    path = bundled_audit_path(checkpoint)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.safetensors"))) or "none"
        raise ValueError(f"no audit of {checkpoint!r} is bundled; there are: {known}. Measure it: denoise.audit(…).")
    return _load(path, path.stat().st_mtime_ns)


def find_audit(info: CheckpointInfo) -> AuditRecord | None:
    """Return the bundled audit of a checkpoint; None if there is none, or if it belongs to other weights of that name.
    Raises `ValueError` for a file that cannot be read."""
    record = stored_audit(info.name) if bundled_audit_path(info.name).exists() else None
    return record if record is not None and record.belongs_to(info) else None


@lru_cache(maxsize=16)
def _load(path: Path, stamp: int) -> AuditRecord:
    try:
        record: AuditRecord = load(path, AuditRecord)
    except ValueError as error:
        raise ValueError(f"The audit can't be read. {without_folder(error, path)}") from error
    return record
