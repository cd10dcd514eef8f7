"""Arrays and labels → plotly figures. Knows no model and imports neither torch nor TransformerLens.

    labels.py       tokens as people read them
    colours.py      scales and the shared look, light and dark
    attention.py    one head's map
    thumbnails.py   all heads in one small picture
    training.py     the training curve
"""

from __future__ import annotations

from aotlens.plots.attention import attention_map
from aotlens.plots.colours import Theme
from aotlens.plots.labels import describe, glyphs, is_whitespace
from aotlens.plots.thumbnails import data_uri, sprite
from aotlens.plots.training import training_curve

__all__ = ["Theme", "attention_map", "data_uri", "describe", "glyphs", "is_whitespace", "sprite", "training_curve"]
