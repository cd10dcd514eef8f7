"""Files of `torch.save`, and of `pickle.dump`: named tensors made from their bytes, and settings.

The program in the file is read by a process of its own (`pickles.child`), which runs nothing of it, has neither PyTorch
nor much memory, is stopped when it takes long, and answers with the places of tensors and plain settings
(`pickles.wire`). Here these are compared with the file, which is mapped into memory and never unpacked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from aotlens.interop.external.pickles import layout
from aotlens.interop.external.pickles.child import MEMORY_BYTES, SECONDS
from aotlens.interop.external.pickles.interpreter import DTYPES
from aotlens.untrusted import ShortReads, open_regular

_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from pickles import child; child.main()"
_MAX_SHARING = 8  # times that a number of the file may be used: one matrix for queries, keys and values is three
#: The seconds by the clock: a drive may be slow.
_PATIENCE = 60.0
_ADVICE = (
    ", which reading weights does not need; nothing of it was run. If you trust it, load it where it comes from and "
    "save model.state_dict()."
)


def read_pickled(path: Path) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """Read what `torch.save` or `pickle.dump` wrote: the tensors of the state dict in it, or of its module, by their
    names, and the configurations next to them, by their keys.

    Raises `ValueError`, with the reason, for a file that has none or is damaged, whose program calls what it may not,
    never ends or takes much memory, whose tensors do not lie within the file, or are many times what it holds.
    """
    check_zip(path)  # a list of 700,000 names would take the process its 10 seconds
    with open_regular(path) as (file, size):
        answer = _ask(path, file, "torch")
        # Mapped, not read: memory is taken for what is kept only.
        data = torch.UntypedStorage.from_file(str(path), False, size) if size else torch.UntypedStorage(0)
        tensors = {name: _tensor(path, data, size, *stored) for name, stored in answer["tensors"].items()}
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if n_bytes > _MAX_SHARING * size:
        raise ValueError(
            f"{path}: its tensors share so much that they amount to {n_bytes:,} bytes, more than {_MAX_SHARING} times "
            "the file; a small file could fill the memory. Nothing was read."
        )
    return tensors, answer["configs"]


def _tensor(
    path: Path, data: Any, size: int,
    kind: str, numel: int, offset: int, sizes: list[int], strides: list[int], start: int, n: int,
) -> Tensor:  # fmt: skip
    """A tensor on the bytes of the file."""
    dtype = getattr(torch, DTYPES[kind][0])
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True) if size)
    if not 0 <= start <= start + n <= size or n != numel * dtype.itemsize or (0 not in sizes and last >= numel):
        raise ValueError(
            f"{path}: this file is a pickled program, and it has a storage that ends beyond the file{_ADVICE}"
        )
    with torch.no_grad():
        return torch.empty(0, dtype=dtype).set_(data[start : start + n], offset, sizes, strides)  # type: ignore[call-overload]


def read_plain(path: Path) -> Any:
    """Read plain values that `pickle.dump` wrote to `path` (`wire.plain`). Raises `ValueError` as `read_pickled`."""
    with open_regular(path) as (file, _):
        return _ask(path, file, "pickle")["value"]


def check_zip(path: Path) -> None:
    """Raise `ValueError` for a zip that unpacks to more than it holds: torch.save compresses nothing."""
    with open_regular(path) as (file, _):
        try:
            layout.check_zip(ShortReads(file))
        except layout.Unfit as error:
            raise ValueError(f"{path}: {error}") from None


def _ask(path: Path, file: BinaryIO, kind: str) -> dict[str, Any]:
    """The child's answer about a file. Raises `ValueError` where it has no value."""
    command = [sys.executable, "-I", "-S", "-c", _CODE, str(Path(__file__).parent), kind]
    what = "no file of torch.save" if kind == "torch" else "no pickle"
    advice = _ADVICE if kind == "torch" else "; nothing of it was run."
    try:
        ended = subprocess.run(command, stdin=file, capture_output=True, timeout=_PATIENCE, check=False)
        answer = json.loads(ended.stdout) if ended.stdout else {}
    except (subprocess.TimeoutExpired, ValueError):
        answer = {}
    if "refused" in answer:
        raise ValueError(f"{path}: this file is a pickled program, and {answer['refused']}{advice}")
    if "unfit" in answer:
        raise ValueError(f"{path}: {answer['unfit']}")
    if "damaged" in answer:
        raise ValueError(f"{path}: damaged, or {what}: {answer['damaged']}.")
    if "tensors" not in answer and "value" not in answer:
        raise ValueError(
            f"{path}: this file is a pickled program, and reading it takes more than {SECONDS} seconds of a processor "
            f"or {MEMORY_BYTES / 2**20:.0f} MB{advice}"
        )
    return answer
