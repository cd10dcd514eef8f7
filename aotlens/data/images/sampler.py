"""Batches of images for training, each a pure function of (seed, step), with flips, shifts and crops.

Randomness is `aotlens.data.sampler`'s: raw words of a counter-based generator, so that a resumed run sees what an
unbroken one would and processes can slice one global batch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from aotlens.data.images.image_data import ImageSet
from aotlens.data.sampler import uniform_words

_ORDER_STREAM, _CHANGE_STREAM = 6, 7


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSampler:
    """Every image once an epoch, in an order drawn for each; an epoch's last batch runs over into the next.

    Raises `ValueError` for settings that do not fit the images.
    """

    images: ImageSet
    batch_size: int
    seed: int
    flip: bool = False
    """Mirror half of the images, left to right."""
    shift: int = 0
    """Move each image by up to so many pixels, down or up and right or left, over black."""
    crop: float | None = None
    """Scale a part of each image to its whole size: of a random place, an area from this share to 1, and a ratio of
    sides from 3/4 to 4/3 (Szegedy et al. 2015); None takes the whole image."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or len(self.images) < 1:
            raise ValueError(
                f"expected batch_size ≥ 1 and at least one image, got {self.batch_size} and {len(self.images)}."
            )
        side = min(self.images.images.shape[2:])
        if not 0 <= self.shift < side:
            raise ValueError(f"shift={self.shift}: expected from 0 to {side - 1} pixels, as the images have {side}.")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ValueError(f"crop={self.crop}: expected the smallest share of the area, from 0 to 1, or none.")

    def indices(self, step: int) -> Int64[Tensor, " batch"]:
        """Return the indices of the images that the step sees."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, within = np.divmod(places, len(self.images))
        chosen = [
            _order(self.seed, int(epoch), len(self.images))[within[epochs == epoch]] for epoch in np.unique(epochs)
        ]
        return torch.from_numpy(np.concatenate(chosen))

    def batch(self, step: int) -> tuple[UInt8[Tensor, "batch channel height width"], Int64[Tensor, " batch"]]:
        """Return the images of a step, each changed in its own way, and their classes."""
        indices = self.indices(step)
        images = self.images.images[indices]
        uniform = uniform_words(self.seed, _CHANGE_STREAM, step, (self.batch_size, 7)) >> np.uint64(11)
        draws = torch.from_numpy(uniform.astype(np.float64) * 2.0**-53)  # from 0 to 1
        if self.flip:
            images = torch.where((draws[:, 0] < 0.5)[:, None, None, None], images.flip(-1), images)
        if self.shift:
            images = _shifted(images, ((2 * self.shift + 1) * draws[:, 1:3]).long(), self.shift)
        if self.crop is not None:
            images = _cropped(images, draws[:, 3:], self.crop)
        return images, self.images.labels[indices]


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, n_images: int) -> np.ndarray:
    """The order of all images in an epoch."""
    return uniform_words(seed, _ORDER_STREAM, epoch, (n_images, 1))[:, 0].argsort(kind="stable")


def _shifted(images: Tensor, corners: Int64[Tensor, "batch 2"], shift: int) -> Tensor:
    """The part of each image, with `shift` black pixels around it, whose upper left corner is given."""
    batch, channels, height, width = images.shape
    rows = corners[:, 0, None] + torch.arange(height)  # [batch, height]
    columns = corners[:, 1, None] + torch.arange(width)
    around = pad(images, (shift, shift, shift, shift))
    return around[
        torch.arange(batch)[:, None, None, None],
        torch.arange(channels)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def _cropped(images: Tensor, draws: Tensor, least: float) -> Tensor:
    """A part of each image at its whole size, by bilinear interpolation; `draws` `[batch, 4]` from 0 to 1."""
    height, width = images.shape[2:]
    area = least + (1 - least) * draws[:, 0]
    ratio = (4 / 3) ** (2 * draws[:, 1] - 1)
    scale_x, scale_y = ((area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1))
    centre_x, centre_y = (
        (1 - scale) * (2 * draw - 1) for scale, draw in ((scale_x, draws[:, 2]), (scale_y, draws[:, 3]))
    )
    across, down = ((torch.arange(n) * 2 + 1) / n - 1 for n in (width, height))  # centres of pixels, from −1 to 1
    x = (centre_x[:, None] + scale_x[:, None] * across)[:, None, :].expand(-1, height, -1)
    y = (centre_y[:, None] + scale_y[:, None] * down)[:, :, None].expand(-1, -1, width)
    grid = torch.stack([x, y], dim=-1).float()
    parts = grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return parts.round().clamp(0, 255).to(torch.uint8)
