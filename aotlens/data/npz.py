"""Arrays of an untrusted NumPy archive (.npz): never a pickle, of a size that is known before they are read.

NumPy makes room for what the header of an array says, which may be 10¹² numbers in a file of 600 bytes.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotlens.untrusted import ShortReads, open_regular, without_control

_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path, names: Sequence[str], most: int, optional: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the arrays `names` of an archive, and those of `optional` that it has; `most` bytes in all, unpacked.

    Raises `ValueError` for what is no regular file, no whole archive, or lacks an array, and for arrays of Python
    objects, of more than `most` bytes, or of more than the archive holds; `OSError` as `open` does.
    """
    try:
        with open_regular(path) as (file, _), zipfile.ZipFile(ShortReads(file)) as archive:  # type: ignore[arg-type]
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if missing := [name for name in names if name not in entries]:
                there = ", ".join(without_control(name)[:80] for name in sorted(entries)[:20])
                raise ValueError(
                    f"expected the arrays {', '.join(names)}, but {', '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} missing; there are {there or 'none'}."
                )
            arrays = {}
            for name in (*names, *(name for name in optional if name in entries)):
                with archive.open(entries[name]) as opened:
                    _require_room(opened, name, entries[name].file_size, most)
                with archive.open(entries[name]) as opened:
                    arrays[name] = np.lib.format.read_array(opened, allow_pickle=False)  # type: ignore[no-untyped-call]
                most -= arrays[name].nbytes
            return arrays
    except (ValueError, OSError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged archive leads its readers to: KeyError, struct.error, zlib.error
        raise ValueError(f"expected a whole NumPy file (.npz), but: {error or type(error).__name__}.") from error


def _require_room(file: Any, name: str, held: int, most: int) -> None:
    """Raise `ValueError` unless the array that begins here is plain numbers or text, of at most `most` bytes, all of
    which are among the `held` bytes of its entry."""
    try:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is not known")
        shape, _, dtype = _HEADERS[version](file)
    except ValueError as error:
        raise ValueError(f"{name} can't be read: {error}.") from error
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or not dtype.itemsize or n_bytes > most:
        what = "Python objects" if dtype.hasobject else f"{n_bytes:,} bytes"
        raise ValueError(f"expected {name} as plain numbers of at most {most:,} bytes, got {what}.")
    if any(length < 0 for length in shape) or file.tell() + n_bytes > held:
        raise ValueError(f"{name} can't be read: its header says {n_bytes:,} bytes, of which it holds {held:,}.")
