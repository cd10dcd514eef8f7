"""Pairs of prompts and the measures of a patched run: a number for each pair, from the logits at the prompt's end.

    "logit_difference"   logit of the answer − logit of the wrong answer            logits
    "probability"        of the answer                                              probability
    "loss"               −ln of that                                                nats
    "kl"                 Σ_t p(t) ln (p(t) ÷ q(t)), p of the clean prompt            nats
    "output"             the answer's output itself: a logit, or a coordinate of vectors     output

or a function `metric(logits, pairs)` of `logits [pair, out]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, require_ours

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
            values = torch.stack([self._own(group) for group in groups]).view(logits.shape[:-1])
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


@torch.no_grad()
def pair_of(
    model: AttentionOnlyTransformer, clean: str, corrupted: str, answer: str = "", wrong: str = ""
) -> PromptPairs:
    """Return one pair of texts. Without an answer it is what the model says first after the clean prompt, without a
    wrong answer what it says first after the corrupted one; where that is the same, the output whose logit the prompt
    raises most over the other prompt.

    Raises `ValueError` as `PromptPairs.from_texts`.
    """
    require_ours(model, "pair_of")
    ends = [model(model.to_tokens(text))[0, -1] for text in (clean, corrupted)]
    answers: list[str | int] = [text or int(end.argmax()) for text, end in zip((answer, wrong), ends, strict=True)]
    if answers[0] == answers[1] and not (answer and wrong):
        change = ends[0] - ends[1]
        answers = [answer or int(change.argmax()), wrong or int(change.argmin())]
    return PromptPairs.from_texts(model, [(clean, corrupted, *answers)])


def require_one_length(pairs: PromptPairs, direction: str) -> None:
    """Raise `ValueError` where the prompts that are run have different lengths: their positions cannot be compared."""
    if len({len(pair.corrupted if direction == "denoising" else pair.clean) for pair in pairs}) > 1:
        raise ValueError(
            "patch: by position, expected prompts of one length, so that positions mean the same in all of them; patch "
            "pairs of each length by themselves, or heads at all positions."
        )


def checked_positions(positions: Iterable[int] | np.ndarray, pairs: PromptPairs, direction: str) -> tuple[int, ...]:
    """Return some positions of the prompts that are run, in order. Raises `ValueError` for what is none, and
    for none."""
    n_pos = min(len(pair.corrupted if direction == "denoising" else pair.clean) for pair in pairs)
    listed = list(positions)
    wrong = [
        position
        for position in listed
        if isinstance(position, bool) or not isinstance(position, int | np.integer) or not 0 <= position < n_pos
    ]
    if wrong or not listed:
        raise ValueError(f"positions: expected some of 0 to {n_pos - 1}, got {wrong or 'none'}.")
    return tuple(sorted({int(position) for position in listed}))


def batches(pairs: PromptPairs, batch_size: int) -> Iterator[list[int]]:
    """Yield the numbers of pairs, at most `batch_size` at a time, those together whose two prompts have the same
    lengths."""
    by_length: dict[tuple[int, int], list[int]] = {}
    for row, pair in enumerate(pairs):
        by_length.setdefault((len(pair.clean), len(pair.corrupted)), []).append(row)
    for rows in by_length.values():
        for start in range(0, len(rows), batch_size):
            yield rows[start : start + batch_size]


def cell_words(cell: Mapping[str, int], str_tokens: Sequence[str]) -> str:
    """Name a patched cell: `layer 1, position 3 (‹ Darcy›)`, or `head 1.0`."""
    words = f"head {cell['layer']}.{cell['head']}" if "head" in cell else f"layer {cell['layer']}"
    if "position" not in cell:
        return words
    token = str_tokens[cell["position"]] if str_tokens else ""
    return f"{words}, position {cell['position']}" + (f" (‹{token}›)" if token else "")
