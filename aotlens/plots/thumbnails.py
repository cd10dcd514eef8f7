"""All heads of a model in one small picture.

144 heatmaps as subplots take a browser 587 ms, one PNG 49 ms. The picture is a grid without gaps, row = layer,
column = head, with one byte a pixel and a palette; cells where a query can't see a key are transparent.
"""

from __future__ import annotations

import base64
import io

import numpy as np
from jaxtyping import Bool, Float, Int16, Shaped, UInt8
from PIL import Image

from aotlens.plots.colours import Scale, Theme, lookup

#: The palette's last entry: nothing to see here.
TRANSPARENT = 255


def sprite(
    values: Float[np.ndarray, "layer head query key"],
    visible: Bool[np.ndarray, "mask query key"] | None = None,
    *,
    cell: int = 64,
    scale: Scale = "sequential",
    theme: Theme = "light",
) -> bytes:
    """Return a PNG of every head's map, at most `cell` pixels a side. `visible` (one mask, or one per head) hides the
    rest.

    About 20 ms for 144 heads of 128 tokens.
    """
    if visible is not None:
        values = np.where(visible[None], values, np.float32(0))
    # The entry of a block that is largest before it is shaded is largest afterwards; and few are left to shade.
    shaded = shade(pool(values, cell), scale)
    if visible is not None:
        seen = pool(visible.astype(np.int16), cell)[None].astype(bool)
        shaded = np.where(seen, shaded, np.int16(TRANSPARENT))
    layers, heads, rows, columns = shaded.shape
    offset = 0 if scale == "sequential" else (TRANSPARENT - 1) // 2
    shaded = np.where(shaded == TRANSPARENT, shaded, shaded + offset).astype(np.uint8)
    return _png(shaded.transpose(0, 2, 1, 3).reshape(layers * rows, heads * columns), scale, theme)


def shade(values: Float[np.ndarray, "layer head query key"], scale: Scale) -> Int16[np.ndarray, "layer head query key"]:
    """Return palette steps, each head on its own scale: 0 to 254, or −127 to 127 if diverging, at its largest
    magnitude.

    The grid is for finding shapes; sizes are read off the large map, which has a colour bar.
    """
    top = np.maximum(values.max(axis=(-2, -1), keepdims=True), -values.min(axis=(-2, -1), keepdims=True))
    steps = TRANSPARENT - 1 if scale == "sequential" else (TRANSPARENT - 1) // 2
    factor = np.divide(steps, top, out=np.zeros_like(top), where=top > 0)
    shaded = np.rint(values * factor).astype(np.int16)
    return np.maximum(shaded, 0) if scale == "sequential" else shaded


def pool(maps: Shaped[np.ndarray, "*stack query key"], cell: int) -> Shaped[np.ndarray, "*stack row column"]:
    """Return maps shrunk by a whole factor to at most `cell` a side, by the entry largest in magnitude of each block.

    A mean would fade a previous-token head's one-pixel line as the text grows.
    """
    factor = -(-maps.shape[-1] // cell)
    if factor == 1:
        return maps
    signed = bool((maps < 0).any())
    for axis in (maps.ndim - 2, maps.ndim - 1):
        short = -maps.shape[axis] % factor
        if short:
            maps = np.pad(maps, [(0, short if a == axis else 0) for a in range(maps.ndim)])
        every = (slice(None),) * axis
        parts = [maps[(*every, slice(start, None, factor))] for start in range(factor)]
        maps = parts[0]
        for part in parts[1:]:
            maps = np.where(np.abs(part) > np.abs(maps), part, maps) if signed else np.maximum(maps, part)
    return maps


def data_uri(png: bytes) -> str:
    """Return a PNG as the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _png(picture: UInt8[np.ndarray, "height width"], scale: Scale, theme: Theme) -> bytes:
    image = Image.fromarray(np.ascontiguousarray(picture))
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[:TRANSPARENT] = lookup(scale, theme, TRANSPARENT)
    image.putpalette(palette.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", transparency=TRANSPARENT, compress_level=1)
    return buffer.getvalue()
