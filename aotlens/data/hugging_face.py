"""Hugging Face datasets as a corpus, streamed: no dataset is downloaded or held as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from aotlens.data.corpus import Corpus, Document


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
            text = row.get(self.field)
            if self.field not in row:
                raise ValueError(
                    f"{self.spec}: expected a field {self.field!r}, got {', '.join(map(repr, row))}; name "
                    "one of these as hf:NAME:config:field"
                )
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
