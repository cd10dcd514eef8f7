"""Numbers and texts as bytes, or as one string that a page carries: gzip in base64, which the browser reads.

    4 bytes      the length of the header, little-endian
    header       JSON in UTF-8; its `arrays` has the length of each array, in bytes
    arrays       one after the other, as they are

base64 has no character that means anything in HTML, so that no text within can end the element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

_HERE = Path(__file__).parent
#: The files of the module, each after those that it imports from.
_ELEMENT = ("maps.js", "drawing.js", "chosen.js", "parts.js", "large.js", "element.js")
_APP = ("side_by_side.js", "patches.js", "tiles.js", "matrix.js")


def pack(header: Mapping[str, Any], arrays: Sequence[Shaped[np.ndarray, ...]] = ()) -> bytes:
    """Return the header and the arrays as bytes; `unpack` of maps.js gives them back, every array flat."""
    flat = [np.ascontiguousarray(array).tobytes() for array in arrays]
    plain = json.dumps({**header, "arrays": [len(part) for part in flat]}, allow_nan=False).encode()
    return b"".join([len(plain).to_bytes(4, "little"), plain, *flat])


def packed(header: Mapping[str, Any], arrays: Sequence[Shaped[np.ndarray, ...]] = ()) -> str:
    """Return the packed header and arrays as a string."""
    return compressed(pack(header, arrays))


def compressed(data: bytes) -> str:
    """Return bytes as gzip in base64; the same bytes give the same string at any time."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def module(*, app: bool = False) -> str:
    """Return the ES module, with its style inside: it defines the element `<aotlens-heads>`. With `app`, it also has
    the parts that draw two runs side by side, maps over images, maps of long prompts, and blocks of a circuit.

    Its files import from one another; here they are one, since a notebook and a report carry it whole.
    """
    names = _ELEMENT + (_APP if app else ())
    return f"const CSS = {json.dumps(style())};\n" + "\n".join(_body(_HERE / name) for name in names)


def _body(path: Path) -> str:
    """Return a file of the module without its imports, and with nothing exported."""
    return re.sub(r"^(import .*\n|export )", "", path.read_text("utf-8"), flags=re.MULTILINE)


def style() -> str:
    """Return the style alone, for pages that draw parts of the widget without the element."""
    return (_HERE / "widget.css").read_text(encoding="utf-8")
