"""`distill_heads`: every head, width and seed at once."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from aotlens.conventions import HeadLike, Progress
from aotlens.data import Corpus
from aotlens.data.windows import spread
from aotlens.distill.heads.held_out import Sums, held_out_sums, n_queries, nearest_neighbour_errors
from aotlens.distill.heads.result import Distillation, FFNWeights, attending
from aotlens.distill.heads.stream import Source, Texts, sides
from aotlens.distill.heads.training import (
    Settings,
    Training,
    load_training,
    restore,
    save_training,
    start_training,
    train,
)
from aotlens.heads.reader import HeadReader, Model
from aotlens.untrusted import boundary

Windows = Int[Tensor, "_windows _pos"]
_PATTERN_WINDOWS = 32


def distill_heads(
    model: Model,
    corpus: Corpus | tuple[Tensor, ...],
    hidden: int | Sequence[int] = 16,
    *,
    heads: HeadLike | Iterable[HeadLike] | None = None,
    target: str = "result",
    seeds: int = 3,
    held_out: Collection[str] | float | None = None,
    sequence_length: int | None = None,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Distillation:
    """Fit for each head an FFN of each width, reading only the token's own input, that reproduces what the head writes.

        ŷ = relu(x W_in + b_in) W_out + b_out        error = Σ‖y − ŷ‖² / Σ‖y − ȳ‖²

    x `[d_model]` is the attention layer's input at a position (after the norm, without positions that are added to
    queries and keys only), y `[d_model]` the head's result there (`target="z"`: its z `[d_head]`), ȳ the mean of y over
    training tokens. Errors are on held-out documents. Width 0 is the best linear map, in closed form. They are compared
    with the position's mean, and two estimates of what any function of x could reach: the mean over nearest neighbours,
    and an FFN of `wide` hidden units. No FFN does worse on validation text than the best map of rank `width`: that is
    an FFN of that width too, and taken where training has not got there.

    `corpus` is a `Corpus` (held-out documents: `held_out` as names or a fraction; None takes those that the model's
    card kept from its own training, or else a tenth, one at least), or token ids `[windows, pos]` as (train, held-out)
    or (train, validation, held-out). `sequence_length` is the model's context, at most 512, if not given. `options` are
    further fields of `Settings`: `train_tokens`, `held_out_tokens`, `wide`, `neighbours`, `buffer_bytes`, ...

    All FFNs train together on activations streamed from the model through a buffer of `buffer_bytes`, and each is the
    one that training it alone gives, up to rounding (errors to 1e-5). `checkpoint` names a file in which the run is
    kept after each piece of text; a run that was killed goes on from it to the same weights, and the file goes when the
    run has ended. `progress(tokens done, tokens)` is called as it goes; tokens that an FFN is judged by count, and
    those for which neighbours are looked for in a layer.

    Time: 6 · (d_model + d_head) · width operations a token, head and seed (novels-12l-mssa: 48 heads, widths 4, 16 and
    64, 3 seeds, 400,000 tokens: some 2 minutes on two cores).

    Raises `ValueError` for heads, widths or windows that do not exist or fit, for a corpus too short, and for a
    checkpoint file of another run. Source: *nonlinearity-in-attention*, Figure 2 and Remark 4.1 (a width of 16, on
    BERT); the paper names no data and no error measure, so both are this function's.
    """
    widths = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    settings = Settings(hidden=widths, target=target, seeds=seeds, **options)
    reader = HeadReader.of(model, "distillation")
    if reader.device.type not in ("cpu", "cuda"):
        raise ValueError(f"distillation runs on cpu and cuda (it sums in float64); this model is on {reader.device}.")
    source = Source(reader=reader, heads=reader.require_heads(heads))
    texts = _texts(reader, corpus, settings, held_out, sequence_length)
    attention = attending(reader, source.heads, texts.held_out[spread(len(texts.held_out), _PATTERN_WINDOWS)])
    total = _Counter(progress)
    identity = None if checkpoint is None else _identity(source, settings, texts)
    training = _start(source, settings, texts, checkpoint, identity, total)

    def after_piece(state: Training) -> None:
        if checkpoint is not None:
            save_training(Path(checkpoint), state, identity or {})
        total.at(state.tokens_done)

    train(training, after_piece)
    sums = held_out_sums(training, texts, total.add)
    neighbours = nearest_neighbour_errors(training, texts.held_out, total.add) if settings.neighbours else None
    result = _result(training, texts, sums, neighbours, attention)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return result


class _Counter:
    def __init__(self, progress: Progress | None) -> None:
        self.progress, self.done, self.total = progress, 0, 0

    def at(self, done: int) -> None:
        self.done = done
        if self.progress is not None:
            self.progress(self.done, self.total)

    def add(self, more: int) -> None:
        self.at(self.done + more)


def _texts(
    reader: HeadReader,
    corpus: Any,
    settings: Settings,
    held_out: Collection[str] | float | None,
    sequence_length: int | None,
) -> Texts:
    if isinstance(corpus, Corpus):
        training, judged, names = sides(reader, corpus, held_out, sequence_length)
        n_training = settings.train_tokens + settings.validation_tokens
        held_out_text = judged(settings.held_out_tokens)
        texts = _split(training(n_training).ids, held_out_text.ids, settings)
        return dataclasses.replace(texts, held_out_documents=names, document_of=held_out_text.documents)
    if held_out is not None or sequence_length is not None:
        raise ValueError("held_out and sequence_length are for a corpus; windows of ids say both themselves.")
    if not isinstance(corpus, tuple) or len(corpus) not in (2, 3):
        raise ValueError(
            "corpus: expected a Corpus (aotlens.data.open_corpus), or windows of ids as (train, held-out) or (train, "
            f"validation, held-out), got {type(corpus).__name__}."
        )
    names = ("train", "held-out") if len(corpus) == 2 else ("train", "validation", "held-out")
    checked = [reader.require_ids(windows, name, 2) for windows, name in zip(corpus, names, strict=True)]
    if len({windows.shape[1] for windows in checked}) != 1:
        raise ValueError(f"windows: expected one length, got {[list(windows.shape) for windows in checked]}.")
    if len(checked) == 2:
        return _split(checked[0], checked[1], settings)
    return Texts(train=checked[0], validation=checked[1], held_out=checked[2], held_out_documents=())


def _split(training: Tensor, judged: Tensor, settings: Settings) -> Texts:
    """Take validation windows evenly from the training documents; they are not trained on."""
    if len(training) < 2:
        raise ValueError("expected at least 2 training windows, one of them for validation, got 1; give more text.")
    wanted = max(1, min(settings.validation_tokens // training.shape[1], len(training) // 4))
    aside = torch.zeros(len(training), dtype=torch.bool)
    aside[spread(len(training), wanted)] = True
    return Texts(train=training[~aside], validation=training[aside], held_out=judged, held_out_documents=())


def held_out_windows(
    model: Model,
    corpus: Corpus,
    n_tokens: int = 16_384,
    *,
    held_out: Collection[str] | float | None = None,
    sequence_length: int | None = None,
) -> Windows:
    """Return windows `[windows, pos]` of the documents that `distill_heads` would judge by, spread evenly over them."""
    _, judged, _ = sides(HeadReader.of(model, "distillation"), corpus, held_out, sequence_length)
    return judged(n_tokens).ids


def _identity(source: Source, settings: Settings, texts: Texts) -> dict[str, Any]:
    """Return the properties that a resumed run must share with the one that was killed."""
    digest = hashlib.sha256()
    for windows in (texts.train, texts.validation):
        digest.update(windows.numpy().tobytes())
    weights = hashlib.sha256()
    model = source.reader.model
    for tensor in (*model.parameters(), *model.buffers()):  # a given pattern is a buffer
        weights.update(tensor.detach().double().cpu().numpy().tobytes())
    weights.update(repr(getattr(getattr(model, "cfg", None), "attn_mask", None)).encode())  # a mask is in the config
    return {
        "settings": {**dataclasses.asdict(settings), "hidden": list(settings.hidden)},
        "heads": [list(head) for head in source.heads],
        "text": digest.hexdigest(),
        "model": weights.hexdigest(),
    }


def _start(
    source: Source,
    settings: Settings,
    texts: Texts,
    checkpoint: str | Path | None,
    identity: dict[str, Any] | None,
    total: _Counter,
) -> Training:
    saved, counters = None, None
    if checkpoint is not None and identity is not None and Path(checkpoint).exists():
        saved, counters = load_training(Path(checkpoint), identity)
    training = start_training(source, settings, texts.train, texts.validation, saved)
    if saved is not None and counters is not None:
        with boundary(str(checkpoint), "the state of this distillation", "Delete it to start afresh."):
            restore(training, saved, counters)
    total.total = training.n_pieces * training.steps_per_piece * settings.batch_size + texts.held_out.numel()
    total.total += n_queries(training, texts.held_out) if settings.neighbours else 0
    total.at(training.tokens_done)
    return training


def _result(training: Training, texts: Texts, sums: Sums, neighbours: Any, attention: Any) -> Distillation:
    source, settings = training.source, training.settings
    n_heads, n_trained = len(source.heads), len(settings.trained)
    shape = (n_heads, settings.seeds)
    by_width = {
        width: (sums.by_class[i].unflatten(0, shape), sums.by_block[i].unflatten(0, shape))
        for i, width in enumerate(settings.trained)
    }
    if 0 in settings.hidden:
        linear = (sums.linear_by_class, sums.linear_by_block)
        by_width[0] = tuple(part[:, None].expand(-1, settings.seeds, -1) for part in linear)  # type: ignore[assignment]
    stacked = [torch.stack([by_width[width][part] for width in settings.hidden], 1) for part in (0, 1)]
    wide = None
    if settings.wide is not None:
        wide = _divide(sums.by_class[-1].sum(1), sums.mean_by_class.sum(1))
    return Distillation(
        model_name=getattr(getattr(source.reader.model, "card", None), "name", "") or "",
        heads=source.heads,
        settings=settings,
        train_tokens=training.tokens_done,
        distinct_tokens=int(training.moments.n),
        held_out_tokens=texts.held_out.numel(),
        held_out_documents=texts.held_out_documents,
        squared_error=stacked[0].numpy(),
        baseline=sums.mean_by_class.numpy(),
        class_counts=sums.counts.numpy(),
        block_error=stacked[1].numpy(),
        block_baseline=sums.mean_by_block.numpy(),
        blocks_are_documents=sums.blocks_are_documents,
        position_error=_divide(sums.position_by_class.sum(1), sums.mean_by_class.sum(1)),
        neighbour_error=None if neighbours is None else neighbours[0].numpy(),
        neighbour_k=None if neighbours is None else neighbours[1].numpy(),
        wide_error=wide,
        curve_tokens=np.array([e.tokens for e in training.curve], dtype=np.int64),
        curve_seconds=np.array([e.seconds for e in training.curve], dtype=np.float64),
        curve=_curve(training, n_heads, n_trained),
        stopped_at=_stopped(training, n_heads, n_trained),
        attending=attention,
        weights={width: _weights(training, width) for width in settings.hidden},
        mean_z=_to_z(training, training.moments.mean()[:, None])[:, 0].float().cpu(),
    )


def _divide(above: Tensor, below: Tensor) -> np.ndarray:
    """0 where a head writes the same always."""
    return torch.where(below > 0, above / torch.where(below > 0, below, 1.0), 0.0).numpy()


def _curve(training: Training, n_heads: int, n_trained: int) -> np.ndarray:
    """Return squared errors on validation text over what the training mean has there."""
    mean = training.moments.mean()
    baseline = (training.validation.t.double() - mean[:, :, None]).square().sum((1, 2)).cpu().numpy()
    shape = (n_heads, training.settings.seeds)
    curve = np.array(
        [[np.reshape(errors, shape) for errors in e.squared_errors[:n_trained]] for e in training.curve]
    ).reshape(len(training.curve), n_trained, *shape)
    return curve.transpose(0, 2, 1, 3) / np.maximum(baseline, 1e-20)[None, :, None, None]


def _stopped(training: Training, n_heads: int, n_trained: int) -> np.ndarray:
    shape = (n_heads, n_trained, training.settings.seeds)
    stopped = np.zeros(shape, dtype=np.int64)
    for i, batch in enumerate(training.batches[:n_trained]):
        stopped[:, i] = batch.stopped_at.numpy().reshape(n_heads, -1)
    return stopped


def _to_z(training: Training, t: Tensor) -> Tensor:
    """`[head, any, out]` in the coordinates of training, as z."""
    scaling = training.scaling
    return torch.stack([scaling.to_z(head, rows) for head, rows in enumerate(t)])


def _weights(training: Training, width: int) -> FFNWeights:
    """Return the weights of the FFNs with whitening, scale and basis folded in."""
    source, scaling, settings = training.source, training.scaling, training.settings
    dtype, d_model, d_head = source.dtype, source.reader.d_model, source.reader.d_head
    n_heads, n_seeds = len(source.heads), settings.seeds if width else 1
    layer_of = [layer for layer, places in enumerate(source.layers.values()) for _ in range(places.start, places.stop)]
    W_in = torch.zeros(n_heads, n_seeds, d_model, width, dtype=dtype)
    b_in = torch.zeros(n_heads, n_seeds, width, dtype=dtype)
    W_out = torch.zeros(n_heads, n_seeds, width or d_model, d_head, dtype=dtype)
    b_out = torch.zeros(n_heads, n_seeds, d_head, dtype=dtype)
    linear = training.moments.linear() if width == 0 else None
    batch = None if width == 0 else training.batches[settings.trained.index(width)]
    for place in range(n_heads):
        whiten, x_mean = scaling.whiten[layer_of[place]], scaling.x_mean[layer_of[place]]
        back = scaling.scale[place] * scaling.back[place]  # [out, d_head]
        shift = scaling.t_mean[place] @ scaling.back[place]
        for seed in range(n_seeds):
            if linear is not None:
                last, inner = linear[place], whiten @ linear[place][:, :-1].T
                W_out[place, 0] = (inner @ back).cpu()
                b_out[place, 0] = ((last[:, -1] - x_mean @ inner) @ back + shift).cpu()
                continue
            assert batch is not None
            row = place * n_seeds + seed
            W1, W2 = batch.best_W1[row].double(), batch.best_W2[row].double()
            folded = whiten @ W1[:, :-1].T
            W_in[place, seed] = folded.cpu()
            b_in[place, seed] = (W1[:, -1] - x_mean @ folded).cpu()
            W_out[place, seed] = (W2[:, :-1].T @ back).cpu()
            b_out[place, seed] = (W2[:, -1] @ back + shift).cpu()
    return FFNWeights(W_in=W_in, b_in=b_in, W_out=W_out, b_out=b_out)
