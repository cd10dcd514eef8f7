"""The maps of all heads on some images, as the browser draws them without a server: a byte a patch.

A map has 255 steps up to its own largest magnitude, which is kept beside it, so what a reader is told of a patch is
right to 0.002 of the map's largest, or 0.004 of maps with a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8

from aotlens.plots.attention import to_levels

if TYPE_CHECKING:
    from aotlens.heads import ImageRun

Queries = Sequence[tuple[int, int] | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchMaps:
    """The maps of a run, and what is said of each image.

    Raises `ValueError` for maps that are not finite, and for as many sayings as there are no images.
    """

    run: ImageRun
    says: Sequence[Mapping[str, Any]]
    """Each image's `text`, the line below it, `title`, and `wrong`, whether the model takes it for something else."""
    queries: Queries | None = None
    """The queries of the maps; None: the run's own query ([CLS], or the mean over patches), then every patch."""
    name: str = ""
    """The model, in titles of pictures that are saved."""

    def __post_init__(self) -> None:
        if len(self.says) != len(self.run.images):
            raise ValueError(f"PatchMaps: expected {len(self.run.images)} sayings, got {len(self.says)}.")
        if not (np.isfinite(self.run.maps.pattern).all() and np.isfinite(self.run.maps.value_norms).all()):
            raise ValueError(
                "The attention is not finite on these images: some weight or activation is NaN or too large. There are "
                "no maps of it."
            )

    @cached_property
    def _queries(self) -> Queries:
        grid = self.run.maps.grid
        return [None, *np.ndindex(grid.rows, grid.columns)] if self.queries is None else self.queries

    @cached_property
    def _attention(self) -> Float[np.ndarray, "image layer head query patch"]:
        maps = [self.run.maps.attention(query) for query in self._queries]
        return np.stack(maps, axis=3).reshape(*maps[0].shape[:3], len(maps), -1)

    @cached_property
    def _rollout(self) -> Float[np.ndarray, "image query patch"] | None:
        if (self.run.maps.pattern < 0).any():
            return None
        maps = [self.run.maps.rollout(query) for query in self._queries]
        return np.stack(maps, axis=1).reshape(len(maps[0]), len(maps), -1)

    @cached_property
    def arrays(self) -> list[Shaped[np.ndarray, ...]]:
        """Pixels; steps of attention and their tops; lengths of values; steps of rollout and their tops."""
        norms = self.run.maps.grid.as_map(self.run.maps.value_norms)
        rollout = [] if self._rollout is None else _steps(self._rollout, signed=False)
        attention = _steps(self._attention, signed=self._is_signed)
        return [self.run.images, *attention, norms.astype("<f4"), *rollout]

    @cached_property
    def _is_signed(self) -> bool:
        return bool((self._attention < 0).any())

    @cached_property
    def header(self) -> dict[str, Any]:
        """The facts about the maps."""
        grid, (n_images, channels, *size) = self.run.maps.grid, self.run.images.shape
        layers, heads = self.run.maps.pattern.shape[1:3]
        return {
            "images": n_images, "channels": channels, "size": size, "layers": layers, "heads": heads,
            "rows": grid.rows, "columns": grid.columns, "signed": self._is_signed, "positions": grid.n_patches,
            "only": None if self.queries is None else [None if at is None else list(at) for at in self.queries],
            "query": grid.query_name(), "says": list(map(dict, self.says)), "name": self.name,
            "off": [list(head) for head in self.run.ablated],
        }  # fmt: skip


def n_bytes(n_images: int, n_heads: int, n_patches: int) -> int:
    """Estimate the bytes that the maps of every query of so many images, heads and patches take."""
    return n_images * n_heads * (n_patches + 1) * (n_patches + 4)


def _steps(values: Float[np.ndarray, "*more patch"], *, signed: bool) -> list[UInt8[np.ndarray, ...]]:
    """The values as steps of their own map's largest magnitude, and these."""
    tops = np.abs(values).max(-1, keepdims=True)
    tops = np.where(tops > 0, tops, np.float32(1)).astype("<f4")
    return [to_levels((values / tops).astype(np.float32), 1.0, "diverging" if signed else "sequential"), tops]
