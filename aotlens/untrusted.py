"""Files that a stranger wrote: regular ones only, of a bounded size, each read once; and JSON without surprises.

A FIFO hangs whoever opens it, a device never ends, a link shows a file of this machine, and JSON may nest a million
lists or hold 10**400. What is refused here is a `ValueError` that says what was expected and what was found.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

#: The most bytes that a file of each kind may have; what weights may have, their header says.
MOST_BYTES = {
    "config.json": 4_000_000,
    "tokenizer.json": 16_000_000,  # GPT-2's has 1.4 MB, of 50,257 tokens
    "metrics.jsonl": 16_000_000,
    "card.md": 4_000_000,
    "the header of weights": 4_000_000,  # about 100 bytes a tensor
    "key map": 4_000_000,
    "settings": 4_000_000,
    "vocabulary": 64_000_000,
    "record": 64_000_000,  # of a run, or what stands beside a result
    "result": 4_000_000_000,
    "text": 4_000_000_000,
    "held-out text": 256_000_000,  # a benchmark's test set has some megabytes
}

#: How deep lists and dictionaries may lie in each other.
MAX_DEPTH = 64

#: Whole numbers beyond this are refused: no id, size or count is larger, and no float holds much larger ones.
_LARGEST = 2**64

#: C0 and C1 controls, lone surrogates, line and paragraph separators, and what turns the direction of a line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


@contextmanager
def open_regular(path: Path, inside: Path | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """The regular file at `path`, open for reading, and its size in bytes.

    With `inside`, a link may lead to a file below this folder or in the cache of the Hugging Face hub; the folder may
    be a link itself. Raises `ValueError` for a folder, a pipe, a device or another link, and `OSError` as `open` does.
    Opening never waits.
    """
    real = os.path.realpath(path)
    if inside is not None and not any(_is_below(real, root) for root in (os.path.realpath(inside), _hub_cache())):
        raise ValueError(f"{path}: expected a regular file, found a link that leads out of {inside}. Don't trust it.")
    _require_regular(path, os.lstat(real).st_mode)
    flags = (getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(real, os.O_RDONLY | sum(flags))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _require_regular(path, status.st_mode)
        yield file, status.st_size


def read_regular(path: Path, inside: Path | None = None, kind: str | None = None) -> bytes:
    """The bytes of the regular file at `path`, as `open_regular` allows it; a `ValueError` beyond `MOST_BYTES` of its
    kind, which is its name if None."""
    with open_regular(path, inside) as (file, size):
        _require_size(path, size, MOST_BYTES[kind or path.name])
        return file.read(size)


def require_regular(path: Path, kind: str, inside: Path | None = None) -> int:
    """The size of the regular file at `path`, for libraries that open it by its path; raises as `read_regular`."""
    with open_regular(path, inside) as (_, size):
        _require_size(path, size, MOST_BYTES[kind])
        return size


def _require_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"{path}: expected at most {most / 1e6:g} MB, found {size / 1e6:.1f} MB.")


def strict_json(text: str | bytes) -> Any:
    """The value of JSON text. Raises `ValueError` for NaN and infinity, for a key given twice, of which one would be
    lost, and for what nests deeper than `MAX_DEPTH`."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) != len(items):
            raise ValueError("a key is given twice")
        return value

    deep = f"expected at most {MAX_DEPTH} lists or dictionaries in each other, found more"
    try:
        value = json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(deep) from None
    level = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            list(item.values()) if isinstance(item, dict) else item
            for items in level
            for item in items
            if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise ValueError(deep)


def check_plain(value: Any, where: str) -> None:
    """Raises `ValueError`, with the place in a value of JSON, for a number that is not finite or beyond 64 bits, for a
    key with control characters, and for text with half a character, which has no UTF-8 form."""
    rest = [(where, value)]
    while rest:
        place, item = rest.pop()
        if isinstance(item, dict):
            for key, inner in item.items():
                check_name(key, f"{place}: a key")
                rest.append((f"{place}.{key}" if place else key, inner))
        elif isinstance(item, list | tuple):
            rest += [(place, inner) for inner in item]
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{place}: expected a finite number, found {item}.")
        elif isinstance(item, int) and abs(item) > _LARGEST:
            raise ValueError(f"{place}: expected a number within 64 bits, found one of {len(str(item))} digits.")
        elif isinstance(item, str) and re.search(r"[\ud800-\udfff]", item):
            raise ValueError(f"{place}: expected text, found half a character in {shown(item)}.")


def check_name(name: str, where: str) -> None:
    """Raises `ValueError` for control characters, which would write into a terminal or turn a line around."""
    if (found := _CONTROL.search(name)) is not None:
        raise ValueError(
            f"{where}: expected text without control characters, found {shown(name)} with U+{ord(found[0]):04X}."
        )


def without_control(name: str) -> str:
    """`name` with its control characters written out, so that it can be shown."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], name)


def shown(value: Any, most: int = 80) -> str:
    """`repr` in ASCII, cut short: what a message may say of a value that a stranger wrote."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _require_regular(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    raise ValueError(f"{path}: expected a regular file, found {kind}.")


def _is_below(real: str, root: str) -> bool:
    return real.startswith(os.path.join(root, ""))


def _hub_cache() -> str:
    """Where the Hugging Face hub keeps files, to which a snapshot's names are links."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return os.path.realpath(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))
