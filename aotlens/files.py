"""Files that are whole at every moment, and the saved state from which a killed run resumes. Never pickle."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.untrusted import (
    MOST_BYTES,
    ShortReads,
    boundary,
    open_regular,
    require_few_values,
    strict_json,
    without_control,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor


#: Bytes of a file of tensors: a larger one is no result of ours.
_MOST_BYTES = 4_000_000_000
#: The largest state of a run: the weights and their two moments of a model of 8 billion parameters.
_MOST_BYTES_OF_A_RUN = 100_000_000_000


class WriteError(OSError):
    """A file that could not be written, by its path; nothing was replaced."""


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file to write, which takes the place of `path` once the disk has all of it.

    Until then, and whatever fails or is killed, `path` is what it was before; of two that write it at once, the last
    one stays. Folders above it are made. Raises `WriteError`, which names `path`, for a full disk and a folder that may
    not be written to.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        force_to_disk(temporary)
        os.replace(temporary, path)
    except OSError as error:
        # Not every error knows its file, and the temporary one means nothing to anybody.
        raise WriteError(error.errno, f"{error.strerror} while writing; nothing was replaced", str(path)) from error
    finally:
        with suppress(OSError):  # a folder that cannot be looked into
            temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path, pattern: str) -> None:
    """Remove the temporary files of `replacing_file` that a killed process left of files with names of `pattern`."""
    for path in folder.glob(f".{pattern}.tmp"):
        path.unlink(missing_ok=True)


def csv_text(frame: pd.DataFrame) -> str:
    """Return a table as CSV, the one form that commands, sweeps and the app write.

    Every field is quoted: before Python 3.11.9 a carriage return is left bare otherwise, and readers end the row there.
    """
    return str(frame.to_csv(index=False, quoting=csv.QUOTE_ALL, lineterminator="\n"))


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as UTF-8 CSV, as `csv_text` forms it."""
    path.write_text(csv_text(frame), encoding="utf-8", newline="")


def without_folder(error: BaseException, path: Path) -> str:
    """Return what an error says of a file, without its folder: where it lies is nobody's business at a browser."""
    return str(error).replace(f"{path.parent}/", "")


def write_section(page: Path, name: str, text: str) -> None:
    """Put `text` between the marks `<!-- name -->` and `<!-- /name -->` of a Markdown page.

    Analyses and measurements write what they found into docs/ with it. Raises `ValueError` where the page lacks the
    marks.
    """
    before, _, after = _around_section(page, name)
    page.write_text(f"{before}<!-- {name} -->\n\n{text.strip()}\n\n<!-- /{name} -->{after}", encoding="utf-8")


def read_section(page: Path, name: str) -> str:
    """Return the part of a Markdown page between those marks. Raises `ValueError` where the page lacks them."""
    return _around_section(page, name)[1].strip()


def _around_section(page: Path, name: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    whole = page.read_text(encoding="utf-8")
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise ValueError(f"{page}: expected the marks {begin} and {end} once each.")
    before, remaining = whole.split(begin)
    inside, after = remaining.split(end)
    return before, inside, after


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Yield True, and hold the folder meanwhile, or False where another process holds it.

    A process that dies lets go of it by itself. Without locks (Windows, some file systems) it is always True.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        alone = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone = False
        except OSError:  # a file system without locks
            pass
        yield alone
    finally:
        os.close(descriptor)


def force_to_disk(path: Path) -> None:
    """Return once the disk has the file, or the listing of the folder, at `path` (fsync)."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders, and orders its renames itself
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a safetensors file with JSON metadata as `replacing_file` does; raises `OSError` for a full disk."""
    from safetensors.torch import save

    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    data = save(own, metadata={name: json.dumps(value) for name, value in metadata.items()})
    with replacing_file(path) as temporary:
        temporary.write_bytes(data)  # save_file's files nobody else may read


def read_metadata(path: Path, what: str, most: int = _MOST_BYTES) -> dict[str, Any]:
    """Return the JSON metadata of a safetensors file, from its header alone; `what` says in errors what was expected.

    Raises `ValueError` for a file that is missing, of more than `most` bytes, damaged or something else.
    """
    with boundary(path, what), open_regular(path) as (file, size):
        length, longest = int.from_bytes(file.read(8), "little"), MOST_BYTES["the header of a result"]
        if size > most:
            raise ValueError(f"more than {most / 1e9:g} GB")
        if not 0 < length <= longest:
            raise ValueError(f"a header of {length:,} bytes")
        metadata = strict_json(file.read(length)).get("__metadata__", {})
        return {name: strict_json(value, constants=True) for name, value in metadata.items()}


def read_tensors(path: Path, what: str, sha256: object, about: Mapping[str, Any], remedy: str) -> dict[str, Tensor]:
    """Return the tensors of a file whose metadata has been read, if they and what they are `about` have this hash.

    The file is mapped until that is known, so that one that is refused fills no memory. Raises `ValueError`, with the
    `remedy`, for other contents, and for what is damaged otherwise.
    """
    from safetensors import safe_open

    with boundary(path, what), safe_open(path, framework="pt") as file:
        names = list(file.keys())
        if sha256 == _hash(about, ((name, file.get_tensor(name)) for name in sorted(names))):
            # Copied, since sums over memory that is aligned otherwise differ in their last bits.
            return {name: file.get_tensor(name).clone() for name in names}
    raise ValueError(f"{path}: damaged: its contents are not what was saved. {remedy}")


def contents_hash(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the metadata as JSON and over every tensor's name, type, shape and bytes, in the order of
    names."""
    return _hash(metadata, sorted(tensors.items()))


def _hash(metadata: Mapping[str, Any], tensors: Iterable[tuple[str, Tensor]]) -> str:
    import torch

    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_record(path: Path, kind: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write a result, its tensors and what it is `about`, for `read_record`; raises `OSError` for a full disk, and
    `ValueError` for more values beside the tensors than are read again."""
    require_few_values(json.dumps(about))
    write_tensors(path, tensors, {kind: about, "sha256": contents_hash(tensors, about)})


def read_record(path: Path, kind: str, what: str, version: int, again: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the `about` that `write_record` wrote as `kind`, of this `schema_version`.

    `what` names the result in errors, and `again` says how it is made anew ("train it"). Raises `ValueError` for a file
    that is missing, damaged, something else or of another version.
    """
    metadata = read_metadata(path, what)
    about = metadata.get(kind)
    if not isinstance(about, dict) or about.get("schema_version") != version:
        raise ValueError(f"{path}: expected {what} of schema version {version}; {again} again.")
    return read_tensors(path, what, metadata.get("sha256"), about, f"Copy it, or {again} again."), about


def save_progress(
    path: Path, tensors: Mapping[str, Tensor], counters: Mapping[str, Any], identity: Mapping[str, Any]
) -> None:
    """Write the state of a run: tensors, `counters` of how far it is, and `identity`, what it was started with.

    Raises `OSError` for a full disk.
    """
    metadata = {"progress": counters, "identity": identity}
    write_tensors(path, tensors, {**metadata, "sha256": contents_hash(tensors, metadata)})


def load_progress(path: Path, identity: Mapping[str, Any], run: str, remedy: str) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors and the counters of a run that was started with this `identity`.

    `run` names the run in errors ("the training run") and `remedy` says what to do about a run of another identity.
    Raises `ValueError` for a file that is damaged or no such state, and for another run's, naming what differs.
    """
    metadata = read_metadata(path, what := f"the state of {run}", _MOST_BYTES_OF_A_RUN)
    if not {"progress", "identity"} <= metadata.keys():
        raise ValueError(f"{path}: expected {what}, found another safetensors file.")
    tensors = read_tensors(path, what, metadata.pop("sha256", None), metadata, "Delete it to start afresh.")
    saved, expected = metadata["identity"], json.loads(json.dumps(identity))
    with boundary(path, what):
        different = sorted(key for key in {*saved, *expected} if saved.get(key) != expected.get(key))
    if different:
        raise ValueError(f"{path}: {run} was started with another {', '.join(different)}; {remedy}")
    return tensors, metadata["progress"]


def read_npz(path: Path, names: Sequence[str], most: int, optional: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the arrays `names` of an untrusted NumPy archive (.npz), and those of `optional` that it has; `most` bytes
    in all, unpacked. A pickle is never read.

    NumPy makes room for what the header of an array says, which may be 10¹² numbers in a file of 600 bytes. Raises
    `ValueError` for a file that is not regular or not a whole archive, for a missing array, and for arrays of Python
    objects, of more than `most` bytes, or of more than the archive holds; `OSError` as `open` does.
    """
    import numpy as np

    try:
        with open_regular(path) as (file, _), zipfile.ZipFile(ShortReads(file)) as archive:  # type: ignore[arg-type]
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            if missing := [name for name in names if name not in entries]:
                available = ", ".join(without_control(name)[:80] for name in sorted(entries)[:20])
                raise ValueError(
                    f"expected the arrays {', '.join(names)}, but {', '.join(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} missing; there are {available or 'none'}."
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
    """Raise `ValueError` unless the array is plain data of at most `most` bytes, all in the `held` ones."""
    import numpy as np

    readers: dict[tuple[int, int], Callable[..., Any]] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        if version not in readers:
            raise ValueError(f"version {version} of the format is not known")
        shape, _, dtype = readers[version](file)
    except ValueError as error:
        raise ValueError(f"{name} can't be read: {error}.") from error
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or not dtype.itemsize or n_bytes > most:
        what = "Python objects" if dtype.hasobject else f"{n_bytes:,} bytes"
        raise ValueError(f"expected {name} as plain numbers of at most {most:,} bytes, got {what}.")
    if any(length < 0 for length in shape) or file.tell() + n_bytes > held:
        raise ValueError(f"{name} can't be read: its header says {n_bytes:,} bytes, of which it holds {held:,}.")
