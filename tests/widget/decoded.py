"""What packed arrays of heads say, read by numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np


def unpacked(data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A header and its arrays, by the description at the head of packed.py."""
    end = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:end])
    ends = np.cumsum([end, *header["arrays"]])
    return header, [np.frombuffer(data[a:b], np.uint8) for a, b in pairwise(ends)]


def decoded(header: Mapping[str, Any], steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The entries `[layer, head, query, key]`, and half a step of each: position 0 has a scale of its own."""
    n = header["positions"]
    tops = np.array(header["tops"]).reshape(header["layers"], header["heads"], 1, 2)
    tops = np.concatenate([tops[..., :1], np.repeat(tops[..., 1:], n - 1, axis=-1)], axis=-1)
    zero, most = (128, 127) if header["signed"] else (0, 255)
    values = (steps.reshape(*tops.shape[:2], n, n).astype(np.float64) - zero) / most * tops
    return values, np.broadcast_to(tops / most / 2 + 1e-6, values.shape)
