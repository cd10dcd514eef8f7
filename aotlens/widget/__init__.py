"""The maps of all heads on one prompt, for the app, the notebook and the report.

maps.py      what is drawn: a byte per entry and its scale, tokens, masks; on long prompts a byte per block of entries
patches.py   the same on images: a byte per patch and its scale
packed.py    a header and arrays as bytes, or as one string that a page carries

One ES module without a framework draws them (`module`; widget.css is its look in an element of its own):

maps.js      packed arrays, and the maps in them
drawing.js   light and dark, pens for the screen, PNG and SVG
chosen.js    which head and entry are selected, locked and pointed at
parts.js     tokens, tiles of all heads, ranking;  large.js  one head;  element.js  the element that has them

and for the app alone side_by_side.js (two runs), patches.js (maps over images), tiles.js (long prompts) and matrix.js
(a block of a circuit).
"""

from __future__ import annotations

from aotlens.widget.maps import TILE, HeadMaps, LongMaps, Strip, grid_block, looks
from aotlens.widget.packed import compressed, module, pack, packed, style
from aotlens.widget.patches import PatchMaps
