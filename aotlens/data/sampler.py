"""Batches of token rows, each a pure function of (seed, step).

Randomness is Philox, a counter-based generator: its key is (seed, stream), its counter begins at the step,
and only its raw 64-bit words are used. So a batch needs no batch before it, a resumed run sees what an
unbroken one would, ranks can slice one global batch, and no change to numpy's distributions can change a
training run.

`mask_tokens` hides tokens for masked language modelling, to be recovered from the rest (Devlin et al. 2019). Of the
hidden positions, 80% show the mask token, 10% a random token and 10% their own, so that a model cannot tell from the
input alone which tokens it may trust.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from aotlens.conventions import IGNORED, require_between, require_choice, require_seed, require_whole
from aotlens.data.token_file import TokenFile

SHORTEST_SEGMENT = 8  # tokens in a repeated segment
_BATCH_STREAM, _FILL_STREAM, _REPEATED_STREAM = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class BatchSampler:
    """Random rows for training: text, and a share of repeated segments.

    Every row is the separator followed by ``sequence_length - 1`` tokens. A row of text takes consecutive
    tokens from a uniformly random offset: it may begin within a document and run over into the next, the
    separator between them included. A repeated row is a segment of random length, from 8 tokens to half
    the row, repeated until the row is full; each row is one with probability ``repeat_fraction``.

    Raises ValueError for arguments that do not fit together, and for a token file that is too short for a row
    or has ids that the model does not know.
    """

    tokens: TokenFile | None  # None for rows of repeated random tokens only
    d_vocab: int
    batch_size: int  # rows
    sequence_length: int  # tokens a row, the separator included
    seed: int
    repeat_fraction: float = 0.0
    repeat_source: Literal["random", "text"] = "random"  # segments are uniformly random tokens, or text

    def __post_init__(self) -> None:
        require_whole("batch_size", self.batch_size, 1)
        require_whole("sequence_length", self.sequence_length, 2)
        require_seed(self.seed)
        require_between("repeat_fraction", self.repeat_fraction, 0, 1)
        require_choice("repeat_source", self.repeat_source, ("random", "text"))
        if self.repeat_fraction > 0 and self.sequence_length < 2 * SHORTEST_SEGMENT + 1:
            raise ValueError(
                f"expected sequence_length ≥ {2 * SHORTEST_SEGMENT + 1} for repeated segments of at least "
                f"{SHORTEST_SEGMENT} tokens, got {self.sequence_length}; lengthen it or set repeat_fraction=0"
            )
        if self.tokens is None:
            if self.repeat_fraction < 1.0 or self.repeat_source != "random":
                raise ValueError(
                    "expected a token file, or else repeat_fraction=1.0 with repeat_source='random'; got "
                    f"tokens=None, repeat_fraction={self.repeat_fraction}, "
                    f"repeat_source={self.repeat_source!r}"
                )
            require_whole("d_vocab", self.d_vocab, 2, 2**31)
        else:
            if self.tokens.d_vocab > self.d_vocab:
                raise ValueError(
                    f"expected a token file of d_vocab ≤ {self.d_vocab} (the model's), got "
                    f"{self.tokens.d_vocab} in {self.tokens.path}; use the tokenizer that the file was built "
                    "with"
                )
            require_length(self.tokens, self.sequence_length)

    def batch(self, step: int) -> Int64[Tensor, "batch pos"]:
        """Return the rows of one step, [batch_size, sequence_length]; some 0.3 ms for 32 × 256."""
        lengths, repeated, offsets = self._draws(step)
        n_fill, longest = self.sequence_length - 1, (self.sequence_length - 1) // 2
        within = np.arange(n_fill)[None, :] % lengths[:, None]  # [batch, n_fill]: position within the segment

        filled = np.empty((self.batch_size, n_fill), dtype=np.int64)
        eot_id = 0 if self.tokens is None else self.tokens.eot_id
        random_rows = repeated if self.repeat_source == "random" else np.zeros_like(repeated)
        if not random_rows.all():
            assert self.tokens is not None
            text_rows = ~random_rows
            filled[text_rows] = np.asarray(self.tokens.tokens)[offsets[text_rows, None] + within[text_rows]]
        if random_rows.any():
            words = uniform_words(self.seed, _FILL_STREAM, step, (self.batch_size, longest))
            segments = _random_tokens(words, self.d_vocab, eot_id)
            filled[random_rows] = np.take_along_axis(segments[random_rows], within[random_rows], axis=1)
        if int(filled.max()) >= self.d_vocab:
            raise ValueError(
                f"expected token ids below d_vocab = {self.d_vocab}, got {int(filled.max())} at step {step}; "
                "build the token file again"
            )
        return torch.from_numpy(with_start(filled, eot_id))

    def offsets(self, step: int) -> Int64[np.ndarray, " batch"]:
        """Return the offset of each row's text in the token file (of a repeated row, its segment's) for a step; −1 for
        rows of random tokens."""
        return self._draws(step)[2]

    def _draws(
        self, step: int
    ) -> tuple[Int64[np.ndarray, " batch"], Bool[np.ndarray, " batch"], Int64[np.ndarray, " batch"]]:
        """Draw for each row of a step the length of its segment, whether it is repeated, and the segment's offset."""
        require_whole("step", step, 0, 2**64 - 1)
        n_fill = self.sequence_length - 1
        draws = uniform_words(self.seed, _BATCH_STREAM, step, (self.batch_size, 4))
        repeated = (draws[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self.repeat_fraction
        lengths = np.full(self.batch_size, n_fill)
        if repeated.any():
            random_lengths = SHORTEST_SEGMENT + _below(draws[:, 1], n_fill // 2 - SHORTEST_SEGMENT + 1)
            lengths = np.where(repeated, random_lengths, n_fill)
        offsets = np.full(self.batch_size, -1)
        text_rows = ~repeated if self.repeat_source == "random" else np.ones_like(repeated)
        if self.tokens is not None and text_rows.any():
            offsets[text_rows] = _below(draws[text_rows, 2], len(self.tokens) - lengths[text_rows] + 1)
        return lengths, repeated, offsets


def repeated_random_tokens(
    d_vocab: int, batch_size: int, half_length: int, seed: int, *, eot_id: int | None = 0, distances: bool = False
) -> Int64[Tensor, "batch pos"]:
    """Return rows of the separator, then ``half_length`` uniformly random other tokens, then the same ones again.

    The standard probe for induction: in the second half every token is known from the first. With ``distances`` the
    rows, as long, differ in how far apart the two are, evenly from a half to one and a half of ``half_length``: then no
    head finds what followed by looking a fixed number of tokens back. Of a row at distance d the first min(d, n − d) of
    its n tokens recur at d, and all others occur once.
    """
    require_whole("d_vocab", d_vocab, 2, 2**31)
    require_whole("batch_size", batch_size, 1)
    require_whole("half_length", half_length, 1)
    if eot_id is not None:
        require_whole("eot_id", eot_id, 0, d_vocab - 1)
    if distances:
        length, nearest = 2 * half_length, max(half_length // 2, 1)
        rows = _random_tokens(uniform_words(seed, _REPEATED_STREAM, 0, (batch_size, length)), d_vocab, eot_id)
        for place, row in enumerate(rows):
            distance = nearest + place * (length - 2 * nearest) // max(batch_size - 1, 1)
            again = min(distance, length - distance)
            row[distance : distance + again] = row[:again]
        return torch.from_numpy(with_start(rows, eot_id))
    half = _random_tokens(uniform_words(seed, _REPEATED_STREAM, 0, (batch_size, half_length)), d_vocab, eot_id)
    return torch.from_numpy(with_start(np.concatenate([half, half], axis=1), eot_id))


def repeated_targets(tokens: Int64[Tensor, "batch pos"], half_length: int) -> Int64[Tensor, "batch pos"]:
    """Return the next tokens of `repeated_random_tokens` that are known from the first half; all others are ignored
    (−100).

    `[batch, pos]`, as `tokens`: of a row of a separator (or none) and ``half_length`` tokens twice, the targets are the
    second half but for its first token, which nothing foretells. Raises `ValueError` for rows of another length.
    """
    start = tokens.shape[1] - 2 * half_length
    if half_length < 2 or start not in (0, 1):
        raise ValueError(
            f"expected rows of at most a separator and {half_length} tokens twice, at least 2, got {tokens.shape[1]}."
        )
    targets = torch.full_like(tokens, IGNORED)
    targets[:, start + half_length : -1] = tokens[:, start + half_length + 1 :]
    return targets


def uniform_words(seed: int, stream: int, step: int, shape: tuple[int, int]) -> np.ndarray:
    """Return uniform 64-bit words. The counter's low words count within a step, so steps never overlap."""
    key = np.array([require_seed(seed), stream], dtype=np.uint64)
    counter = np.array([0, 0, step, 0], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(shape[0] * shape[1]).reshape(shape)


def _below(words: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """Integers in [0, bound) from uniform words; the bias of the remainder is below bound / 2**64."""
    return (words % np.asarray(bound, dtype=np.uint64)).astype(np.int64)


def _random_tokens(words: np.ndarray, d_vocab: int, eot_id: int | None) -> np.ndarray:
    """Uniform over all token ids but the separator."""
    if eot_id is None:
        return _below(words, d_vocab)
    drawn = _below(words, d_vocab - 1)
    return drawn + (drawn >= eot_id)


def with_start(filled: np.ndarray, eot_id: int | None) -> np.ndarray:
    """Return `filled` `[rows, tokens]` with the start token before each row, or as they are where there is none."""
    if eot_id is None:
        return filled
    return np.concatenate([np.full((len(filled), 1), eot_id, dtype=np.int64), filled], axis=1)


def require_length(tokens: TokenFile, sequence_length: int) -> None:
    """Raise `ValueError` for a token file that is too short for one row of `sequence_length` tokens."""
    if len(tokens) < sequence_length:
        raise ValueError(
            f"{tokens.path}: expected at least {sequence_length} tokens (one row), got {len(tokens)}; "
            "give more text or a shorter sequence_length"
        )


MASK_FRACTION = 0.15
_CHOICE_STREAM, _KIND_STREAM, _TOKEN_STREAM = 3, 4, 5


def mask_tokens(
    tokens: Int64[Tensor, "batch pos"],
    mask_id: int,
    seed: int,
    step: int,
    *,
    fraction: float = MASK_FRACTION,
    shown: float = 0.8,
    random: float = 0.1,
) -> tuple[Int64[Tensor, "batch pos"], Int64[Tensor, "batch pos"]]:
    """Return `tokens` with some hidden, and the hidden tokens as targets (`IGNORED` elsewhere).

    In each row round(`fraction` · (pos − 1)) positions are hidden, at least one, never the first (the start token). Of
    those each shows the mask with probability `shown`, a uniformly random id below `mask_id` with probability
    `random`, and its own token otherwise. Raises `ValueError` for shares outside 0 to 1, rows of fewer than 2 tokens,
    and rows that hold the mask already.
    """
    if not 0 < fraction <= 1 or min(shown, random) < 0 or shown + random > 1 + 1e-12:
        raise ValueError(
            "expected 0 < fraction ≤ 1 and shares of shown and random masks from 0 to 1 together, got "
            f"fraction={fraction}, shown={shown}, random={random}."
        )
    n_rows, n_pos = tokens.shape
    if n_pos < 2:
        raise ValueError(f"expected rows of at least 2 tokens, the first of which is never masked, got {n_pos}.")
    ids = tokens.cpu().numpy()
    if ids.size and ids.max() >= mask_id:
        raise ValueError(f"expected token ids below the mask's, {mask_id}, got {int(ids.max())}; mask plain rows once.")
    shape = (n_rows, n_pos - 1)
    n_hidden = max(1, round(fraction * (n_pos - 1)))
    ranks = uniform_words(seed, _CHOICE_STREAM, step, shape).argsort(axis=1, kind="stable").argsort(axis=1)
    hidden = np.zeros((n_rows, n_pos), dtype=bool)
    hidden[:, 1:] = ranks < n_hidden
    kind = np.ones((n_rows, n_pos))
    kind[:, 1:] = (uniform_words(seed, _KIND_STREAM, step, shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    replaced = np.zeros((n_rows, n_pos), dtype=np.int64)
    replaced[:, 1:] = (uniform_words(seed, _TOKEN_STREAM, step, shape) % np.uint64(mask_id)).astype(np.int64)
    inputs = np.where(hidden & (kind < shown), mask_id, ids)
    inputs = np.where(hidden & (kind >= shown) & (kind < shown + random), replaced, inputs)
    targets = np.where(hidden, ids, IGNORED)
    return torch.from_numpy(inputs).to(tokens.device), torch.from_numpy(targets).to(tokens.device)
