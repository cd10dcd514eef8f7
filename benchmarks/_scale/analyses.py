"""The analyses whose cost is measured, the sizes that they are measured at, and the law of each algorithm.

A law is a sum of the terms that can lead: multiply-adds as two operations, numbers as 4 bytes (8 in float64). What a
term costs on a machine is fitted in `page.py`. Bytes are beyond the model's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aotlens.circuits import all_compositions, ov_circuit, top_per_row
from aotlens.distill import distill_heads
from aotlens.heads import atlas
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import expand
from aotlens.trigrams import skip_trigrams


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model and of what it reads; a head has `d_head` dimensions everywhere."""

    vocabulary: int = 2048
    """Tokens of the vocabulary (V)."""
    layers: int = 4
    """Layers (L)."""
    heads: int = 8
    """Heads in a layer (H)."""
    width: int = 512
    """d_model (D), which doesn't follow the number of heads here."""
    tokens: int = 128
    """Positions of a prompt, or of each window of a text (n)."""
    d_head: int = 64

    def __str__(self) -> str:
        return f"V{self.vocabulary} L{self.layers} H{self.heads} D{self.width} n{self.tokens} d{self.d_head}"

    def on(self, axis: str, value: int) -> Shape:
        """Return the same shape with another size on one axis."""
        return replace(self, **{axis: value})

    @property
    def n_weights(self) -> int:
        """Count embedding, unembedding and four matrices a head: the parameters but for positions and norms."""
        return self.width * (2 * self.vocabulary + 4 * self.layers * self.heads * self.d_head)


#: Sizes of each axis, in geometric steps (the last ones are where real models end).
AXES: dict[str, tuple[int, ...]] = {
    "vocabulary": tuple(2**i for i in range(10, 18)),
    "layers": (1, 2, 4, 8, 16, 24),
    "heads": (1, 2, 4, 8, 16, 32, 64, 128, 180),
    "width": tuple(2**i for i in range(7, 13)),
    "tokens": tuple(2**i for i in range(4, 11)),
}
#: The axes of `--quick`: does it run, not how fast.
QUICK_AXES: dict[str, tuple[int, ...]] = {
    "vocabulary": (64, 128, 256, 512, 1024),
    "layers": (1, 2, 3, 4, 6),
    "heads": (1, 2, 4, 6, 8),
    "width": (32, 64, 96, 128, 256),
    "tokens": (8, 16, 32, 48, 64),
}
TINY = Shape(vocabulary=64, layers=2, heads=2, width=32, tokens=16, d_head=8)


def untrained(shape: Shape, device: str) -> AttentionOnlyTransformer:
    """Return a model of this shape with initial weights, and Zipf's counts of tokens."""
    cfg = ModelConfig(
        n_layers=shape.layers, d_model=shape.width, n_heads=shape.heads, d_head=shape.d_head,
        d_vocab=shape.vocabulary, n_ctx=shape.tokens,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).eval().requires_grad_(False).to(device)
    model.unigram_counts = (10**7 / torch.arange(1, shape.vocabulary + 1)).long().to(device)
    return model


#: Windows of the atlas's text, those on which heads are left out, and windows of a distillation's.
ATLAS_WINDOWS, ABLATED_WINDOWS, DISTILLED_WINDOWS = 8, 2, 32
#: Hidden units of the distilled networks.
UNITS = 16
#: Some ten operations an attention entry for each of the atlas's motifs, pattern consistency and examples.
ATLAS_PER_ENTRY = 200
#: Nodes that the search of the largest paths may expand; how many it does is a matter of weights, and noted.
NODES = 1000
#: The terms of a law at a shape; the law is their sum.
Terms = tuple[float, ...]
Law = Callable[[Shape], Terms]


def pairs(s: Shape) -> float:
    """Count the pairs of an earlier and a later head."""
    return s.layers * (s.layers - 1) / 2 * s.heads**2


def rotations(s: Shape) -> float:
    """Count rotations, as many as `run_composition_null` draws."""
    return max(2000, 20 * pairs(s))


def _projections(s: Shape) -> float:
    """All four products of a layer with its weights, for one position."""
    return 8 * s.width * s.heads * s.d_head


def _attention(s: Shape) -> float:
    """Count operations of scores and averages of one layer, for one window."""
    return 4 * s.tokens**2 * s.heads * s.d_head


def _logits(s: Shape) -> float:
    """Count operations of the logits of one prompt."""
    return 2 * s.tokens * s.width * s.vocabulary


def forward_operations(s: Shape) -> Terms:
    return s.layers * s.tokens * _projections(s), s.layers * _attention(s), _logits(s)


def forward_bytes(s: Shape) -> Terms:
    copies = 8 * s.heads * s.d_head * s.width  # the products lay a layer's matrices side by side
    streams = s.tokens * (4 * s.width + 4 * s.heads * s.d_head)
    return 4 * s.tokens * s.vocabulary, 4 * streams, 4 * copies


def circuits_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    return every * 2 * s.vocabulary**2 * s.d_head, every * 4 * s.vocabulary * s.width * s.d_head


def circuits_bytes(s: Shape) -> Terms:
    return 4 * s.vocabulary * s.width, 4 * s.vocabulary * (4 * s.d_head + 40)


def trigrams_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    return every * 4 * s.vocabulary**2 * s.d_head, every * 8 * s.vocabulary * s.width * s.d_head


def trigrams_bytes(s: Shape) -> Terms:
    return 4 * s.vocabulary * s.width, 4 * s.vocabulary * 12 * s.d_head


def path_sums_operations(s: Shape) -> Terms:
    """Return the law's terms: the layers' products serve the pass and every step of a sum."""
    steps = s.layers * (s.layers + 1) / 2 + 3 * s.layers
    projections, attention, logits = forward_operations(s)
    return projections + steps * s.tokens * _projections(s) / 2, attention + steps * _attention(s) / 2, logits


def path_bytes(s: Shape) -> Terms:
    """Count bytes of patterns, the maps V and O, the read-out with its norm, logits, and the heads' values."""
    every = s.layers * s.heads
    return (
        8 * every * s.tokens**2,
        16 * every * s.d_head * s.width,
        4 * s.width * s.vocabulary,
        4 * s.tokens * s.vocabulary,
        8 * every * s.tokens * s.d_head,
    )


def path_top_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    bounds = every**2 * s.d_head**2 * (s.width + s.tokens)
    nodes = NODES * every * s.d_head * s.tokens * (s.width + s.tokens)
    return (*forward_operations(s), bounds, nodes)


def path_top_bytes(s: Shape) -> Terms:
    every = s.layers * s.heads
    return (*path_bytes(s), 8 * every**2)


def composition_operations(s: Shape) -> Terms:
    read = s.layers * s.heads * s.width * s.d_head**2 * 36
    return 3 * pairs(s) * (2 * s.width * s.d_head**2 + 4 * s.d_head**3), read


def composition_bytes(s: Shape) -> Terms:
    products = 8 * s.heads**2 * s.d_head**2 * 4  # of all heads of two layers
    return 64 * s.layers * s.heads * s.width * s.d_head, 160 * (s.layers * s.heads) ** 2, products


def null_operations(s: Shape) -> Terms:
    n = rotations(s)
    drawn, turned = n * 3 * s.d_head**3, n * 2 * s.layers * s.heads * s.d_head**2
    return (*composition_operations(s), drawn, turned, n * 6 * pairs(s) * s.d_head)


def atlas_operations(s: Shape) -> Terms:
    every = s.layers * s.heads
    entries = 2 * ATLAS_WINDOWS * ATLAS_PER_ENTRY * every * s.tokens**2
    copying = every * 4 * s.vocabulary**2 * s.d_head, every * 12 * s.vocabulary * s.width * s.d_head
    layer = s.tokens * _projections(s) + _attention(s)
    passes = 2 * ATLAS_WINDOWS * sum(forward_operations(s))
    without = ABLATED_WINDOWS * every * s.layers / 2 * layer, ABLATED_WINDOWS * every * _logits(s)
    return (passes, entries, *copying, *without, *composition_operations(s))


def atlas_bytes(s: Shape) -> Terms:
    every = s.layers * s.heads
    batch = 4 * ATLAS_WINDOWS * s.tokens * 3 * s.heads * s.tokens
    logits = 4 * ATLAS_WINDOWS * s.tokens * s.vocabulary
    return (24 * every * s.tokens**2, batch, logits, *composition_bytes(s), 4 * s.width * s.vocabulary)


def distillation_operations(s: Shape) -> Terms:
    n_tokens = DISTILLED_WINDOWS * s.tokens
    model = 2 * s.layers * (n_tokens * _projections(s) + DISTILLED_WINDOWS * _attention(s))
    training = 6 * (s.width + s.d_head) * UNITS * n_tokens * s.layers * s.heads
    moments = 2 * s.layers * n_tokens * s.width * (s.width + 2 * s.heads * s.d_head)
    return model, training, moments, 10 * s.layers * s.width**3


def distillation_bytes(s: Shape) -> Terms:
    every, n_tokens = s.layers * s.heads, DISTILLED_WINDOWS * s.tokens
    activations = 4 * n_tokens * (s.layers * s.width + every * s.d_head)
    moments = 24 * s.layers * s.width * (s.width + s.heads * s.d_head)
    return activations, moments, 24 * every * UNITS * (s.width + s.d_head)


@dataclass(frozen=True, kw_only=True)
class Headline:
    """An analysis, the sizes that it is measured at, and its law."""

    name: str
    title: str
    call: Callable[[AttentionOnlyTransformer, Tensor], object]
    """The call, which runs it on a model and ids `[window, pos]`; what it returns may have a note."""
    axes: tuple[str, ...]
    """The axes that it depends on at all."""
    operation_terms: Law
    byte_terms: Law
    formula: str
    """The law in words, for the page: time; memory."""
    middle: Shape = field(default_factory=Shape)
    """The shape that stays as it is on the other axes."""
    middles: dict[str, Shape] = field(default_factory=dict)
    """Other middles for some axes, where the first would take too long."""
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Other sizes for some axes, where it grows too fast for five of the usual ones."""
    counted: str | None = None
    """The note of a point that says how often the last term of the operations was done, of at most `NODES`."""

    def operations(self, shape: Shape) -> float:
        """Count operations by the law."""
        return sum(self.operation_terms(shape))

    def bytes(self, shape: Shape) -> float:
        """Count bytes by the law, beyond the model's weights."""
        return sum(self.byte_terms(shape))

    def middle_of(self, axis: str) -> Shape:
        return self.middles.get(axis, self.middle)

    def series(self, axis: str, quick: bool = False) -> list[Shape]:
        """Return the shapes of one axis, smallest first."""
        if quick:
            middle = replace(TINY, heads=1 if self.middle_of(axis).heads == 1 else TINY.heads)
            return [middle.on(axis, size) for size in QUICK_AXES[axis]]
        return [self.middle_of(axis).on(axis, size) for size in self.sizes.get(axis, AXES[axis])]


def _heads(model: AttentionOnlyTransformer) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


def run_forward(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    model(ids[:1])


def run_circuits(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    for head in _heads(model):
        top_per_row(ov_circuit(model, head), 10)


def run_trigrams(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    for head in _heads(model):
        skip_trigrams(model, head, k=1000)


def run_path_sums(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    expansion = expand(model, ids[0])
    expansion.by_order(1), expansion.by_head(1), expansion.by_source(1)


def run_path_top(model: AttentionOnlyTransformer, ids: Tensor) -> dict[str, int]:
    paths = expand(model, ids[0]).top(20, -1, 1)
    return {"nodes": paths.n_expanded, "proven": paths.n_proven}


def run_composition(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    all_compositions(model)


def run_composition_null(model: AttentionOnlyTransformer, ids: Tensor) -> dict[str, int]:
    pairs = model.cfg.n_layers * (model.cfg.n_layers - 1) // 2 * model.cfg.n_heads**2
    return {"rotations": all_compositions(model, n_random=max(2000, 20 * pairs))["q"].n_random}


def run_atlas(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    atlas(model, ids[:ATLAS_WINDOWS], hows=("position_mean",), n_ablated=ABLATED_WINDOWS, cache=None)


def run_distillation(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    n_judged = len(ids) // 4
    texts, judged = ids[n_judged:], ids[:n_judged]
    distill_heads(
        model, (texts, judged), UNITS, seeds=1, wide=None, neighbours=0, batch_size=128, train_tokens=texts.numel()
    )


_ONE_HEAD = Shape(layers=1, heads=1)
_SMALL_VOCABULARY = Shape(vocabulary=1024)
_PER_HEAD = {"vocabulary": _ONE_HEAD, "width": _ONE_HEAD}

HEADLINES: dict[str, Headline] = {
    headline.name: headline
    for headline in (
        Headline(
            name="forward", title="a forward pass, for comparison", call=run_forward,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=forward_operations, byte_terms=forward_bytes,
            formula="8·n·L·H·d·D + 4·n²·L·H·d + 2·n·D·V; logits n·V + copies of a layer's matrices 8·H·d·D",
        ),
        Headline(
            name="circuits", title="top 10 of every row of every head's OV circuit", call=run_circuits,
            axes=("vocabulary", "layers", "heads", "width"),
            operation_terms=circuits_operations, byte_terms=circuits_bytes,
            formula="L·H·(2·V²·d + 4·V·D·d); one circuit at a time: V·(D + 4·d + 40)",
            middle=_SMALL_VOCABULARY, middles=_PER_HEAD,
        ),
        Headline(
            name="trigrams", title="top 1,000 skip-trigrams of every head", call=run_trigrams,
            axes=("vocabulary", "layers", "heads", "width"),
            operation_terms=trigrams_operations, byte_terms=trigrams_bytes,
            formula="L·H·(4·V²·d + 8·V·D·d); one head at a time: V·(D + 12·d)",
            middle=_SMALL_VOCABULARY, middles={**_PER_HEAD, "layers": replace(_SMALL_VOCABULARY, heads=2)},
        ),
        Headline(
            name="path_sums", title="sums of paths to a logit: by order, last head and source", call=run_path_sums,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=path_sums_operations, byte_terms=path_bytes,
            formula="a forward pass + (L²/2 + 3·L)·(4·n·D·H·d + 2·n²·H·d); 2·L·H·n² + 4·L·H·d·D + 2·L·H·n·d + D·V",
        ),
        Headline(
            name="path_top", title="the 20 largest paths to a logit", call=run_path_top,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=path_top_operations, byte_terms=path_top_bytes,
            counted="nodes",
            formula="bounds (L·H)²·d²·(D + n) + nodes · L·H·d·n·(D + n), 1,000 nodes at most; as sums, and (L·H)²",
            middle=Shape(tokens=32), sizes={"vocabulary": (1024, 4096, 16384, 65536, 131072)},
        ),
        Headline(
            name="composition", title="composition of all pairs, three modes, exact z", call=run_composition,
            axes=("layers", "heads", "width"),
            operation_terms=composition_operations, byte_terms=composition_bytes,
            formula="3·L²/2·H²·(2·D·d² + 4·d³); float64: 8·L·H·D·d + 20·(L·H)² + 4·H²·d²",
        ),
        Headline(
            name="composition_null", title="the same with p-values from 20 rotations a pair", call=run_composition_null,
            axes=("layers", "heads", "width"),
            operation_terms=null_operations, byte_terms=composition_bytes,
            formula="20·P rotations of 3·d³ + 2·L·H·d² + 6·P·d, P = L²/2·H² pairs; as above",
            sizes={"layers": (2, 3, 4, 6, 8, 10), "heads": (2, 4, 6, 8, 12, 16)},
        ),
        Headline(
            name="atlas", title="the atlas on 8 windows, heads left out one by one on 2", call=run_atlas,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=atlas_operations, byte_terms=atlas_bytes,
            formula="copying 4·L·H·V²·d + ablations n·L²·H²·d·D + patterns n²·L·H + logits a head; 3·L·H·n² in float64",
            middle=Shape(vocabulary=1024, heads=4), middles={"vocabulary": Shape(layers=1, heads=1)},
        ),
        Headline(
            name="distillation", title="distillation of every head, 16 units, one seed, 32 windows",
            call=run_distillation,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=distillation_operations, byte_terms=distillation_bytes,
            formula="text · (6·(D + d)·16·L·H + 16·L·H·d·D + 2·L·D²) + 10·L·D³; activations text · L·(D + H·d)",
            middle=Shape(heads=4), sizes={"vocabulary": (1024, 4096, 16384, 65536, 131072)},
        ),
    )
}  # fmt: skip
