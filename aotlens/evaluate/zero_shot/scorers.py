"""The interface of language models to a protocol, and the models that have it: ours, and counts of tokens or pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int

from aotlens.data import Corpus, Encoding
from aotlens.data.windows import start_id
from aotlens.evaluate.continuations import row_losses
from aotlens.evaluate.language import BigramModel, discounted_unigrams
from aotlens.models import AttentionOnlyTransformer, require_ours

Ids = list[int]
TokenLosses = tuple[list[np.ndarray], list[np.ndarray]]


@runtime_checkable
class Scorer(Protocol):
    """A language model over the tokens of a tokenizer."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def n_ctx(self) -> int:
        """The most tokens that it reads at once."""
        ...

    def losses(self, rows: Sequence[Ids], firsts: Sequence[int]) -> TokenLosses:
        """Return each row's losses of its tokens from `firsts[i]` on, in nats, and whether each is the likeliest."""
        ...

    def continue_greedily(self, rows: Sequence[Ids], n: int) -> list[Ids]:
        """The `n` tokens that follow each row, each the likeliest after those before it."""
        ...


def start_of(scorer: Scorer) -> Ids:
    """The token that a text begins with, or nothing where the tokenizer has none."""
    start = start_id(scorer.tokenizer)
    return [] if start is None else [start]


def encode(scorer: Scorer, text: str) -> Ids:
    """Ids of a text, without a start token."""
    return list(Encoding.of(scorer.tokenizer).encode(text))


@dataclass(frozen=True)
class ModelScorer:
    """A trained model, in batches of up to `batch_size` rows of like length."""

    model: AttentionOnlyTransformer
    batch_size: int = 16

    def __post_init__(self) -> None:
        require_ours(self.model, "evaluate_zero_shot")
        if self.model.cfg.read_in != "tokens" or self.model.cfg.read_out != "tokens" or self.model.sees_later_keys:
            raise ValueError("zero-shot evaluation needs a causal model that reads and writes tokens.")
        if self.model.tokenizer is None:
            raise ValueError("zero-shot evaluation needs a model with a tokenizer: model.tokenizer = …")

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer

    @property
    def n_ctx(self) -> int:
        return self.model.cfg.n_ctx

    def losses(self, rows: Sequence[Ids], firsts: Sequence[int]) -> TokenLosses:
        return row_losses(self.model, rows, firsts, batch_size=self.batch_size)

    @torch.inference_mode()
    def continue_greedily(self, rows: Sequence[Ids], n: int) -> list[Ids]:
        written: list[Ids] = [[] for _ in rows]
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for begin in range(0, len(order), self.batch_size):
            batch = order[begin : begin + self.batch_size]
            lengths = torch.tensor([len(rows[index]) for index in batch])
            longest, places = int(lengths.max()), torch.arange(len(batch))
            tokens = torch.zeros(len(batch), longest + n, dtype=torch.long)
            for place, index in enumerate(batch):
                tokens[place, : len(rows[index])] = torch.as_tensor(rows[index])
            for step in range(n):
                last = torch.zeros(len(batch), longest + step, dtype=torch.bool)
                last[places, lengths + step - 1] = True
                logits = self.model(tokens[:, : longest + step].to(self.model.device), logits_at=last)
                tokens[places, lengths + step] = logits.argmax(-1).cpu()
            for place, index in enumerate(batch):
                written[index] = tokens[place, lengths[place] : lengths[place] + n].tolist()
        return written


@dataclass(frozen=True)
class UnigramScorer:
    """Knows how often each token occurred in training, and nothing of the context (`discounted_unigrams`)."""

    counts: Int[np.ndarray, " d_vocab"]
    tokenizer: Any
    n_ctx: int

    @property
    def _probabilities(self) -> Float[np.ndarray, " d_vocab"]:
        return discounted_unigrams(self.counts)

    def losses(self, rows: Sequence[Ids], firsts: Sequence[int]) -> TokenLosses:
        losses = -np.log(self._probabilities)
        best = int(losses.argmin())
        targets = [np.asarray(row[first:]) for row, first in zip(rows, firsts, strict=True)]
        return [losses[each] for each in targets], [each == best for each in targets]

    def continue_greedily(self, rows: Sequence[Ids], n: int) -> list[Ids]:
        best = int(self._probabilities.argmax())
        return [[best] * n for _ in rows]


@dataclass(frozen=True)
class BigramScorer:
    """Knows which tokens followed which in training, and nothing before the last token."""

    bigrams: BigramModel
    tokenizer: Any
    n_ctx: int

    def losses(self, rows: Sequence[Ids], firsts: Sequence[int]) -> TokenLosses:
        following = self.bigrams.likeliest()
        losses, greedy = [], []
        for row, first in zip(rows, firsts, strict=True):
            ids = np.asarray(row[first - 1 :])
            losses.append(-np.log(self.bigrams.probabilities(ids)))
            greedy.append(following[ids[:-1]] == ids[1:])
        return losses, greedy

    def continue_greedily(self, rows: Sequence[Ids], n: int) -> list[Ids]:
        following = self.bigrams.likeliest()
        written = []
        for row in rows:
            ids = [row[-1]]
            for _ in range(n):
                ids.append(int(following[ids[-1]]))
            written.append(ids[1:])
        return written


def fit_baselines(model: AttentionOnlyTransformer, corpus: Corpus) -> dict[str, Scorer]:
    """A unigram and a bigram model of the corpus's documents, in the model's tokens and without those held out from it.

    Documents are separated as in training. Takes some 25 bytes a token and a second a megabyte of text. Raises
    `ValueError` where the model has no tokenizer, or was trained on none of the corpus.
    """
    require_ours(model, "fit_baselines")
    encoding, d_vocab = Encoding.of(model.tokenizer), model.cfg.d_vocab
    assert d_vocab is not None
    held_out = set(model.card.held_out(corpus.names())) if model.card is not None else set()
    names = tuple(name for name in corpus.names() if name not in held_out)
    if not names:
        raise ValueError(f"{corpus.spec}: expected documents that the model was trained on; all are held out from it.")
    parts = [
        np.array([encoding.separator, *encoding.encode(document.text)], dtype=np.int32)
        for document in corpus.documents(names)
    ]
    ids = np.concatenate(parts)
    return {
        "unigram": UnigramScorer(np.bincount(ids, minlength=d_vocab), model.tokenizer, model.cfg.n_ctx),
        "bigram": BigramScorer(BigramModel.fit(ids, d_vocab), model.tokenizer, model.cfg.n_ctx),
    }
