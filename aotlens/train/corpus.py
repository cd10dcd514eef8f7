"""The preparation of a corpus as token files on disk, once: tokenizer, training and validation tokens.

Prepared data is kept in `$AOTLENS_HOME/tokens/KEY` (default `~/.cache/aotlens`), where KEY hashes the documents, the
split and the vocabulary, so that a changed file makes a new folder rather than a wrong one. Of a stream it hashes the
name: a stream is too long to be read twice. Its training documents are encoded as they come; held-out ones, a small
share, wait in a file and are encoded at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from aotlens.checkpoints import user_folder
from aotlens.data import Corpus, Document, TokenFile, Tokenizer, hold_out, open_corpus
from aotlens.data.corpus import is_held_out
from aotlens.data.sources import HuggingFaceCorpus, portable_spec
from aotlens.files import replacing_file
from aotlens.train.sections import Announce, CorpusRecipe, silent

_GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A tokenizer and two token files, with what a card says of them."""

    tokenizer: Tokenizer
    train: TokenFile
    validation: TokenFile
    sha256: str
    """The hash of the whole corpus's names and bytes."""
    corpus: CorpusRecipe
    """The recipe's section as it was followed: of a corpus other than the recipe's own it says that corpus's name, what
    is held out of it, and how many tokens its text gave."""


def prepare(
    recipe: CorpusRecipe, spec: str | None = None, *, home: Path | None = None, announce: Announce = silent
) -> TrainingData:
    """Open the corpus (`spec` on the command line wins over the recipe's), and make or reuse its token files.

    Any corpus will do. Where it is not the recipe's own (the recipe names another, or held-out documents of which this
    one has none) a twentieth of the documents is held out, or the end of each of a few, and `d_vocab` is the most
    tokens that are learned. Of the recipe's own corpus, documents that it names and the corpus lacks are announced.

    Raises `ValueError` for a corpus that is missing or empty, or the recipe's own and too small for the vocabulary.
    """
    source = recipe.spec if spec is None else spec
    if source is None:
        origin = f" It is to be had from: {recipe.source}." if recipe.source else ""
        raise ValueError(f"this recipe needs a corpus; give it with --corpus, e.g. --corpus dir:PATH.{origin}")
    corpus = open_corpus(source)
    given = _given_tokenizer(recipe)
    tokens = user_folder("tokens") if home is None else home / "tokens"
    followed = _followed(recipe, corpus, announce)
    if isinstance(corpus, HuggingFaceCorpus):
        return _prepare_stream(corpus, followed, given, tokens, announce, exact=followed is recipe)
    if recipe.n_documents is not None:
        raise ValueError(f"n_documents={recipe.n_documents} takes the beginning of a stream, hf:NAME; got {source}.")
    announce(f"reading {source}")
    corpus, split = hold_out(corpus, followed.validation)
    sha256 = corpus.sha256()
    described = [sha256, list(split.train), list(split.validation), recipe.d_vocab]
    folder = tokens / _key([*described, _digest(given)] if given else described)
    paths = _paths(folder)
    _wait_for_first_process(*paths)
    texts = (document.text for document in corpus.documents(split.train))
    tokenizer = _tokenizer(folder, followed, given, texts, announce, exact=followed is recipe)
    for path, names in zip(paths, (split.train, split.validation), strict=True):
        if not path.exists():
            announce(f"encoding {path.stem} documents ({len(names)})")
            TokenFile.build(corpus.documents(names), tokenizer, path)
    train, validation = map(TokenFile.open, paths)
    return _training_data(followed, tokenizer, train, validation, sha256)


def _followed(recipe: CorpusRecipe, corpus: Corpus, announce: Announce) -> CorpusRecipe:
    """The recipe's section itself for the corpus that it is written for, and otherwise one that fits any corpus."""
    share = recipe.validation
    if recipe.spec == corpus.spec or (recipe.spec is None and isinstance(share, float)):
        return recipe
    if not isinstance(share, float):
        # A stream's documents are its rows' numbers, which only a whole pass would list.
        is_stream = isinstance(corpus, HuggingFaceCorpus)
        names = set(filter(str.isdecimal, share) if is_stream else corpus.names())
        known = tuple(name for name in share if name in names)
        if is_stream or len(known) < len(names):
            if known == share:
                return recipe
            if known:
                absent = ", ".join(sorted(set(share) - names))
                announce(f"{corpus.spec} lacks {absent}, which the recipe holds out; {', '.join(known)} are held out")
                return dataclasses.replace(recipe, validation=known)
        share = CorpusRecipe.validation
    announce(f"{corpus.spec} is not the recipe's own corpus: {share:.0%} of it is held out")
    local = corpus.spec != (name := portable_spec(corpus.spec))
    return dataclasses.replace(
        recipe, spec=None if local else corpus.spec, name=name, source="", license="", validation=share
    )


def _training_data(
    followed: CorpusRecipe, tokenizer: Tokenizer, train: TokenFile, validation: TokenFile, sha256: str
) -> TrainingData:
    section = dataclasses.replace(followed, d_vocab=tokenizer.d_vocab)
    return TrainingData(tokenizer=tokenizer, train=train, validation=validation, sha256=sha256, corpus=section)


def _prepare_stream(
    corpus: HuggingFaceCorpus,
    recipe: CorpusRecipe,
    given: Tokenizer | None,
    tokens: Path,
    announce: Announce,
    exact: bool,
) -> TrainingData:
    """Token files of a stream, made in one pass (two where a tokenizer is to be trained).

    They are kept by the data set's name, not its bytes, which are not read again: remove the folder to read a data set
    anew that has changed. `sha256` is of both sides' documents, as they were read.
    """
    held_out = recipe.validation if isinstance(recipe.validation, float) else list(recipe.validation)
    kept_by = [corpus.spec, held_out, recipe.n_documents, _digest(given) if given else recipe.d_vocab]
    folder = tokens / _key(kept_by)
    training_texts = (
        document.text
        for document in first_documents(corpus, recipe.n_documents)
        if not is_held_out(document.name, recipe.validation)
    )
    train_path, validation_path = _paths(folder)
    _wait_for_first_process(train_path, validation_path)
    tokenizer = _tokenizer(folder, recipe, given, training_texts, announce, exact)
    if not (train_path.exists() and validation_path.exists()):
        token_files_of_stream(
            corpus, recipe.validation, tokenizer, train_path, validation_path, recipe.n_documents, announce
        )
    train, validation = TokenFile.open(train_path), TokenFile.open(validation_path)
    sha256 = hashlib.sha256(f"{train.sha256} {validation.sha256}".encode()).hexdigest()
    return _training_data(recipe, tokenizer, train, validation, sha256)


def _wait_for_first_process(*paths: Path) -> None:
    """Wait, in all processes that torchrun started on this machine but the one that reads the text and writes files."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        while not all(path.exists() for path in paths):
            time.sleep(1)


def _given_tokenizer(recipe: CorpusRecipe) -> Tokenizer | None:
    """GPT-2's tokenizer, where the recipe names it. Raises `ValueError` for a missing file and for another d_vocab."""
    if not recipe.tokenizer:
        return None
    kind, _, folder = recipe.tokenizer.partition(":")
    if kind != "gpt2_bpe" or not folder:
        raise ValueError(
            f"tokenizer {recipe.tokenizer!r}: expected gpt2_bpe:FOLDER, a folder with encoder.json and vocab.bpe (on "
            "the Hugging Face hub vocab.json and merges.txt of openai-community/gpt2); give it with --tokenizer."
        )
    path = Path(folder).expanduser()
    names = next((names for names in _GPT2_FILES if all((path / name).is_file() for name in names)), None)
    if names is None:
        raise ValueError(f"{recipe.tokenizer}: expected encoder.json and vocab.bpe in the folder, found neither pair.")
    tokenizer = Tokenizer.from_gpt2_files(*(path / name for name in names))
    if tokenizer.d_vocab != recipe.d_vocab:
        raise ValueError(
            f"{recipe.tokenizer}: has {tokenizer.d_vocab} tokens, but the recipe's [corpus] has d_vocab = "
            f"{recipe.d_vocab}; make them equal."
        )
    return tokenizer


def _tokenizer(
    folder: Path,
    recipe: CorpusRecipe,
    given: Tokenizer | None,
    texts: Iterable[str],
    announce: Announce,
    exact: bool,
) -> Tokenizer:
    """The tokenizer in the folder; where there is none, the given one or one trained on `texts` is kept there."""
    path = folder / "tokenizer.json"
    if not path.exists() or (exact and Tokenizer.from_file(path).d_vocab < recipe.d_vocab):
        if given is None:
            announce(f"training a tokenizer of {recipe.d_vocab} tokens")
        tokenizer = given or Tokenizer.train(texts, recipe.d_vocab, exact=exact)
        if tokenizer.d_vocab < recipe.d_vocab:
            announce(f"the text gives no more than {tokenizer.d_vocab} tokens")
        with replacing_file(path) as temporary:
            temporary.write_text(tokenizer.to_json(), encoding="utf-8")
    return Tokenizer.from_file(path)


def _paths(folder: Path) -> tuple[Path, Path]:
    return folder / "train.bin", folder / "validation.bin"


def _key(described: list[Any]) -> str:
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]


def _digest(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_json().encode()).hexdigest()


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
    announce: Announce,
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
