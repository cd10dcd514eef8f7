"""A corpus's bigrams: which token follows which, and how often."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.data import Corpus, TokenFile
from aotlens.evaluate import BigramModel
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.trigrams.text import Text, read_ids

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class CorpusBigrams(Result):
    """Every pair seen, sorted by first, then second."""

    first: Int64[np.ndarray, " pairs"]
    second: Int64[np.ndarray, " pairs"]
    count: Int64[np.ndarray, " pairs"]
    totals: Float64[np.ndarray, " d_vocab"]
    """The number of times that anything follows the token."""
    keys: Int64[np.ndarray, " pairs"]
    """first · d_vocab + second."""

    @property
    def headline(self) -> str:
        return f"{self.n:,} bigrams, {len(self.count):,} different"

    @property
    def d_vocab(self) -> int:
        return len(self.totals)

    @property
    def n(self) -> int:
        """The number of bigrams that were counted."""
        return int(self.count.sum())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair that occurs, the most frequent first: first_id, second_id, count."""
        import pandas as pd

        frame = pd.DataFrame({"first_id": self.first, "second_id": self.second, "count": self.count})
        return frame.sort_values("count", ascending=False, kind="stable", ignore_index=True)

    def of(self, first: Int64[np.ndarray, " n"], second: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Return the count of each of these pairs."""
        wanted = first * self.d_vocab + second
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, self.count[places], 0)

    @property
    def totals_or_nan(self) -> Float64[np.ndarray, " d_vocab"]:
        """`totals`, NaN for a token that nothing follows: P(· | token) has no meaning there."""
        return np.where(self.totals > 0, self.totals, np.nan)


#: Text to count, or bigrams that are counted already.
BigramSource: TypeAlias = Text | BigramModel | CorpusBigrams


def count_bigrams(
    model: AttentionOnlyTransformer,
    corpus: BigramSource,
    *,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> CorpusBigrams:
    """Return the bigrams of a text, or those of a `BigramModel`. Raises `ValueError` for another vocabulary, or no
    pair."""
    require_ours(model, "count_bigrams")
    if isinstance(corpus, BigramModel | CorpusBigrams):
        if max_tokens is not None or documents is not None:
            raise ValueError("max_tokens and documents choose text to count; these bigrams are counted already.")
        _check(model, corpus.d_vocab)
        return corpus if isinstance(corpus, CorpusBigrams) else _of(corpus)
    if isinstance(corpus, TokenFile):
        _check(model, corpus.d_vocab)
    ids = read_ids(model, corpus, max_tokens=max_tokens, documents=documents)
    # The first document begins after a separator as well.
    if isinstance(corpus, TokenFile):
        ids = np.append(corpus.eot_id, ids)
    elif isinstance(corpus, Corpus | str) and model.tokenizer is not None:
        start = model.tokenizer.eot_id
        ids = ids if start is None else np.append(start, ids)
    return _of(BigramModel.fit(ids, model.cfg.d_vocab or 0))


def _check(model: AttentionOnlyTransformer, d_vocab: int) -> None:
    if d_vocab != model.cfg.d_vocab:
        raise ValueError(f"corpus: expected a vocabulary of {model.cfg.d_vocab} tokens, got {d_vocab}.")


def _of(counted: BigramModel) -> CorpusBigrams:
    keys, count, n = counted.pair_keys, counted.pair_counts, counted.d_vocab
    first, second = keys // n, keys % n
    return CorpusBigrams(
        first=first, second=second, count=count, totals=np.bincount(first, count, minlength=n), keys=keys
    )
