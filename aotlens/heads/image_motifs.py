"""Targets of a head in an image: neighbours of a patch, the border, what stands out from the background."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.patch_grid import PatchGrid


def grid_of(inputs: Inputs) -> PatchGrid:
    """Return the grid of the images' patches. Raises `Missing` for inputs that are none."""
    return inputs.need(inputs.grid, "images")


def neighbour(down: int, right: int) -> Callable[[Inputs], Targets]:
    """Return the patch so many rows down and columns to the right of the query."""

    def mask(inputs: Inputs) -> Targets:
        grid = grid_of(inputs)
        keys = torch.zeros(grid.n_pos, grid.n_pos, dtype=torch.bool)
        for row in range(max(0, -down), min(grid.rows, grid.rows - down)):
            for column in range(max(0, -right), min(grid.columns, grid.columns - right)):
                keys[grid.position(row, column), grid.position(row + down, column + right)] = True
        return inputs.targets(keys)

    return mask


def border(inputs: Inputs) -> Targets:
    """Return the patches at the edge of the image, for every query, [CLS] included."""
    grid = grid_of(inputs)
    edge = torch.ones(grid.rows, grid.columns, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    return _for_every_query(inputs, edge.flatten().expand(len(inputs), -1))


def foreground(inputs: Inputs) -> Targets:
    """Return the patches that stand out from the background, for every query, [CLS] included."""
    return _for_every_query(inputs, standing_out(inputs.tokens, grid_of(inputs)))


def standing_out(images: Float[Tensor, "batch channel height width"], grid: PatchGrid) -> Bool[Tensor, "batch patch"]:
    """Return the patches whose mean distance from the background is beyond Otsu's threshold (1979) of the image's
    patches.

    The background is the median of the image's outermost pixels, for each channel. The threshold is the one of two
    groups whose means differ most, n₀ n₁ (μ₀ − μ₁)². An image whose patches are all as far has none, nor has one patch.
    """
    if grid.n_patches == 1:
        return torch.zeros(len(images), 1, dtype=torch.bool)
    edge = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 1:-1, 0], images[..., 1:-1, -1]], dim=-1)
    away = (images - edge.median(-1).values[..., None, None]).abs().mean(1)
    _, height, width = grid.image
    patches = away.unflatten(-1, (grid.columns, width // grid.columns)).mean(-1)
    far = patches.unflatten(-2, (grid.rows, height // grid.rows)).mean(-2).flatten(1).double().cpu()
    values, sums = far.sort(dim=-1).values, far.sort(dim=-1).values.cumsum(-1)
    below = torch.arange(1, grid.n_patches, dtype=torch.float64)
    above = grid.n_patches - below
    low, high = sums[:, :-1] / below, (sums[:, -1:] - sums[:, :-1]) / above
    between, place = (below * above * (high - low).square()).max(-1)
    return (far > values.gather(1, place[:, None])) & (between > 1e-12)[:, None]


def _for_every_query(inputs: Inputs, patches: Bool[Tensor, "batch patch"]) -> Targets:
    """Every query, [CLS] included, of the images that have such a patch."""
    grid = grid_of(inputs)
    keys = torch.zeros(len(inputs), grid.n_pos, dtype=torch.bool)
    keys[:, grid.n_before :] = patches
    every = keys[:, None, :].expand(-1, grid.n_pos, -1)
    return Targets(keys=every, queries=every.any(-1))
