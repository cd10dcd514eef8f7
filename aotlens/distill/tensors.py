"""Arguments that must be tensors."""

from __future__ import annotations

from torch import Tensor


def require_tensors(**named: object) -> None:
    """Raise `ValueError` for the first that is something else, and say how to make one."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: expected a tensor, got {type(value).__name__}; torch.as_tensor makes one.")
