"""`show(model, text)`: where every head looks, as the last line of a notebook's cell.

What a notebook gets is one piece of HTML with its numbers, its style and its script inside, so that it works in Jupyter
and VS Code, in an exported notebook and without a network, and nothing is asked of Python again. Where scripts may not
run (a notebook that is not trusted, a site that shows notebooks) a picture of all heads stands in its place.
"""

from __future__ import annotations

import html
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Shaped
from torch import Tensor

from aotlens.conventions import HeadLike, as_head
from aotlens.heads import AttentionPatterns, attention_patterns
from aotlens.models import require_ours
from aotlens.plots import data_uri, sprite
from aotlens.plots.page import HeadMaps, packed, script

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer

#: Entries of all heads, at most: a byte each before they are packed.
MAX_ENTRIES = 4_000_000
_SCRIPTS = ("unpack.js", "theme.js", "head_maps.js")
_DRAW = """
const host = document.getElementById(NAME);
if (!host || typeof DecompressionStream === "undefined") return;
const { header, arrays } = await unpack(host.dataset.packed);
const drawn = drawHeadMaps(host, header.css, header.maps, arrays[0], arrays[1], themeOfPage());
whenThemeChanges(drawn.retheme);
host.dataset.drawn = "yes";
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadGrid:
    """The maps of all heads on one prompt; a notebook shows them, and `patterns` are their numbers."""

    patterns: AttentionPatterns
    maps: HeadMaps

    def __repr__(self) -> str:
        return f"HeadGrid: {self.patterns.headline}"

    def _repr_html_(self) -> str:
        """A piece of HTML that stands on its own; two of them on one page know nothing of each other."""
        name = f"aotlens-{uuid.uuid4().hex}"
        header = {"maps": self.maps.header, "css": script("head_maps.css")}
        picture = data_uri(sprite(self.maps.values, self.maps.visible))
        code = "\n".join([*map(script, _SCRIPTS), _DRAW.replace("NAME", f'"{name}"')])
        return (
            f'<div id="{name}" data-packed="{packed(header, self.maps.arrays)}">'
            f'<img src="{picture}" alt="{html.escape(repr(self))}" style="max-width: 100%"></div>\n'
            f"<script>(async () => {{\n{code}\n}})();</script>"
        )


def show(
    model: AttentionOnlyTransformer,
    text: Shaped[Tensor, ...] | str,
    *,
    head: HeadLike | None = None,
) -> HeadGrid:
    """Where every head looks in a text, or in token ids `[pos]`: a grid of all heads, the map of `head` (else 0.0), and
    the text, in which the entry that is pointed at is marked. A click holds it, Escape lets go.

    Raises `ValueError` as `attention_patterns` (for a bridge, too), for a head that the model does not have, and for
    more than 4 million entries, layers × heads × pos², which a notebook would have to carry.
    """
    require_ours(model, "show")
    patterns = attention_patterns(model, text)
    if patterns.pattern.size > MAX_ENTRIES:
        raise ValueError(
            f"show: {patterns.headline} are {patterns.pattern.size:,} entries, and a notebook carries at most "
            f"{MAX_ENTRIES:,}; give a shorter text."
        )
    names = patterns.str_tokens or tuple(f"#{number}" for number in patterns.tokens.tolist())
    chosen = (0, 0) if head is None else as_head(head, model.cfg)
    maps = HeadMaps(values=patterns.pattern, str_tokens=names, visible=patterns.visible, head=chosen)
    return HeadGrid(patterns=patterns, maps=maps)
