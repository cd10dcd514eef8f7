"""Atlases with where they come from: on disk, and those of the bundled checkpoints.

    aotlens.heads.stored_atlas("novels-2l-mhsa").atlas.to_frame()

The bundled ones were made by `aotlens atlas NAME --corpus SPEC --tokens 65536 --how position_mean --how fixed_pattern
--out FILE` on documents that were held out from the training. A file has the windows that were read, so that
`atlas(aotlens.load(NAME), record.atlas.examples.tokens)` measures the same again without the corpus. It is safetensors
with JSON in its header and a hash of both; never pickle. What the caller gave to the atlas (a distillation,
skip-trigrams) is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aotlens.files import read_record, write_record
from aotlens.heads.atlas import Atlas
from aotlens.heads.atlas_file import pack, unpack
from aotlens.results import Result

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo

SCHEMA_VERSION = 3
_ORIGIN = ("checkpoint", "weights_sha256", "corpus", "documents", "command")
_WHOLE = (
    "model", "about", "motifs", "random", "constancy", "mean_distance", "entropy", "examples", "copying",
    "copying_score", "missing",
)  # fmt: skip
_BY_NAME = ("composition", "composition_z", "ablations", "together")
_INTEGERS = (torch.int8, torch.int16, torch.int32)


@dataclass(frozen=True, kw_only=True, eq=False)
class AtlasRecord(Result):
    """An atlas and what it was made of."""

    atlas: Atlas
    checkpoint: str
    """Whose heads."""
    weights_sha256: str
    """Of that checkpoint's weights: another of the same name is not the one."""
    corpus: str
    """Which text was read, in words."""
    documents: tuple[str, ...]
    """Those of its documents that were held out from the model's training, which the windows are spread over; empty
    where the model's card names none."""
    command: str
    """What made it."""

    @property
    def headline(self) -> str:
        return self.atlas.headline

    def belongs_to(self, info: CheckpointInfo) -> bool:
        """Whether it is of this checkpoint, by its weights."""
        return self.weights_sha256 == info.weights_sha256


def save_atlas(path: str | Path, record: AtlasRecord) -> None:
    """Write a record to `path`, whole or not at all; numbers are rounded to float32.

    Raises `ValueError` for a path that holds something else, and `OSError` with the path for a full disk.
    """
    path = Path(path)
    if path.exists():
        load_atlas(path)  # never somebody else's file
    tensors: dict[str, Tensor] = {}
    atlas = record.atlas
    parts = {name: pack(name, getattr(atlas, name), tensors) for name in _WHOLE}
    for name in _BY_NAME:
        parts |= {f"{name}/{key}": pack(f"{name}/{key}", held, tensors) for key, held in getattr(atlas, name).items()}
    small = {name: _smaller(tensor) for name, tensor in tensors.items()}
    about = {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(record, name) for name in _ORIGIN},
        "documents": list(record.documents),
        "parts": parts,
        "types": {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()},
    }
    write_record(path, "atlas", small, about)


def load_atlas(path: str | Path) -> AtlasRecord:
    """What `save_atlas` wrote. Raises `ValueError` for a file that is missing, damaged or something else."""
    path = Path(path)
    tensors, about = read_record(path, "atlas", "an atlas of a model's heads", SCHEMA_VERSION, "make it")
    try:
        tensors = {name: tensor.to(getattr(torch, about["types"][name])) for name, tensor in tensors.items()}
        parts: Mapping[str, Any] = {name: unpack(name, plain, tensors) for name, plain in about["parts"].items()}
        fields = {name: parts[name] for name in _WHOLE}
        for name in _BY_NAME:
            prefix = f"{name}/"
            fields[name] = {key.removeprefix(prefix): held for key, held in parts.items() if key.startswith(prefix)}
        origin = {name: about[name] for name in _ORIGIN} | {"documents": tuple(about["documents"])}
        return AtlasRecord(atlas=Atlas(**fields), **origin)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected an atlas of a model's heads, found one without {error}.") from error


def bundled_atlases_folder() -> Path:
    """Those that come with aotlens."""
    return Path(__file__).parent / "bundled"


def bundled_atlas_path(checkpoint: str) -> Path:
    """Where the atlas of a bundled checkpoint stands, if there is one."""
    return bundled_atlases_folder() / f"{checkpoint}.safetensors"


def stored_atlas(checkpoint: str) -> AtlasRecord:
    """The bundled atlas of a bundled checkpoint. Raises `ValueError`, which names them, for one that has none."""
    path = bundled_atlas_path(checkpoint)
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.safetensors"))) or "none"
        raise ValueError(f"no atlas of {checkpoint!r} is bundled; there are: {known}. Make it: heads.atlas(…).")
    return load_atlas(path)


def _smaller(tensor: Tensor) -> Tensor:
    """The same numbers in the smallest type of integers that holds them; float64 as float32."""
    if tensor.dtype == torch.float64:
        return tensor.float()
    if tensor.dtype == torch.int64 and tensor.numel():
        low, high = int(tensor.min()), int(tensor.max())
        for kind in _INTEGERS:
            if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max:
                return tensor.to(kind)
    return tensor
