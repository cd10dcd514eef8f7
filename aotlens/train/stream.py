"""Token files from a stream that is too long to be read twice: one pass, nothing of it kept but token ids.

Training documents are encoded as they come; held-out ones, a small share, wait in a file and are encoded at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from aotlens.data import Corpus, Document, TokenFile, Tokenizer
from aotlens.data.corpus import is_held_out


def first_documents(corpus: Corpus, n_documents: int | None) -> Iterator[Document]:
    """Yield the first so many documents of a corpus, or all."""
    return islice(corpus.documents(), n_documents)


def token_files_of_stream(
    corpus: Corpus,
    held_out: Collection[str] | float,
    tokenizer: Tokenizer,
    train_path: Path,
    validation_path: Path,
    n_documents: int | None,
    announce: Callable[[str], None] = lambda message: None,
) -> None:
    """Write the token files of both sides of a split in one pass over the first `n_documents` documents.

    Documents are held out by name, or a fraction of them by a hash of their names, as `Corpus.split` does it. Raises
    `ValueError` where a side would be empty; then neither file is written.
    """
    waiting_path = validation_path.with_name(f"{validation_path.name}.jsonl")
    waiting_path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with waiting_path.open("w", encoding="utf-8") as waiting:
            documents = _training_side(corpus, held_out, n_documents, waiting)
            announce(f"encoding the documents of {corpus.spec} as they come")
            TokenFile.build(documents, tokenizer, train_path)
        announce("encoding the held-out documents")
        TokenFile.build(_waiting(waiting_path), tokenizer, validation_path)
    except ValueError:
        train_path.unlink(missing_ok=True)
        raise
    finally:
        waiting_path.unlink(missing_ok=True)


def _training_side(
    corpus: Corpus, held_out: Collection[str] | float, n_documents: int | None, waiting: TextIO
) -> Iterator[Document]:
    for document in first_documents(corpus, n_documents):
        if is_held_out(document.name, held_out):
            waiting.write(json.dumps([document.name, document.text]) + "\n")
        else:
            yield document


def _waiting(path: Path) -> Iterator[Document]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield Document(*json.loads(line))
