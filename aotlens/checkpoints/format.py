"""Writing a model to a folder and reading it back, exactly.

    config.json        `CheckpointInfo`: schema version, model, recipe, corpus, seed, device, tokens, figures, hashes
    model.safetensors  the model's state dict, and `unigram_counts` int64 [d_vocab] of the training tokens
    tokenizer.json     the tokenizer, for models that read tokens
    metrics.jsonl      the training curve, one JSON object a line
    card.md            the same for people

The hashes in config.json bind the weights and the tokenizer to it, and the weights carry the model configuration in
their metadata, so nothing can be exchanged or damaged unnoticed. Nothing is pickled; reading runs no code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.checkpoints.card import render_card
from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.header import Header, read_header
from aotlens.checkpoints.info import SCHEMA_VERSION, CheckpointInfo, read_info, to_json
from aotlens.checkpoints.layout import (
    CARD,
    CONFIG,
    METRICS,
    TOKENIZER,
    WEIGHTS,
    fingerprint,
    is_checkpoint,
    locate,
    replacing,
    write_file,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aotlens.data.tokenizer import Tokenizer
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

#: Weights may be stored as any of these; safetensors' names for them.
_STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

_COUNTS = "unigram_counts"


def save_checkpoint(
    folder: str | Path,
    model: AttentionOnlyTransformer,
    info: CheckpointInfo,
    *,
    history: Iterable[Mapping[str, Any]] = (),
    weights_dtype: torch.dtype | None = None,
) -> CheckpointInfo:
    """Writes `model` to `folder`, replacing a checkpoint there at once or not at all (see `layout`).

    `info` needs its first group of fields; the rest is filled in. `history` becomes metrics.jsonl; figures that are
    NaN or infinite are stored as null. `weights_dtype` is float32 (None), bfloat16 or float16. Returns what was
    written. Raises CheckpointError for weights that are not finite (as stored), for a folder that holds something
    else, and for a full disk, and then leaves what was there whole.
    """
    folder = Path(folder)
    _check_target(folder)
    dtype = _stored_dtype(weights_dtype)
    tensors = _tensors(model, dtype)
    model_json = to_json(model.cfg.to_dict())
    weights = _serialise(tensors, model_json)
    tokenizer = None if model.tokenizer is None else model.tokenizer.to_json().encode()
    info = dataclasses.replace(
        info,
        schema_version=SCHEMA_VERSION,
        model=json.loads(model_json),
        metrics=_without_nan(info.metrics),
        weights_dtype=dtype,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        tokenizer_sha256=None if tokenizer is None else hashlib.sha256(tokenizer).hexdigest(),
        versions=_versions(),
        problem=None,
        note=None,
        path=folder,
        n_weights=sum(tensor.numel() for name, tensor in tensors.items() if name != _COUNTS),
    )
    info = dataclasses.replace(info, card=render_card(info))
    config = to_json(info.to_config(), indent=2) + "\n"
    lines = "".join(to_json(_without_nan(dict(line))) + "\n" for line in history)
    with replacing(folder) as incoming:
        write_file(incoming / WEIGHTS, weights)
        if tokenizer is not None:
            write_file(incoming / TOKENIZER, tokenizer)
        write_file(incoming / METRICS, lines.encode())
        write_file(incoming / CARD, info.card.encode())
        write_file(incoming / CONFIG, config.encode())
    return info


def load_folder(folder: str | Path, device: str | torch.device = "auto") -> AttentionOnlyTransformer:
    """The model saved in `folder`: float32, in eval mode, without gradients, on `device`.

    It carries `.tokenizer`, `.card` (a CheckpointInfo) and `.unigram_counts`. Raises CheckpointError for whatever
    is damaged, missing or unknown, and ValueError for a device that isn't there.
    """
    from aotlens.models import resolve_device

    resolved = resolve_device(device)
    folder = Path(folder)
    # A file that a running training replaces while we read looks damaged; then what we saw has changed: read again.
    for _ in range(4):
        before = fingerprint(folder)
        try:
            return _load_once(folder).to(resolved)
        except CheckpointError:
            if fingerprint(folder) == before:
                raise
    return _load_once(folder).to(resolved)


def verify(folder: str | Path) -> list[str]:
    """Everything wrong with the checkpoint in `folder`, as messages; [] for a good one. Reads it whole."""
    folder = Path(folder)
    problems = []
    try:
        load_folder(folder, device="cpu")
    except CheckpointError as error:
        problems.append(str(error))
    if is_checkpoint(folder) and not problems:
        try:
            read_info(folder).history()
        except CheckpointError as error:
            problems.append(str(error))
        if not locate(folder, CARD).is_file():
            problems.append(f"{folder / CARD}: expected a card, found no such file.")
    return problems


def _load_once(folder: Path) -> AttentionOnlyTransformer:
    info = read_info(folder)
    cfg = _model_config(locate(folder, CONFIG), info.model)
    tokenizer = _tokenizer(folder, info, cfg)
    weights = locate(folder, WEIGHTS)
    header = read_header(weights)
    model = _skeleton(cfg, folder, header)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _check_header(weights, header, expected, cfg, info)
    tensors = _read_tensors(weights, info.weights_sha256)
    _check_same_model(weights, header, cfg)
    counts = tensors.pop(_COUNTS, None)
    if counts is not None and bool((counts < 0).any()):
        raise CheckpointError(f"{weights}: {_COUNTS}: expected counts of at least 0, found {int(counts.min())}.")
    _check_finite(weights, tensors)
    widened = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    model.load_state_dict(widened, assign=True)
    model.requires_grad_(False)
    model.tokenizer = tokenizer
    model.unigram_counts = counts
    model.card = info
    return model.eval()


# Saving.


def _check_target(folder: Path) -> None:
    """Refuses a folder with files of these names that are not a checkpoint of ours: they would be lost."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: expected a folder to save to, found a file. Choose another name.")
    config, weights = folder / CONFIG, folder / WEIGHTS
    foreign = None
    if config.exists():
        try:
            stored = json.loads(config.read_bytes())
            ours = isinstance(stored, dict) and "schema_version" in stored and "weights_sha256" in stored
        except (OSError, ValueError, RecursionError):
            ours = False
        foreign = None if ours else config
    elif weights.exists() and not is_checkpoint(folder):
        foreign = weights
    if foreign is not None:
        raise CheckpointError(
            f"{foreign}: expected an empty folder or an aotlens checkpoint to replace, found another program's file "
            "(or a damaged checkpoint). Nothing was written; choose another folder, or move it away."
        )


def _stored_dtype(dtype: torch.dtype | None) -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in _STORED:
        raise CheckpointError(f"weights_dtype: expected one of {', '.join(_STORED)}, got {name}.")
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
        stored[name] = tensor.clone(memory_format=torch.contiguous_format)  # safetensors refuses shared memory
    counts = model.unigram_counts
    if counts is not None:
        if counts.shape != (model.cfg.d_vocab,):
            raise CheckpointError(
                f"{_COUNTS}: expected shape [{model.cfg.d_vocab}], one count a token, got {list(counts.shape)}."
            )
        stored[_COUNTS] = counts.detach().to("cpu", torch.int64).clone()
    return stored


def _serialise(tensors: dict[str, Tensor], model_json: str) -> bytes:
    from safetensors.torch import save

    return save(tensors, metadata={"model": model_json})


def _without_nan(values: Any) -> Any:
    """The same with None for figures that JSON can't hold: a lost figure must not cost the checkpoint."""
    if isinstance(values, Mapping):
        return {key: _without_nan(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_without_nan(value) for value in values]
    if getattr(values, "ndim", None) == 0 and hasattr(values, "item"):
        values = values.item()
    if isinstance(values, float) and (values != values or values in (float("inf"), float("-inf"))):
        return None
    return values


def _versions() -> dict[str, str]:
    from aotlens import __version__

    found = {"aotlens": __version__, "python": platform.python_version()}
    for package in ("torch", "transformer-lens", "tokenizers", "safetensors", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


# Loading.


def _model_config(path: Path, values: dict[str, Any]) -> ModelConfig:
    from aotlens.models import ModelConfig

    try:
        return ModelConfig.from_dict(values)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path}: model: expected a model configuration of this version of aotlens, found: {error} "
            "Upgrade aotlens if a newer one wrote it; otherwise copy the checkpoint again."
        ) from error


def _skeleton(cfg: ModelConfig, folder: Path, header: Header) -> AttentionOnlyTransformer:
    """The model without memory for its weights: they are read straight into place, nothing is initialised."""
    import torch

    from aotlens.models import AttentionOnlyTransformer

    if cfg.n_layers > len(header.tensors):  # a damaged number must not build a million layers
        raise CheckpointError(
            f"{folder / CONFIG}: model: expected at most one layer for each of the {len(header.tensors)} tensors in "
            f"{WEIGHTS}, found n_layers={cfg.n_layers}. Copy the checkpoint again from where it came from."
        )
    pattern = None
    try:
        if cfg.fixed_pattern == "given":
            pattern = torch.empty(cfg.n_layers, cfg.n_heads, cfg.n_ctx, cfg.n_ctx, device="meta")
        with torch.device("meta"):
            return AttentionOnlyTransformer(cfg, pattern=pattern)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{folder / CONFIG}: model: expected a model that can be built, found: {error}") from error


def _tokenizer(folder: Path, info: CheckpointInfo, cfg: ModelConfig) -> Tokenizer | None:
    from aotlens.data.tokenizer import Tokenizer

    if info.tokenizer_sha256 is None:
        return None
    path = locate(folder, TOKENIZER)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: expected the tokenizer, found: {error.strerror or error}.") from error
    _check_hash(path, hashlib.sha256(data).hexdigest(), info.tokenizer_sha256)
    try:
        tokenizer = Tokenizer.from_json(data.decode())
    except Exception as error:  # `tokenizers` raises bare Exception for what it can't parse
        raise CheckpointError(f"{path}: expected a tokenizer, found: {error}") from error
    if tokenizer.d_vocab != cfg.d_vocab:
        raise CheckpointError(
            f"{path}: expected as many tokens as the model's d_vocab={cfg.d_vocab}, found {tokenizer.d_vocab}. It is "
            "another model's tokenizer; copy the checkpoint again from where it came from."
        )
    return tokenizer


def _check_header(
    path: Path, header: Header, expected: dict[str, tuple[int, ...]], cfg: ModelConfig, info: CheckpointInfo
) -> None:
    """Names, shapes and dtypes, before any weight is read."""
    if info.weights_dtype not in _STORED:
        raise CheckpointError(
            f"{path.parent / CONFIG}: weights_dtype: expected one of {', '.join(_STORED)}, found {info.weights_dtype!r}."
        )
    found = {name: entry.shape for name, entry in header.tensors.items() if name != _COUNTS}
    complaints = []
    if missing := sorted(set(expected) - set(found)):
        complaints.append(f"missing {_listing(missing)}")
    if unexpected := sorted(set(found) - set(expected)):
        complaints.append(f"unexpected {_listing(unexpected)}")
    for name in sorted(set(found) & set(expected)):
        if found[name] != expected[name]:
            complaints.append(f"{name} of shape {list(found[name])} where {list(expected[name])} is expected")
        elif header.tensors[name].dtype != _STORED[info.weights_dtype]:
            complaints.append(f"{name} of dtype {header.tensors[name].dtype} where {info.weights_dtype} is expected")
    counts = header.tensors.get(_COUNTS)
    if counts is not None and (counts.dtype, counts.shape) != ("I64", (cfg.d_vocab,)):
        complaints.append(f"{_COUNTS} {counts.dtype} {list(counts.shape)} where I64 [{cfg.d_vocab}] is expected")
    if complaints:
        raise CheckpointError(
            f"{path}: expected the weights of the model in {CONFIG}, found {_listing(complaints, '; ')}. "
            "Copy the checkpoint again from where it came from."
        )


def _read_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        data = path.read_bytes()
        _check_hash(path, hashlib.sha256(data).hexdigest(), sha256)
        return load(data)
    except OSError as error:
        raise CheckpointError(f"{path}: the weights can't be read: {error.strerror or error}.") from error
    except SafetensorError as error:
        raise CheckpointError(f"{path}: expected a whole safetensors file, found: {error}.") from error


def _check_hash(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise CheckpointError(
            f"{path}: expected SHA-256 {expected} (from {CONFIG}), found {found}. The file was changed or damaged; copy "
            "the checkpoint again from where it came from."
        )


def _check_same_model(path: Path, header: Header, cfg: ModelConfig) -> None:
    """A changed step size or threshold fits the same shapes: compare with what the weights were saved with."""
    if "model" not in header.metadata:
        return
    try:
        saved = type(cfg).from_dict(json.loads(header.metadata["model"]))
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path}: metadata: expected a model configuration, found: {error}") from error
    ours, theirs = cfg.to_dict(), saved.to_dict()
    changed = [f"{key}={ours[key]!r} (saved with {theirs[key]!r})" for key in ours if ours[key] != theirs[key]]
    if changed:
        raise CheckpointError(
            f"{path.parent / CONFIG}: model: expected what the weights were saved with, found {_listing(changed)}. "
            "Undo the change, or copy the checkpoint again."
        )


def _check_finite(path: Path, tensors: dict[str, Tensor]) -> None:
    import torch

    broken = [name for name, t in tensors.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if broken:
        raise CheckpointError(f"{path}: expected finite weights, found NaN or infinity in {_listing(sorted(broken))}.")


def _listing(items: list[str], separator: str = ", ", most: int = 6) -> str:
    """The first few, and how many more."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(items[:most]) + more
