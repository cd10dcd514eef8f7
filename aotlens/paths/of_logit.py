"""One logit of a prompt, or a difference of two, as a few sums of its paths: by number of heads, by head, by source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from aotlens.conventions import describe, head_name, percent, several, signed
from aotlens.paths.path import SourceName
from aotlens.paths.residual import Residual
from aotlens.paths.words import place_words
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class OfLogit(Result):
    """The base of what is said of one logit. All values are logits."""

    position: int
    target: int | tuple[int, int]
    """An output, or (token, versus): the first's logit minus the second's."""
    end: str
    """The target in words: `logit " Darcy"`."""
    logit: float
    """The target's logit, or difference of logits, in the model's own output."""

    @property
    def unit(self) -> str:
        """The unit of a contribution."""
        return unit_of(self.target)


def unit_of(target: int | tuple[int, int]) -> str:
    """Return the unit of a contribution to a target."""
    return "logits of difference" if isinstance(target, tuple) else "logits"


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitByOrder(OfLogit):
    """All paths by how many heads they pass: `values.sum()` is the logit."""

    values: Float64[np.ndarray, " order"]
    """The contribution of the paths with k heads, k = 0 …"""
    counts: tuple[int, ...]
    """The number of these paths."""
    sources: tuple[SourceName, ...]
    """The sources where they start."""
    n_pos: int
    """Positions of the prompt."""
    n_heads: int
    """Heads of a layer."""
    error: float
    """Sum of all paths − the model's own logit."""

    @property
    def headline(self) -> str:
        most = int(np.abs(self.values).argmax())
        return f"paths through {most} heads add {self.values[most]:+.3f} of {self.logit:+.3f} logits"

    def sentences(self) -> str:
        """Return how many paths there are, and from where."""
        return (
            f"{sum(self.counts):,} paths in all: {' + '.join(self.sources)}, at {self.n_pos} positions, through "
            f"{several(len(self.values) - 1, 'layer')} of {self.n_heads} heads."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a number of heads: heads, paths, logits."""
        import pandas as pd

        return pd.DataFrame({"heads": range(len(self.values)), "paths": self.counts, "logits": self.values})


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitByHead(OfLogit):
    """The contribution of the paths through each head; a path through two heads counts for both.

    `direct` are the paths on which a head is the last, its direct effect: with the paths without heads these add up to
    the logit.
    """

    direct: Float64[np.ndarray, "layer head"]
    through: Float64[np.ndarray, "layer head"]

    @property
    def headline(self) -> str:
        layer, head = np.unravel_index(np.abs(self.through).argmax(), self.through.shape)
        return f"most passes through head {layer}.{head}: {self.through[layer, head]:+.3f} of {self.logit:+.3f} logits"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head, the largest first: head, through, direct, and later, what later heads carry on."""
        import pandas as pd

        later = self.through - self.direct
        later[-1] = 0.0  # the last layer's heads reach the logit directly only; rounding would show as −0.000
        frame = pd.DataFrame(
            {
                "head": list(map(head_name, np.ndindex(*self.direct.shape))),
                "through": self.through.ravel(),
                "direct": self.direct.ravel(),
                "later": later.ravel(),
            }
        )
        return frame.sort_values("through", key=abs, ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitBySource(OfLogit):
    """All paths by where they start: `values.sum()` is the logit."""

    names: tuple[SourceName, ...]
    values: Float64[np.ndarray, "source pos"]
    """Biases at the position where they are added."""
    str_tokens: tuple[str, ...]
    """The tokens of the prompt; () without a tokenizer."""
    first: str
    """The (first) target's output in words."""
    probability: float
    """The probability of that output at the position."""
    by_order: LogitByOrder
    residual: Residual
    """The residual of all positions and outputs."""

    @property
    def of_tokens(self) -> Float64[np.ndarray, " pos"]:
        """The contribution of all paths from each position, biases apart."""
        total: np.ndarray = self.values[[name != "bias" for name in self.names]].sum(0)
        return total

    @property
    def of_biases(self) -> float:
        """The contribution of all paths from biases."""
        return float(self.values[[name == "bias" for name in self.names]].sum())

    @property
    def headline(self) -> str:
        most = int(np.abs(self.of_tokens).argmax())
        return f"{place_words(self.str_tokens, most)} brings {self.of_tokens[most]:+.3f} of {self.logit:+.3f} logits"

    def sentences(self) -> str:
        """Return the logit, where it is read, how likely its token is, what biases bring, and whether paths add up."""
        residual, error = self.residual, self.by_order.error
        of_biases = f" Of the logit, biases bring {signed(self.of_biases)}." if "bias" in self.names else ""
        distrust = " This is above the tolerance: don't trust the paths of this text."
        sums = (
            f"Sum of paths − model logit: {f'{error:+.1e}' if error else '0'} logits here; at most "
            f"{residual.largest:.1e} over all positions and tokens (tolerance {residual.tolerance:.1e}: rounding)."
        ).replace("-", "−")
        return (
            f"After {describe(self.str_tokens[self.position])} at position {self.position}: {self.end} = "
            f"{signed(self.logit)}, probability of {self.first} {percent(self.probability)}.{of_biases} {sums}"
            f"{'' if residual.within_tolerance else distrust}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a position: source_position, its token, and what all paths from each source there add, in
        logits."""
        import pandas as pd

        columns: dict[str, object] = {"source_position": range(self.values.shape[1])}
        if self.str_tokens:
            columns["str_token"] = self.str_tokens
        return pd.DataFrame(columns | dict(zip(self.names, self.values, strict=True)))
