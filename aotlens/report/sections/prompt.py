"""What every head attends to on one prompt: the words, patches or vectors whose maps a report shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from aotlens.widget import Strip

#: Bytes of all heads' maps on all prompts, at most, so that the file stays within its 5 MB.
MAX_MAP_BYTES = 1_600_000
"""A byte is an entry: 144 heads of 105 tokens."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The patterns of every head on one prompt, and what is said above them."""

    pattern: Float[np.ndarray, "layer head query key"]
    str_tokens: tuple[str, ...]
    visible: Bool[np.ndarray, "mask query key"]
    about: str
    strip: Strip | None = None
