"""The errors of a head's FFN along a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.conventions import HeadLike
from aotlens.distill.heads import Distillation, token_errors
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class TextErrors(Result):
    """The errors of one head's FFN at each token of a text, over the mean ‖y − ȳ‖² of a held-out token."""

    tokens: Int64[np.ndarray, " pos"]
    str_tokens: tuple[str, ...]
    """The tokens as text; empty for a model without a tokenizer."""
    relative: Float64[np.ndarray, " pos"]
    """0: the FFN does what the head does; 1: as far off as a constant is on average."""
    movement: Float64[np.ndarray, " pos"]
    """The distance of the head from its mean here: the error of a constant."""

    @property
    def headline(self) -> str:
        return f"error {self.error:.3f} on {len(self.relative)} tokens"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per token: position, token_id, token, error (`relative`), movement."""
        import pandas as pd

        n = len(self.tokens)
        return pd.DataFrame(
            {"position": range(n), "token_id": self.tokens, "token": self.str_tokens or [""] * n,
             "error": self.relative, "movement": self.movement}
        )  # fmt: skip

    @property
    def error(self) -> float:
        """The error over the whole text, Σ‖y − ŷ‖² / Σ‖y − ȳ‖²."""
        total = float(self.movement.sum())
        return float(self.relative.sum()) / total if total > 0 else 0.0


def text_errors(
    model: Model, distillation: Distillation, tokens: TokenSequences, head: HeadLike, *, width: int | None = None
) -> TextErrors:
    """Compute the errors of one head's FFN (of `width`, its best seed) at every token of one text, or of ids `[pos]`.

    Raises `ValueError` for several texts, and for a head or width whose FFN is not there. Time: one pass of the model.
    """
    tokens = HeadReader.of(model).require_ids(tokens)
    error, scale = token_errors(model, distillation, tokens, head, width=width)
    if len(error) != 1:
        raise ValueError(f"text_errors: expected one text, got {len(error)}; token_errors takes several.")
    typical = float(distillation.baseline[distillation.place(head)].sum()) / max(
        int(distillation.class_counts.sum()), 1
    )
    typical = typical if typical > 0 else 1.0
    ids = tokens[0].tolist()
    names = getattr(model.tokenizer, "str_tokens", lambda ids: ())(ids)
    return TextErrors(
        tokens=np.array(ids, dtype=np.int64), str_tokens=tuple(names), relative=error[0].double().numpy() / typical,
        movement=scale[0].double().numpy() / typical,
    )  # fmt: skip
