"""Pieces of a page that stands on its own: no server, no network, one file.

packed.py      numbers and texts as one string of base64, gzip inside; unpack.js reads it in the browser
head_maps.py   the maps of all heads on one prompt; head_maps.js draws them, with hover and lock linked
theme.js       light or dark, as the page around it is
"""

from __future__ import annotations

from aotlens.plots.page.head_maps import HeadMaps, Strip
from aotlens.plots.page.packed import compressed, packed, script

__all__ = ["HeadMaps", "Strip", "compressed", "packed", "script"]
