"""The attention of every head to images: its maps from one forward pass, and whether it looks at the same part across
images of a class (*aot*, Figure 7, without picking by hand).

For head h of layer l, with `pattern[l, h, query, key]` = φ(scores),

    attention        pattern[q, patches]: q is [CLS] where there is one, a patch, or the mean over all patches
    value-weighted   pattern[q, k] · ‖v_k‖, with ‖v_k‖ the length of the value vector at k (d_head units)
    rollout          row q of Â_L ⋯ Â_1, with Â_l = (mean over heads of pattern_l + I), rows divided by their sums
                     (Abnar and Zuidema 2020): attention followed through all layers, the skip connection included

A map leaves out attention to [CLS], which is `to_class_token`. Rollout knows neither values nor the read-out: what
patches add to a class is `aotlens.paths.patch_contributions`.

A head's **region** on an image is the smallest set of patches that holds the share `mass` of its attention to patches,
those with most first (of equal ones the first in reading order). Two regions overlap by their IoU, |a ∩ b| ÷ |a ∪ b|,
and an empty region overlaps with nothing. For every head,

    within       mean IoU over all pairs of images of one class
    between      mean IoU over all pairs of images of two classes
    difference   within − between: the effect of the class on where the head looks
    with mean    mean IoU of each image's region with that of the head's mean map over the other images: position alone

**Chance.** Class labels are permuted over images: p = (1 + permutations whose difference reaches the head's) ÷ (1 +
permutations), one-sided, with the null that where a head looks is independent of the class, given images that are drawn
independently. All heads share the permutations, and their p-values are adjusted by Benjamini and Hochberg's procedure.
Of heads that know no class 4.5 to 7% had p ≤ .05, with 2 to 40 images of a class; where one image in ten was there
twice 9.5%, where each was there twice all, so remove copies and near copies (frames, crops) first. A small p says that
regions go with classes, and pictures of one class are alike: it does not say that the head knows the class.

**Intervals** of the difference are percentile bootstraps over images, in which an image is not paired with itself. With
3 to 25 images of a class they held the difference in 93 to 100 of 100 cases, being up to 1.7 times too wide where it is
small; with two of each class in 78 to 88, too short. They are each head's own: that of the head with the largest
difference of many is too high.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int, Shaped
from torch import Tensor

from aotlens.conventions import Head, Progress, require_between, require_seed, require_whole, slices
from aotlens.heads.patch_grid import PatchGrid, Query
from aotlens.heads.reader import HeadReader, Model
from aotlens.models import hook_names
from aotlens.results import Result, table, top_head

if TYPE_CHECKING:
    import pandas as pd


#: Bytes of a layer's patterns that are computed at once: 64 images of 49 patches are faster in one batch than in two,
#: of 196 patches faster in two than in one.
_BYTES_AT_ONCE = 20_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageMaps(Result):
    """The patterns and value norms of every head on some images, and the maps that can be read from them."""

    grid: PatchGrid
    pattern: Float32[np.ndarray, "image layer head query key"]
    """Positions are [CLS], where there is one, then patches in reading order. Rows sum to 1 for softmax only."""
    value_norms: Float32[np.ndarray, "image layer head key"]
    """‖v‖ at each key."""

    @property
    def headline(self) -> str:
        images, layers, heads = self.pattern.shape[:3]
        return (
            f"{layers} layers × {heads} heads on {images} images of {self.grid.rows} × {self.grid.columns} patches; "
            f"query: {self.grid.query_name()}"
        )

    @property
    def has_class_token(self) -> bool:
        return self.grid.n_before > 0

    @property
    def query_name(self) -> str:
        """The query whose attention maps show by default."""
        return self.grid.query_name()

    def attention(self, query: Query = None) -> Float[np.ndarray, "image layer head row column"]:
        """Return the attention of `query` to every patch.

        `query` is a patch (row, column), "mean" over all patches, or None: [CLS] where there is one, else the mean.
        Raises `ValueError` if the patch does not exist.
        """
        return self.grid.as_map(self.grid.of_query(self.pattern, query))

    def value_weighted(self, query: Query = None) -> Float[np.ndarray, "image layer head row column"]:
        """Return pattern · ‖v‖ of `query`: the norm of what each patch alone would add to the head's z there."""
        return self.grid.as_map(self.grid.of_query(self.pattern, query) * self.value_norms)

    def to_class_token(self, query: Query = None) -> Float[np.ndarray, "image layer head"]:
        """Return the attention of `query` to what is no patch: [CLS] (and a distillation token); 0 without one."""
        return self.grid.of_query(self.pattern, query)[..., : self.grid.n_before].sum(-1)

    def rollout(self, query: Query = None) -> Float[np.ndarray, "image row column"]:
        """Return attention rollout from `query` after the last layer to the patches that were read.

        Raises `ValueError` for patterns with negative entries (a linear φ), whose products are no shares.
        """
        require_shares(self.pattern, "rollout")
        n_pos = self.pattern.shape[-1]
        mixed = self.pattern.mean(2) + np.eye(n_pos, dtype=np.float32)  # [image, layer, query, key]
        mixed /= mixed.sum(-1, keepdims=True)
        whole = np.broadcast_to(np.eye(n_pos, dtype=np.float32), (len(mixed), n_pos, n_pos))
        reached = self.grid.of_query(whole, query)
        for layer in reversed(range(mixed.shape[1])):
            reached = np.einsum("ik,ikj->ij", reached, mixed[:, layer])
        return self.grid.as_map(reached)


def image_maps(
    model: Model,
    images: Shaped[Tensor, "*image channel height width"],
    *,
    batch_size: int | None = None,
    max_bytes: float | int = 2_000_000_000,
    progress: Progress | None = None,
) -> ImageMaps:
    """Compute the maps of every head on `images`: floats as the model takes them, or one image.

    `model` is one of ours that reads patches (with MLPs, too) or a ViT as a TransformerLens bridge. `batch_size` is as
    many images as have 20 MB of patterns in a layer, unless it is given. `progress(done, total)` counts images. Time:
    one forward pass on the hooked path. Memory: 4 bytes × images × layers × heads × pos².

    Raises `ValueError` for another model, images of another size or type, and maps of more than `max_bytes`.
    """
    reader = HeadReader.of(model, "image maps", images=True)
    assert reader.grid is not None
    batch = reader.require_images(images)
    shape = (len(batch), reader.n_layers, reader.n_heads, reader.grid.n_pos)
    n_bytes = 4 * np.prod(shape, dtype=np.int64) * (reader.grid.n_pos + 1)
    if n_bytes > max_bytes:
        raise ValueError(
            f"image maps: {len(batch)} images take {n_bytes:,} bytes, above max_bytes={max_bytes:,.0f}; give fewer "
            "images at a time."
        )
    pattern = np.empty((*shape, reader.grid.n_pos), dtype=np.float32)
    value_norms = np.empty(shape, dtype=np.float32)
    at_once = batch_size or max(1, _BYTES_AT_ONCE // (4 * reader.n_heads * reader.grid.n_pos**2))
    for rows in slices(len(batch), at_once, progress=progress):
        reader.run(batch[rows], _hooks(reader, pattern[rows], value_norms[rows]))
    return ImageMaps(grid=reader.grid, pattern=pattern, value_norms=value_norms)


def require_shares(pattern: np.ndarray | Tensor, purpose: str) -> None:
    """Raise `ValueError` for attention with negative entries, which says nothing about shares."""
    if bool((pattern < 0).any()):
        raise ValueError(
            f"{purpose}: expected attention that is nowhere negative, got entries below 0 (this model's φ is linear in "
            "the scores); its maps themselves are in `attention()`."
        )


def _hooks(reader: HeadReader, pattern: np.ndarray, value_norms: np.ndarray) -> list[tuple[str, Callable[..., Any]]]:
    """Return hooks that write a batch's patterns and value norms where they belong."""
    hooks: list[tuple[str, Callable[..., Any]]] = []
    for layer in range(reader.n_layers):

        def write_pattern(value: Tensor, hook: object, layer: int = layer) -> None:
            torch.from_numpy(pattern[:, layer]).copy_(value)

        def write_norms(value: Tensor, hook: object, layer: int = layer) -> None:
            torch.from_numpy(value_norms[:, layer]).copy_(value.norm(dim=-1).transpose(1, 2))

        hooks += [(reader.pattern_name(layer), write_pattern), (hook_names.attn(layer, hook_names.V), write_norms)]
    return hooks


@dataclass(frozen=True, kw_only=True, eq=False)
class SemanticConsistency(Result):
    """Mean overlaps of every head's regions, 0 to 1, with chance beside them."""

    query: str
    """The query whose attention was read, in words."""
    mass: float
    n_images: int
    n_classes: int
    """Classes with at least one image."""
    within: Float64[np.ndarray, "layer head"]
    between: Float64[np.ndarray, "layer head"]
    with_mean: Float64[np.ndarray, "layer head"]
    region: Float64[np.ndarray, "layer head"]
    """Patches of a region on average, as a share of all."""
    intervals: Float64[np.ndarray, "layer head 2"]
    """95% of `difference`, over images."""
    p_values: Float64[np.ndarray, "layer head"]
    adjusted_p: Float64[np.ndarray, "layer head"]
    """The p-value adjusted by Benjamini and Hochberg over all heads: of those at or below q a share q is false on
    average, at most, where heads are independent or depend on one another positively."""
    n_permutations: int

    @property
    def difference(self) -> Float64[np.ndarray, "layer head"]:
        """The difference of the means, within − between."""
        return self.within - self.between

    @property
    def headline(self) -> str:
        n_found = int((self.adjusted_p <= 0.05).sum())
        return (
            f"within − between is largest in {top_head(self.difference)}; {n_found} of {self.within.size} heads above "
            "chance at a false discovery rate of 5%"
        )

    def ranking(self) -> tuple[Head, ...]:
        """Return all heads, the most consistent first."""
        order = np.argsort(-self.difference.ravel(), kind="stable")
        return tuple((int(place) // self.within.shape[1], int(place) % self.within.shape[1]) for place in order)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, within, between, difference, low, high, p, adjusted_p,
        with_mean, region."""
        columns = {
            "within": self.within, "between": self.between, "difference": self.difference,
            "low": self.intervals[..., 0], "high": self.intervals[..., 1], "p": self.p_values,
            "adjusted_p": self.adjusted_p, "with_mean": self.with_mean, "region": self.region,
        }  # fmt: skip
        return table(("layer", "head"), columns)


def semantic_consistency(
    model: Model,
    images: Shaped[Tensor, "image channel height width"],
    labels: Int[Tensor, " label"],
    *,
    mass: float = 0.5,
    query: Query = None,
    n_permutations: int = 1000,
    n_bootstrap: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> SemanticConsistency:
    """Test whether every head's region depends on the class of the image; definitions at the head of this module.

    `images` are what the model takes, `labels` the number of each one's class, whatever the model predicts; `query` is
    as in `ImageMaps.attention`. `progress(done, total)` counts images, then heads. Time: a forward pass, and for each
    head n_permutations × classes × images² and twice n_bootstrap × images² products. Memory: images² and
    n_permutations × classes × images numbers.

    Raises `ValueError` for a model that reads no images, fewer than two classes with two images each, a mass that is
    not between 0 and 1, fewer than 200 permutations, and attention with negative entries.
    """
    require_whole("n_bootstrap", n_bootstrap, 1)
    require_whole("n_permutations", n_permutations, 200)  # p cannot be below 1 ÷ (1 + them)
    import scipy.stats

    reader = HeadReader.of(model, "semantic consistency", images=True)
    batch = reader.require_images(images)
    classes, counts = labels.unique(return_counts=True)
    if labels.shape != (len(batch),) or int((counts >= 2).sum()) < 2:
        raise ValueError(
            f"labels: expected a class for each of {len(batch)} images and two classes with two images or more, got "
            f"{list(labels.shape)} with {counts.tolist()} of each class."
        )
    require_between("mass", mass, above=0, below=1)
    assert reader.grid is not None
    n_steps = len(batch) + reader.n_layers * reader.n_heads
    maps = _maps(reader, reader.grid, batch, query, batch_size, n_steps, progress)
    pairs = _Pairs.draw(labels.cpu(), n_permutations, n_bootstrap, seed)
    shape = maps.shape[:2]
    overlaps, intervals = np.empty((4, *shape)), np.empty((*shape, 2))
    p_values = np.empty(shape)
    for place, (layer, head) in enumerate(np.ndindex(*shape)):
        own = maps[layer, head]
        regions = region(own, mass)
        wide = own.double()  # in which equal patches stay equal when an image is taken off
        others = region(wide.sum(0) - wide, mass)  # the mean over the other images, up to a factor
        within, between, p_values[layer, head], intervals[layer, head] = pairs.measure(pair_overlaps(regions))
        overlaps[:, layer, head] = within, between, float(_iou(regions, others).mean()), float(regions.double().mean())
        if progress is not None:
            progress(len(batch) + place + 1, n_steps)
    within, between, with_mean, size = overlaps
    return SemanticConsistency(
        query=reader.grid.query_name(query),
        mass=mass,
        n_images=len(batch),
        n_classes=len(classes),
        within=within,
        between=between,
        with_mean=with_mean,
        region=size,
        intervals=intervals,
        p_values=p_values,
        adjusted_p=scipy.stats.false_discovery_control(p_values, axis=None, method="bh").reshape(shape),
        n_permutations=n_permutations,
    )


def region(maps: Float[Tensor, "*more patch"], mass: float) -> Bool[Tensor, "*more patch"]:
    """Find the smallest set of patches with the share `mass` of each map's sum; none of a map of zeros."""
    wide = maps.double()
    values, order = wide.sort(dim=-1, descending=True, stable=True)
    before = values.cumsum(-1) - values
    # What is reached up to rounding is reached: four patches with a quarter each hold a half with two.
    is_inside = (before < mass * wide.sum(-1, keepdim=True) * (1 - 1e-6)) & (values > 0)
    return torch.zeros_like(is_inside).scatter(-1, order, is_inside)


def pair_overlaps(regions: Bool[Tensor, "image patch"]) -> Float[Tensor, "image image"]:
    """Compute the IoU of every two images' regions, 0 of an image with itself, which is no pair."""
    member = regions.float()
    shared, sizes = member @ member.T, member.sum(1)
    union = sizes[:, None] + sizes - shared
    return (shared / union.clamp(min=1)).fill_diagonal_(0.0)


def _iou(a: Bool[Tensor, "image patch"], b: Bool[Tensor, "image patch"]) -> Float[Tensor, " image"]:
    return (a & b).sum(1).double() / (a | b).sum(1).clamp(min=1)


@torch.no_grad()
def _maps(
    reader: HeadReader,
    grid: PatchGrid,
    images: Tensor,
    query: Query,
    batch_size: int,
    n_steps: int,
    progress: Progress | None,
) -> Float[Tensor, "layer head image patch"]:
    """The attention of `query` to every patch, on the CPU."""
    maps = torch.empty(reader.n_layers, reader.n_heads, len(images), grid.n_patches)
    for start in range(0, len(images), batch_size):
        rows = slice(start, min(start + batch_size, len(images)))

        def keep(layer: int, pattern: Tensor, rows: slice = rows) -> None:
            attention = grid.as_map(grid.of_query(pattern, query)).flatten(-2)
            maps[layer, :, rows] = attention.transpose(0, 1).to(maps)

        reader.listen_to_patterns(images[rows], keep)
        if progress is not None:
            progress(rows.stop, n_steps)
    require_shares(maps, "semantic consistency")
    return maps


@dataclass(frozen=True, kw_only=True)
class _Pairs:
    """The pairs of images of one class: as they are, with labels permuted, and in bootstrap draws of images."""

    members: Float[Tensor, "image class"]
    permuted: Float[Tensor, "image column"]
    """The members under every permutation of the labels, classes side by side."""
    draws: Float[Tensor, "draw image"]
    """The number of times that an image was drawn."""

    @classmethod
    def draw(cls, labels: Int[Tensor, " image"], n_permutations: int, n_bootstrap: int, seed: int) -> _Pairs:
        generator = torch.Generator().manual_seed(require_seed(seed))
        numbers = labels.unique(return_inverse=True)[1]
        n_images = len(labels)
        members = torch.nn.functional.one_hot(numbers).float()
        orders = torch.rand(n_images, n_permutations, generator=generator, dtype=torch.float64).argsort(0)
        drawn = torch.randint(n_images, (n_bootstrap, n_images), generator=generator)
        draws = torch.zeros(n_bootstrap, n_images).scatter_add_(1, drawn, torch.ones(drawn.shape))
        return cls(members=members, permuted=members[orders].flatten(1), draws=draws)

    def measure(self, overlaps: Float[Tensor, "image image"]) -> tuple[float, float, float, np.ndarray]:
        """Return within, between, p, and the interval of their difference, of one head's `pair_overlaps`."""
        same = self.members @ self.members.T
        same.fill_diagonal_(0.0)
        n_pairs, n_same = len(same) * (len(same) - 1), float(same.sum())
        total = float(overlaps.double().sum())

        def difference(within: Tensor) -> Tensor:
            return within / n_same - (total - within) / (n_pairs - n_same)

        own = (overlaps * same).double().sum()
        sums = (self.permuted * (overlaps @ self.permuted)).double()
        permuted = sums.sum(0).unflatten(0, (-1, self.members.shape[1])).sum(1)
        reach = difference(permuted) >= difference(own) - 1e-6  # a permutation that changes nothing reaches it
        p = (1 + int(reach.sum())) / (1 + len(permuted))
        interval = np.nanquantile(self._bootstrap(overlaps, same).numpy(), (0.025, 0.975))
        return float(own) / n_same, (total - float(own)) / (n_pairs - n_same), p, interval

    def _bootstrap(self, overlaps: Tensor, same: Tensor) -> Float64[Tensor, " draw"]:
        """The difference in every draw; NaN where it has no pair of one class or of two."""

        def over(pairs: Tensor, values: Tensor) -> Tensor:
            weights = (self.draws @ pairs * self.draws).double().sum(1)
            return (self.draws @ (values * pairs) * self.draws).double().sum(1) / weights

        different = (1 - same).fill_diagonal_(0.0)
        return over(same, overlaps) - over(different, overlaps)
