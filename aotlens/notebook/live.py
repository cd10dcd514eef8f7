"""The live form of `show`: what is chosen and held in the browser is Python's to read and set. Needs anywidget.

The maps are drawn by the script that reports and exported notebooks have, too (`aotlens.widget`); live.js ties it
to Python. Entries travel as bytes, one each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from aotlens.widget import module

_HERE = Path(__file__).parent


class LiveHeads(anywidget.AnyWidget):
    """The contents of a `HeadGrid`, and what is said back from the browser."""

    _esm = module() + (_HERE / "live.js").read_text(encoding="utf-8")

    maps = traitlets.Dict().tag(sync=True)
    """The description of the entries: `HeadMaps.header`."""
    steps = traitlets.Bytes().tag(sync=True)
    """`[layer, head, query, key]`, a byte an entry."""
    visible = traitlets.Bytes().tag(sync=True)
    """`[mask, query, key]`, a byte an entry."""
    edition = traitlets.Int().tag(sync=True)
    """Counts the prompts, so that the browser draws anew when all of the above is there."""
    head = traitlets.Tuple(traitlets.Int(), traitlets.Int()).tag(sync=True)
    query = traitlets.Int(None, allow_none=True).tag(sync=True)
    key = traitlets.Int(None, allow_none=True).tag(sync=True)
    text = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    """The prompt; None where token ids were given, and no text may be typed."""
    trouble = traitlets.Unicode().tag(sync=True)
    """The reason why the text that was typed last is not shown."""

    def __init__(self, grid: Any) -> None:
        """Make the widget of a `HeadGrid`."""
        self._grid = grid
        super().__init__(**self._state(grid), **self._maps(grid))
        self.observe(self._placed, ("head", "query", "key"))
        self.observe(self._typed, "text")

    def take(self, grid: Any, *, anew: bool) -> None:
        """Show what `grid` says: where it looks, and with `anew` its maps, in one message."""
        with self.hold_sync(), self.hold_trait_notifications():
            if anew:
                self.set_trait("edition", self.edition + 1)
                for name, value in self._maps(grid).items():
                    self.set_trait(name, value)
            for name, value in self._state(grid).items():
                self.set_trait(name, value)

    def mimebundle(self) -> dict[str, Any]:
        """Return the bundle that a notebook with a running kernel shows."""
        bundle = super()._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {name: value for name, value in (data or {}).items() if name != "text/plain"}

    @staticmethod
    def _state(grid: Any) -> dict[str, Any]:
        return {"head": grid.head, "query": grid.query, "key": grid.key, "text": grid.text, "trouble": ""}

    @staticmethod
    def _maps(grid: Any) -> dict[str, Any]:
        steps, visible = grid.maps.arrays
        return {"maps": grid.maps.header, "steps": steps.tobytes(), "visible": visible.tobytes()}

    def _placed(self, change: Any) -> None:
        grid = self._grid
        if (self.head, self.query, self.key) == (grid.head, grid.query, grid.key):
            return
        try:
            grid.look(self.head, self.query, self.key)
        except ValueError:
            self.take(grid, anew=False)  # as it was
            raise

    def _typed(self, change: Any) -> None:
        try:
            if self.text is None or self.text == self._grid.text:
                self.trouble = ""
            else:
                self._grid.text = self.text
        except ValueError as error:
            self.trouble = str(error)
