"""The analyses whose cost is measured, each with the sizes that it is measured at and the law of its algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from aotlens.circuits import all_compositions, ov_circuit, search_entries, top_per_row
from aotlens.distill import distill_heads
from aotlens.heads import atlas
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import expand
from aotlens.trigrams import skip_trigrams
from benchmarks._scale import laws
from benchmarks._scale.laws import ABLATED_WINDOWS, ATLAS_WINDOWS, UNITS, Law
from benchmarks._scale.shapes import AXES, QUICK_AXES, TINY, Shape


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
    """The note of a point that says how often the last term of the operations was done, of at most `laws.NODES`."""
    refused: Shape | None = None
    """A shape at which the library refuses it, where its answer is what is asked for."""

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


def run_entries(model: AttentionOnlyTransformer, ids: Tensor) -> dict[str, float]:
    skipped = [search_entries(ov_circuit(model, head), 1000).share_skipped for head in _heads(model)]
    return {"skipped_share": round(sum(skipped) / len(skipped), 3)}


def run_path_sums(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    expansion = expand(model, ids[0])
    expansion.by_order(1), expansion.by_head(1), expansion.by_source(1)


def run_path_top(model: AttentionOnlyTransformer, ids: Tensor) -> dict[str, int]:
    paths = expand(model, ids[0]).top(20, -1, 1)
    return {"nodes": paths.n_expanded, "proven": paths.n_proven}


def run_every_logit(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    expand(model, ids[0]).by_order()


def run_every_path(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    expand(model, ids[0]).all_paths(-1, 1)


def run_long_rows(model: AttentionOnlyTransformer, ids: Tensor) -> None:
    circuit = ov_circuit(model, "0.0")
    top_per_row(circuit, min(1000, circuit.shape[1]))


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
            operation_terms=laws.forward_operations, byte_terms=laws.forward_bytes,
            formula="8·n·L·H·d·D + 4·n²·L·H·d + 2·n·D·V; logits n·V + copies of a layer's matrices 8·H·d·D",
        ),
        Headline(
            name="circuits", title="top 10 of every row of every head's OV circuit", call=run_circuits,
            axes=("vocabulary", "layers", "heads", "width"),
            operation_terms=laws.circuits_operations, byte_terms=laws.circuits_bytes,
            formula="L·H·(2·V²·d + 4·V·D·d); one circuit at a time: V·(D + 4·d + 40)",
            middle=_SMALL_VOCABULARY, middles=_PER_HEAD,
        ),
        Headline(
            name="entries", title="top 1,000 entries of every head's OV circuit", call=run_entries, axes=(),
            operation_terms=laws.circuits_operations, byte_terms=laws.circuits_bytes,
            formula="at most that of the top 10 of every row",
        ),
        Headline(
            name="trigrams", title="top 1,000 skip-trigrams of every head", call=run_trigrams,
            axes=("vocabulary", "layers", "heads", "width"),
            operation_terms=laws.trigrams_operations, byte_terms=laws.trigrams_bytes,
            formula="L·H·(4·V²·d + 8·V·D·d); one head at a time: V·(D + 12·d)",
            middle=_SMALL_VOCABULARY, middles={**_PER_HEAD, "layers": replace(_SMALL_VOCABULARY, heads=2)},
        ),
        Headline(
            name="path_sums", title="sums of paths to a logit: by order, last head and source", call=run_path_sums,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=laws.path_sums_operations, byte_terms=laws.path_bytes,
            formula="a forward pass + (L²/2 + 3·L)·(4·n·D·H·d + 2·n²·H·d); 2·L·H·n² + 4·L·H·d·D + 2·L·H·n·d + D·V",
        ),
        Headline(
            name="path_top", title="the 20 largest paths to a logit", call=run_path_top,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=laws.path_top_operations, byte_terms=laws.path_top_bytes,
            counted="nodes",
            formula="bounds (L·H)²·d²·(D + n) + nodes · L·H·d·n·(D + n), 1,000 nodes at most; as sums, and (L·H)²",
            middle=Shape(tokens=32), sizes={"vocabulary": (1024, 4096, 16384, 65536, 131072)},
        ),
        Headline(
            name="composition", title="composition of all pairs, three modes, exact z", call=run_composition,
            axes=("layers", "heads", "width"),
            operation_terms=laws.composition_operations, byte_terms=laws.composition_bytes,
            formula="3·L²/2·H²·(2·D·d² + 4·d³); float64: 8·L·H·D·d + 20·(L·H)² + 4·H²·d²",
        ),
        Headline(
            name="composition_null", title="the same with p-values from 20 rotations a pair", call=run_composition_null,
            axes=("layers", "heads", "width"),
            operation_terms=laws.null_operations, byte_terms=laws.composition_bytes,
            formula="20·P rotations of 3·d³ + 2·L·H·d² + 6·P·d, P = L²/2·H² pairs; as above",
            sizes={"layers": (2, 3, 4, 6, 8, 10), "heads": (2, 4, 6, 8, 12, 16)},
        ),
        Headline(
            name="atlas", title="the atlas on 8 windows, heads left out one by one on 2", call=run_atlas,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=laws.atlas_operations, byte_terms=laws.atlas_bytes,
            formula="copying 4·L·H·V²·d + ablations n·L²·H²·d·D + patterns n²·L·H + logits a head; 3·L·H·n² in float64",
            middle=Shape(vocabulary=1024, heads=4), middles={"vocabulary": Shape(layers=1, heads=1)},
        ),
        Headline(
            name="distillation", title="distillation of every head, 16 units, one seed, 32 windows",
            call=run_distillation,
            axes=("vocabulary", "layers", "heads", "width", "tokens"),
            operation_terms=laws.distillation_operations, byte_terms=laws.distillation_bytes,
            formula="text · (6·(D + d)·16·L·H + 16·L·H·d·D + 2·L·D²) + 10·L·D³; activations text · L·(D + H·d)",
            middle=Shape(heads=4), sizes={"vocabulary": (1024, 4096, 16384, 65536, 131072)},
        ),
        Headline(
            name="long_rows", title="top 1,000 of every row of a circuit", call=run_long_rows, axes=(),
            operation_terms=laws.circuits_operations, byte_terms=laws.circuits_bytes, formula="16·V·k bytes of results",
            refused=Shape(vocabulary=2**17, layers=1, heads=1, width=128),
        ),
        Headline(
            name="every_logit", title="all logits of every order of paths", call=run_every_logit, axes=(),
            operation_terms=laws.path_sums_operations, byte_terms=laws.path_bytes,
            formula="4·(L + 1)·n·V bytes of results",
            refused=Shape(vocabulary=2**17, width=128, tokens=1024),
        ),
        Headline(
            name="every_path", title="every path to a logit, one by one", call=run_every_path, axes=(),
            operation_terms=laws.path_sums_operations, byte_terms=laws.path_bytes, formula="(H + 1)^L",
            refused=Shape(layers=8, tokens=16),
        ),
    )
}  # fmt: skip
