"""Hugging Face datasets as a corpus, streamed: nothing is downloaded as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from aotlens.data.corpus import Corpus, Document


class HuggingFaceCorpus(Corpus):
    """The ``train`` split of a dataset; a row is a document, named by its number; rows without text are left out."""

    def __init__(self, *, name: str, config: str | None = None, field: str = "text") -> None:
        self.spec = ":".join(["hf", name, config or "", field]) if field != "text" else f"hf:{name}:{config or ''}"
        self.spec = self.spec.rstrip(":")
        self.name, self.config, self.field = name, config, field

    @classmethod
    def from_spec(cls, spec: str) -> HuggingFaceCorpus:
        """Parse ``hf:NAME[:config[:field]]``; an empty config or field is the default one."""
        parts = spec.removeprefix("hf:").split(":")
        if not spec.startswith("hf:") or not parts[0] or len(parts) > 3:
            raise ValueError(f"expected 'hf:NAME[:config[:field]]', got {spec!r}")
        name, config, field = [*parts, "", ""][:3]
        return cls(name=name, config=config or None, field=field or "text")

    def names(self) -> tuple[str, ...]:
        return tuple(document.name for document in self.documents())

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        wanted = None if names is None else frozenset(names)
        empty = True
        for number, row in enumerate(self._rows()):
            if self.field not in row:
                raise ValueError(f"{self.spec}: rows have no field {self.field!r}, only {sorted(row)}; name one of these")
            text = row[self.field]
            if not isinstance(text, str):
                raise ValueError(
                    f"{self.spec}: expected text in field {self.field!r}, got {type(text).__name__} in row {number}"
                )
            if not text:
                continue
            empty = False
            if wanted is None or str(number) in wanted:
                yield Document(str(number), text)
        if empty:
            raise ValueError(f"{self.spec}: the dataset has no rows with text")

    def _rows(self) -> Iterator[dict[str, Any]]:
        try:
            import datasets
        except ImportError as error:
            raise ValueError(f"{self.spec} needs the package `datasets`: pip install datasets") from error
        try:
            yield from datasets.load_dataset(self.name, self.config, split="train", streaming=True)
        except Exception as error:
            raise ValueError(f"{self.spec}: cannot read the dataset: {error}") from error
