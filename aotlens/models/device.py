"""Which device a model runs on."""

from __future__ import annotations

import torch


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """The device to use: `"auto"` is cuda, then mps, then cpu.

    Raises `ValueError` for a device that this machine or this build of torch does not have.
    """
    if isinstance(device, str) and device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
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
    return resolved
