"""Models that others saved: loaded as they are, or brought in as checkpoints of ours."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.checkpoints.info import CheckpointInfo
from aotlens.checkpoints.layout import CheckpointError, place
from aotlens.checkpoints.writing import save_checkpoint
from aotlens.conventions import listed
from aotlens.untrusted import read_regular, strict_json

if TYPE_CHECKING:
    import torch
    from torch import nn

    from aotlens.interop import Comparison, Opened
    from aotlens.interop.external.checking import Check
    from aotlens.models import ModelConfig
    from aotlens.models.text import TextTokenizer

#: The suffixes of the files in which others keep models.
EXTERNAL_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".pkl")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The outcome of an import."""

    info: CheckpointInfo
    format: str
    n_parameters: int
    comparison: Comparison
    """The logits beside those that were given, or those of the source's own code."""
    dropped: tuple[str, ...]
    """Tensors of the source that the model does not have."""
    absent: tuple[str, ...]
    """Tensors of the model that the source lacks: biases read as zero, gains as 1."""


def load_external(
    source: str | Path | nn.Module,
    device: str | torch.device = "auto",
    *,
    weights: str | None = None,
    config: ModelConfig | Mapping[str, Any] | None = None,
    key_map: Mapping[str, str | None] | None = None,
    check: Check | None = None,
) -> Any:
    """Return the model that `aotlens.load` describes, with a card that says where it is from, and how it was checked.

    Raises CheckpointError.
    """
    from aotlens.interop.external.checking import unchecked

    opened = _open(source, device, weights, config, key_map, check)
    if hasattr(opened.model, "card"):
        comparison = opened.comparison or unchecked("it was not compared when it was opened, as an import is")
        opened.model.card = _info(_name(source), source, opened, comparison)
    return opened.model


#: Bytes of the arrays of a check.
_CHECK_BYTES = 1_000_000_000


def read_check(path: Path) -> Check:
    """Return tokens (or images) and the source's logits of them, from an .npz file. Raises CheckpointError."""
    from aotlens.files import read_npz

    try:
        arrays = read_npz(path, ["logits"], _CHECK_BYTES, optional=["tokens", "images"])
        return next(arrays[name] for name in ("tokens", "images") if name in arrays), arrays["logits"]
    except (OSError, ValueError, StopIteration) as error:
        raise CheckpointError(
            f"{path}: expected an .npz file of arrays named tokens (or images) and logits, found: "
            f"{str(error).rstrip('.') or 'other names'}. numpy.savez(FILE, tokens=…, logits=…) writes one."
        ) from error


def read_key_map(path: Path) -> dict[str, str | None]:
    """Return a `key_map` from a JSON file: an object of text, or null to leave a tensor out. Raises CheckpointError."""
    try:
        value = strict_json(read_regular(path, kind="key map"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected JSON, found: {error}.") from error
    if not isinstance(value, dict) or not all(ours is None or isinstance(ours, str) for ours in value.values()):
        raise CheckpointError(f'{path}: expected {{"their name": "our name"}}, or null to leave a tensor out.')
    return value


def import_external(
    source: str | Path,
    *,
    name: str | None = None,
    into: str | Path | None = None,
    weights: str | None = None,
    config: ModelConfig | Mapping[str, Any] | None = None,
    key_map: Mapping[str, str | None] | None = None,
    tokenizer: TextTokenizer | None = None,
    check: Check | None = None,
) -> Imported:
    """Make the checkpoint ``into/name`` (the home folder, the source's name) of a model that somebody else saved.

    `tokenizer` takes the place of the one that the source has. Its logits are compared with those of `check`, or else
    with those of the source's own code, where that is installed; where neither is there, the card says UNCHECKED.

    Raises CheckpointError for a name that is taken, for what `aotlens.load` refuses, for logits that differ by more
    than 1e-4 of the largest, and for a model that comes as a bridge: nothing is written.
    """
    from aotlens.interop import compare_with_source
    from aotlens.models import AttentionOnlyTransformer

    folder = place(_name(source).split(".")[0] if name is None else name, into)
    if folder.exists():
        raise CheckpointError(f"{folder}: exists already. Give another name, or remove it first.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*UNCHECKED")  # its own sentence follows
        opened = _open(source, "cpu", weights, config, key_map, check)
    model = opened.model
    if not isinstance(model, AttentionOnlyTransformer):
        raise CheckpointError(
            f"{source}: a {opened.format} is read by aotlens.load only, for what takes a bridge; checkpoints hold "
            f"models of "
            "our family."
        )
    if tokenizer is not None:
        model.tokenizer = tokenizer
    comparison = opened.comparison or compare_with_source(opened)
    try:
        comparison.require_agreement(source)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    info = save_checkpoint(folder, model, _info(folder.name, source, opened, comparison))
    return Imported(
        info=info,
        format=opened.format,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        comparison=comparison,
        dropped=opened.dropped,
        absent=opened.absent,
    )


def _open(source: Any, device: Any, weights: Any, config: Any, key_map: Any, check: Any) -> Opened:
    from aotlens.interop import open_external

    try:
        return open_external(source, weights=weights, config=config, key_map=key_map, check=check, device=device)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _name(source: str | Path | nn.Module) -> str:
    """The last part of the source's name, or what kind of model it is."""
    if not isinstance(source, str | Path):
        return type(source).__name__
    name = str(source).removeprefix("hf:")
    return name.rsplit("/", 1)[-1] if str(source).startswith("hf:") else Path(name).resolve().name


def _info(name: str, source: Any, opened: Opened, comparison: Comparison) -> CheckpointInfo:
    where = str(source) if str(source).startswith("hf:") else _name(source)
    sentences = [f"Imported from {where} ({opened.format})."]
    if opened.absent:
        sentences.append(f"The source lacks {listed(opened.absent)}: biases are read as zero, gains as 1.")
    sentences.append(comparison.sentence)
    return CheckpointInfo(name=name, description=" ".join(sentences), model=opened.model.cfg.to_dict())
