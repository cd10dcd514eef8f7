"""The losses of a model's outputs: cross-entropy in nats, or squared error; and the rounding of a measure of logits.

A difference of two runs must exceed the rounding of its measure before anything is divided by it: where two runs differ
by nothing, a share of their difference is a random number. Each logit is rounded by a few units (eps) of the model's
type, relative to the largest logit of its row, however small the measure is that is left after they cancel.

    rounding   √ mean over draws of (m(L ± u · eps · max |L|) − m(L))²     signs ± drawn for each logit
    alike      |mean over rows of m(L) − m(L′)| ≤ the larger of the mean rounding and u · eps · max |m|
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import IGNORED


def next_token_targets(tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the next token of every position but the last, ignored where it or the position is padding: `[batch, pos −
    1]`.

    Raises `ValueError` for rows of one position.
    """
    if tokens.shape[1] < 2:
        raise ValueError(f"a next-token loss needs at least 2 positions, got {tokens.shape[1]}.")
    targets = tokens[:, 1:].long()
    if attention_mask is None:
        return targets
    return targets.masked_fill(~(attention_mask[:, 1:] & attention_mask[:, :-1]), IGNORED)


def cross_entropy(
    logits: Tensor, targets: Tensor, attention_mask: Tensor | None, per_token: bool, label_smoothing: float
) -> Tensor:
    """Return −Σ q log softmax(logits) in nats, mean over the targets that count or one for each, 0 where they do not.

    q is 1 − ε at the target and ε / n more at each of the n outputs, for a `label_smoothing` of ε. Raises `ValueError`
    for targets that are not ids among the logits' columns, one for each row, and where none counts.
    """
    check_targets(targets, logits)
    targets = targets.long()
    if attention_mask is not None and targets.shape == attention_mask.shape:
        targets = targets.masked_fill(~attention_mask, IGNORED)
    if not per_token and not bool((targets != IGNORED).any()):
        raise ValueError("every target is padding or ignored (-100): there is nothing to average.")
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()  # a log-softmax in 8 bits is off by 0.02 nats
    reduction = "none" if per_token else "mean"
    losses = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), reduction=reduction, label_smoothing=label_smoothing
    )
    return losses.view(targets.shape) if per_token else losses


def squared_errors(outputs: Tensor, targets: Tensor | None, attention_mask: Tensor | None, per_token: bool) -> Tensor:
    """Return (output − target)², mean over all that count or one for each, 0 where they do not: padding, and NaN as a
    target.

    Raises `ValueError` for targets of another shape than the outputs, and where none counts.
    """
    if targets is None or targets.shape != outputs.shape:
        got = None if targets is None else list(targets.shape)
        raise ValueError(f"this model's loss needs targets {list(outputs.shape)}, got {got}.")
    counts = ~targets.isnan()
    if attention_mask is not None:
        counts = counts & attention_mask[..., None]
    errors = torch.where(counts, outputs - targets, 0.0).pow(2)  # the gradient of what does not count is 0, not NaN
    if per_token:
        return errors
    if not targets.is_meta and not bool(counts.any()):
        raise ValueError("every target is padding or ignored (NaN): there is nothing to average.")
    return errors.sum() / counts.sum()


def check_targets(targets: Tensor, logits: Tensor) -> None:
    """Raise `ValueError` for targets that are not ids among the logits' columns, one for each row."""
    if targets.shape != logits.shape[:-1]:
        raise ValueError(f"targets: expected {list(logits.shape[:-1])}, got {list(targets.shape)}.")
    ids = targets[targets != IGNORED] if not targets.is_meta else targets[:0]
    if ids.numel() and (ids.min() < 0 or ids.max() >= logits.shape[-1]):
        raise ValueError(
            f"targets run from {int(ids.min())} to {int(ids.max())}, expected 0 to {logits.shape[-1] - 1} "
            "(or -100 to ignore one)."
        )


#: Units of a type that a logit may be off; sums of bfloat16 and float16 are made in float32, and are rounded once.
_UNITS, _UNITS_OF_HALF = 16, 4
#: Draws of signs for each logit.
_DRAWS = 8


def relative_rounding(dtype: torch.dtype) -> float:
    """Return u · eps of a type: the largest error of a logit, relative to the largest one, that is taken for
    rounding."""
    precision = torch.finfo(dtype)
    return (_UNITS if precision.bits > 16 else _UNITS_OF_HALF) * precision.eps


def rounding_of(
    measure: Callable[[Tensor], Tensor | np.ndarray], logits: Float[Tensor, "row *pos out"], dtype: torch.dtype
) -> Float64[np.ndarray, " row"]:
    """Return the change of `measure`, a number for each row of logits, when logits are rounded as those of `dtype` are;
    the formula is at the head of this module. Cost: nine times the measure, and a second copy of the logits."""
    generator = torch.Generator().manual_seed(0)
    size = relative_rounding(dtype) * logits.abs().amax(-1, keepdim=True)
    own, squares = _numbers(measure(logits)), np.zeros(len(logits))
    for _ in range(_DRAWS):
        signs = torch.randint(0, 2, logits.shape, generator=generator, dtype=torch.int8).to(logits) * 2 - 1
        squares += np.square(_numbers(measure(logits + size * signs)) - own)
    return np.sqrt(squares / _DRAWS)


def are_alike(ends: Float64[np.ndarray, "row 2"], rounding: Float64[np.ndarray, " prompt"], dtype: torch.dtype) -> bool:
    """Return whether two measures of each row are the same on average but for the rounding of the model's type."""
    difference = abs(float((ends[:, 0] - ends[:, 1]).mean()))
    return bool(difference <= max(rounding.mean(), relative_rounding(dtype) * np.abs(ends).max()))


def _numbers(values: Tensor | np.ndarray) -> np.ndarray:
    return torch.as_tensor(values).detach().cpu().double().numpy()
