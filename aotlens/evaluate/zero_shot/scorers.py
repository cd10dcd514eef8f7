"""The log-probability of continuations after contexts, and the models that a protocol asks for it: trained ones, and
counts of tokens or pairs.

    log p(continuation | context) = Σ_i log p(token_i | start token, context, token_1 … token_{i−1})

Rows are sorted by length and padded on the right in batches, which a causal model cannot see, and only the logits that
predict a token of a continuation are computed. Sums over the vocabulary are in float32 at least; the numbers are those
of one row at a time to 1e-5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.data import Corpus, Encoding
from aotlens.data.windows import start_id
from aotlens.evaluate.language import BigramModel, discounted_unigrams
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

Text = str | Sequence[int] | Tensor
_LOGITS_AT_ONCE = 1 << 26  # entries, 268 MB in float32


@dataclass(frozen=True, kw_only=True, eq=False)
class ContinuationScores(Result):
    """Scores of continuations, in their order."""

    log_probabilities: Float64[np.ndarray, " continuations"]
    """log p(continuation | context), nats, summed over its tokens."""
    n_tokens: Int64[np.ndarray, " continuations"]
    greedy: Bool[np.ndarray, " continuations"]
    """Whether each of its tokens is the likeliest one where it stands, so that greedy decoding writes it."""
    token_losses: Float64[np.ndarray, " tokens"]
    """−log p of every token, nats, one continuation after another."""

    @property
    def headline(self) -> str:
        return f"{-self.log_probabilities.mean():.3f} nats per continuation, {self.greedy.mean():.1%} greedy"

    def to_frame(self) -> pd.DataFrame:
        """One row per continuation: log_probability in nats, n_tokens, greedy."""
        import pandas as pd

        return pd.DataFrame(
            {"log_probability": self.log_probabilities, "n_tokens": self.n_tokens, "greedy": self.greedy}
        )


def score_continuations(
    model: AttentionOnlyTransformer,
    contexts: Sequence[Text],
    continuations: Sequence[Text],
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> ContinuationScores:
    """Score `continuations[i]` after `contexts[i]`, each a text or token ids.

    A text is encoded by itself, so a continuation that begins a word begins with its space. A context of text begins
    with the tokenizer's start token (none where it has none); ids are taken as they are. Where both together exceed
    n_ctx, the start token and the context's last tokens are kept. To rank candidates after one context, repeat it.
    `progress(rows done, rows)` is called after each batch.

    Raises `ValueError` for lists of different lengths or empty ones, for an empty continuation, for one that has no
    token before it, for one longer than the context of the model, and for a model that sees later tokens.
    """
    require_ours(model, "score_continuations")
    if len(contexts) != len(continuations) or not contexts:
        raise ValueError(
            f"expected as many contexts as continuations, at least one, got {len(contexts)} and {len(continuations)}; "
            "repeat a context for each of its candidates."
        )
    rows, firsts = [], []
    for index, (context, continuation) in enumerate(zip(contexts, continuations, strict=True)):
        start, before = _context_ids(model, context)
        after = _ids(model, continuation)
        try:
            row, first = fit_row(start, before, after, model.cfg.n_ctx)
        except ValueError as error:
            raise ValueError(f"continuation {index}: {error}") from error
        rows.append(row)
        firsts.append(first)
    losses, greedy = row_losses(model, rows, firsts, batch_size=batch_size, progress=progress)
    return ContinuationScores(
        log_probabilities=np.array([-row.sum() for row in losses]),
        n_tokens=np.array([len(row) for row in losses], dtype=np.int64),
        greedy=np.array([bool(row.all()) for row in greedy]),
        token_losses=np.concatenate(losses),
    )


def fit_row(start: list[int], context: list[int], continuation: list[int], n_ctx: int) -> tuple[list[int], int]:
    """The ids `start + context + continuation` and where the continuation begins, cut to what a model of n_ctx reads.

    The last token is predicted and never read, so a row has up to n_ctx + 1 ids. What is cut is the beginning of
    the context. Raises `ValueError` for an empty continuation, and where no token is or fits before it.
    """
    if not continuation:
        raise ValueError("expected at least one token, got none.")
    if not start and not context:
        raise ValueError("expected a start token or a context before it, got neither.")
    room = n_ctx + 1 - len(start) - len(continuation)
    if room < (0 if start else 1):
        raise ValueError(f"its {len(continuation)} tokens do not fit into the model's n_ctx of {n_ctx}.")
    kept = context[max(0, len(context) - room) :]
    return [*start, *kept, *continuation], len(start) + len(kept)


@torch.inference_mode()
def row_losses(
    model: AttentionOnlyTransformer,
    rows: Sequence[Sequence[int]],
    firsts: Sequence[int],
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> tuple[list[Float64[np.ndarray, " tokens"]], list[Bool[np.ndarray, " tokens"]]]:
    """Return for each row of ids its losses from token `firsts[i]` ≥ 1 on, in nats, and whether each is the likeliest.

    Batches are of up to `batch_size` rows, fewer where their logits would exceed 268 MB. Raises `ValueError` for a
    model that sees later tokens, and for a loss that is not finite.
    """
    if model.cfg.read_in != "tokens" or model.cfg.read_out != "tokens" or model.sees_later_keys:
        raise ValueError("scoring text needs a causal model that reads and writes tokens.")
    d_vocab = model.cfg.d_vocab
    assert d_vocab is not None
    losses: list[np.ndarray] = [np.empty(0)] * len(rows)
    greedy: list[np.ndarray] = [np.empty(0, dtype=bool)] * len(rows)
    done = 0
    for batch in _batches(rows, firsts, batch_size, d_vocab):
        tokens = torch.zeros(len(batch), len(rows[batch[0]]) - 1, dtype=torch.long)
        predicts = torch.zeros(tokens.shape, dtype=torch.bool)
        for place, index in enumerate(batch):
            row = rows[index]
            tokens[place, : len(row) - 1] = torch.as_tensor(row[:-1])
            predicts[place, firsts[index] - 1 : len(row) - 1] = True
        targets = torch.cat([torch.as_tensor(rows[index][firsts[index] :]) for index in batch]).to(model.device)
        logits = model(tokens.to(model.device), logits_at=predicts)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        flat_losses = F.cross_entropy(logits, targets, reduction="none").double().cpu().numpy()
        flat_greedy = (logits.argmax(-1) == targets).cpu().numpy()
        ends = np.cumsum([len(rows[index]) - firsts[index] for index in batch])[:-1]
        for index, loss, is_greedy in zip(batch, np.split(flat_losses, ends), np.split(flat_greedy, ends), strict=True):
            losses[index], greedy[index] = loss, is_greedy
        if not np.isfinite(flat_losses).all():
            raise ValueError("a loss is not finite: some weight or activation is not.")
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    return losses, greedy


def _batches(rows: Sequence[Sequence[int]], firsts: Sequence[int], batch_size: int, d_vocab: int) -> list[list[int]]:
    """Batch the numbers of rows, longest first: what does not fit into memory fails at once."""
    batches: list[list[int]] = []
    logits = 0
    for index in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        more = (len(rows[index]) - firsts[index]) * d_vocab
        if not batches or len(batches[-1]) == batch_size or logits + more > _LOGITS_AT_ONCE:
            batches.append([])
            logits = 0
        batches[-1].append(index)
        logits += more
    return batches


def _context_ids(model: AttentionOnlyTransformer, context: Text) -> tuple[list[int], list[int]]:
    """The start token, where a context of text has one, and the context's ids."""
    if not isinstance(context, str):
        return [], _ids(model, context)
    start = start_id(model.tokenizer)
    return ([] if start is None else [start]), _ids(model, context)


def _ids(model: AttentionOnlyTransformer, text: Text) -> list[int]:
    if isinstance(text, str):
        return list(Encoding.of(model.tokenizer).encode(text))
    return [int(index) for index in text]


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
        return [losses[ids] for ids in targets], [ids == best for ids in targets]

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

    Documents are separated as in training. Takes some 25 bytes per token and a second per megabyte of text. Raises
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
