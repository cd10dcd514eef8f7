"""The effect of patches on a class when the full model runs: insertion and deletion curves, by several orders of
patches.

Patches are ordered for each image, those that matter most first:

    paths       what they add to the class above the mean over classes, along all paths (`aotlens.paths.patches`),
                and not by way of MLPs
    rollout     attention rollout
    attention   attention of the last layer, averaged over heads
    random      no order: the mean over some random ones, which says what any order gets

**Deletion** replaces the first k patches by the baseline, **insertion** puts the first k patches of the image into the
baseline, and the model runs on each: the logit of the class above the mean over classes. An order that knows what
matters makes deletion fall and insertion rise at once: a small area under the first curve, a large one under the
second. The baseline decides what "without a patch" means: "mean" is the mean image of the reference at that place,
"zero" is 0 in what the model reads (a grey where the mean of pixels was taken off).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int, Int64, Shaped
from torch import Tensor

from aotlens.conventions import Progress, require_seed, require_whole
from aotlens.heads.image_maps import image_maps
from aotlens.heads.patch_grid import PatchGrid
from aotlens.heads.reader import HeadReader
from aotlens.models import PHIS, AttentionOnlyTransformer, require_ours
from aotlens.paths.patches import patch_contributions
from aotlens.results import Result, data_frame
from aotlens.statistics import ratio_intervals

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("paths", "rollout", "attention", "random")
#: Steps of a curve unless some other number is asked for, at most one a patch.
_STEPS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchCurves(Result):
    """The logit of a class above the mean over classes, by how many patches were replaced or put in."""

    methods: tuple[str, ...]
    classes: Int64[np.ndarray, " image"]
    """The class of each image."""
    baseline: str
    shares: Float64[np.ndarray, " step"]
    """The share of the patches that were replaced (deletion) or put in (insertion), 0 to 1."""
    deletion: Float64[np.ndarray, "method image step"]
    insertion: Float64[np.ndarray, "method image step"]

    @property
    def headline(self) -> str:
        areas = zip(self.methods, self.area_deletion.mean(1), self.area_insertion.mean(1), strict=True)
        return "area under deletion, insertion: " + ", ".join(f"{name} {a:.2f}, {b:.2f}" for name, a, b in areas)

    @property
    def area_deletion(self) -> Float64[np.ndarray, "method image"]:
        """The mean logit above the mean over classes while patches are deleted, in order: small for a good order."""
        return np.trapezoid(self.deletion, self.shares, axis=-1)

    @property
    def area_insertion(self) -> Float64[np.ndarray, "method image"]:
        """The mean logit above the mean over classes while patches are inserted, in order: large for a good order."""
        return np.trapezoid(self.insertion, self.shares, axis=-1)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a method: its two areas, and how far they are from the last method's, with 95% intervals over
        images of the paired difference (deletion_low, …)."""
        columns: dict[str, object] = {"method": self.methods}
        for name, areas in (("deletion", self.area_deletion), ("insertion", self.area_insertion)):
            differences = areas - areas[-1:]
            low, high = ratio_intervals(differences, np.ones(areas.shape[1])).T
            columns |= {name: areas.mean(1), f"{name}_difference": differences.mean(1)}
            columns |= {f"{name}_low": low, f"{name}_high": high}
        return data_frame(columns)


@torch.no_grad()
def patch_curves(
    model: AttentionOnlyTransformer,
    images: Shaped[Tensor, "image channel height width"],
    classes: Int[Tensor, " class"] | None = None,
    methods: Iterable[str] | None = None,
    *,
    baseline: str | Shaped[Tensor, "channel height width"] = "mean",
    reference: Shaped[Tensor, "other channel height width"] | None = None,
    n_steps: int | None = None,
    n_random: int = 3,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> PatchCurves:
    """Return insertion and deletion curves of `images` by `methods`, as defined above (None: all, without rollout where
    some attention is negative).

    `classes` is one for each image (None: what the model chooses). `baseline` is "mean", the mean over `reference`
    (None: over `images`), "zero", or an image as the model takes it. `n_steps` is at most the number of patches.
    `progress(done, total)` counts images. Time for an image: 2 × (n_steps + 1) forward passes a method, times n_random
    for "random".

    Raises `ValueError` for another model, method or baseline, and for the mean of one image.
    """
    if n_steps is not None:
        require_whole("n_steps", n_steps, 1)
    require_whole("n_random", n_random, 1)
    require_ours(model, "patch curves", without=("norm_after", "norm_output"))
    reader = HeadReader.of(model, "patch curves", images=True)
    assert reader.grid is not None
    batch, grid = reader.require_images(images), reader.grid
    names = _methods(model, batch, methods, batch_size)
    empty, baseline_name = _baseline(reader, baseline, batch, reference)
    if model.cfg.read_out != "classes" or model.cfg.pooling is None:
        raise ValueError(f"patch curves: expected a model of classes, got read_out={model.cfg.read_out!r}.")
    targets = torch.cat([model(part).argmax(-1) for part in batch.split(batch_size)]) if classes is None else classes
    if targets.shape != (len(batch),) or not bool(((targets >= 0) & (targets < (model.cfg.d_out or 0))).all()):
        raise ValueError(
            f"classes: expected one of 0 to {(model.cfg.d_out or 0) - 1} for each of {len(batch)} images, got "
            f"{list(targets.shape)}."
        )
    steps = min(n_steps or _STEPS, grid.n_patches)
    counts = torch.linspace(0, grid.n_patches, steps + 1).round().long()
    curves = np.empty((2, len(names), len(batch), len(counts)))
    generator = torch.Generator().manual_seed(require_seed(seed))
    for index, image in enumerate(batch):
        one_image = image[None]
        for place, method in enumerate(names):
            if method == "random":
                orders = [torch.randperm(grid.n_patches, generator=generator) for _ in range(n_random)]
            else:
                orders = [_order(model, one_image, int(targets[index]), method)]
            first = torch.cat([order.argsort() < counts[:, None] for order in orders])  # [order · step, patch]
            inserted = _mix(grid, one_image, empty, first)
            deleted = _mix(grid, empty, one_image, first)
            mixed = torch.cat([deleted, inserted]).to(model.device)
            logits = torch.cat([model(part) for part in mixed.split(batch_size)]).double()
            above = (logits[:, targets[index]] - logits.mean(-1)).cpu()
            curves[:, place, index] = above.view(2, len(orders), len(counts)).mean(1).numpy()
        if progress is not None:
            progress(index + 1, len(batch))
    return PatchCurves(
        methods=names,
        classes=targets.cpu().numpy().astype(np.int64),
        baseline=baseline_name,
        shares=counts.double().numpy() / grid.n_patches,
        deletion=curves[0],
        insertion=curves[1],
    )


def _methods(
    model: AttentionOnlyTransformer, images: Tensor, methods: Iterable[str] | None, batch_size: int
) -> tuple[str, ...]:
    """The methods that were named; for None all that the model has, which is no rollout of negative attention."""
    if methods is None:
        parts = () if PHIS[model.cfg.phi].normalises else images.split(batch_size)
        signed = any((image_maps(model, part, batch_size=batch_size).pattern < 0).any() for part in parts)
        return tuple(method for method in METHODS if not (signed and method == "rollout"))
    names = tuple(dict.fromkeys([methods] if isinstance(methods, str) else methods))
    if not names or not set(names) <= set(METHODS):
        raise ValueError(f"methods: expected some of {', '.join(METHODS)}, got {', '.join(names) or 'none'}.")
    return names


def _baseline(
    reader: HeadReader, baseline: str | Tensor, images: Tensor, reference: Tensor | None
) -> tuple[Tensor, str]:
    """An image that stands for nothing, `[1, channel, height, width]`, and what it is in words."""
    if isinstance(baseline, Tensor):
        return reader.require_images(baseline, "baseline"), "a custom image"
    if baseline == "zero":
        return torch.zeros_like(images[:1]), "zero in what the model reads"
    if baseline != "mean":
        raise ValueError(f"baseline={baseline!r}: expected 'mean', 'zero', or an image as the model takes it.")
    others = images if reference is None else reader.require_images(reference, "reference")
    if len(others) < 2:
        raise ValueError(
            "baseline='mean': the mean of a single image is the image itself; give reference=images, or 'zero'."
        )
    return others.mean(0, keepdim=True), f"the mean of {len(others)} images"


def _order(model: AttentionOnlyTransformer, image: Tensor, target: int, method: str) -> Int64[Tensor, " patch"]:
    """Order patches by what matters, most first."""
    if method == "paths":
        values = patch_contributions(model, image, target).above_mean.patches[0, 0]
    else:
        maps = image_maps(model, image)
        values = maps.rollout()[0] if method == "rollout" else maps.attention()[0, -1].mean(0)
    return torch.from_numpy(values.ravel().copy()).argsort(descending=True, stable=True)


def _mix(
    grid: PatchGrid,
    image: Shaped[Tensor, "1 channel height width"],
    other: Shaped[Tensor, "1 channel height width"],
    patches: Bool[Tensor, "n patch"],
) -> Shaped[Tensor, "n channel height width"]:
    """`image` where `patches` are True, and `other` elsewhere."""
    _, height, width = grid.image
    pixels = patches.view(-1, 1, grid.rows, grid.columns)
    pixels = pixels.repeat_interleave(height // grid.rows, -2).repeat_interleave(width // grid.columns, -1)
    return torch.where(pixels.to(image.device), image, other)
