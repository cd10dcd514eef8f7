"""Numbers and texts as one string that a page carries: gzip in base64, which the browser's `DecompressionStream` reads.

    4 bytes      the length of the header, little-endian
    header       JSON in UTF-8; its `arrays` has the length of each array, in bytes
    arrays       one after the other, as they are

base64 has no character that means anything in HTML, so that no text within can end the element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

_HERE = Path(__file__).parent


def packed(header: Mapping[str, Any], arrays: Sequence[UInt8[np.ndarray, ...]] = ()) -> str:
    """The header and the arrays as one string; `unpack.js` gives them back, every array flat."""
    flat = [np.ascontiguousarray(array).tobytes() for array in arrays]
    plain = json.dumps({**header, "arrays": [len(part) for part in flat]}, allow_nan=False).encode()
    return compressed(b"".join([len(plain).to_bytes(4, "little"), plain, *flat]))


def compressed(data: bytes) -> str:
    """Bytes as gzip in base64; the same bytes give the same string at any time."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def script(name: str) -> str:
    """A script of this folder, such as `head_maps.js`. Raises `OSError` for one that there is not."""
    return (_HERE / name).read_text(encoding="utf-8")
