"""Losses of language models, in nats per token: of next, hidden and repeated tokens, early and late in the context; and
the bigram and unigram models that they are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Float64, Int, Int64
from torch import Tensor

from aotlens.conventions import Progress, require_whole
from aotlens.data import IGNORED, MASK_FRACTION, mask_tokens, repeated_random_tokens
from aotlens.data.windows import start_id
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@torch.no_grad()
def validation_loss(
    model: AttentionOnlyTransformer,
    windows: Int[Tensor, "*windows pos"] | str | list[str],
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> float:
    """Mean next-token loss over all predictions in `windows` (`aotlens.data.validation_windows`), nats per token.

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
    """Losses on a start token and twice the same random tokens, nats per token."""

    first_half: float
    second_half: float
    per_position: Float[np.ndarray, " targets"]

    @property
    def headline(self) -> str:
        return f"{self.first_half:.3f} nats per token, and {self.second_half:.3f} when it is repeated"

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
        """Mean −log p(w | v) over consecutive pairs of `tokens` `[..., pos]`, nats per token.

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


def in_context_learning_score(
    losses: Float[np.ndarray, "*sequence pos"], *, early: int | None = None, late: int | None = None
) -> float:
    """Return the mean loss early in the context minus that late in it: nats per token; 0 where more context is no help.

    `losses` are nats of the token that is predicted at each position (`model.loss_per_token`), of sequences of one
    length or their mean. `early` and `late` are the positions that are compared, as 50 and 500 of Olsson et al., whose
    score has the other sign; without them the first quarter of positions and the last are. Chance, of tokens in random
    order, is 0: a loss that does not depend on the position.

    Raises `ValueError` for no positions, for losses that are not finite, for one position without the other, and for
    positions that are not there or not in order.
    """
    if not losses.size or not np.isfinite(losses).all():
        raise ValueError(f"losses: expected finite numbers [sequence, pos], got {losses.size} of shape {losses.shape}.")
    by_position = losses.reshape(-1, losses.shape[-1]).mean(0)
    if (early is None) != (late is None):
        raise ValueError(f"expected both positions or none, got early={early} and late={late}.")
    if early is not None and late is not None:
        last = require_whole("late", late, 1, len(by_position) - 1)
        return float(by_position[require_whole("early", early, 0, last - 1)] - by_position[last])
    quarter = max(1, len(by_position) // 4)
    return float(by_position[:quarter].mean() - by_position[-quarter:].mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedLoss(Result):
    """The losses of hidden tokens, one per token, in the order of the text."""

    targets: Int64[np.ndarray, " hidden"]
    """Ids of the hidden tokens."""
    losses: Float64[np.ndarray, " hidden"]
    """−log p(token | the rest), nats."""
    guessed: Int64[np.ndarray, " hidden"]
    """The likeliest token instead."""

    @property
    def headline(self) -> str:
        return f"{self.loss:.3f} nats per hidden token, {self.accuracy:.1%} guessed"

    def to_frame(self) -> pd.DataFrame:
        """One row per hidden token: its id, the guessed one's, and its loss in nats."""
        import pandas as pd

        return pd.DataFrame({"target_id": self.targets, "guessed_id": self.guessed, "loss": self.losses})

    @property
    def loss(self) -> float:
        """The mean loss, in nats per hidden token."""
        return float(self.losses.mean())

    @property
    def accuracy(self) -> float:
        """Share of hidden tokens that the model holds likeliest."""
        return float((self.guessed == self.targets).mean())


def mask_id_of(model: AttentionOnlyTransformer) -> int:
    """The id of the model's mask token. Raises `ValueError` for a model that has none, or predicts next tokens."""
    require_ours(model, "mask_id_of")
    mask_id = getattr(model.tokenizer, "mask_id", None)
    if model.cfg.read_in != "tokens" or model.cfg.read_out != "tokens" or not model.sees_later_keys or mask_id is None:
        raise ValueError(
            "expected a masked language model: tokens in and out, causal=False, and a tokenizer with a mask token "
            "(`Tokenizer.with_mask`). This model's loss is `validation_loss`, if it is a causal one."
        )
    return int(mask_id)


@torch.no_grad()
def masked_loss(
    model: AttentionOnlyTransformer,
    windows: Int[Tensor, "*windows pos"] | str | list[str],
    *,
    fraction: float = MASK_FRACTION,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> MaskedLoss:
    """Losses of `fraction` of the tokens of each window, all of them replaced by the mask token.

    In training a tenth of them stay and a tenth are random; here none does, so that no target can be read off its own
    position. The same windows and `seed` hide the same tokens. `progress(windows done, windows)` is called after each
    batch. `windows` may be texts of equally many tokens too. Raises `ValueError` for a model without a mask token, no
    windows, and a loss that is not finite.
    """
    require_ours(model, "masked_loss")
    mask_id = mask_id_of(model)
    if len(windows) == 0:
        raise ValueError("expected at least one window of tokens, got none.")
    windows = model.to_rows(windows, "masked_loss")
    all_inputs, all_targets = mask_tokens(
        windows.long().cpu(), mask_id, seed, 0, fraction=fraction, shown=1.0, random=0.0
    )
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for start in range(0, len(windows), batch_size):
        inputs, targets = (rows[start : start + batch_size] for rows in (all_inputs, all_targets))
        hidden = targets != IGNORED
        logits = model(inputs.to(model.device))[hidden.to(model.device)].float().cpu()
        answers = targets[hidden]
        losses = F.cross_entropy(logits, answers, reduction="none").double()
        parts.append((answers.numpy(), losses.numpy(), logits.argmax(-1).numpy()))
        if progress is not None:
            progress(start + len(inputs), len(windows))
    ids, losses_of, guessed = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not np.isfinite(losses_of).all():
        raise ValueError("a masked loss is not finite: some weight or activation is not.")
    return MaskedLoss(targets=ids, losses=losses_of, guessed=guessed)


def unigram_loss(counts: Int[np.ndarray, " d_vocab"], targets: Int[np.ndarray, " n"], discount: float = 0.75) -> float:
    """Mean −log p(token) of `targets`, knowing nothing of their context but how often tokens occur (`counts`).

    p(w) is `BigramModel`'s. Raises `ValueError` for no targets, or nothing counted.
    """
    total = int(counts.sum())
    if total < 1 or len(targets) == 0:
        raise ValueError(f"expected counted tokens and targets, got {total} and {len(targets)}.")
    return float(-np.log(discounted_unigrams(counts, discount)[targets]).mean())


@torch.no_grad()
def token_losses(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, ...] | str | list[str],
    *,
    logits: Float[Tensor, "pos d_vocab"] | None = None,
    batch_size: int = 32,
) -> Float32[np.ndarray, " pos"]:
    """−log p of each token of one prompt, in nats, at the token's own position; NaN at the first, which has none.

    In a causal model p is the token's probability given those before it. A model that sees both sides is asked for each
    token with the mask token in its place and all others as they are (Salazar et al. 2020, pseudo-log-likelihood);
    where the prompt has the mask token itself, there is no token to ask for, and the loss is NaN.

    `logits`, a causal model's own on these tokens (`aotlens.heads.patterns.patterns_and_logits`), save its one forward
    pass. With both sides there is a pass for each token, `batch_size` of them at a time. Raises `ValueError` for a
    batch of prompts, and for a model that sees both sides and has no mask token.
    """
    require_ours(model, "token_losses")
    prompt = model.to_prompt(tokens, "token_losses")[0]
    losses = torch.full(prompt.shape, torch.nan)
    if model.sees_later_keys:
        mask_id = mask_id_of(model)
        asked = (prompt != mask_id).nonzero()[:, 0]
        for places in asked[asked > 0].split(batch_size):
            one_hidden = prompt.repeat(len(places), 1)
            rows = torch.arange(len(places), device=prompt.device)
            one_hidden[rows, places] = mask_id
            guesses = model(one_hidden)[rows, places].float()
            losses[places.cpu()] = F.cross_entropy(guesses, prompt[places], reduction="none").cpu()
    elif len(prompt) > 1:
        rows = model(prompt[None])[0] if logits is None else logits
        losses[1:] = F.cross_entropy(rows[:-1].float(), prompt[1:].to(rows.device), reduction="none").cpu()
    return losses.numpy()
