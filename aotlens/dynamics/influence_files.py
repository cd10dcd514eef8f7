"""Influences beside the checkpoint of their run, and the windows at their ends as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.checkpoints.info import read_info
from aotlens.conventions import require_whole
from aotlens.dynamics.influence_check import InfluenceCheck
from aotlens.dynamics.influence_result import Influence
from aotlens.results import Result, stored

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import Tokenizer


def stored_influence(checkpoint: str | Path) -> Influence:
    """Return the influences that `aotlens influence` stored next to a checkpoint's folder.

    Raises `ValueError` if none are stored, or if they belong to weights that the checkpoint had before.
    """
    influence: Influence = stored("influence", checkpoint, read_info(Path(checkpoint)))
    return influence


def stored_check(checkpoint: str | Path) -> InfluenceCheck:
    """Return the check that `aotlens influence --check` stored there. Raises `ValueError` as `stored_influence`."""
    check: InfluenceCheck = stored("influence-check", checkpoint, read_info(Path(checkpoint)))
    return check


@dataclass(frozen=True, kw_only=True, eq=False)
class InfluentialWindows(Result):
    """The windows that helped a measure most and those that harmed it most, as text."""

    run: str
    measure: str
    windows: Int64[np.ndarray, " end"]
    """The most helpful first, then the most harmful."""
    helps: tuple[bool, ...]
    influences: Float64[np.ndarray, " end"]
    steps: Int64[np.ndarray, " end"]
    documents: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    """Each window's text without its first token, in pieces: in turn what is new in the window, and what stands earlier
    in it. The first may be empty."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Each window's text, what stands earlier in the window in brackets: a [repeated] span."""
        return tuple(
            "".join(f"[{piece}]" if place % 2 else piece for place, piece in enumerate(each)) for each in self.pieces
        )

    @property
    def headline(self) -> str:
        if not len(self.windows):
            return f"no window after step 0 has influence on {self.measure}"
        if not self.helps[0]:
            return f"no window after step 0 helps {self.measure}"
        return (
            f"the most helpful window for {self.measure} has influence {self.influences[0]:+.3g} "
            f"(step {self.steps[0]:,}, {self.documents[0]})"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a window: window, helps, influence, step, document, text."""
        import pandas as pd

        return pd.DataFrame(
            {
                "window": self.windows,
                "helps": ["most helpful" if each else "most harmful" for each in self.helps],
                "influence": self.influences,
                "step": self.steps,
                "document": list(self.documents),
                "text": list(self.texts),
            }
        )


def influential_windows(
    influence: Influence, tokenizer: Tokenizer, n: int = 10, measure: str | None = None
) -> InfluentialWindows:
    """Return the n most helpful and the n most harmful windows after step 0, fewer where fewer are, with the repeated
    spans marked.

    Raises `ValueError` for an unknown measure (the default is the influence's first).
    """
    n, name = require_whole("n", n, 1), influence.measures[influence.place(measure)]
    ends = [influence.helpful(n, name), influence.harmful(n, name)]
    chosen = np.concatenate(ends)
    windows = influence.windows
    return InfluentialWindows(
        run=influence.run, measure=name, windows=chosen, helps=tuple(end == 0 for end in (0, 1) for _ in ends[end]),
        influences=influence.of(name)[chosen], steps=windows.steps[chosen],
        documents=tuple(windows.document(int(window)) for window in chosen),
        pieces=tuple(_pieces(influence, tokenizer, int(window)) for window in chosen),
    )  # fmt: skip


def _pieces(influence: Influence, tokenizer: Tokenizer, window: int) -> tuple[str, ...]:
    """Return the texts of a window's spans; a character whose bytes two spans share is the first one's."""
    spans = influence.windows.spans(window)
    ids = [token for _, span in spans for token in span]
    whole, pieces, start, end = tokenizer.decode(ids), [""] if spans[0][0] else [], 0, 0
    for _, span in spans:
        end += len(span)
        until = end
        while not whole.startswith(text := tokenizer.decode(ids[:until])):
            until += 1
        pieces.append(whole[start : len(text)])
        start = max(start, len(text))
    return tuple(pieces)
