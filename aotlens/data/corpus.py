"""What a corpus is: named documents in a fixed order, a hash of all of it, and a split by whole documents."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


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
    """Documents behind a name (``spec``, as given to `aotlens.data.open_corpus`). Nothing is read before it is asked for."""

    spec: str

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of all documents, in order."""

    @abstractmethod
    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        """Yield the documents (or those of the given names only) in order, one in memory at a time."""

    def sha256(self) -> str:
        """`documents_sha256` of the whole corpus; reads all of it."""
        return documents_sha256(self.documents())

    def split(self, validation: Collection[str] | float) -> Split:
        """Hold out whole documents: those named, or about a fraction of them.

        A fraction is taken by a hash of each name, so a document keeps its side when others come or go. Raises
        ValueError for a name that the corpus lacks, a fraction outside (0, 1), or a side left empty.
        """
        names = self.names()
        if isinstance(validation, str):
            raise ValueError(f"expected a collection of names or a fraction, got the string {validation!r}")
        if isinstance(validation, float | int):
            if not 0 < validation < 1:
                raise ValueError(f"expected a fraction between 0 and 1, got {validation}")
            held_out = {name for name in names if _hash_fraction(name) < validation}
        else:
            held_out = set(validation)
            self._require_known(held_out, names)
        split = Split(
            tuple(name for name in names if name not in held_out), tuple(name for name in names if name in held_out)
        )
        if not split.train or not split.validation:
            raise ValueError(
                f"{self.spec}: holding out {validation!r} leaves {len(split.train)} of {len(names)} documents for "
                f"training and {len(split.validation)} for validation; both need one at least. Name the documents "
                "to hold out, or use a corpus of more documents"
            )
        return split

    def _require_known(self, wanted: Collection[str], names: Collection[str]) -> None:
        unknown = sorted(set(wanted) - set(names))
        if unknown:
            raise ValueError(
                f"{self.spec} has no document {', '.join(map(repr, unknown[:5]))}{' …' * (len(unknown) > 5)}; "
                f"it has {len(names)}, such as {', '.join(map(repr, list(names)[:3]))}"
            )


class DocumentHash:
    """SHA-256 over names and bytes in order, each preceded by its length (8 bytes, little-endian)."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, document: Document) -> None:
        for data in (document.name.encode(), document.text.encode()):
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def documents_sha256(documents: Iterable[Document]) -> str:
    """SHA-256 (hexadecimal) of documents: for each, its name's and its text's UTF-8 bytes, preceded by their lengths."""
    digest = DocumentHash()
    for document in documents:
        digest.update(document)
    return digest.hexdigest()


def _hash_fraction(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48
