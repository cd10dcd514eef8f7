"""From a corpus to token files on disk, once: tokenizer, training and validation tokens.

Prepared data is kept in `$AOTLENS_HOME/tokens/KEY` (default `~/.cache/aotlens`), where KEY hashes the documents, the
split and the vocabulary's size, so that a changed file makes a new folder rather than a wrong one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aotlens.checkpoints import home_folder
from aotlens.data import TokenFile, Tokenizer, hold_out, open_corpus
from aotlens.files import replacing_file
from aotlens.train.recipe import CorpusRecipe


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A tokenizer and two token files, with what a card says of them."""

    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    sha256: str
    """Of the whole corpus's names and bytes."""


def prepare(
    recipe: CorpusRecipe,
    spec: str | None = None,
    *,
    home: Path | None = None,
    announce: Callable[[str], None] = lambda message: None,
) -> TrainingData:
    """Open the corpus (`spec` on the command line wins over the recipe's), and make or reuse its token files.

    Raises `ValueError` for a corpus that is missing, empty or too small for the vocabulary, or names no held-out
    documents that it has.
    """
    chosen = recipe.spec if spec is None else spec
    if chosen is None:
        source = f" It is to be had from: {recipe.source}." if recipe.source else ""
        raise ValueError(f"this recipe needs a corpus; give it with --corpus, e.g. --corpus dir:PATH.{source}")
    announce(f"reading {chosen}")
    corpus, split = hold_out(open_corpus(chosen), recipe.validation)
    sha256 = corpus.sha256()
    described = json.dumps([sha256, list(split.train), list(split.validation), recipe.d_vocab])
    folder = (home or home_folder().parent) / "tokens" / hashlib.sha256(described.encode()).hexdigest()[:16]
    tokenizer_path, train_path, validation_path = (
        folder / n for n in ("tokenizer.json", "train.bin", "validation.bin")
    )
    if not tokenizer_path.exists():
        announce(f"training a tokenizer of {recipe.d_vocab} tokens")
        trained = Tokenizer.train((document.text for document in corpus.documents(split.train)), recipe.d_vocab)
        with replacing_file(tokenizer_path) as temporary:
            temporary.write_text(trained.to_json(), encoding="utf-8")
    tokenizer = Tokenizer.from_file(tokenizer_path)
    for path, names in ((train_path, split.train), (validation_path, split.validation)):
        if not path.exists():
            announce(f"encoding {path.stem} documents ({len(names)})")
            TokenFile.build(corpus.documents(names), tokenizer, path)
    return TrainingData(
        tokenizer=tokenizer, train=TokenFile.open(train_path), validation=TokenFile.open(validation_path), sha256=sha256
    )
