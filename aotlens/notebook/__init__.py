"""Figures in a notebook that need no server: the maps of all heads on a text, with hover and lock linked.

    aotlens.show(model, "Mr. Darnay bowed to the lady.")

heads.py   `show`: the maps of all heads, as a piece of HTML that stands on its own, and as a live widget
live.py    the live widget, where anywidget is installed; live.js ties the page's script to Python
"""

from __future__ import annotations

from aotlens.notebook.heads import HeadGrid, show
