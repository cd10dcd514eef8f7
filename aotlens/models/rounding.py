"""The rounding of a measure of logits, which a difference of two runs must exceed before anything is divided by it.

Where two runs differ by nothing, their measures differ by rounding, and a share of that difference is a random number.
What is rounded are the logits: each by a few units (eps) of the model's type, relative to the largest logit of its row,
however small the measure is that is left after they cancel (a difference of two logits of 20 that is 0.1).

    rounding   √ mean over draws of (m(L ± u · eps · max |L|) − m(L))²     signs ± drawn for each logit
    alike      |mean over rows of m(L) − m(L′)| ≤ the larger of the mean rounding and u · eps · max |m|
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

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
