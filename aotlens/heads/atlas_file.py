"""The stages of an atlas on disk: a second one of the same model and text costs nothing, and a killed one goes on.

One safetensors file, rewritten whole after each stage: `STAGE/NAME.FIELD` are the arrays of its results, and everything
else of them is in the header. Its name is the hash of the weights, the configuration, the ids that are read, the motifs
and the settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.files import contents_hash, read_tensors, write_tensors
from aotlens.heads.ablation import Ablation
from aotlens.heads.attention_to import MotifScores
from aotlens.heads.constancy import PatternConstancy
from aotlens.heads.each_head import EachHead
from aotlens.heads.examples import HeadExamples

SCHEMA_VERSION = 3
_TYPES: dict[str, type] = {
    kind.__name__: kind for kind in (Ablation, EachHead, HeadExamples, MotifScores, PatternConstancy)
}
Stage = Mapping[str, Any]


def identity(model: Any, tokens: Int64[Tensor, "sequence pos"], settings: Mapping[str, Any]) -> str:
    """A hash of everything that an atlas depends on."""
    about = json.dumps([SCHEMA_VERSION, repr(model.cfg), dict(settings)], sort_keys=True, default=str)
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    weights = contents_hash(tensors, {"tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()})
    return hashlib.sha256(f"{about}{weights}".encode()).hexdigest()[:32]


class Stages:
    """The stages that are done. `path` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        self.about: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        tensors, metadata = read_tensors(path, "an atlas")
        about = metadata.get("atlas")
        if not isinstance(about, dict) or metadata.get("sha256") != contents_hash(tensors, about):
            raise ValueError(f"{path}: damaged, or no atlas. Delete it to make the atlas afresh.")
        self.tensors, self.about = tensors, about

    def get(self, name: str, make: Callable[[], Stage]) -> Stage:
        """The results of a stage, made now unless they are there."""
        if name not in self.about:
            plain: dict[str, Any] = {}
            for key, value in make().items():
                plain[key] = pack(f"{name}/{key}", value, self.tensors)
            self.about[name] = plain
            if self.path is not None:
                metadata = {"atlas": self.about, "sha256": contents_hash(self.tensors, self.about)}
                write_tensors(self.path, self.tensors, metadata)
        return {key: unpack(f"{name}/{key}", plain, self.tensors) for key, plain in self.about[name].items()}


def pack(name: str, value: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What of `value` goes into a file's header; its arrays are put among the `tensors`, as `NAME.FIELD`."""
    if type(value).__name__ in _TYPES:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        fields = {"": value}
    plain: dict[str, Any] = {"type": type(value).__name__, "fields": {}}
    for field, held in fields.items():
        if isinstance(held, np.ndarray):
            tensors[f"{name}.{field}"] = torch.from_numpy(np.ascontiguousarray(held))
        else:
            plain["fields"][field] = dict(held) if isinstance(held, Mapping) else held
    # As it is read again: tuples are lists in JSON.
    return json.loads(json.dumps(plain))


def unpack(name: str, plain: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The value of which `pack` gave `plain` and put arrays among the `tensors`."""
    fields = {field: _tuples(held) for field, held in plain["fields"].items()}
    prefix = f"{name}."
    for key, tensor in tensors.items():
        if key.startswith(prefix):
            fields[key.removeprefix(prefix)] = tensor.numpy()
    kind = _TYPES.get(plain["type"])
    return fields[""] if kind is None else kind(**fields)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


class Steps:
    """`progress` over stages that count for themselves."""

    def __init__(self, total: int, *, progress: Progress | None = None) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def within(self, size: int) -> Progress | None:
        """The progress of a stage that takes `size` of the whole."""
        if self.progress is None:
            return None
        report, before, total = self.progress, self.before, self.total
        return lambda done, of: report(before + size * done // max(of, 1), total)

    def done(self, size: int) -> None:
        self.before += size
        if self.progress is not None:
            self.progress(self.before, self.total)
