"""Text as windows: what it is cut into stays what it was."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from aotlens.checkpoints import bundled_folder
from aotlens.data import Corpus, Document, Encoding, Tokenizer, spread_windows
from aotlens.data.windows import start_id, windows_of_documents
from tests.messages import refused

TEXT = "the of and a to in he was that his it her with had as for she not at but on be said him my which is"
WORDS = TEXT.split()


class Books(Corpus):
    """Five documents of pseudo-random words, from 9,000 words to none."""

    spec = "books"

    def __init__(self) -> None:
        state, self.texts = 1, {}
        for name, n_words in (("a", 9000), ("b", 700), ("c", 0), ("d", 6), ("e", 3000)):
            words = []
            for _ in range(n_words):
                state = state * 1103515245 + 12345 & 0x7FFFFFFF
                words.append(WORDS[(state >> 16) % len(WORDS)] + (".\n" if state >> 8 & 15 == 0 else ""))
            self.texts[name] = " ".join(words)

    def names(self) -> tuple[str, ...]:
        return tuple(self.texts)

    def documents(self, names: Collection[str] | None = None) -> Iterator[Document]:
        for name, text in self.texts.items():
            if names is None or name in names:
                yield Document(name, text)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(bundled_folder() / "novels-1l-mhsa" / "tokenizer.json")


@pytest.mark.parametrize(
    ("n", "length", "rows", "digest"), [(40, 64, 40, "d07b7ffa75e04601"), (10**6, 33, 445, "27b4ede7d750711f")]
)
def test_spread_windows_are_those_of_the_bundled_distillations(
    tokenizer: Tokenizer, n: int, length: int, rows: int, digest: str
) -> None:
    """A distillation says which windows it was judged by; its digests here are from before the sampler moved."""
    windows = spread_windows(Books(), Books().names(), Encoding.of(tokenizer), n, length)
    assert windows.shape == (rows, length) and windows[:, 0].eq(tokenizer.eot_id).all()
    assert hashlib.sha256(windows.numpy().tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize(("n", "length"), [(0, 8), (3, 1)])
def test_no_window_is_refused(tokenizer: Tokenizer, n: int, length: int) -> None:
    with refused("at least one window", f"got {n} of {length}"):
        spread_windows(Books(), Books().names(), Encoding.of(tokenizer), n, length)


def test_a_text_that_is_too_short_says_which_part_was_and_what_to_do(tokenizer: Tokenizer) -> None:
    with refused("characters in the part that is read, d;", "choose a longer text"):
        spread_windows(Books(), ("d",), Encoding.of(tokenizer), 2, 64)
    with pytest.raises(ValueError, match="characters; choose"):
        spread_windows(Books(), Books().names(), Encoding.of(tokenizer), 1, 10**6)


@pytest.mark.parametrize("block", [7, 500, 10**6])
def test_windows_of_documents_have_every_token_once(tokenizer: Tokenizer, block: int) -> None:
    """Whatever the blocks that the text comes in; a stratum has 8 to 15 windows, or is all of its document."""
    texts = [tokenizer.encode(document.text) for document in Books().documents()]
    ids = np.array([index for text in texts for index in (*text, tokenizer.eot_id)][:-1])
    blocks = (ids[i : i + block] for i in range(0, len(ids), block))
    windows = list(windows_of_documents(blocks, tokenizer.eot_id, 23))
    written = [text for text in texts if text]
    for number, text in enumerate(written):
        cut = [window for window, _, document in windows if document == number]
        assert np.concatenate(cut).tolist() == text and {len(window) for window in cut[:-1]} <= {23}
        strata = Counter(stratum for _, stratum, document in windows if document == number)
        assert len(strata) == 1 or all(8 <= n <= 15 for n in strata.values())
    assert [stratum for _, stratum, _ in windows] == sorted(stratum for _, stratum, _ in windows)
    digest = hashlib.sha256()
    for window, stratum, document in windows:
        digest.update(np.int64([tokenizer.eot_id, *window, stratum, document]).tobytes())
    assert digest.hexdigest()[:16] == "31ad88a7e495c205", "as evidence counted them before the cutter moved"


def test_the_start_token_is_found_by_one_rule(tokenizer: Tokenizer) -> None:
    assert start_id(tokenizer) == tokenizer.eot_id and start_id(None) is None
    bert, gpt2 = SimpleNamespace(cls_token_id=2, bos_token_id=None), SimpleNamespace(cls_token_id=None, bos_token_id=7)
    assert start_id(bert) == 2 and start_id(gpt2) == 7
    with refused("no start", "separator"):
        Encoding.of(SimpleNamespace(sep_token_id=3))
    with pytest.raises(ValueError, match="a model with a tokenizer"):
        Encoding.of(None)
