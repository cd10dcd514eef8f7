"""Lists and arrays where tensors belong are named, not left to Python's own errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from aotlens.distill import check_assumption, compile_ffn, masked_lm, point_fit
from tests.messages import refused


def untyped(function: Any) -> Any:
    """Without the checks of types that tests have: as users call it."""
    return getattr(function, "__wrapped__", function)


def test_lists_and_arrays_are_named():
    ffn = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    compiled = compile_ffn(ffn, bound=1, tolerance=0.1)
    X = np.ones((2, 3, 4))
    for call, name, kind in (
        (lambda: untyped(type(compiled).__call__)(compiled, [[1.0, 2.0, 3.0]]), "x", "list"),
        (lambda: untyped(check_assumption)(X), "X", "ndarray"),
        (lambda: untyped(point_fit)([[1.0], [2.0]], torch.ones(2)), "x", "list"),
        (lambda: untyped(masked_lm)(torch.ones(2, 3, 4), [1, 2], tolerance=0.1), "y", "list"),
    ):
        with refused(f"{name}: expected a tensor", f"got {kind}", "torch.as_tensor"):
            call()
