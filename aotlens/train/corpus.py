"""From a corpus to token files on disk, once: tokenizer, training and validation tokens, the bigram baseline.

Prepared data is kept in `$AOTLENS_HOME/tokens/KEY` (default `~/.cache/aotlens`), where KEY hashes the documents, the
split and the vocabulary's size, so that a changed file makes a new folder rather than a wrong one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aotlens.checkpoints import home_folder
from aotlens.data import TailHeldOut, TokenFile, Tokenizer, open_corpus
from aotlens.evaluate import BigramModel
from aotlens.train.recipe import CorpusRecipe


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A tokenizer and two token files, with what a card says of them."""

    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    sha256: str
    """Of the whole corpus's names and bytes."""
    bigram_loss: float
    """Of a smoothed bigram model of the training tokens on the validation tokens, nats a token."""


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
    chosen = spec or recipe.spec
    if chosen is None:
        source = f" It is to be had from: {recipe.source}." if recipe.source else ""
        raise ValueError(f"this recipe needs a corpus; give it with --corpus, e.g. --corpus dir:PATH.{source}")
    corpus = open_corpus(chosen)
    if isinstance(recipe.validation, float) and len(corpus.names()) == 1:
        corpus = TailHeldOut(corpus, recipe.validation)
        recipe = dataclasses.replace(recipe, validation=(corpus.tail,))
    announce(f"reading {chosen}")
    sha256 = corpus.sha256()
    split = corpus.split(recipe.validation)
    described = json.dumps([sha256, list(split.train), list(split.validation), recipe.d_vocab])
    folder = (home or home_folder().parent) / "tokens" / hashlib.sha256(described.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_path, train_path, validation_path = (
        folder / n for n in ("tokenizer.json", "train.bin", "validation.bin")
    )
    if not tokenizer_path.exists():
        announce(f"training a tokenizer of {recipe.d_vocab} tokens")
        trained = Tokenizer.train((document.text for document in corpus.documents(split.train)), recipe.d_vocab)
        _replace(tokenizer_path, trained.to_json())
    tokenizer = Tokenizer.from_file(tokenizer_path)
    for path, names in ((train_path, split.train), (validation_path, split.validation)):
        if not path.exists():
            announce(f"encoding {path.stem} documents ({len(names)})")
            TokenFile.build(corpus.documents(names), tokenizer, path)
    train, validation = TokenFile.open(train_path), TokenFile.open(validation_path)
    bigram_path = folder / "bigram.json"
    if not bigram_path.exists():
        announce("counting bigrams")
        bigram = BigramModel.fit(np.asarray(train.tokens), tokenizer.d_vocab)
        _replace(bigram_path, json.dumps({"loss": bigram.loss(np.asarray(validation.tokens))}))
    bigram_loss = json.loads(bigram_path.read_text())["loss"]
    return TrainingData(tokenizer=tokenizer, train=train, validation=validation, sha256=sha256, bigram_loss=bigram_loss)


def _replace(path: Path, text: str) -> None:
    """Write whole or not at all: another process may be preparing the same corpus."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
