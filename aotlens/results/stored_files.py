"""Results that are stored for a checkpoint: in the package, by the checkpoint's name, for those that come with aotlens,
or next to the checkpoint's folder.

    aotlens.results.stored("atlas", "novels-2l-mhsa").atlas.to_frame()
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from aotlens.conventions import require_choice
from aotlens.files import without_folder
from aotlens.results.exports import storable
from aotlens.results.saved import load, save

_SUFFIX = ".safetensors"
_PACKAGE = Path(__file__).parents[1]


class StoredKind(NamedTuple):
    """The results of one kind: where they are stored, and what makes them."""

    type: str
    """Their class, a result that a package exports."""
    what: str
    """Their name in error messages."""
    maker: str
    """The call or command that makes one."""
    folder: str | Path | None = None
    """The folder in the package; None for results next to a checkpoint's folder, `FOLDER.KIND.safetensors`."""


#: The kinds of stored results. A new kind is a line here.
STORED_KINDS = {
    "atlas": StoredKind("AtlasRecord", "atlas", "heads.atlas(…)", "heads/bundled"),
    "audit": StoredKind("AuditRecord", "audit", "denoise.audit(…)", "denoise/bundled/audits"),
    "trigrams": StoredKind("StoredRows", "check of skip-trigrams", "trigrams.check_rows(…)", "trigrams/bundled"),
    "distillation": StoredKind("Record", "distillation", "distill.distill_heads(…)", "distill/bundled"),
    "denoiser": StoredKind("DenoiserTraining", "training", "denoise.train_layers(…)", "denoise/bundled"),
    "influence": StoredKind("Influence", "influence of training windows", "aotlens influence --again"),
    "influence-check": StoredKind("InfluenceCheck", "check of influences", "aotlens influence --again --check N"),
}


def stored_folder(kind: str) -> Path:
    """Return the folder of the results of a kind that come with aotlens."""
    return _PACKAGE / (STORED_KINDS[require_choice("kind", kind, STORED_KINDS)].folder or "")


def stored_path(kind: str, name: str | Path) -> Path:
    """Return the path of a stored result, which exists or not: of a checkpoint's name, or next to its folder."""
    if STORED_KINDS[require_choice("kind", kind, STORED_KINDS)].folder is None:
        return Path(name).with_name(f"{Path(name).name}.{kind}{_SUFFIX}")
    return stored_folder(kind) / f"{name}{_SUFFIX}"


def stored_names(kind: str) -> list[str]:
    """Return the names of the results of a kind that come with aotlens."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in stored_folder(kind).glob(f"*{_SUFFIX}"))


def belongs_to(result: Any, info: Any) -> bool:
    """Return whether a result comes from the weights of a `CheckpointInfo`, or, if it does not have their hash, from a
    checkpoint of its name."""
    if result.weights_sha256:
        return bool(result.weights_sha256 == info.weights_sha256)
    return getattr(result, "checkpoint", info.name) == info.name


def stored(kind: str, name: str | Path, info: Any = None) -> Any:
    """Return the stored result of a kind of `STORED_KINDS`: of a checkpoint's name, or next to a checkpoint's folder.

    Raises `ValueError` if none is stored, with the names that have one, for a file that cannot be read, and, with the
    checkpoint's `CheckpointInfo`, for a result that was computed from other weights.
    """
    path = stored_path(kind, name)
    about = STORED_KINDS[kind]
    if not path.exists():
        names = "" if about.folder is None else f"; there are: {', '.join(stored_names(kind)) or 'none'}"
        raise ValueError(f"no {about.what} of {str(name)!r} is stored{names}. Make it: {about.maker}.")
    result = _load(kind, path, path.stat().st_mtime_ns) if about.folder else _read(kind, path)
    if info is not None and not belongs_to(result, info):
        raise ValueError(
            f"{name}: the stored {about.what} belongs to weights that the checkpoint had before. Make it again: "
            f"{about.maker}."
        )
    return result


def find_stored(kind: str, info: Any) -> Any | None:
    """Return the stored result of the checkpoint of a `CheckpointInfo`; None if there is none of these weights.

    Raises `ValueError` for a file that cannot be read.
    """
    result = stored(kind, info.name) if stored_path(kind, info.name).exists() else None
    return result if result is not None and belongs_to(result, info) else None


def save_stored(kind: str, name: str | Path, result: Any) -> Path:
    """Store a result, and return the path. Raises what `Result.save` raises."""
    path = stored_path(kind, name)
    save(result, path, compact=STORED_KINDS[kind].folder is not None)
    return path


def _read(kind: str, path: Path) -> Any:
    try:
        return load(path, storable(STORED_KINDS[kind].type))
    except ValueError as error:
        raise ValueError(f"The {STORED_KINDS[kind].what} can't be read. {without_folder(error, path)}") from error


@lru_cache(maxsize=32)
def _load(kind: str, path: Path, stamp: int) -> Any:
    return _read(kind, path)
