"""The settings of a distillation: everything that its result depends on, besides the model and the text."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked when made; `ValueError` for what does not fit."""

    hidden: tuple[int, ...] = (16,)
    """Widths of the FFNs, increasing; 0 is the linear map, in closed form."""
    target: str = "result"
    """Reproduce the head's result y = z W_O, or its z."""
    seeds: int = 3
    """FFNs of each head and width: other initial weights, the same text."""
    train_tokens: int = 400_000
    """The largest number of tokens that every FFN is trained on."""
    validation_tokens: int = 8_192
    """The tokens from the training documents that are not trained on: for the learning curve, and when to stop."""
    held_out_tokens: int = 65_536
    """The tokens from other documents: for the errors that are reported."""
    wide: int | None = 256
    """Width of one more FFN a head, for the floor; None for none."""
    neighbours: int = 16_384
    """Training tokens among which nearest neighbours are looked for; 0 for none."""
    batch_size: int = 512
    """Tokens a step."""
    learning_rate: float = 0.12
    """The learning rate of Adam, ÷ √width; rises over 10 steps, then falls to 0 along a cosine."""
    tolerance: float = 0.0
    patience: int = 6
    """An FFN stops when this many evaluations have not lowered its best validation error by `tolerance` of it. As the
    learning rate falls to the end, a short patience would stop what has yet to settle."""
    evaluations: int = 20
    """The number of times, approximately, that the validation error is taken."""
    seed: int = 0
    """FFNs' initial weights have seeds `seed`, `seed + 1`, ..."""
    text_seed: int = 0
    """The seed of the order of the text, which is the same for all of them."""
    buffer_bytes: int = 2**30
    """The largest buffer for activations."""

    def __post_init__(self) -> None:
        if not self.hidden or any(isinstance(width, bool) or width < 0 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden}: expected widths of 0 or more, at least one.")
        if tuple(sorted(set(self.hidden))) != self.hidden:
            raise ValueError(f"hidden={self.hidden}: expected increasing widths.")
        if self.target not in ("result", "z"):
            raise ValueError(f"target={self.target!r}: expected 'result' or 'z'.")
        for name in ("seeds", "batch_size", "patience", "evaluations", "validation_tokens", "held_out_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1.")
        if self.train_tokens < self.batch_size:
            raise ValueError(f"train_tokens={self.train_tokens}: expected at least a batch, {self.batch_size}.")
        if self.wide is not None and self.wide < 1:
            raise ValueError(f"wide={self.wide}: expected a width, or None.")
        if min(self.neighbours, self.seed, self.text_seed) < 0:
            raise ValueError(
                f"neighbours={self.neighbours}, seed={self.seed}, text_seed={self.text_seed}: expected 0 or more."
            )
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate={self.learning_rate}: expected a positive number.")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance={self.tolerance}: expected 0 or more, below 1.")

    @property
    def trained(self) -> tuple[int, ...]:
        """The widths that need training."""
        return tuple(width for width in self.hidden if width)

    def factor(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, as a part of its height."""
        return min(1.0, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * step / steps))
