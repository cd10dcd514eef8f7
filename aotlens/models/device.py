"""The device that a model runs on."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import torch
from torch import Tensor

#: Largest difference of two float32 products, over the largest entry: some hundred times what rounding makes of it.
_TOLERANCE = 1e-4


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device to use: `"auto"` is cuda, else cpu.

    `"mps"` is used only where it is named: there are reports of float32 products that are silently wrong there. Its
    first use in a process multiplies contiguous and transposed matrices on it and on the CPU.

    Raises `ValueError` for a device that this machine or this build of torch does not have, and for an `"mps"` whose
    products differ from the CPU's.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device {device!r}: expected auto, cpu, cuda, cuda:N or mps.") from error
    here = {"cpu", "meta"}
    here |= {"cuda"} if torch.cuda.is_available() else set()
    here |= {"mps"} if torch.backends.mps.is_available() else set()
    if resolved.type not in here:
        raise ValueError(f"device {device!r} is not available to torch {torch.__version__}; use 'auto'.")
    if resolved.type == "cuda" and resolved.index is not None and resolved.index >= torch.cuda.device_count():
        raise ValueError(f"device {device!r}: this machine has {torch.cuda.device_count()} CUDA device(s).")
    if resolved.type == "mps":
        _check_products(resolved)
    return resolved


def memory_bytes(device: torch.device) -> int | None:
    """Return the memory of a device, used or free: the GPU's own, or else the machine's; None where nothing says."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # an operating system that does not say
        return None


@functools.cache  # a check that raised is made again
def _check_products(device: torch.device) -> None:
    for name, left, right in _pairs():
        expected = left @ right
        difference = float((_product(left, right, device) - expected).abs().max() / expected.abs().max())
        if not difference <= _TOLERANCE:
            raise ValueError(
                f"device {str(device)!r}: the product of {name} differs from the CPU's by {difference:.1g} of its "
                f"largest entry (torch {torch.__version__}), so every result could be wrong; use device='cpu'."
            )


def _pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield pairs of matrices, and of batches of matrices, each side contiguous or transposed, in heads' sizes."""
    generator = torch.Generator().manual_seed(0)
    for kind, batch in (("matrices", ()), ("batches of matrices", (3, 4))):
        for left_is, left_transposed in (("contiguous", False), ("transposed", True)):
            for right_is, right_transposed in (("contiguous", False), ("transposed", True)):
                sides = []
                for shape, transposed in (((65, 48), left_transposed), ((48, 130), right_transposed)):
                    stored = torch.randn(*batch, *(shape[::-1] if transposed else shape), generator=generator)
                    sides.append(stored.mT if transposed else stored)
                yield f"{kind}, {left_is} and {right_is},", sides[0], sides[1]


def _product(left: Tensor, right: Tensor, device: torch.device) -> Tensor:
    return (left.to(device) @ right.to(device)).cpu()
