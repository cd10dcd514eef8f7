"""The maps of all heads on one prompt, for the app, the notebook and the report.

maps.py      what is drawn: a byte an entry and its scale, tokens, masks
patches.py   the same on images: a byte a patch and its scale
long_maps.py    the same of thousands of tokens: a byte a block of entries, and tiles
packed.py    a header and arrays as bytes, or as one string that a page carries
patches.js   the parts that draw these over images, joined to widget.js for the app
tiles.js     the parts that draw long maps and ask for tiles in sight, joined to widget.js for the app
widget.js    one ES module without a framework, which draws them; widget.css is its look in an element of its own
"""

from __future__ import annotations

from aotlens.widget.long_maps import TILE, LongMaps, grid_block
from aotlens.widget.maps import HeadMaps, Strip, looks
from aotlens.widget.packed import compressed, module, pack, packed, style
from aotlens.widget.patches import PatchMaps

__all__ = [
    "TILE", "HeadMaps", "LongMaps", "PatchMaps", "Strip", "compressed", "grid_block", "looks", "module", "pack",
    "packed", "style",
]  # fmt: skip
