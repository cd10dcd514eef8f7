"""The positions of an image: its patches in reading order, and what stands before them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

#: The query whose attention a map shows: a patch (row, column), "mean" over all patches, or None: [CLS], or else the
#: mean.
Query: TypeAlias = tuple[int, int] | str | None
Array = TypeVar("Array", Tensor, np.ndarray)


@dataclass(frozen=True, kw_only=True)
class PatchGrid:
    """The patches of a model's images."""

    rows: int
    columns: int
    n_before: int
    """Positions before the first patch: 1 for [CLS], 2 where a distillation token follows it, else 0."""
    image: tuple[int, int, int]
    """(channels, height, width) of an image, in pixels."""

    @classmethod
    def of(cls, model: Any, is_bridge: bool = False) -> PatchGrid:
        """Return the patches of a model of ours that reads patches, or of a ViT behind a TransformerLens bridge."""
        cfg = model.original_model.config if is_bridge else model.cfg
        height, width = _pair(cfg.image_size)
        patch_height, patch_width = _pair(cfg.patch_size)
        rows, columns = height // patch_height, width // patch_width
        channels = cfg.num_channels if is_bridge else cfg.n_channels
        n_pos = _n_positions(model, rows * columns) if is_bridge else cfg.n_ctx
        return cls(rows=rows, columns=columns, n_before=n_pos - rows * columns, image=(channels, height, width))

    @property
    def n_patches(self) -> int:
        return self.rows * self.columns

    @property
    def n_pos(self) -> int:
        """Positions of an image: patches, and what stands before them."""
        return self.n_before + self.n_patches

    @property
    def expected(self) -> str:
        """The input of the model, in words for an error."""
        return f"images [image, {', '.join(map(str, self.image))}] as floats"

    def position(self, row: int, column: int) -> int:
        """Return the position of a patch. Raises `ValueError` if it is outside the image."""
        if not (0 <= row < self.rows and 0 <= column < self.columns):
            raise ValueError(
                f"patch ({row}, {column}): expected a row from 0 to {self.rows - 1} and a column from 0 to "
                f"{self.columns - 1}."
            )
        return self.n_before + row * self.columns + column

    def query_name(self, query: Query = None) -> str:
        """Name the query that `query` asks for. Raises `ValueError` for what names no query."""
        if query is None:
            return "[CLS]" if self.n_before else "mean over queries"
        if query == "mean":
            return "mean over queries"
        return "patch ({}, {})".format(*self._patch(query))

    def of_query(self, pattern: Array, query: Query = None) -> Array:
        """Return the attention of a query to every key: the row of `pattern` `[…, query, key]`, or the mean over
        patches."""
        if query == "mean" or (query is None and not self.n_before):
            return pattern[..., self.n_before :, :].mean(-2)
        return pattern[..., 0 if query is None else self.position(*self._patch(query)), :]

    def as_map(self, keys: Array) -> Array:
        """Return the values at every position `[…, key]`, of the patches alone and as they lie: `[…, row, column]`."""
        return keys[..., self.n_before :].reshape(*keys.shape[:-1], self.rows, self.columns)

    def _patch(self, query: Any) -> tuple[int, int]:
        try:
            row, column = (index(part) for part in query)
        except (TypeError, ValueError):
            raise ValueError(
                f'query={query!r}: expected a patch (row, column), "mean" over all patches, or None, which is [CLS] '
                "where there is one."
            ) from None
        self.position(row, column)
        return row, column


def _pair(size: Any) -> tuple[int, int]:
    return (int(size), int(size)) if not hasattr(size, "__len__") else (int(size[0]), int(size[1]))


def _n_positions(bridge: Any, n_patches: int) -> int:
    """Rows of a ViT's position table; [CLS] and the patches where it has none."""
    for name, parameter in bridge.original_model.named_parameters():
        if name.endswith("position_embeddings") and parameter.ndim == 3:
            return int(parameter.shape[1])
    return n_patches + 1
