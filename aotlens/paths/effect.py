"""The effect on one prompt's prediction of removing a head or a path, with the names of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64

from aotlens.conventions import HeadLike, signed
from aotlens.paths.expansion import PathExpansion
from aotlens.paths.intervention import without_head, without_path
from aotlens.paths.path import Path
from aotlens.paths.target import Target
from aotlens.paths.words import end_words
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

_LIKELIEST = 5
_QUANTITIES = {
    "logit": "{end}",
    "probability": "probability of {first}",
    "loss": "loss on {next}, which came",
    "mean_loss": "mean loss of the whole text",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RemovalEffect(Result):
    """A logit, its token's probability, and losses: of the model, and without a head or a path in two ways.

    One entry a quantity; see `Intervention` for what `forward` and `linear` are.
    """

    without: str
    """The part that is missing: head 1.0, or a path as a sentence."""
    position: int
    target: int | tuple[int, int]
    quantities: tuple[str, ...]
    """logit, probability, loss, mean_loss: those that there are."""
    names: tuple[str, ...]
    """The quantities with the tokens that they are of."""
    units: tuple[str, ...]
    """The unit of each quantity: logits, probability or nats."""
    clean: Float64[np.ndarray, " quantity"]
    forward: Float64[np.ndarray, " quantity"]
    linear: Float64[np.ndarray, " quantity"]
    before: tuple[tuple[str, float], ...]
    """The likeliest outputs of the model at the position, and their probabilities."""
    after: tuple[tuple[str, float], ...]
    """The predictions of a forward pass without it."""

    @property
    def reversed(self) -> bool:
        """Whether the logit moves the other way in a forward pass than by the linear estimate, either by .005 logits or
        more: patterns of later heads, or scales of norms, outweigh the term itself."""
        forward, linear = float(self.forward[0] - self.clean[0]), float(self.linear[0] - self.clean[0])
        return forward * linear < 0 and min(abs(forward), abs(linear)) >= 0.005

    @property
    def headline(self) -> str:
        logits = f"without {self.without}: {self.names[0]} {self.clean[0]:+.3f} → {self.forward[0]:+.3f} logits"
        return f"{logits}, {self.linear[0]:+.3f} by the linear estimate"

    def sentences(self) -> str:
        """Return the logit without it; and why the forward pass and the linear estimate have different signs."""
        if not self.reversed:
            return super().sentences()
        own, change = self.clean[0] - self.linear[0], self.forward[0] - self.clean[0]
        return (
            f"{super().sentences()} It adds {signed(own)} itself, and without it the logit "
            f"{'rises' if change > 0 else 'falls'} by {abs(change):.3f} all the same: later heads look elsewhere "
            "without it, and norms rescale, which the linear estimate holds as they were."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a quantity: quantity, name, unit, clean, forward, linear."""
        import pandas as pd

        columns = ("clean", "forward", "linear")
        labels = {"quantity": self.quantities, "name": self.names, "unit": self.units}
        return pd.DataFrame(labels | {name: getattr(self, name) for name in columns})


@torch.no_grad()
def effect_without(
    expansion: PathExpansion, removed: HeadLike | Path, position: int = -1, target: Target = None
) -> RemovalEffect:
    """Run the prompt without a head (`without_head`) or a path (`without_path`), and say what that does at `position`.

    `target` is an output, or (token, versus), the first's logit minus the second's, or None for the model's first
    choice. Raises `ValueError` as these do, and for a position or an output that there is not.
    """
    place, target = expansion.aimed(position, target)
    if isinstance(removed, Path):
        run, name = without_path(expansion, removed), expansion.describe(removed, target)
    else:
        run = without_head(expansion, removed)
        layer, head = run.without  # type: ignore[misc]
        name = f"head {layer}.{head}"
    frame = run.to_frame(place, target)
    fields = {
        "end": end_words(expansion.model, target),
        "first": expansion.token_name(target[0] if isinstance(target, tuple) else target),
        "next": expansion.token_name(expansion.tokens[place + 1]) if place + 1 < len(expansion.tokens) else "",
    }

    def likeliest(logits: torch.Tensor) -> tuple[tuple[str, float], ...]:
        best = logits.softmax(-1).topk(min(_LIKELIEST, logits.numel()))
        tokens = [expansion.output_text(token) for token in best.indices.tolist()]
        return tuple(zip(tokens, best.values.tolist(), strict=True))

    return RemovalEffect(
        without=name, position=place, target=target, quantities=tuple(frame.index), units=tuple(frame["unit"]),
        names=tuple(_QUANTITIES[quantity].format(**fields) for quantity in frame.index),
        before=likeliest(run.clean[place]), after=likeliest(run.forward[place]),
        **{name: frame[name].to_numpy(dtype=float, copy=True) for name in ("clean", "forward", "linear")},
    )  # fmt: skip
