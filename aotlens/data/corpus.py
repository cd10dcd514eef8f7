"""A corpus: named documents in a fixed order, a hash of all of it, and a split by whole documents."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aotlens.conventions import listed, require_between


@dataclass(frozen=True, slots=True)
class Document:
    """One text, and a name that is unique in its corpus."""

    name: str
    text: str


class Split(NamedTuple):
    """Names of documents, each in exactly one of the two, in the corpus's order."""

    train: tuple[str, ...]
    validation: tuple[str, ...]


class Corpus(ABC):
    """Documents behind a name. Opening one reads no text yet."""

    spec: str  # the name, as given to `aotlens.data.open_corpus`

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names of all documents, in order."""

    @abstractmethod
    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        """Yield the documents (or those of the given names only) in order, one in memory at a time."""

    def written(self) -> tuple[str, ...]:
        """Return what tells without reading whether the text is still the same: its files' sizes and times."""
        return ()

    def sha256(self) -> str:
        """Return `documents_sha256` of the whole corpus; reads all of it."""
        return documents_sha256(self.documents())

    def split(self, validation: Collection[str] | float) -> Split:
        """Hold out whole documents: those named, or about a fraction of them.

        A fraction is taken by a hash of each name, so a document keeps its side when others come or go.
        Raises ValueError for a name that the corpus lacks, a fraction outside (0, 1), or a side left empty.
        """
        names = self.names()
        if isinstance(validation, str):
            raise ValueError(f"expected a collection of names or a fraction, got the string {validation!r}")
        if isinstance(validation, float | int):
            held_out = {name for name in names if is_held_out(name, validation)}
        else:
            held_out = set(validation)
            self._require_known(held_out, names)
        split = Split(
            train=tuple(name for name in names if name not in held_out),
            validation=tuple(name for name in names if name in held_out),
        )
        if not split.train or not split.validation:
            raise ValueError(
                f"{self.spec}: expected documents for both training and validation, but holding out "
                f"{validation!r} of its {len(names)} gives {len(split.train)} and {len(split.validation)}. "
                "Name the documents to hold out, or use a corpus of more documents (`dir:` has one "
                "per file)"
            )
        return split

    def _require_known(self, wanted: Collection[str], names: Collection[str]) -> None:
        unknown = sorted(set(wanted) - set(names))
        if unknown:
            raise ValueError(
                f"{self.spec} has no document {listed(map(repr, unknown), 5)}; it has {len(names)}, such as "
                f"{', '.join(map(repr, list(names)[:3]))}"
            )


def is_held_out(name: str, validation: Collection[str] | float) -> bool:
    """Return whether a document is among the held-out ones: by its name, or by a hash of it for a fraction of all.

    Raises ValueError for a fraction outside (0, 1).
    """
    if isinstance(validation, float | int):
        require_between("validation", validation, above=0, below=1)
        return _hash_fraction(name) < validation
    return name in validation


class TailHeldOut(Corpus):
    """A corpus with each document cut in two, near a line end: `NAME` and, about the last `fraction`, `NAME (end)`.

    For training on a single file, or on so few that a share of them holds out none.
    """

    def __init__(self, whole: Corpus, fraction: float) -> None:
        require_between("fraction", fraction, above=0, below=1)
        self.spec = whole.spec
        self._whole = whole
        self._fraction = fraction

    def names(self) -> tuple[str, ...]:
        return tuple(part for name in self._whole.names() for part in (name, _tail(name)))

    @property
    def tails(self) -> tuple[str, ...]:
        """The held-out parts' names."""
        return tuple(map(_tail, self._whole.names()))

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        wanted = set(self.names() if names is None else names)
        self._require_known(wanted, self.names())
        for document in self._whole.documents():
            cut = int(len(document.text) * (1 - self._fraction))
            cut = document.text.find("\n", cut, (cut + len(document.text)) // 2) + 1 or cut  # at most half is given up
            for name, text in ((document.name, document.text[:cut]), (_tail(document.name), document.text[cut:])):
                if name in wanted:
                    yield Document(name, text)

    def sha256(self) -> str:
        return self._whole.sha256()


def _tail(name: str) -> str:
    return f"{name} (end)"


def hold_out(corpus: Corpus, held_out: Collection[str] | float) -> tuple[Corpus, Split]:
    """Return the corpus with its split: whole documents, by name or a fraction of them. Of so few documents that the
    fraction leaves a side without one, of a single one above all, the end of each is held out.

    Raises ValueError as `Corpus.split` does.
    """
    if isinstance(held_out, float):
        names = corpus.names()
        if not 0 < sum(is_held_out(name, held_out) for name in names) < len(names):
            corpus = TailHeldOut(corpus, held_out)
            held_out = corpus.tails
    return corpus, corpus.split(held_out)


class DocumentHash:
    """SHA-256 over names and texts in order, in UTF-8, each after its length (8 bytes, little-endian)."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, document: Document) -> None:
        for data in (_name_bytes(document.name), document.text.encode()):
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def documents_sha256(documents: Iterable[Document]) -> str:
    """Return SHA-256 over the names and texts of documents in order, in hexadecimal (see `DocumentHash`)."""
    digest = DocumentHash()
    for document in documents:
        digest.update(document)
    return digest.hexdigest()


def _hash_fraction(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(_name_bytes(name)).digest()[:6], "big") / 2**48


def _name_bytes(name: str) -> bytes:
    # A file's name need not be UTF-8; Python holds its stray bytes as surrogates.
    return name.encode("utf-8", "surrogateescape")
