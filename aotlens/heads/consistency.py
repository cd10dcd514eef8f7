"""Does a head look at the same part of the image across images of a class? (*aot*, Figure 7, without picking by hand.)

A head's **region** on an image is the smallest set of patches that holds the share `mass` of its attention to patches,
those with most first (of equal ones the first in reading order). Two regions overlap by their IoU, |a ∩ b| ÷ |a ∪ b|;
a region without a patch, where a head attends to none, overlaps with nothing. For every head,

    within       mean IoU over all pairs of images of one class
    between      mean IoU over all pairs of images of two classes
    difference   within − between: what the class has to do with where the head looks
    with mean    mean IoU of each image's region with that of the head's mean map over the other images: position alone

A head that always looks at the same place has within = between = 1, and difference 0.

**Chance.** Class labels are permuted over images: p = (1 + permutations whose difference reaches the head's) ÷ (1 +
permutations), one-sided, with the null that where a head looks has nothing to do with the class, given images that are
drawn independently. All heads share the permutations, and their p-values are adjusted by Benjamini and Hochberg's
procedure (`scipy.stats.false_discovery_control`). Of heads that know no class 4.5 to 7% had p ≤ .05, with 2 to 40
images of a class; where one image in ten was there twice 9.5%, where each was there twice all, so take copies and
near copies (frames, crops) out first. p below the level says that regions go with classes, and pictures of one class
are alike: it does not say that the head knows the class.

**Intervals** of the difference are percentile bootstraps over images, in which an image is not paired with itself. With
3 to 25 images of a class they held the difference in 93 to 100 of 100 cases, being up to 1.7 times too wide where it is
small; with two of each class in 78 to 88, too short. They are each head's own: that of the head with the largest
difference of many is too high.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor

from aotlens.conventions import Head, Progress, require_seed, require_whole
from aotlens.heads.image_maps import require_shares
from aotlens.heads.patch_grid import PatchGrid, Query
from aotlens.heads.reader import HeadReader, Model
from aotlens.results import Result, top_head

if TYPE_CHECKING:
    import pandas as pd


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
        """Return one row a head: layer, head, within, between, difference, low, high, p, adjusted_p, with_mean,
        region."""
        import pandas as pd

        layer_and_head: np.ndarray = np.indices(self.within.shape)
        columns: dict[str, np.ndarray] = {
            "layer": layer_and_head[0], "head": layer_and_head[1], "within": self.within, "between": self.between,
            "difference": self.difference, "low": self.intervals[..., 0], "high": self.intervals[..., 1],
            "p": self.p_values, "adjusted_p": self.adjusted_p, "with_mean": self.with_mean, "region": self.region,
        }  # fmt: skip
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})


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
    require_whole("n_permutations", n_permutations, 1)
    import scipy.stats

    reader = HeadReader.of(model, "semantic consistency", images=True)
    batch = reader.require_images(images)
    classes, counts = labels.unique(return_counts=True)
    if labels.shape != (len(batch),) or int((counts >= 2).sum()) < 2:
        raise ValueError(
            f"labels: expected a class for each of {len(batch)} images and two classes with two images or more, got "
            f"{list(labels.shape)} with {counts.tolist()} of each class."
        )
    if not 0 < mass < 1:
        raise ValueError(f"mass={mass}: expected a share of the attention between 0 and 1.")
    if n_permutations < 200:
        raise ValueError(f"n_permutations={n_permutations}: expected 200 or more; p cannot be below 1 ÷ (1 + them).")
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
        with_mean = float(_iou(regions, others).mean())
        overlaps[:, layer, head] = within, between, with_mean, float(regions.double().mean())
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
