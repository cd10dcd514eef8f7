"""Language-model losses, and the bigram model that they are compared with. All in nats per token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from aotlens.conventions import Progress, require_whole
from aotlens.data import repeated_random_tokens
from aotlens.data.windows import start_id
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result


@torch.no_grad()
def validation_loss(
    model: AttentionOnlyTransformer,
    windows: Int[Tensor, "*windows pos"] | str | list[str],
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> float:
    """Mean next-token loss over all predictions in `windows` (`aotlens.data.validation_windows`), nats a token.

    `windows` may be texts too: shorter ones are padded, and padding neither changes nor counts among the predictions.
    `progress(windows done, windows)` is called after each batch. Raises `ValueError` if the loss is not finite.
    """
    require_ours(model, "validation_loss")
    if len(windows) == 0:
        raise ValueError("expected at least one window of tokens, got none.")
    inputs, mask = model.to_batch(windows)
    total = 0.0
    for start in range(0, len(inputs), batch_size):
        rows = slice(start, start + batch_size)
        losses = model.loss_per_token(inputs[rows], attention_mask=None if mask is None else mask[rows])
        total += losses.cpu().double().sum().item()
        if progress is not None:
            progress(start + len(losses), len(inputs))
    n_predictions = len(inputs) * (inputs.shape[1] - 1) if mask is None else int(mask[:, 1:].sum())
    loss = total / n_predictions
    if not np.isfinite(loss):
        raise ValueError(f"the validation loss is {loss}: some weight or activation is not finite.")
    return loss


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatLosses(Result):
    """Losses on a start token and twice the same random tokens, nats a token."""

    first_half: float
    second_half: float
    per_position: Float[np.ndarray, " targets"]

    @property
    def headline(self) -> str:
        return f"{self.first_half:.3f} nats a token, and {self.second_half:.3f} when it comes again"

    @property
    def gain(self) -> float:
        """The decrease of the loss on the second half: the worth of in-context copying (induction) here."""
        return self.first_half - self.second_half


@torch.no_grad()
def repeat_losses(
    model: AttentionOnlyTransformer, *, half_length: int = 50, n_sequences: int = 32, seed: int = 0
) -> RepeatLosses:
    """Losses on repeated random tokens, the first half against the second.

    The first token of the second half cannot be foreseen from the repetition and belongs to neither half.
    """
    require_whole("n_sequences", n_sequences, 1)
    require_ours(model, "repeat_losses")
    if model.cfg.read_in != "tokens" or model.cfg.d_vocab is None:
        raise ValueError(f"repeated tokens need a model of tokens; this one reads {model.cfg.read_in}.")
    half_length = min(half_length, (model.cfg.n_ctx - 1) // 2)
    start = start_id(model.tokenizer) or 0
    tokens = repeated_random_tokens(model.cfg.d_vocab, n_sequences, half_length, seed, eot_id=start)
    per_position = model.loss_per_token(tokens.to(model.device)).cpu().double().mean(0).numpy()
    # Index i is the loss of token i + 1.
    return RepeatLosses(
        first_half=float(per_position[:half_length].mean()),
        second_half=float(per_position[half_length + 1 :].mean()),
        per_position=per_position,
    )


def discounted_unigrams(counts: Int[np.ndarray, " d_vocab"], discount: float = 0.75) -> Float[np.ndarray, " d_vocab"]:
    """p(w) of `BigramModel`, from how often each token occurs."""
    kept = np.maximum(counts - discount, 0.0)
    return (kept + discount * np.count_nonzero(counts) / len(counts)) / counts.sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class BigramModel(Result):
    """Absolute discounting, backing off to unigrams that are themselves discounted towards uniform:

        p(w | v) = max(c(v, w) − D, 0) / c(v) + D · N(v) / c(v) · p(w)
        p(w)     = max(c(w) − D, 0) / n + D · N / n / d_vocab

    with N(v) the number of distinct successors of v, N the number of distinct tokens, n all tokens (Ney et al. 1994).
    A v never seen in training gives p(w).
    """

    discount: float
    d_vocab: int
    pair_keys: Int64[np.ndarray, " pairs"]
    """v · d_vocab + w of every pair seen, sorted."""
    pair_counts: Int64[np.ndarray, " pairs"]
    unigram: Float[np.ndarray, " d_vocab"]
    """p(w), the probability of each token whatever comes before."""

    @property
    def headline(self) -> str:
        return f"{len(self.pair_keys):,} pairs of {self.d_vocab:,} tokens"

    @classmethod
    def fit(cls, tokens: np.ndarray, d_vocab: int, discount: float = 0.75) -> BigramModel:
        """Count `tokens` (one-dimensional ids). Raises `ValueError` for fewer than 2 tokens or ids out of range."""
        if not 0 < discount < 1:
            raise ValueError(f"discount={discount}: expected a number between 0 and 1.")
        ids = np.asarray(tokens, dtype=np.int64)
        if ids.ndim != 1 or len(ids) < 2:
            raise ValueError(f"expected at least 2 token ids in one dimension, got shape {ids.shape}.")
        if ids.min() < 0 or ids.max() >= d_vocab:
            raise ValueError(f"expected ids 0 to {d_vocab - 1}, got {ids.min()} to {ids.max()}.")
        keys, counts = np.unique(ids[:-1] * d_vocab + ids[1:], return_counts=True)
        unigram = discounted_unigrams(np.bincount(ids, minlength=d_vocab), discount)
        return cls(discount=discount, d_vocab=d_vocab, pair_keys=keys, pair_counts=counts, unigram=unigram)

    def loss(self, tokens: np.ndarray) -> float:
        """Mean −log p(w | v) over consecutive pairs of `tokens` `[..., pos]`, nats a token.

        Of windows `[windows, pos]` no pair reaches from one into the next, so this is of the tokens that a model
        predicts when it reads the same windows.
        """
        return float(-np.log(self.probabilities(tokens)).mean())

    def probabilities(self, tokens: np.ndarray) -> Float[np.ndarray, "*rows pairs"]:
        """p(w | v) of every consecutive pair of `tokens` `[..., pos]`: `[..., pos − 1]`."""
        ids = np.asarray(tokens, dtype=np.int64)
        previous, following = ids[..., :-1], ids[..., 1:]
        totals, kinds = self._contexts
        keys = previous * self.d_vocab + following
        at = np.minimum(np.searchsorted(self.pair_keys, keys), len(self.pair_keys) - 1)
        seen = np.where(self.pair_keys[at] == keys, self.pair_counts[at], 0)
        context = totals[previous]
        with np.errstate(invalid="ignore", divide="ignore"):
            backed = np.maximum(seen - self.discount, 0) / context
            backed = backed + self.discount * kinds[previous] / context * self.unigram[following]
        return np.where(context > 0, backed, self.unigram[following])

    def likeliest(self) -> Int64[np.ndarray, " d_vocab"]:
        """Return for each token v the w with the largest p(w | v): a row of d_vocab numbers at a time."""
        totals, kinds = self._contexts
        best = np.full(self.d_vocab, int(self.unigram.argmax()), dtype=np.int64)
        bounds = np.searchsorted(self.pair_keys, np.arange(self.d_vocab + 1) * self.d_vocab)
        for v in np.flatnonzero(totals):
            pairs = slice(bounds[v], bounds[v + 1])
            row = self.discount * kinds[v] * self.unigram
            row[self.pair_keys[pairs] - v * self.d_vocab] += np.maximum(self.pair_counts[pairs] - self.discount, 0)
            best[v] = row.argmax()
        return best

    @cached_property
    def _contexts(self) -> tuple[np.ndarray, np.ndarray]:
        """c(v) and N(v), `[d_vocab]` each."""
        first = self.pair_keys // self.d_vocab
        totals = np.bincount(first, weights=self.pair_counts, minlength=self.d_vocab)
        return totals, np.bincount(first, minlength=self.d_vocab)
