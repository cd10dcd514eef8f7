"""The stages of an atlas on disk: a second one of the same model and text costs nothing, and a killed one goes on.

One safetensors file, rewritten whole after each stage: `STAGE/NAME.FIELD` are the arrays of its results, and everything
else of them is in the header (`aotlens.results.saved`). Its name is the hash of the weights, the configuration, the ids
that are read, the motifs and the settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.files import contents_hash, read_metadata, read_tensors, write_tensors
from aotlens.results.saved import from_plain, to_plain
from aotlens.untrusted import boundary

#: Rises with the format, and with what is measured: files of an earlier one are left alone, and the atlas is made anew.
SCHEMA_VERSION = 8
Stage = Mapping[str, Any]


def identity(model: Any, tokens: Int64[Tensor, "sequence pos"], settings: Mapping[str, Any]) -> str:
    """Hash everything that an atlas depends on."""
    about = json.dumps([SCHEMA_VERSION, repr(model.cfg), dict(settings)], sort_keys=True, default=str)
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    weights = contents_hash(tensors, {"tokens": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()})
    return hashlib.sha256(f"{about}{weights}".encode()).hexdigest()[:32]


_REMEDY = "Delete it to make the atlas afresh."


class Stages:
    """The stages that are done. `path` None keeps them in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        self.about: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        metadata = read_metadata(path, "an atlas")
        about = metadata.get("atlas")
        if not isinstance(about, dict):
            raise ValueError(f"{path}: expected an atlas, found another file. {_REMEDY}")
        self.tensors, self.about = read_tensors(path, "an atlas", metadata.get("sha256"), about, _REMEDY), about

    def get(self, name: str, make: Callable[[], Stage]) -> Stage:
        """Return the results of a stage, made now unless they are there."""
        if name not in self.about:
            plain: dict[str, Any] = {}
            for key, value in make().items():
                plain[key] = to_plain(value, self.tensors, key=f"{name}/{key}")
            self.about[name] = plain
            if self.path is not None:
                metadata = {"atlas": self.about, "sha256": contents_hash(self.tensors, self.about)}
                write_tensors(self.path, self.tensors, metadata)
        with boundary(self.path or name, "an atlas", _REMEDY):
            return {key: from_plain(plain, self.tensors) for key, plain in self.about[name].items()}


class Steps:
    """`progress` over stages that count for themselves."""

    def __init__(self, total: int, *, progress: Progress | None = None) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def within(self, size: int) -> Progress | None:
        """Return the progress of a stage that takes `size` of the whole."""
        if self.progress is None:
            return None
        report, before, total = self.progress, self.before, self.total
        return lambda done, of: report(before + size * done // max(of, 1), total)

    def done(self, size: int) -> None:
        self.before += size
        if self.progress is not None:
            self.progress(self.before, self.total)
