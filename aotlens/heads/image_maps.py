"""The attention of every head to an image: to its patches, as maps, from one forward pass.

For head h of layer l, with `pattern[l, h, query, key]` = φ(scores),

    attention        pattern[q, patches]: whose q is [CLS] where there is one, a patch, or the mean over all patches
    value-weighted   pattern[q, k] · ‖v_k‖, with ‖v_k‖ the length of the value vector at k (d_head units): a head can
                     attend strongly to a key whose value is small, and then moves little
    rollout          row q of Â_L ⋯ Â_1, with Â_l = (mean over heads of pattern_l + I), rows divided by their sums
                     (Abnar and Zuidema 2020): attention followed through all layers, the skip connection included

A map leaves out what goes to [CLS]; `to_class_token` says how much that is. Rollout knows neither values nor the
read-out: what patches add to a class is `aotlens.paths.patch_contributions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.heads.patch_grid import PatchGrid, Query
from aotlens.heads.reader import HeadReader, Model
from aotlens.models import hook_names
from aotlens.results import Result

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
        """The query whose attention maps show unless another query is asked for."""
        return self.grid.query_name()

    def attention(self, query: Query = None) -> Float[np.ndarray, "image layer head row column"]:
        """Return the attention of `query` to every patch.

        `query` is a patch (row, column), "mean" over all patches, or None: [CLS] where there is one, else the mean.
        Raises `ValueError` for a patch that there is not.
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
    for start in range(0, len(batch), at_once):
        rows = slice(start, min(start + at_once, len(batch)))
        hooks = _hooks(reader, pattern[rows], value_norms[rows])
        reader.run(batch[rows], hooks)
        if progress is not None:
            progress(rows.stop, len(batch))
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

    def write_pattern(layer: int) -> Callable[..., None]:
        def hook(value: Tensor, hook: object) -> None:
            torch.from_numpy(pattern[:, layer]).copy_(value)

        return hook

    def write_norms(layer: int) -> Callable[..., None]:
        def hook(value: Tensor, hook: object) -> None:
            torch.from_numpy(value_norms[:, layer]).copy_(value.norm(dim=-1).transpose(1, 2))

        return hook

    reads = [(reader.pattern_name(layer), write_pattern(layer)) for layer in range(reader.n_layers)]
    return reads + [(hook_names.attn(layer, hook_names.V), write_norms(layer)) for layer in range(reader.n_layers)]
