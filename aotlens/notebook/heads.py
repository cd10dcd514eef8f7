"""`show(model, text)`: where every head looks, as the last line of a notebook's cell.

A notebook gets two forms of it. One is a piece of HTML with its numbers, its style and its script inside, which works
in Jupyter and VS Code, in an exported notebook and without a network, and asks nothing of Python again. Where scripts
may not run (a notebook that is not trusted, a site that shows notebooks) a picture of all heads stands in its place.
The other, where anywidget is installed, is a live widget, which a notebook with a running kernel prefers: the head that
is chosen and the entry that is held are Python's to read and set, and another text may be typed.
"""

from __future__ import annotations

import html
import importlib.util
import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from jaxtyping import Shaped
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head
from aotlens.heads import AttentionPatterns, attention_patterns
from aotlens.models import require_ours
from aotlens.plots import data_uri, sprite
from aotlens.widget import HeadMaps, module, packed

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer
    from aotlens.notebook.live import LiveHeads

#: Entries of all heads, at most: a byte each before they are packed.
MAX_ENTRIES = 4_000_000


class HeadGrid:
    """The maps of all heads on one prompt, as a notebook shows them.

        view = aotlens.show(model, "Mr. Darnay bowed")
        view                        # the last line of a cell
        view.head, view.query       # what was clicked, with the live widget
        view.head = "1.0"           # and the other way round

    `head` is shown large; `query` and `key` are the positions that are held, None where nothing is; a key is held with
    its query only. `text` is the prompt, and setting it asks the model again: None where token ids were given.
    """

    patterns: AttentionPatterns
    """The numbers: `view.patterns.pattern[*view.head, view.query, view.key]` is the entry that is held."""
    maps: HeadMaps
    """The widget that draws them."""

    def __init__(self, model: AttentionOnlyTransformer, prompt: Tensor | str, head: HeadLike, *, live: bool) -> None:
        require_ours(model, "show")
        self._model = model
        self._live = live and importlib.util.find_spec("anywidget") is not None
        self._widget: LiveHeads | None = None
        self._head = as_head(head, model.cfg)
        self._ask(prompt)

    def _ask(self, prompt: Tensor | str) -> None:
        """Patterns and maps of a prompt, of which nothing is held yet; all stays as it was where that raises."""
        patterns = attention_patterns(self._model, prompt)
        if patterns.pattern.size > MAX_ENTRIES:
            raise ValueError(
                f"show: {patterns.headline} are {patterns.pattern.size:,} entries, and a notebook carries at most "
                f"{MAX_ENTRIES:,}; give a shorter text."
            )
        names = patterns.str_tokens or tuple(f"#{number}" for number in patterns.tokens.tolist())
        ids = patterns.tokens.tolist() if patterns.str_tokens else ()
        self.maps = HeadMaps(values=patterns.pattern, str_tokens=names, visible=patterns.visible, token_ids=ids)
        self.patterns = patterns
        self._text = prompt if isinstance(prompt, str) else None
        self._query: int | None = None
        self._key: int | None = None

    @property
    def head(self) -> Head:
        return self._head

    @head.setter
    def head(self, head: HeadLike) -> None:
        self.look(head, self._query, self._key)

    @property
    def query(self) -> int | None:
        return self._query

    @query.setter
    def query(self, position: SupportsIndex | None) -> None:
        self.look(self._head, position, None if position is None else self._key)

    @property
    def key(self) -> int | None:
        return self._key

    @key.setter
    def key(self, position: SupportsIndex | None) -> None:
        self.look(self._head, self._query, position)

    def look(self, head: HeadLike, query: SupportsIndex | None = None, key: SupportsIndex | None = None) -> None:
        """Show a head large, and hold a query, an entry, or (None) nothing. A negative position counts from the end.

        Raises `ValueError` if the head or position does not exist, and for a key without a query.
        """
        if query is None and key is not None:
            raise ValueError(f"key={key}: a key is held together with a query; give the query first.")
        place = (as_head(head, self._model.cfg), self._position(query, "query"), self._position(key, "key"))
        self._head, self._query, self._key = place
        self._tell()

    @property
    def text(self) -> str | None:
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._ask(text)
        self._tell(anew=True)

    @property
    def widget(self) -> LiveHeads:
        """The live widget, an `ipywidgets.DOMWidget` whose traits `head`, `query`, `key` and `text` may be observed.

        Raises `ImportError` where anywidget is not installed.
        """
        if self._widget is None:
            if importlib.util.find_spec("anywidget") is None:
                raise ImportError("the live widget needs anywidget: pip install 'aotlens[notebook]'")
            from aotlens.notebook.live import LiveHeads

            self._widget = LiveHeads(self)
        return self._widget

    def _tell(self, *, anew: bool = False) -> None:
        if self._widget is not None:
            self._widget.take(self, anew=anew)

    def _position(self, position: SupportsIndex | None, name: str) -> int | None:
        n_pos = self.patterns.n_pos
        if position is None:
            return None
        place = operator.index(position)
        if not -n_pos <= place < n_pos:
            raise ValueError(f"{name}={place}: expected {-n_pos} to {n_pos - 1} for a prompt of {n_pos} tokens.")
        return place % n_pos

    def __repr__(self) -> str:
        return f"HeadGrid: {self.patterns.headline}"

    def _repr_html_(self) -> str:
        """A piece of HTML that stands on its own; two of them on one page know nothing of each other."""
        place = {"head": list(self.head), "query": self.query, "key": self.key}
        picture = data_uri(sprite(self.maps.values, self.maps.visible))
        return (
            f'<aotlens-heads data-packed="{packed({**self.maps.header, "place": place}, self.maps.arrays)}">'
            f'<img src="{picture}" alt="{html.escape(repr(self))}" style="max-width: 100%"></aotlens-heads>\n'
            f'<script type="module">{module()}</script>'
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The live widget, where there is one, and beside it the HTML for notebooks whose kernel has gone."""
        bundle = {"text/plain": repr(self), "text/html": self._repr_html_()}
        return {**bundle, **(self.widget.mimebundle() if self._live else {})}


def show(
    model: AttentionOnlyTransformer,
    text: Shaped[Tensor, ...] | str,
    *,
    head: HeadLike | None = None,
    live: bool = True,
) -> HeadGrid:
    """Show where every head looks in a text, or in token ids `[pos]`: a grid of all heads, the map of `head` (else
    0.0), and the text, in which the entry that is pointed at is marked. A click holds it, Escape lets go.

    With anywidget (`pip install 'aotlens[notebook]'`) what is chosen and held is `view.head`, `view.query` and
    `view.key`, and another text may be typed; `live=False` leaves the widget out.

    Raises `ValueError` as `attention_patterns` (for a bridge, too), for a head that the model does not have, for
    patterns that are not finite, and for more than 4 million entries, layers × heads × pos², which a notebook would
    have to carry.
    """
    return HeadGrid(model, text, (0, 0) if head is None else head, live=live)
