"""Reading a model back from its folder, bit for bit, or saying what is wrong. Reading runs no code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.checkpoints.checks import (
    COPY_AGAIN,
    COUNTS,
    check_finite,
    check_hash,
    check_header,
    check_runs,
    check_same_model,
    check_size,
    model_config,
)
from aotlens.checkpoints.header import opened, parse_header, read_part
from aotlens.checkpoints.info import CheckpointInfo, described, read_config
from aotlens.checkpoints.layout import CARD, CONFIG, TOKENIZER, WEIGHTS, CheckpointError, fingerprint, locate
from aotlens.checkpoints.snapshots import about_snapshot, read_snapshot, require_step, split_step

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aotlens.data import SymbolTokenizer, Tokenizer
    from aotlens.data.images import ImageProcessor
    from aotlens.models import AttentionOnlyTransformer, ModelConfig


def load_folder(folder: str | Path, device: str | torch.device = "auto") -> AttentionOnlyTransformer:
    """Return the model saved in `folder`: float32, in eval mode, without gradients, on `device`.

    `NAME@STEP` is the model at that step of the run that trained NAME, where it kept a snapshot.
    It carries `.tokenizer`, `.image_processor`, `.card` (a CheckpointInfo) and `.unigram_counts`. Raises
    CheckpointError for whatever is damaged, missing or unknown, and ValueError for a device that isn't there.
    """
    from aotlens.models import resolve_device

    resolved = resolve_device(device)
    folder, step = split_step(Path(folder))
    if step is not None:
        return _load_snapshot(folder, step).to(resolved)
    # A file replaced by a running training while we read looks damaged. Then the folder has changed: try
    # again.
    for _ in range(9):
        before = fingerprint(folder)
        try:
            return _load_once(folder).to(resolved)
        except CheckpointError:
            if fingerprint(folder) == before:
                raise
    return _load_once(folder).to(resolved)


def snapshot_info(info: CheckpointInfo, step: int) -> CheckpointInfo:
    """Return a run's snapshot's metadata, from its checkpoint's: figures of the finished model are not its own.

    Raises CheckpointError where there is no snapshot of that step.
    """
    assert info.path is not None
    tokens, sha256 = about_snapshot(info.path, step)
    return dataclasses.replace(
        info,
        name=f"{info.name}@{step}",
        path=info.path.with_name(f"{info.path.name}@{step}"),
        tokens_seen=tokens,
        seconds=0.0,
        metrics={},
        weights_dtype="float32",
        weights_sha256=sha256,
        card=f"# {info.name}@{step}\n\nThe weights after {step:,} updates, {tokens:,} {info.words.counted}, of the run "
        f"that trained {info.name}.\n",
    )


def _load_snapshot(checkpoint: Path, step: int) -> AttentionOnlyTransformer:
    require_step(checkpoint, step)
    model = load_folder(checkpoint, "cpu")
    card = snapshot_info(model.card, step)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict(dict(read_snapshot(checkpoint, step, shapes).tensors))
    model.card = card
    return model


def verify(folder: str | Path) -> list[str]:
    """Return everything wrong with the checkpoint in `folder`, as messages; [] for a good one. Reads it whole."""
    folder = Path(folder)
    problems = []
    try:
        card = load_folder(folder, device="cpu").card
        card.history()
        if not card.card:
            problems.append(f"{folder / CARD}: expected a card, found no such file. {COPY_AGAIN}")
    except CheckpointError as error:
        problems.append(str(error))
    return problems


def _load_once(folder: Path) -> AttentionOnlyTransformer:
    """Every file is opened once, and the weights are read when everything else has been found good."""
    stored = read_config(folder)
    weights = locate(folder, WEIGHTS)
    with opened(weights, folder) as (file, size):
        header, beginning = parse_header(weights, file, size)
        info = described(folder, stored, header)
        cfg = model_config(f"{locate(folder, CONFIG)}: model", info.model)
        tokenizer = _tokenizer(folder, info, cfg)
        processor = _image_processor(folder, info, cfg)
        model = _skeleton(cfg, folder)
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        check_header(weights, header, expected, cfg, info)
        check_size(weights, size)
        data = beginning + file.read(size - len(beginning))
    tensors = _tensors(weights, data, info.weights_sha256)
    check_same_model(weights, header, cfg)
    counts = tensors.pop(COUNTS, None)
    if counts is not None and bool((counts < 0).any()):
        raise CheckpointError(
            f"{weights}: {COUNTS}: expected counts of at least 0, found {int(counts.min())}. {COPY_AGAIN}"
        )
    check_finite(weights, tensors)
    # Every stored type fits into float32 exactly.
    wide = {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()}
    model.load_state_dict(wide, assign=True)
    model.requires_grad_(False)
    model.eval()
    check_runs(weights, model)
    model.tokenizer = tokenizer
    model.image_processor = processor
    model.unigram_counts = counts
    model.card = info
    return model


def _skeleton(cfg: ModelConfig, folder: Path) -> AttentionOnlyTransformer:
    """The model without memory for its weights: they are read straight into place, nothing is initialised."""
    import torch

    from aotlens.models import AttentionOnlyTransformer

    pattern = None
    try:
        if cfg.fixed_pattern == "given":
            pattern = torch.empty(cfg.n_layers, cfg.n_heads, cfg.n_ctx, cfg.n_ctx, device="meta")
        with torch.device("meta"):
            return AttentionOnlyTransformer(cfg, pattern=pattern)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"{folder / CONFIG}: model: expected a model that can be built, found: {error} {COPY_AGAIN}"
        ) from error


def _tokenizer(folder: Path, info: CheckpointInfo, cfg: ModelConfig) -> Tokenizer | SymbolTokenizer | None:
    from aotlens.data import tokenizer_from_json

    if info.tokenizer_sha256 is None:
        if info.start_token is not None:
            raise CheckpointError(
                f"{locate(folder, CONFIG)}: start_token: expected null without a tokenizer, found {info.start_token}."
            )
        return None
    path, data = locate(folder, TOKENIZER), read_part(folder, TOKENIZER)
    check_hash(path, data, info.tokenizer_sha256)
    try:
        tokenizer = tokenizer_from_json(data.decode())
        d_vocab = tokenizer.d_vocab
    except ValueError as error:
        raise CheckpointError(f"{path}: expected a tokenizer, found: {error}. {COPY_AGAIN}") from error
    if "start_token" not in info.lacks and tokenizer.eot_id != info.start_token:
        raise CheckpointError(
            f"{path}: expected texts to begin with token {info.start_token} (from {CONFIG}), found "
            f"{tokenizer.eot_id}. {COPY_AGAIN}"
        )
    if d_vocab != cfg.d_vocab:
        raise CheckpointError(
            f"{path}: expected as many tokens as the model's d_vocab={cfg.d_vocab}, found {d_vocab}: it is "
            "another "
            f"model's tokenizer. {COPY_AGAIN}"
        )
    return tokenizer


def _image_processor(folder: Path, info: CheckpointInfo, cfg: ModelConfig) -> ImageProcessor | None:
    from aotlens.data.images import ImageProcessor

    if info.image_processor is None:
        return None
    where = f"{folder / CONFIG}: image_processor"
    try:
        processor = ImageProcessor.from_dict(info.image_processor)
    except ValueError as error:
        raise CheckpointError(f"{where}: {error} {COPY_AGAIN}") from error
    if (cfg.read_in, len(processor.mean), len(processor.classes)) != ("patches", cfg.n_channels, cfg.d_out):
        raise CheckpointError(
            f"{where}: expected the {cfg.n_channels} channels and {cfg.d_out} classes of the model, found "
            f"{len(processor.mean)} and {len(processor.classes)}. {COPY_AGAIN}"
        )
    return processor


def _tensors(path: Path, data: bytes, sha256: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    check_hash(path, data, sha256)
    try:
        return load(data)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: expected whole weights, found: {error}. {COPY_AGAIN}") from error
