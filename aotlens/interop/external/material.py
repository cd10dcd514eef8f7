"""The contents of a file or a folder before its format is detected: named tensors and the files next to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.interop.external.archive import read_pickled
from aotlens.untrusted import boundary, open_regular, read_regular, require_regular, strict_json

#: Names of weights in a folder, best first; each is looked for before the next.
WEIGHT_FILES = (
    "model.safetensors", "model.safetensors.index.json", "*.safetensors", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "pytorch_model-*.bin", "ckpt.pt", "*final.pth", "*.pth", "*.pt", "*.ckpt",
    "adapter_model.*",
)  # fmt: skip
#: Files that a trainer writes beside weights.
_NOT_WEIGHTS = re.compile(r"(optimizer|scheduler|scaler|rng_state|training_args).*")
_SHARD = re.compile(r"(.+-)([0-9]{5})-of-([0-9]{5})(\.(?:safetensors|bin))")
#: Parts of names that wrappers add (torch.compile, DDP, FSDP, Lightning Fabric), wherever they stand.
_WRAPPERS = {"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}


@dataclass(frozen=True, kw_only=True)
class Material:
    """Tensors by the names that the source gives them, still in its file where that can be mapped."""

    path: Path
    """The file of the weights."""
    tensors: dict[str, Tensor]
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configurations by where they stand: `config.json`, or a key of the file (`model_args`, `cfg`)."""
    full_names: dict[str, str] = field(default_factory=dict)
    """Names before `under`, by those after it."""

    @property
    def model_type(self) -> str:
        """The family that config.json names; empty without one."""
        kind = self.configs.get("config.json", {}).get("model_type")
        return kind if isinstance(kind, str) else ""

    @property
    def folder(self) -> Path:
        """The folder where a tokenizer may lie."""
        return self.path.parent

    def under(self, *names: str) -> Material | None:
        """Return the tensors by their names without the parts (`model.`) that precede each of `names`; another name
        loses those of the parts that it begins with (`model.lm_head`, beside `model.model.layers`). None where one of
        `names` is missing."""
        for name in self.tensors:
            prefix = name.removesuffix(names[0])
            if prefix[-1:] in ("", ".") and prefix != name and all(f"{prefix}{end}" in self.tensors for end in names):
                bare = partial(_without, prefix=prefix)
                full_names = {bare(full): full for full in self.tensors}
                return replace(self, tensors=_renamed(self.tensors, bare, self.path), full_names=full_names)
        return None

    def shape(self, name: str, n_dims: int) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises `ValueError` for other than `n_dims` dimensions."""
        shape = tuple(self.tensors[name].shape)
        if len(shape) != n_dims:
            raise ValueError(f"{self.path}: {name}: expected {n_dims} dimensions, found {list(shape)}.")
        return shape


def read_material(source: Path, weights: str | None = None) -> Material:
    """Return the tensors and the configurations in a file, or in a folder, of which `weights` may name the file.

    Nothing in a file is executed (`pickled`). Raises `ValueError` that says what was looked for, what was found, and
    what to do.
    """
    path = source if source.is_file() else _find_weights(source, weights)
    configs: dict[str, dict[str, Any]] = {}
    config = path.parent / "config.json"
    if config.is_file():
        configs["config.json"] = read_json(config)
    tensors: dict[str, Tensor] = {}
    for file in _files(path):
        if file.suffix == ".safetensors":
            tensors |= _safetensors(file)
        else:
            state, inside = read_pickled(file)
            tensors |= state
            configs |= inside
    return Material(path=path, tensors=_renamed(tensors, unwrapped, path), configs=configs)


def unwrapped(name: str) -> str:
    """Return a tensor's name without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _without(name: str, prefix: str) -> str:
    """Return a name without those parts of a prefix that it begins with."""
    for part in prefix.split(".")[:-1]:
        if not name.startswith(f"{part}."):
            break
        name = name.removeprefix(f"{part}.")
    return name


def _renamed(tensors: Mapping[str, Tensor], rename: Callable[[str], str], path: Path) -> dict[str, Tensor]:
    """Return tensors by new names. Raises `ValueError` for two of one name."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if (key := rename(name)) in renamed:
            raise ValueError(f"{path}: {key} is given twice, the second time as {name}.")
        renamed[key] = tensor
    return renamed


def of_module(module: nn.Module, options: dict[str, Any]) -> Material:
    """Return the tensors of a module in memory, and the options that it was made with. Raises `ValueError` for a model
    that is open already, and for meta tensors."""
    kind = type(module).__name__
    path = Path(f"<{kind}>", "state_dict()")  # no folder, so that nothing beside it is read
    if kind in ("AttentionOnlyTransformer", "TransformerBridge"):
        advice = "; aotlens.interop.from_transformer_lens makes a native bridge one of ours" * (kind[0] == "T")
        raise ValueError(f"{path}: it is open already{advice}.")
    tensors = _renamed(module.state_dict(), unwrapped, path)
    empty = [name for name, tensor in tensors.items() if tensor.is_meta or tensor.layout != torch.strided]
    if empty:
        raise ValueError(f"{path}: {empty[0]}: expected a tensor with numbers, found one that is sparse or on meta.")
    return Material(path=path, tensors=tensors, configs={"module": options} if options else {})


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object in a regular file, no larger than a checkpoint's config.json. Raises `ValueError` for
    others."""
    try:
        value = strict_json(read_regular(path, kind="config.json"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected JSON ({error}).") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}.")
    return value


def require_small(folder: Path) -> None:
    """Raise `ValueError` for settings, a vocabulary or a template that is no regular file, or larger than a
    tokenizer.json may be: `transformers` reads them whole."""
    for path in [*folder.iterdir(), *folder.glob("additional_chat_templates/*")]:
        if path.suffix in (".json", ".txt", ".jinja") and not path.is_dir():
            require_regular(path, "tokenizer.json")


def _find_weights(folder: Path, weights: str | None) -> Path:
    """Return the weights in a folder; those that lie higher come first, before a trainer's checkpoints below."""
    if weights is not None:
        if not (folder / weights).is_file():
            raise ValueError(f"{folder / weights}: not found.")
        return folder / weights
    paths = [path for path in folder.rglob("*") if path.is_file() and not _NOT_WEIGHTS.fullmatch(path.name)]
    for depth in sorted({len(path.parts) for path in paths}):
        for pattern in WEIGHT_FILES:
            candidates = sorted(path for path in paths if len(path.parts) == depth and path.match(pattern))
            models = {_SHARD.sub(r"\1\3\4", str(path)) for path in candidates}
            if len(models) == 1:
                return candidates[0]
            if models:
                names = ", ".join(str(path.relative_to(folder)) for path in candidates[:6])
                raise ValueError(f"{folder}: expected one {pattern}, found {names}; choose one with weights=….")
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:10]) or "nothing"
    raise ValueError(
        f"{folder}: looked for an aotlens checkpoint and for weights ({', '.join(WEIGHT_FILES)}); found {names}. Give "
        "the folder or the file that holds the weights."
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    with open_regular(path):  # the library opens it by its path, and would wait for a pipe
        pass
    with boundary(path, "whole weights", "Fetch it again."), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)


def _files(path: Path) -> list[Path]:
    """Return a model's files: the index's, all shards, or one. ValueError if one is missing."""
    names = {path.name}
    if path.suffix == ".json":
        where = read_json(path).get("weight_map")
        if not isinstance(where, dict) or not all(
            isinstance(file, str) and file == Path(file).name for file in where.values()
        ):
            raise ValueError(f"{path}: expected the weight_map of a sharded model, files of this folder by tensor.")
        names = set(where.values())
    elif shard := _SHARD.fullmatch(path.name):
        first, _, n_shards, last = shard.groups()
        names = {f"{first}{number:05}-of-{n_shards}{last}" for number in range(1, int(n_shards) + 1)}
    missing = sorted(name for name in names if not (path.parent / name).is_file())
    if missing:
        raise ValueError(f"{path}: of its {len(names)} files {', '.join(missing[:4])} not found here. Fetch the rest.")
    return [path.parent / name for name in sorted(names)]
