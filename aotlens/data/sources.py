"""Corpora by name: bundled novels, the interpreter's own library, a text file, a folder, or a Hugging Face dataset."""

from __future__ import annotations

import codecs
import os
import sys
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from aotlens.data.corpus import Corpus, Document
from aotlens.untrusted import read_regular

_NOT_LIBRARY = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})


def open_corpus(spec: str, *, root: str | PathLike[str] | None = None) -> Corpus:
    """Open a corpus by name.

    - ``novels``: the beginnings of the five English novels that were held out when the bundled models of novels were
      trained, some 60,000 of their tokens each;
    - ``stdlib``: the ``*.py`` files of the running interpreter's standard library, without its tests;
    - ``file:PATH``: one text file, one document;
    - ``dir:PATH``: every ``*.txt`` file below a folder (``*.TXT`` too), a document each;
    - ``hf:NAME[:config[:field]]``: the ``train`` split of a Hugging Face dataset, streamed; ``field`` is
      ``text`` if not given.

    A relative PATH is taken from ``root`` (the working directory if None). Documents are named by their path
    below the folder, without extension; empty files are left out. Text is read as UTF-8; a leading byte-order
    mark is dropped, and every line end becomes "\\n", as in Python's text mode. Raises ValueError for an
    unknown spec, for what is missing or empty, and, when it is read, for what is not UTF-8.
    """
    kind, _, argument = spec.partition(":")
    base = Path(root) if root is not None else Path()
    if spec == "novels":
        return BundledNovels()
    if spec == "stdlib":
        return standard_library()
    if kind in ("file", "dir") and argument:
        path = base / Path(argument).expanduser()
        return _one_file(spec, path) if kind == "file" else _folder(spec, path)
    if kind == "hf" and argument:
        return HuggingFaceCorpus(spec)
    raise ValueError(
        f"expected a corpus 'novels', 'stdlib', 'file:PATH', 'dir:PATH' or 'hf:NAME[:config[:field]]', got {spec!r}"
    )


#: Kinds of data that are a file or a folder of this machine.
_LOCAL = ("dir", "file", "npz", "folder")


def portable_spec(spec: str) -> str:
    """Return the name of data as it means something elsewhere: of a local file or folder only its kind, `dir:PATH`."""
    kind, _, path = spec.partition(":")
    return f"{kind}:PATH" if kind in _LOCAL and path else spec


def absolute_spec(spec: str) -> str:
    """Return the spec of the same data from any working directory: the path of a local file or folder in full."""
    kind, _, path = spec.partition(":")
    return f"{kind}:{Path(path).expanduser().resolve()}" if kind in _LOCAL and path else spec


class TextFiles(Corpus):
    """UTF-8 files, one document each, in the given order."""

    def __init__(self, spec: str, paths: dict[str, Path], *, skip_undecodable: bool = False) -> None:
        """``paths`` maps names to files. Not being UTF-8 is an error, or skipped if ``skip_undecodable``."""
        self.spec = spec
        self.skipped: tuple[str, ...] = ()  # names that the last finished pass left out, being not UTF-8
        self._paths = paths
        self._skip_undecodable = skip_undecodable

    def names(self) -> tuple[str, ...]:
        return tuple(self._paths)

    def written(self) -> tuple[str, ...]:
        files = [(name, path.stat()) for name, path in self._paths.items() if path.is_file()]
        return tuple(f"{name} {of.st_size} {of.st_mtime_ns}" for name, of in files)

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        wanted = set(self._paths if names is None else names)
        self._require_known(wanted, self._paths)
        skipped = []
        for name, path in self._paths.items():
            if name not in wanted:
                continue
            data = read_regular(path, kind="text")
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                if self._skip_undecodable:
                    skipped.append(name)
                    continue
                raise ValueError(
                    f"{path}: expected UTF-8 text, got byte 0x{data[error.start]:02X} at offset {error.start}; convert "
                    f"it (for instance `iconv -f {_likely_encoding(data)} -t utf-8`) or move it out of the corpus"
                ) from None
            if b"\0" in data[:4096] and (encoding := _likely_encoding(data)) != "latin1":
                raise ValueError(  # letters of the Latin alphabet are valid UTF-8 in 16 bits, with a zero behind each
                    f"{path}: expected UTF-8 text, got what looks like {encoding}; convert it (`iconv -f {encoding} "
                    "-t utf-8`) or move it out of the corpus"
                )
            yield Document(name, _plain_text(text))
        self.skipped = tuple(skipped)


class BundledNovels(Corpus):
    """The beginnings of five novels in the public domain, 1849 to 1919, each up to the end of a sentence.

    They have the names that the novels have in the bundled models' cards, where they are held out from the training.
    """

    spec = "novels"
    _FILE = Path(__file__).parent / "bundled" / "novels.zip"

    def names(self) -> tuple[str, ...]:
        with zipfile.ZipFile(self._FILE) as file:
            return tuple(name.removesuffix(".txt") for name in file.namelist())

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        known = self.names()
        wanted = set(known if names is None else names)
        self._require_known(wanted, known)
        with zipfile.ZipFile(self._FILE) as file:
            for name in known:
                if name in wanted:
                    yield Document(name, file.read(f"{name}.txt").decode())


def standard_library() -> TextFiles:
    """Return the source of Python's standard library, without tests and what is generated for this machine.

    What is not UTF-8 is left out (`TextFiles.skipped`). The text, and so its hash, differs between versions
    of Python.
    """
    library = Path(sysconfig.get_paths()["stdlib"])
    files_below: list[Path] = []
    for folder, below, files in os.walk(library):
        below[:] = [name for name in below if _is_library(name)]  # so that site-packages is not walked at all
        files_below += [Path(folder, name) for name in files if name.endswith(".py") and _is_library(name)]
    paths = _named(library, files_below)
    if not paths:
        raise ValueError(
            f"stdlib: expected Python source in {library}, found none; is the library of {sys.executable} zipped?"
        )
    return TextFiles("stdlib", paths, skip_undecodable=True)


def _is_library(name: str) -> bool:
    return name not in _NOT_LIBRARY and not name.startswith(("_sysconfigdata", "config-"))


def _one_file(spec: str, path: Path) -> TextFiles:
    if not path.is_file():
        hint = "it is a folder: use dir:PATH" if path.is_dir() else "it does not exist"
        raise ValueError(f"{spec}: expected a text file at {path.absolute()}, but {hint}")
    if path.stat().st_size == 0:
        raise ValueError(f"{spec}: {path.absolute()} is empty; expected text")
    return TextFiles(spec, {path.stem: path})


def _folder(spec: str, path: Path) -> TextFiles:
    if not path.is_dir():
        hint = "it is a file: use file:PATH" if path.is_file() else "it does not exist"
        raise ValueError(f"{spec}: expected a folder at {path.absolute()}, but {hint}")
    paths = _named(path, [file for file in path.rglob("*") if file.suffix.lower() == ".txt" and file.is_file()])
    if not paths:
        others = sorted({file.suffix or "(none)" for file in path.rglob("*") if file.is_file()})
        present = f"files ending in {', '.join(others[:8])}" if others else "no files"
        raise ValueError(f"{spec}: expected non-empty *.txt files below {path.absolute()}, found {present}")
    return TextFiles(spec, paths)


def _likely_encoding(data: bytes) -> str:
    """The encoding of bytes that are not UTF-8, by iconv's name: from their mark or small bytes."""
    for mark, name in ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
                       (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):  # fmt: skip
        if data.startswith(mark):
            return name
    start = data[:4096]
    upper = [sum(byte < 9 for byte in start[place::4]) for place in range(4)]  # 0 to 6 in most alphabets
    if sum(upper) < len(start) / 4:  # text of one byte a letter has none of these
        return "latin1"
    width = "32" if min(upper[1], upper[2]) > len(start) / 8 else "16"
    return f"utf-{width}{'le' if upper[3] > upper[0] else 'be'}"


def _plain_text(text: str) -> str:
    """Drop a byte-order mark and unify line ends.

    With "\\r\\n" each line end before a word costs two tokens, which GPT-2's word pattern never joins, and
    prompts, which have "\\n", look like nothing in the training text.
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _named(root: Path, files: list[Path]) -> dict[str, Path]:
    """Map names (paths below ``root``, extensions if ambiguous) to files, sorted, without empty files."""
    full = [file.relative_to(root) for file in files if file.stat().st_size > 0]
    counts = Counter(file.with_suffix("") for file in full)
    names = ((file if counts[file.with_suffix("")] > 1 else file.with_suffix(""), file) for file in full)
    return dict(sorted((name.as_posix(), root / file) for name, file in names))


class HuggingFaceCorpus(Corpus):
    """The ``train`` split of a dataset. A row is a document, named by its number; empty rows are left out.

    The names are known only by reading all rows, so `names` and `split` are a pass over the dataset each.
    """

    def __init__(self, spec: str) -> None:
        """``spec`` is ``hf:NAME[:config[:field]]``; an empty config or field is the default one."""
        self.spec = spec
        self.name, self.config, field = parse_spec(spec)
        self.field = field or "text"

    def names(self) -> tuple[str, ...]:
        return tuple(document.name for document in self.documents())

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        remaining = None if names is None else set(names)
        count = 0
        for number, row in enumerate(dataset_rows(self.spec, self.name, self.config, "train")):
            text = row_field(self.spec, row, self.field)
            if not isinstance(text, str):
                raise ValueError(
                    f"{self.spec}: expected text in field {self.field!r}, got {type(text).__name__} in row {number}"
                )
            if not text:
                continue
            count += 1
            if remaining is None or str(number) in remaining:
                yield Document(str(number), text)
                if remaining is not None:
                    remaining.remove(str(number))
        if count == 0:
            raise ValueError(f"{self.spec}: expected rows with text, got none")
        if remaining:
            raise ValueError(f"{self.spec} has no rows {', '.join(sorted(remaining)[:5])}; it has {count} with text")


def row_field(spec: str, row: Mapping[str, Any], field: str) -> Any:
    """Return a field of a row of a dataset. Raises `ValueError` with the row's fields if it does not have it."""
    if field not in row:
        raise ValueError(
            f"{spec}: expected a field {field!r}, got {', '.join(map(repr, row))}; name one of these as "
            "hf:NAME:config:field."
        )
    return row[field]


def parse_spec(spec: str) -> tuple[str, str | None, str | None]:
    """Name, config and field of ``hf:NAME[:config[:field]]``; None for what is empty or left out."""
    parts = spec.split(":")
    if parts[0] != "hf" or not 2 <= len(parts) <= 4 or not parts[1]:
        raise ValueError(f"expected 'hf:NAME[:config[:field]]', got {spec!r}")
    config, field = [*parts[2:], None, None][:2]
    return parts[1], config or None, field or None


def dataset_rows(spec: str, name: str, config: str | None, split: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one split of a dataset, streamed; `spec` is what errors call it."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"{spec} needs the package `datasets`: pip install 'aotlens[hf]'") from error
    try:
        rows = iter(datasets.load_dataset(name, config, split=split, streaming=True))
        while (row := next(rows, None)) is not None:
            yield row
    except Exception as error:  # of many kinds: no such dataset or config, no network, a broken file
        raise ValueError(f"{spec}: cannot read the dataset: {error}") from error


def dataset_classes(spec: str, name: str, config: str | None, split: str, field: str) -> tuple[str, ...] | None:
    """Return the names of the classes whose numbers a field holds; None where the dataset names none."""
    try:
        import datasets

        feature = (datasets.load_dataset(name, config, split=split, streaming=True).features or {}).get(field)
    except Exception as error:
        raise ValueError(f"{spec}: cannot read the dataset: {error}") from error
    names = getattr(feature, "names", None)
    return tuple(map(str, names)) if names else None
