"""Audits of trained models with what they were made on: on disk, and those of the bundled checkpoints.

    aotlens.denoise.stored_audit("novels-12l-mssa").audit.to_frame()

The bundled ones were made by `aotlens audit NAME --corpus SPEC --out FILE` on documents that were held out from the
training. Each file has the windows that were read, so that `audit(aotlens.load(NAME), record.tokens)` measures the same
again without the corpus. A file is safetensors with JSON in its header and a hash of both; never pickle.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Int64
from torch import Tensor

from aotlens.denoise.audit import DenoisingAudit
from aotlens.files import read_record, write_record
from aotlens.results import Result

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

#: 2: ratios stand beside turned writes, not turned subspaces.
SCHEMA_VERSION = 2
_MEASURED = ("snr", "null_snr", "turned_snr", "pca_snr", "pca_null_snr", "random_group_snr")
_ORIGIN = ("checkpoint", "weights_sha256", "corpus", "documents", "seed", "command")
_PLAIN = ("matrix", "groupings", "n_tokens", "predicted_rate")


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditRecord(Result):
    """An audit and what it was made on."""

    audit: DenoisingAudit
    checkpoint: str
    """Whose layers."""
    weights_sha256: str
    """Of that checkpoint's weights: another of the same name is not the one."""
    tokens: Int64[Tensor, "window pos"]
    """The windows that were read."""
    corpus: str
    """Which text they are from, in words."""
    documents: tuple[str, ...]
    """Those of its documents that were held out from the model's training, which the windows are spread over; empty
    where the model's card names none."""
    seed: int
    """Of the rotations and random groups."""
    command: str
    """What made it."""

    @property
    def headline(self) -> str:
        return f"{self.checkpoint}: {self.audit.headline}"

    def belongs_to(self, info: CheckpointInfo) -> bool:
        """Whether it is of this checkpoint, by its weights."""
        return self.weights_sha256 == info.weights_sha256


def save_audit(path: str | Path, record: AuditRecord) -> None:
    """Write a record to `path`, whole or not at all; SNRs are rounded to float32.

    Raises `ValueError` for a path that holds something else, and `OSError` with the path for a full disk.
    """
    path = Path(path)
    if path.exists():
        load_audit(path)  # never somebody else's file
    audit = record.audit
    tensors = {name: getattr(audit, name).float() for name in _MEASURED}
    tensors |= {"sizes": audit.sizes.int(), "tokens": record.tokens.int()}
    about = {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(record, name) for name in _ORIGIN},
        **{name: getattr(audit, name) for name in _PLAIN},
    }
    about |= {name: list(about[name]) for name in ("documents", "groupings")}
    write_record(path, "audit", tensors, about)


def load_audit(path: str | Path) -> AuditRecord:
    """What `save_audit` wrote. Raises `ValueError` for a file that is missing, damaged or something else."""
    path = Path(path)
    tensors, about = read_record(path, "audit", "an audit of a model", SCHEMA_VERSION, "make it")
    try:
        about |= {name: tuple(about[name]) for name in ("documents", "groupings")}
        measured: dict[str, Any] = {name: tensors[name].double() for name in _MEASURED}
        audit = DenoisingAudit(sizes=tensors["sizes"].long(), **measured, **{name: about[name] for name in _PLAIN})
        return AuditRecord(audit=audit, tokens=tensors["tokens"].long(), **{name: about[name] for name in _ORIGIN})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected an audit of a model, found one without {error}.") from error


def bundled_audits_folder() -> Path:
    """Those that come with aotlens."""
    return Path(__file__).parent / "bundled" / "audits"


def bundled_audit_path(checkpoint: str) -> Path:
    """Where the audit of a bundled checkpoint stands, if there is one."""
    return bundled_audits_folder() / f"{checkpoint}.safetensors"


def stored_audit(checkpoint: str) -> AuditRecord:
    """The bundled audit of a bundled checkpoint. Raises `ValueError`, which names them, for one that has none."""
    path = bundled_audit_path(checkpoint)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.safetensors"))) or "none"
        raise ValueError(f"no audit of {checkpoint!r} is bundled; there are: {known}. Measure it: denoise.audit(…).")
    return load_audit(path)
