"""Writing a model to a folder.

    config.json        CheckpointInfo: schema version, model, recipe, corpus, seed, device, figures, hashes
    model.safetensors  the model's state dict, and `unigram_counts` int64 [d_vocab] of the training tokens
    tokenizer.json     the tokenizer, for models that read tokens
    metrics.jsonl      the training curve, one JSON object a line
    card.md            the same for people

The hashes in config.json bind the weights and the tokenizer to it, and the weights carry the model
configuration in their metadata, so nothing can be exchanged or damaged unnoticed. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.checkpoints.card import render_card
from aotlens.checkpoints.checks import COUNTS, STORED_DTYPES
from aotlens.checkpoints.info import SCHEMA_VERSION, CheckpointInfo, to_json
from aotlens.checkpoints.layout import (
    CARD,
    CONFIG,
    METRICS,
    OUR_KEYS,
    TOKENIZER,
    WEIGHTS,
    CheckpointError,
    is_checkpoint,
    replacing,
    write_file,
)
from aotlens.untrusted import read_regular, strict_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aotlens.models import AttentionOnlyTransformer


def save_checkpoint(
    folder: str | Path,
    model: AttentionOnlyTransformer,
    info: CheckpointInfo,
    *,
    history: Iterable[Mapping[str, Any]] = (),
    weights_dtype: torch.dtype | None = None,
) -> CheckpointInfo:
    """Write `model` to `folder`, replacing a checkpoint there at once or not at all (see `layout`).

    `info` needs its first group of fields; the rest is filled in. `history` becomes metrics.jsonl. Figures
    that are NaN or infinite are stored as null. `weights_dtype` is float32 (None), bfloat16 or float16.
    Returns what was written.

    Raises CheckpointError for weights that are not finite as stored, for a folder that holds something else,
    and for a full disk; what was there then stays whole.
    """
    from aotlens.models import require_ours  # imports torch, which reading a card need not wait for

    require_ours(model, "save_checkpoint", weights=False)  # they are checked as they are stored
    folder = Path(folder)
    _check_target(folder)
    dtype = _dtype_name(weights_dtype)
    tensors = _tensors(model, dtype)
    model_json = to_json(model.cfg.to_dict())
    weights = _serialise(tensors, model_json)
    tokenizer = _tokenizer_json(model)
    info = dataclasses.replace(
        info,
        schema_version=SCHEMA_VERSION,
        model=json.loads(model_json),
        metrics=_without_nan(info.metrics),
        weights_dtype=dtype,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        tokenizer_sha256=None if tokenizer is None else hashlib.sha256(tokenizer).hexdigest(),
        start_token=None if model.tokenizer is None else model.tokenizer.eot_id,
        image_processor=_image_processor(model),
        versions=_versions(),
        problem=None,
        note=None,
        path=folder,
        n_weights=sum(tensor.numel() for name, tensor in tensors.items() if name != COUNTS),
        has_counts=COUNTS in tensors,
    )
    info = dataclasses.replace(info, card=render_card(info))
    config = to_json(info.to_config(), indent=2) + "\n"
    lines = "".join(to_json(_without_nan(line)) + "\n" for line in history)
    with replacing(folder) as incoming:
        write_file(incoming / WEIGHTS, weights)
        if tokenizer is not None:
            write_file(incoming / TOKENIZER, tokenizer)
        write_file(incoming / METRICS, lines.encode())
        write_file(incoming / CARD, info.card.encode())
        write_file(incoming / CONFIG, config.encode())
    return info


def _check_target(folder: Path) -> None:
    """Refuse a folder with files of these names that are not a checkpoint of ours: they would be lost."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: expected a folder to save to, found a file. Choose another name.")
    config, weights = folder / CONFIG, folder / WEIGHTS
    external = None
    if config.exists():
        try:
            stored = strict_json(read_regular(config))
            ours = isinstance(stored, dict) and stored.keys() >= OUR_KEYS
        except (OSError, ValueError):
            ours = False
        external = None if ours else config
    elif weights.exists() and not is_checkpoint(folder):
        external = weights
    if external is not None:
        raise CheckpointError(
            f"{external}: expected an empty folder or an aotlens checkpoint to replace, found another "
            "program's "
            "file or a damaged checkpoint. Nothing was written; choose another folder, or move it away."
        )


def _dtype_name(dtype: torch.dtype | None) -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in STORED_DTYPES:
        raise CheckpointError(f"weights_dtype: expected one of {', '.join(STORED_DTYPES)}, got {name}.")
    return name


def _tensors(model: AttentionOnlyTransformer, dtype: str) -> dict[str, Tensor]:
    """The state dict on the CPU as it will be stored, checked to be finite, and the token counts."""
    import torch

    stored = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().to("cpu")
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, dtype))
            if not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(
                    f"{name}: expected finite weights as {dtype}, found NaN or infinity; nothing was saved. "
                    "Resume from the last checkpoint with a smaller learning rate, or store as float32."
                )
        # safetensors refuses tensors that share memory
        stored[name] = tensor.clone(memory_format=torch.contiguous_format)
    counts = model.unigram_counts
    if counts is not None:
        expected = (model.cfg.d_vocab,)
        if tuple(counts.shape) != expected or counts.is_floating_point() or bool((counts < 0).any()):
            raise CheckpointError(
                f"{COUNTS}: expected a whole number of at least 0 for each of {model.cfg.d_vocab} tokens, "
                "got "
                f"{list(counts.shape)} {counts.dtype}."
            )
        stored[COUNTS] = counts.detach().to("cpu", torch.int64).clone()
    return stored


def _serialise(tensors: dict[str, Tensor], model_json: str) -> bytes:
    from safetensors.torch import save

    return save(tensors, metadata={"model": model_json})


def _tokenizer_json(model: AttentionOnlyTransformer) -> bytes | None:
    from aotlens.data import SymbolTokenizer, Tokenizer

    tokenizer = model.tokenizer
    if tokenizer is None:
        return None
    if not isinstance(tokenizer, Tokenizer | SymbolTokenizer):
        raise CheckpointError(
            f"tokenizer: expected an aotlens.data.Tokenizer, a SymbolTokenizer or None, got "
            f"{type(tokenizer).__name__}. Convert it, for instance with Tokenizer.from_json."
        )
    if tokenizer.d_vocab != model.cfg.d_vocab:
        raise CheckpointError(
            f"tokenizer: expected as many tokens as the model's d_vocab={model.cfg.d_vocab}, got "
            f"{tokenizer.d_vocab}. Give the model the tokenizer that it was trained with."
        )
    return tokenizer.to_json().encode()


def _image_processor(model: AttentionOnlyTransformer) -> dict[str, Any] | None:
    from aotlens.data.images import ImageProcessor

    processor = model.image_processor
    if processor is None:
        return None
    cfg = model.cfg
    fits = isinstance(processor, ImageProcessor) and (
        (cfg.read_in, len(processor.mean), len(processor.classes)) == ("patches", cfg.n_channels, cfg.d_out)
    )
    if not fits:
        raise CheckpointError(
            "image_processor: expected an aotlens.data.images.ImageProcessor with the model's "
            f"{cfg.n_channels} channels and {cfg.d_out} classes, or None, got {processor!r}."
        )
    return processor.to_dict()


def _without_nan(values: Any) -> Any:
    """Put None in the place of figures that JSON can't hold: a lost figure must not cost the checkpoint."""
    if isinstance(values, Mapping):
        return {key: _without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_without_nan(value) for value in values]
    if getattr(values, "ndim", None) == 0 and hasattr(values, "item"):
        values = values.item()
    return None if isinstance(values, float) and not math.isfinite(values) else values


def _versions() -> dict[str, str]:
    from aotlens import __version__

    versions = {"aotlens": __version__, "python": platform.python_version()}
    for package in ("torch", "transformer-lens", "tokenizers", "safetensors", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
