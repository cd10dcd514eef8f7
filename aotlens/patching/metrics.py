"""The measures of a patched run: a number for each pair, from the logits at the prompt's end.

    "logit_difference"   logit of the answer − logit of the wrong answer            logits
    "probability"        of the answer                                              probability
    "loss"               −ln of that                                                nats
    "kl"                 Σ_t p(t) ln (p(t) ÷ q(t)), p of the clean prompt            nats
    "output"             the answer's output as it is: a logit, or what vectors hold     output

A function of one's own, `metric(logits, pairs)`, gives a number for each pair of `logits [pair, out]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer

#: Logits `[pair, out]` and their pairs → a number for each.
PairMetric: TypeAlias = Callable[[Tensor, PromptPairs], Tensor]

UNITS = {"logit_difference": "logits", "probability": "probability", "loss": "nats", "kl": "nats", "output": "output"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Measure:
    """A metric of a batch of pairs."""

    metric: str | PairMetric
    pairs: PromptPairs
    clean: Float[Tensor, "pair out"] | None = None
    """The clean prompts' logits, for "kl"."""

    @property
    def unit(self) -> str:
        """The unit of its numbers."""
        return UNITS[self.metric] if isinstance(self.metric, str) else name_of(self.metric)

    def of(self, logits: Float[Tensor, "*group pair out"]) -> Float[Tensor, "*group pair"]:
        """Return the metric of each row. Raises `ValueError` for numbers of another shape, or that are not finite."""
        if callable(self.metric):
            groups = logits.flatten(0, -3) if logits.ndim > 2 else logits[None]
            values = torch.stack([self._own(each) for each in groups]).view(logits.shape[:-1])
        else:
            values = self._known(logits)
        return self.checked(values)

    def checked(self, values: Tensor) -> Tensor:
        """Return the values as they are. Raises `ValueError` where they are not finite."""
        if not bool(values.isfinite().all()):
            raise ValueError(f"metric {self.metric!r}: expected finite numbers, got others among them.")
        return values

    def _own(self, logits: Tensor) -> Tensor:
        assert callable(self.metric)
        values: Any = self.metric(logits, self.pairs)
        numbers = torch.as_tensor(values)
        if numbers.shape != logits.shape[:1]:
            raise ValueError(
                f"metric: expected {len(logits)} numbers, one for each pair, got shape {list(numbers.shape)}."
            )
        return numbers

    def _known(self, logits: Tensor) -> Tensor:
        answers, wrong = self.pairs.answers.to(logits.device), self.pairs.wrong.to(logits.device)
        if self.metric == "logit_difference":
            return _picked(logits, answers) - _picked(logits, wrong)
        if self.metric == "output":
            return _picked(logits, answers)
        log_p = _log_softmax(logits)
        if self.metric == "kl":
            assert self.clean is not None
            known = _log_softmax(self.clean)
            return (known.exp() * (known - log_p)).sum(-1)
        loss = -_picked(log_p, answers)
        return loss if self.metric == "loss" else (-loss).exp()

    def columns(self, read_out: Float[Tensor, "d_model out"]) -> Float[Tensor, "pair d_model"] | None:
        """Return the directions of the read-out whose logits are all that is measured; None where more is."""
        if self.metric != "logit_difference":
            return None
        return (read_out[:, self.pairs.answers] - read_out[:, self.pairs.wrong]).T


def name_of(metric: str | PairMetric) -> str:
    """Return the name of a metric."""
    return metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")


def checked_metric(metric: Any) -> str | PairMetric:
    """Return a metric by its name, or a function. Raises `ValueError` for anything else."""
    if callable(metric) or metric in UNITS:
        return metric
    raise ValueError(f"metric={metric!r}: expected one of {', '.join(UNITS)}, or a function of logits and pairs.")


def require_fit(model: AttentionOnlyTransformer, metric: str | PairMetric) -> None:
    """Raise `ValueError` for a metric of probabilities, of a model that writes vectors."""
    if model.cfg.read_out == "vectors" and isinstance(metric, str) and metric != "output":
        raise ValueError(
            f"metric={metric!r}: this model writes vectors, which are no logits; use 'output', or a function."
        )


def _log_softmax(logits: Float[Tensor, "*group pair out"]) -> Float[Tensor, "*group pair out"]:
    return (logits.float() if torch.finfo(logits.dtype).bits <= 16 else logits).log_softmax(-1)


def _picked(values: Float[Tensor, "*group pair out"], outputs: Tensor) -> Float[Tensor, "*group pair"]:
    return values.gather(-1, outputs.expand(values.shape[:-1])[..., None])[..., 0]
