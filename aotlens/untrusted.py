"""Untrusted files: regular ones only, of a bounded size, each read once; JSON and TOML without surprises.

A FIFO hangs whoever opens it, a device never ends, a link shows a file of this machine, and JSON may nest a million
lists or hold 10**400. What is refused here is a `ValueError` that says what was expected and what was found. Readers
take numbers from `strict_json` and `strict_toml` only, and use what they read within `boundary`, which names the file.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Literal, Union, get_args, get_origin, get_type_hints

#: The most bytes that a file of each kind may have; what weights may have, their header says.
MOST_BYTES = {
    "config.json": 4_000_000,
    "tokenizer.json": 40_000_000,  # GPT-2's has 1.4 MB, of 50,257 tokens; other vocabularies are five times as large
    "metrics.jsonl": 16_000_000,
    "card.md": 4_000_000,
    "the header of weights": 4_000_000,  # about 100 bytes a tensor
    "key map": 4_000_000,
    "settings": 1_000_000,
    "vocabulary": 16_000_000,
    "record": 64_000_000,  # of a run, or the header of a result
    "result": 4_000_000_000,
    "text": 4_000_000_000,
    "held-out text": 32_000_000,  # a benchmark's test set has some megabytes
    "the header of a result": 64_000_000,
}

#: Lists, dictionaries and commas of JSON text: each of these bytes may become 170 of Python's.
MAX_VALUES = 1_000_000

#: Lines of a text that is read line by line, and characters of one.
MAX_LINES, MAX_LINE = 1_000_000, 4_000_000

#: Bytes that are read at once of an archive, whose list of names is read so: some 10,000 names.
MAX_READ = 1 << 20

#: A file of this size with less than one part in 16 of it on a disk is nothing but holes.
_LARGE, _PART = 64_000_000, 16

#: The beginning of a Git LFS pointer, which replaces a file that was not fetched.
_POINTER = b"version https://git-lfs.github.com/spec/"

#: The depth to which lists and dictionaries may lie in each other.
MAX_DEPTH = 64

_DEEP = f"expected at most {MAX_DEPTH} lists or dictionaries in each other, found more"

#: Dots of TOML, of which a key may hold some: one of 10,000 parts takes 400 MB and a second and a half.
MAX_DOTS, MAX_DOTS_IN_LINE = 10_000, 1_000

#: Whole numbers beyond this are refused: no id, size or count is larger, and no float holds much larger ones.
_LARGEST = 2**64

#: C0 and C1 controls, lone surrogates, line and paragraph separators, and what turns the direction of a line.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


@contextmanager
def boundary(path: Path | str, what: str, remedy: str = "") -> Iterator[None]:
    """Turn whatever damaged contents make of a reader, of ours or of a library's, into a `ValueError` that names the
    file, `what` was expected of it and the `remedy`. A `ValueError` that names the file stays as it is."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        problem = kind + without_control(str(error))[:1000].rstrip(".")
        raise ValueError(
            f"{path}: expected {what}, found what cannot be read ({problem}). {remedy}".rstrip()
        ) from error


@contextmanager
def open_regular(path: Path, inside: Path | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """Open the regular file at `path` for reading, and yield it with its size in bytes.

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
        _require_bytes(path, status)
        _require_content(path, descriptor)
        yield file, status.st_size


def read_regular(path: Path, inside: Path | None = None, kind: str | None = None) -> bytes:
    """Return the bytes of the regular file at `path`, as `open_regular` allows it; a `ValueError` beyond `MOST_BYTES`
    of its kind, which is its name if None."""
    with open_regular(path, inside) as (file, size):
        _require_size(path, size, MOST_BYTES[kind or path.name])
        return file.read(size)


def require_regular(path: Path, kind: str, inside: Path | None = None) -> int:
    """Return the size of the regular file at `path`, for libraries that open it by its path; raises as
    `read_regular`."""
    with open_regular(path, inside) as (_, size):
        _require_size(path, size, MOST_BYTES[kind])
        return size


def read_lines(path: Path, kind: str) -> Iterator[str]:
    """Yield the lines of a text without their ends, one in memory at a time. Raises `ValueError` for what
    `read_regular` refuses, for more than `MAX_LINES`, a longer one than `MAX_LINE`, and for what is not UTF-8."""
    with open_regular(path) as (file, size):
        _require_size(path, size, MOST_BYTES[kind])
        reader = io.TextIOWrapper(file, encoding="utf-8")
        for number in range(1, MAX_LINES + 2):
            try:
                line = reader.readline(MAX_LINE + 1)
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: expected UTF-8 text ({error}).") from error
            if not line:
                return
            if number > MAX_LINES or len(line) > MAX_LINE:
                raise ValueError(
                    f"{path}, line {number}: expected at most {MAX_LINES:,} lines of at most {MAX_LINE:,} characters, "
                    "found more."
                )
            yield line.removesuffix("\n")


class ShortReads:
    """A file of which at most `MAX_READ` bytes are read at once: zipfile reads the whole list of an archive's names in
    one piece, and makes an object of each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises `ValueError` for a longer piece."""
        if size > MAX_READ:
            raise ValueError(f"expected names and lists of names that are short, found {size:,} bytes")
        return self._file.read(size if size >= 0 else MAX_READ)

    def close(self) -> None:
        """Do nothing: the file is closed by who opened it."""


def _require_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"{path}: expected at most {most / 1e6:g} MB, found {size / 1e6:.1f} MB.")


def strict_json(text: str | bytes, *, constants: bool = False, most: int = MAX_VALUES) -> Any:
    """Return the value of JSON text. Raises `ValueError` for a key given twice, of which one would be lost, for what
    nests deeper than `MAX_DEPTH`, for more than `most` values, and for numbers that are not finite or beyond 64 bits;
    with `constants`, which our own results may hold, NaN and Infinity are numbers."""
    require_few_values(text, most)

    def constant(name: str) -> float:
        if not constants:
            raise ValueError(f"{name} is not a JSON number")
        return float(name)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) != len(items):
            raise ValueError("a key is given twice")
        return value

    try:
        value = json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(_DEEP) from None
    _check_values(value, constants=constants)
    return value


def strict_toml(text: bytes) -> dict[str, Any]:
    """Return the table of TOML text in UTF-8. Raises `ValueError` for what is none, as `strict_json`, and for more dots
    than `MAX_DOTS`: the parser's time and memory grow with the square of a key's parts."""
    require_few_values(text)
    in_a_line = max(line.count(b".") for line in text.split(b"\n"))
    if text.count(b".") > MAX_DOTS or in_a_line > MAX_DOTS_IN_LINE:
        raise ValueError(f"expected at most {MAX_DOTS:,} dots, and {MAX_DOTS_IN_LINE:,} in a line, found more")
    try:
        value = tomllib.loads(text.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not valid TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"not valid TOML: {_DEEP}") from None
    _check_values(value, constants=False)
    return value


def _check_values(value: Any, *, constants: bool) -> None:
    """Raise `ValueError` for what nests deeper than `MAX_DEPTH`, and for a number with a `_problem`."""

    def problem(item: Any) -> str:
        is_constant = constants and isinstance(item, float)
        return "" if is_constant or not isinstance(item, int | float) else _problem(item)

    level = [[value]]
    for _ in range(MAX_DEPTH + 1):
        if any(problem(item) for items in level for item in items):
            place, reason = next((place, message) for place, item in _places(value, "") if (message := problem(item)))
            raise ValueError(f"{without_control(place)[:100]}: {reason}".removeprefix(": "))
        level = [
            list(item.values()) if isinstance(item, dict) else item
            for items in level
            for item in items
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise ValueError(_DEEP)


def require_few_values(text: str | bytes, most: int = MAX_VALUES) -> None:
    """Raise `ValueError` for JSON text that may hold more than `most` values: 16 MB of `{"":0},` take 700 MB."""
    marks: Any = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    if len(text) > most and (count := sum(map(text.count, marks))) > most:
        raise ValueError(f"expected at most {most:,} values, found some {count:,}")


def check_plain(value: Any, where: str) -> None:
    """Raise `ValueError`, with the place in a value of JSON, for a number that is not finite or beyond 64 bits, for a
    key with control characters, and for text with half a character, which has no UTF-8 form."""
    for place, item in _places(value, where):
        if isinstance(item, dict):
            for key in item:
                check_name(key, f"{place}: a key")
        elif isinstance(item, int | float) and (problem := _problem(item)):
            raise ValueError(f"{place}: {problem}.")
        elif isinstance(item, str) and re.search(r"[\ud800-\udfff]", item):
            raise ValueError(f"{place}: expected text, found half a character in {excerpt(item)}.")


def _places(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield every part of a value of JSON with its place."""
    queue = [(where, value)]
    while queue:
        place, item = queue.pop()
        yield place, item
        if isinstance(item, dict):
            queue += [(f"{place}.{key}" if place else key, inner) for key, inner in item.items()]
        elif isinstance(item, list | tuple):
            queue += [(place, inner) for inner in item]


def _problem(number: float) -> str:
    """The problem with a number of a file; nothing for one that is finite and within 64 bits."""
    if isinstance(number, float):
        return "" if math.isfinite(number) else f"expected a finite number, found {number}"
    if abs(number) <= _LARGEST:
        return ""
    return f"expected a number within 64 bits, found one of {len(str(number))} digits"


def require_types(cls: type, values: Mapping[str, Any], where: str) -> None:
    """Raise `ValueError` for a value of JSON or TOML, by the name of a field of the dataclass `cls`, that is not of the
    field's type: lists stand for tuples, tables for dataclasses, and whole numbers for floats."""
    hints = get_type_hints(cls)
    for name, value in values.items():
        if not _is_of(value, hints[name]):
            expected = hints[name] if get_args(hints[name]) else hints[name].__name__
            raise ValueError(f"{where}: {name}: expected {expected}, got {excerpt(value)}.")


def _is_of(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind in (tuple, list):
        is_list, item_hints = isinstance(value, list | tuple), [part for part in parts if part is not ...]
        if len(item_hints) == 1:
            return is_list and all(_is_of(item, item_hints[0]) for item in value)
        return is_list and len(value) == len(item_hints) and all(map(_is_of, value, item_hints))
    if kind is dict:
        return isinstance(value, dict) and all(_is_of(item, parts[1]) for item in value.values())
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, dict if is_dataclass(kind) else kind)


def check_name(name: str, where: str) -> None:
    """Raise `ValueError` for control characters, which would write into a terminal or turn a line around."""
    if (control := _CONTROL.search(name)) is not None:
        raise ValueError(
            f"{where}: expected text without control characters, found {excerpt(name)} with U+{ord(control[0]):04X}."
        )


def without_control(name: str) -> str:
    """Return `name` with its control characters written out, so that it can be shown."""
    return _CONTROL.sub(lambda control: ascii(control[0])[1:-1], name)


def excerpt(value: Any, most: int = 80) -> str:
    """Return `repr` in ASCII, cut short: what a message may say of an untrusted value."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _require_regular(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a link"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    raise ValueError(f"{path}: expected a regular file, found {kind}.")


def _require_bytes(path: Path, status: os.stat_result) -> None:
    """Raise `ValueError` for a large file of holes; Windows and some file systems do not tell."""
    on_disk = 512 * int(getattr(status, "st_blocks", 0))
    if status.st_size > _LARGE and 0 < on_disk < status.st_size // _PART:
        raise ValueError(
            f"{path}: expected a file that is all there, found {status.st_size / 1e6:,.0f} MB of which "
            f"{on_disk / 1e6:.1f} MB are on the disk. Copy it again."
        )


def _require_content(path: Path, descriptor: int) -> None:
    """Raise `ValueError` for a pointer of Git LFS, which stands where a large file was not fetched."""
    if os.read(descriptor, len(_POINTER)) == _POINTER:
        raise ValueError(f"{path}: expected the file itself, found a Git LFS pointer to it. Fetch it: git lfs pull.")
    os.lseek(descriptor, 0, os.SEEK_SET)


def _is_below(real: str, root: str) -> bool:
    return real.startswith(os.path.join(root, ""))


def _hub_cache() -> str:
    """Return the folder where the Hugging Face hub keeps files, to which a snapshot's names are links."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return os.path.realpath(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))
