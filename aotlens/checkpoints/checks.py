"""Checks that config.json and model.safetensors agree, and the messages where they do not."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.checkpoints.header import Header
from aotlens.checkpoints.info import CheckpointInfo
from aotlens.checkpoints.layout import CONFIG, CheckpointError
from aotlens.conventions import listed
from aotlens.untrusted import check_plain, strict_json

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.models import AttentionOnlyTransformer, ModelConfig

#: The data types that weights may be stored as, and safetensors' names for them.
STORED_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

#: The tensor beside the weights: how often each token occurs in the training text.
COUNTS = "unigram_counts"

COPY_AGAIN = "Copy the checkpoint again from where it came from, or train it again."


def model_config(where: str, values: Any) -> ModelConfig:
    """Return the model that `values` describe, or a CheckpointError that starts with `where`."""
    from aotlens.models import ModelConfig

    if not isinstance(values, dict):
        raise CheckpointError(f"{where}: expected a JSON object, found {type(values).__name__}. {COPY_AGAIN}")
    try:
        return ModelConfig.from_dict({key: _tuples(value) for key, value in values.items()})
    except (ValueError, TypeError, AttributeError) as error:  # a value of the wrong type raises any of them
        raise CheckpointError(
            f"{where}: expected a model configuration of this version of aotlens, found: {error} Upgrade "
            f"aotlens if a newer one wrote it. {COPY_AGAIN}"
        ) from error


def check_header(
    path: Path,
    header: Header,
    expected: dict[str, tuple[int, ...]],
    cfg: ModelConfig,
    info: CheckpointInfo,
) -> None:
    """Check names, shapes and dtypes, before any weight is read; `expected` is the model's shapes by name."""
    if info.weights_dtype not in STORED_DTYPES:
        raise CheckpointError(
            f"{path.parent / CONFIG}: weights_dtype: expected one of {', '.join(STORED_DTYPES)}, found "
            f"{info.weights_dtype!r}. {COPY_AGAIN}"
        )
    dtype = STORED_DTYPES[info.weights_dtype]
    tensors = {name: entry for name, entry in header.tensors.items() if name != COUNTS}
    complaints = []
    if missing := sorted(set(expected) - set(tensors)):
        complaints.append(f"missing {listed(missing)}")
    if unexpected := sorted(set(tensors) - set(expected)):
        complaints.append(f"unexpected {listed(unexpected)}")
    for name in sorted(set(tensors) & set(expected)):
        shape = tensors[name].shape
        if shape != expected[name]:
            complaints.append(f"{name} of shape {list(shape)}, not {list(expected[name])}")
        elif tensors[name].dtype != dtype:
            complaints.append(f"{name} of dtype {tensors[name].dtype}, not {dtype}")
    counts = header.tensors.get(COUNTS)
    if counts is not None and (counts.dtype, counts.shape) != ("I64", (cfg.d_vocab,)):
        complaints.append(f"{COUNTS} {counts.dtype} {list(counts.shape)}, not I64 [{cfg.d_vocab}]")
    if complaints:
        raise CheckpointError(
            f"{path}: expected the weights of the model in {CONFIG}, found {listed(complaints, separator='; ')}. "
            f"{COPY_AGAIN}"
        )


def check_hash(path: Path, data: bytes, expected: str) -> None:
    """Check that the file is the one that config.json was written with."""
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != expected:
        raise CheckpointError(
            f"{path}: expected SHA-256 {expected} (from {CONFIG}), found {checksum}: the file was changed or "
            "damaged. "
            f"{COPY_AGAIN}"
        )


def check_same_model(path: Path, header: Header, cfg: ModelConfig) -> None:
    """Compare with the model that the weights were saved for: a changed step size or threshold fits the same shapes."""
    if "model" not in header.metadata:
        return
    try:
        values = strict_json(header.metadata["model"])
        check_plain(values, "model")
    except ValueError as error:
        raise CheckpointError(f"{path}: metadata: expected JSON, found: {error}. {COPY_AGAIN}") from error
    ours, saved = cfg.to_dict(), model_config(f"{path}: metadata", values).to_dict()
    changed = [f"{key}={ours[key]!r}, not {saved[key]!r}" for key in ours if not _same(ours[key], saved[key])]
    if changed:
        raise CheckpointError(
            f"{path.parent / CONFIG}: model: expected what the weights were saved with, found "
            f"{listed(changed, separator='; ')}. Undo the change. {COPY_AGAIN}"
        )


def check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    """Refuse NaN and infinity: they spread to every figure computed from them."""
    import torch

    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    broken = sorted(name for name, tensor in floats.items() if not bool(torch.isfinite(tensor).all()))
    if broken:
        raise CheckpointError(
            f"{path}: expected finite weights, found NaN or infinity in {listed(broken)}. {COPY_AGAIN}"
        )


def check_size(path: Path, size: int) -> None:
    """Check that the weights fit into this machine's memory, as they are stored and as float32."""
    import torch

    from aotlens.models.device import memory_bytes

    memory = memory_bytes(torch.device("cpu"))
    if memory is not None and size > memory / 3:
        raise CheckpointError(
            f"{path}: expected weights of at most a third of this machine's {memory / 1e9:.0f} GB of memory, found "
            f"{size / 1e9:.1f} GB. Open it on a larger one."
        )


def check_runs(path: Path, model: AttentionOnlyTransformer) -> None:
    """Check that a small forward pass gives numbers: finite weights and scales can still be so large that every output
    is NaN, or that a norm divides by infinity and every output is 0."""
    import torch

    infinite: list[str] = []

    def look(scale: Tensor, hook: Any) -> None:
        if not bool(torch.isfinite(scale).all()):
            infinite.append(hook.name)

    with torch.no_grad():
        outputs = model.run_with_hooks(
            _small_input(model.cfg), fwd_hooks=[(lambda name: name.endswith("hook_scale"), look)]
        )
    n_nan = int(torch.isnan(outputs).sum())
    if n_nan or infinite:
        problem = f"{n_nan} NaN among the {outputs.numel()} outputs" if n_nan else f"an infinite {infinite[0]}"
        raise CheckpointError(
            f"{path}: expected weights that give numbers, found {problem} of a small input: they, or a scale in "
            f"{CONFIG}, are too large. {COPY_AGAIN}"
        )


def _small_input(cfg: ModelConfig) -> Tensor:
    """One short input of the kind that the model reads: ids that are spread over the vocabulary, or alternating ±1."""
    import torch

    length = min(cfg.n_ctx - cfg.n_before, 8)
    if cfg.read_in == "tokens":
        assert cfg.d_vocab is not None
        return (torch.arange(length)[None] * max(1, cfg.d_vocab // 8)) % cfg.d_vocab
    shape: tuple[int, ...] = (1, length, cfg.d_in or cfg.d_model)
    if cfg.read_in == "patches":
        assert cfg.image_size is not None
        shape = (1, cfg.n_channels, cfg.image_size, cfg.image_size)
    flat = torch.arange(math.prod(shape)) % 2 * 2.0 - 1.0
    return flat.view(shape)


def _same(value: object, other: object) -> bool:
    """Return whether both are equal in value and kind of value: bias=1 or bias="no" is not bias=True."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _tuples(value: Any) -> Any:
    """Turn lists into tuples: JSON has lists where a configuration has tuples (the mask)."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
