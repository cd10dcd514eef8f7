"""Activation patching: activations of one prompt put into the run of another, cell by cell.

With "denoising" the run is that of the corrupted prompt and one activation is taken from the clean one: what is enough
to bring the answer back. With "noising" it is the other way round: what the answer cannot do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import Progress, require_choice, require_whole
from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.attention import scores_of
from aotlens.patching.both import (
    DIRECTIONS,
    BothRuns,
    OverPairs,
    at_padded_positions,
    numbers,
    over_pairs,
    shared_words,
    without_padding,
)
from aotlens.patching.metrics import (
    PairMetric,
    batches,
    checked_metric,
    checked_positions,
    require_fit,
    require_one_length,
)
from aotlens.paths.runs import Place, Probes, require_bare
from aotlens.statistics import as_clusters, mean_interval

if TYPE_CHECKING:
    import pandas as pd


STREAMS = ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post")
HEADS = ("z", "v", "q", "k", "pattern")
_OF_HEADS = {"z": hook_names.Z, "v": hook_names.V, "q": hook_names.Q, "k": hook_names.K, "pattern": hook_names.PATTERN}
#: Numbers of one batch of rows: what later layers hold at once is a small multiple of it.
_MOST_NUMBERS = 8_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Patched(OverPairs):
    """A metric of each pair with one cell patched, and without."""

    what: str
    direction: str
    metric: str
    unit: str
    axes: tuple[str, ...]
    """The axes of `each` after the pair: layer, then head (of heads), then position (if cells are single positions)."""
    each: Float64[np.ndarray, " pair *cell"]
    """The metric with the cell patched."""
    clean: Float64[np.ndarray, " pair"]
    """The metric of the clean prompt."""
    corrupted: Float64[np.ndarray, " pair"]
    positions: tuple[int, ...] | None = None
    """The positions that were patched, where cells are single positions and not all were."""
    str_tokens: tuple[str, ...] = ()
    """The token at each position of the prompts that are run, where cells are single positions; "" where prompts have
    different ones."""
    clusters: tuple[str, ...] | None = None
    outputs: tuple[str, str] | None = None
    """The answer and the wrong answer of a single pair in words; None for several, or without a tokenizer."""

    @property
    def difference_interval(self) -> tuple[float, float]:
        """The 95% interval of the mean of clean − corrupted; NaN for one pair. Where it holds 0, `restored` is a share
        of next to nothing."""
        return mean_interval(self.clean - self.corrupted, as_clusters(self.clusters, len(self.each)))

    def cell(self, place: Iterable[Any]) -> dict[str, int]:
        """Return the layer, head and position of an index of `values`."""
        named = {axis: int(index) for axis, index in zip(self.axes, place, strict=True)}
        if self.positions is not None:
            named["position"] = self.positions[named["position"]]
        return named

    @property
    def headline(self) -> str:
        place, verb, share = self._largest()
        where = ", ".join(f"{axis} {index}" for axis, index in self.cell(place).items())
        return f"{self.direction} {self.what}: {where} {verb} ({share})"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per cell: the axes, the token (of single positions), mean, restored, and its
        interval, low and high, for more than one pair."""
        import pandas as pd

        index = np.stack(np.unravel_index(np.arange(self.values.size), self.values.shape), 1)
        frame = pd.DataFrame([self.cell(place) for place in index])
        if self.str_tokens:
            frame["token"] = [self.str_tokens[position] for position in frame["position"]]
        return self._with_values(frame)


@torch.no_grad()
def patch(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    what: str = "resid_pre",
    metric: str | PairMetric = "logit_difference",
    *,
    direction: str = "denoising",
    by_position: bool | None = None,
    positions: Iterable[int] | np.ndarray | None = None,
    attention_mask: Tensor | None = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Patched:
    """Patch every cell of `what`, one at a time, and measure what the model says then.

    `what` is a stream, `"resid_pre"` (before a layer), `"attn_out"`, `"resid_mid"`, `"mlp_out"` or `"resid_post"`, by
    layer and position; or of every head `"z"` (its output), `"v"`, `"q"`, `"k"` or `"pattern"` (its rows), at all
    positions together, or with `by_position` at each, or at some `positions`. Positions are those of the prompt that is
    run; one without a partner in the other prompt (`Pair.positions`) is left as it is. `metric` is one of
    `aotlens.patching.metrics`, or a function. TransformerLens's `patching` has the same cells: see docs/patching.md.

    `attention_mask [pair, pos]` is True (or 1) where both prompts of a pair are no padding: each pair has the numbers
    that it has alone, at the positions of the padded prompts, and a patch at padding changes nothing.

    Only layers and, in a causal model, positions that can change run again: a sweep of layer × position costs about a
    quarter of a run for each cell. `batch_size` is how many pairs run at once; `progress(done, total)` counts pairs.

    Raises `ValueError` for another `what`, for positions that a prompt has not, for pairs of different lengths where
    cells are positions, for patterns of prompts of different lengths, for MLPs or scores of a model that has none, for
    a model with hooks, and for a metric that is not finite, or the same of clean and corrupted prompts.
    """
    require_whole("batch_size", batch_size, 1)
    by_position = by_position if positions is None else True
    measure, by_position = checked(model, what, metric, direction, by_position)
    if by_position:
        require_one_length(pairs, direction)
    words = shared_words(pairs, direction) if by_position else ()
    if attention_mask is not None:
        if positions is not None:
            raise ValueError("positions: expected none with attention_mask, whose prompts have their own ones.")
        pairs = without_padding(pairs, attention_mask)
    places = None if positions is None else checked_positions(positions, pairs, direction)

    def cells_of(batch: Batch, rows: list[int]) -> np.ndarray:
        cells = batch.cells(by_position, places)
        if attention_mask is None or not by_position:
            return cells
        return at_padded_positions(cells, batch.measured(batch.base), attention_mask[rows])

    parts = ((Batch(model, pairs.at(rows), what, measure, direction), rows) for rows in batches(pairs, batch_size))
    return Patched(
        what=what,
        direction=direction,
        axes=axes_of(what, by_position),
        positions=places,
        str_tokens=words,
        outputs=pairs.answer_words[0] if len(pairs) == 1 and pairs.answer_words else None,
        **over_pairs(parts, cells_of, pairs, progress=progress),
    )


def axes_of(what: str, by_position: bool) -> tuple[str, ...]:
    """Return the axes of the cells."""
    return ("layer", *(("head",) if what in HEADS else ()), *(("position",) if by_position else ()))


def checked(
    model: AttentionOnlyTransformer, what: str, metric: str | PairMetric, direction: str, by_position: bool | None
) -> tuple[str | PairMetric, bool]:
    """Return the metric, and whether cells are positions. Raises `ValueError` as `patch` says."""
    require_ours(model, "patch", without=("norm_after", "norm_output"))
    require_bare(model, "patch")
    require_choice("what", what, (*STREAMS, *HEADS))
    require_choice("direction", direction, DIRECTIONS)
    if what in ("resid_mid", "mlp_out") and model.cfg.attn_only:
        raise ValueError(f"what={what!r}: this model has no MLPs.")
    if what == "resid_mid" and model.cfg.parallel:
        raise ValueError(f"what={what!r}: this model's MLPs read the stream that attention reads (parallel=True).")
    if what in ("q", "k") and not model.cfg.has_query_key:
        raise ValueError(f"what={what!r}: a model with phi={model.cfg.phi!r} has no queries or keys.")
    require_fit(model, metric)
    if what in STREAMS and by_position is False:
        raise ValueError(f"patch: {what} is patched at each position; by_position=False is for heads.")
    return checked_metric(metric), what in STREAMS if by_position is None else by_position


class Batch(BothRuns):
    """Pairs of one length, both runs of them, and the activations that are patched."""

    def __init__(
        self, model: AttentionOnlyTransformer, pairs: PromptPairs, what: str, metric: str | PairMetric, direction: str,
        *, probed: bool = False,
    ) -> None:  # fmt: skip
        self.what = what
        self.probes = Probes.at(map(self.hook, range(model.cfg.n_layers))) if probed else None
        names = [hook_names.Z] if what in HEADS else []
        names += {
            "q": [hook_names.Q],
            "k": [hook_names.Q],
            "v": [hook_names.PATTERN],
            "pattern": [hook_names.PATTERN],
        }.get(what, [])
        super().__init__(model, pairs, metric, direction, names, self.probes)
        self.n_pos = self.base.final.shape[1]
        # [pair, pos]: where the source has what corresponds to the base's position, and whether it has.
        self.partner = torch.zeros(len(pairs), self.n_pos, dtype=torch.long, device=model.device)
        self.paired = torch.zeros(len(pairs), self.n_pos, dtype=torch.bool, device=model.device)
        denoising = direction == "denoising"
        for row, each in enumerate(pairs):
            for ends in each.positions:
                of_base, of_source = ends[denoising], ends[not denoising]
                self.partner[row, of_base], self.paired[row, of_base] = of_source, True
        if what == "pattern" and not bool((self.partner == torch.arange(self.n_pos, device=model.device)).all()):
            raise ValueError("patch: patterns are of keys, so both prompts need equally many tokens.")

    def hook(self, layer: int) -> str:
        """Return the hook of a layer whose cells are patched."""
        if self.what in HEADS:
            return hook_names.attn(layer, _OF_HEADS[self.what])
        return hook_names.block(layer, f"hook_{self.what}")

    def cells(self, by_position: bool, positions: tuple[int, ...] | None = None) -> Float64[np.ndarray, " pair *cell"]:
        """Return the metric with each cell patched; with positions, at these alone."""
        cfg = self.model.cfg
        shape = (cfg.n_layers, cfg.n_heads, -1) if self.what in HEADS else (cfg.n_layers, -1)
        places: list[int | None] = [*(positions or range(self.n_pos))] if by_position else [None]
        cells = [self._at(place).reshape(shape) for place in places]  # [*cell, pair]
        return np.moveaxis(np.stack(cells, -1) if by_position else cells[0], len(shape) - 1, 0)

    def some(self, cells: Sequence[tuple[int, ...]]) -> Float64[np.ndarray, "cell pair"]:
        """Return the metric with each of some cells patched, (layer, position), (layer, head) or (layer, head,
        position)."""
        of_heads, alone = self.what in HEADS, len(cells[0]) == 2 and self.what in HEADS
        values = np.zeros((len(cells), len(self.pairs)))
        for place in dict.fromkeys(None if alone else cell[-1] for cell in cells):
            here = [i for i, cell in enumerate(cells) if alone or cell[-1] == place]
            order = sorted(here, key=lambda i: cells[i])
            heads: dict[int, list[int]] = {}
            for i in order:
                heads.setdefault(cells[i][0], []).append(cells[i][1] if of_heads else 0)
            values[order] = self._at(place, heads)
        return values

    def _at(self, place: int | None, heads: Mapping[int, list[int]] | None = None) -> Float64[np.ndarray, "cell pair"]:
        """The cells of one position, or of all positions together; with `heads`, of these layers and their heads."""
        start = 0 if place is None or self.model.sees_later_keys else place
        waiting: dict[tuple[int, Place], Tensor] = {}
        values: list[Tensor] = []

        def run() -> None:
            if waiting:
                values.append(self.of(self.base.later(waiting, start)))
                waiting.clear()

        for layer in range(self.model.cfg.n_layers) if heads is None else heads:
            key, rows = (self._heads if self.what in HEADS else self._stream)(layer, place, start)
            waiting[key] = rows if heads is None else rows[heads[layer]]
            if sum(rows.numel() for rows in waiting.values()) > _MOST_NUMBERS:
                run()
        run()
        return numbers(torch.cat(values))

    def _stream(self, layer: int, place: int | None, start: int) -> tuple[tuple[int, Place], Tensor]:
        """The stream with one position patched, where it enters."""
        assert place is not None
        base, source, what = self.base, self.source, self.what
        if what in ("resid_pre", "resid_post"):
            read_layer = layer + (what == "resid_post")
            key: tuple[int, Place] = (read_layer, "before")
            stream, other = base.before(read_layer), self._taken(source.before(read_layer), place)
        elif what == "resid_mid":
            key, stream, other = (layer, "after"), base.after(layer), self._taken(source.after(layer), place)
        else:
            own, theirs = (run.cache[hook_names.block(layer, f"hook_{what}")] for run in (base, source))
            added = self._taken(theirs, place) - own[:, place]
            key = (layer, "after") if what == "attn_out" else (layer + 1, "before")
            stream = base.after(layer) if what == "attn_out" else base.before(layer + 1)
            other = stream[:, place] + added
        rows = stream[:, start:].clone()
        rows[:, place - start] = torch.where(self.paired[:, place, None], other, stream[:, place])
        return key, rows[None]

    def _taken(self, values: Float[Tensor, "pair pos *more"], place: int) -> Float[Tensor, " pair *more"]:
        """The source's values at the positions that correspond to one of the base."""
        return values[torch.arange(len(values), device=values.device), self.partner[:, place]]

    def _heads(self, layer: int, place: int | None, start: int) -> tuple[tuple[int, Place], Tensor]:
        """The stream after a layer's attention, a row for each of its heads patched."""
        z, W_O = self.base.attn(layer, hook_names.Z)[:, start:], self.model.blocks[layer].attn.W_O
        if self.what in ("q", "k") and self.model.cfg.qk_norm == "layer":  # one head's changes the norm of all
            heads = [self._patched_z(layer, place, start, head) - z for head in range(len(W_O))]
            added = torch.stack([torch.einsum("bphk,hkd->bpd", changed, W_O) for changed in heads])
        else:
            added = torch.einsum("bphk,hkd->hbpd", self._patched_z(layer, place, start) - z, W_O)
        return (layer, "after"), self.base.after(layer)[:, start:] + added

    def _patched_z(
        self, layer: int, place: int | None, start: int, head: int | None = None
    ) -> Float[Tensor, "pair pos head d_head"]:
        """z of a layer's heads from `start` on, each with its own activation patched; or all with that of one head."""
        base, cfg = self.base, self.model.cfg
        name = _OF_HEADS[self.what]
        own, theirs = base.attn(layer, name), self.source.attn(layer, name)
        if self.what == "pattern":  # rows are the third dimension
            pattern = self.mixed(own.transpose(1, 2), theirs.transpose(1, 2), place).transpose(1, 2)
            return _moved(pattern[:, :, start:], base.attn(layer, hook_names.V))
        mixed = self.mixed(own, theirs, place)
        if head is not None:
            mixed = torch.where(torch.arange(own.shape[2], device=own.device)[:, None] == head, mixed, own)
        if self.what == "z":
            return mixed[:, start:]
        if self.what == "v":
            return _moved(base.attn(layer, hook_names.PATTERN)[:, :, start:], mixed)
        q, k = (mixed if name == side else base.attn(layer, side) for side in (hook_names.Q, hook_names.K))
        attn, order = self.model.blocks[layer].attn, self.model.order(self.n_pos, layer)
        q, k = attn.placed(q[:, start:], "q", order, start), attn.placed(k, "k", order)
        scores = scores_of(cfg, q.transpose(1, 2), k.transpose(1, 2), order, start)
        return _moved(base.pattern_of(layer, scores, start), base.attn(layer, hook_names.V))

    def mixed(
        self, own: Float[Tensor, "pair pos *more"], theirs: Float[Tensor, "pair pos2 *more"], place: int | None
    ) -> Float[Tensor, "pair pos *more"]:
        """Return the base's values, with the source's in their place at one position, or (None) at all that
        correspond."""
        taken = self.paired if place is None else self.paired & (torch.arange(self.n_pos, device=own.device) == place)
        rows = torch.arange(len(own), device=own.device)[:, None]
        return torch.where(taken.reshape(*taken.shape, *[1] * (own.ndim - 2)), theirs[rows, self.partner], own)


def _moved(
    pattern: Float[Tensor, "pair head query key"], v: Float[Tensor, "pair key head d_head"]
) -> Float[Tensor, "pair query head d_head"]:
    return (pattern @ v.transpose(1, 2)).transpose(1, 2)
