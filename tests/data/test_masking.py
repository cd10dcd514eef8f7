"""Hidden tokens: how many, of which kind, the same for the same seed and step; and the mask as a token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import IGNORED, MASK, Tokenizer, mask_tokens

N_PLAIN = 50


def rows(n: int = 400, n_pos: int = 41) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, N_PLAIN, (n, n_pos)))


def test_shares_are_berts(seed: int) -> None:
    tokens = rows()
    inputs, targets = mask_tokens(tokens, N_PLAIN, seed, 3)
    hidden = targets != IGNORED
    assert (hidden.sum(1) == 6).all(), "15% of 40"
    assert not hidden[:, 0].any()
    assert torch.equal(targets[hidden], tokens[hidden]) and torch.equal(inputs[~hidden], tokens[~hidden])
    shown, changed = inputs == N_PLAIN, inputs != tokens
    n = int(hidden.sum())
    assert abs(int(shown.sum()) / n - 0.8) < 0.04
    # A random token is the token itself once in N_PLAIN times.
    assert abs(int((changed & ~shown).sum()) / n - 0.1 * (1 - 1 / N_PLAIN)) < 0.03
    assert (changed <= hidden).all()
    # Every position but the first is chosen about as often.
    assert hidden[:, 1:].float().mean(0).sub(0.15).abs().max() < 0.08


def test_masks_are_a_function_of_seed_and_step() -> None:
    tokens = rows(8)
    first = mask_tokens(tokens, N_PLAIN, 5, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, mask_tokens(tokens, N_PLAIN, 5, 2), strict=True))
    for other in (mask_tokens(tokens, N_PLAIN, 5, 3), mask_tokens(tokens, N_PLAIN, 6, 2)):
        assert not torch.equal(first[1], other[1])


def test_all_shown() -> None:
    inputs, targets = mask_tokens(rows(5, 4), N_PLAIN, 0, 0, fraction=0.01, shown=1.0, random=0.0)
    assert ((targets != IGNORED) == (inputs == N_PLAIN)).all()
    assert ((inputs == N_PLAIN).sum(1) == 1).all(), "at least one"


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (rows(2), {"fraction": 0.0}, "0 < fraction"),
        (rows(2), {"shown": 0.9, "random": 0.2}, "shown and random"),
        (rows(2, 1), {}, "at least 2 tokens"),
        (rows(2) + N_PLAIN, {}, "below the mask's"),
    ],
)
def test_what_does_not_fit_is_refused(tokens: torch.Tensor, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_tokens(tokens, N_PLAIN, 0, 0, **options)


def test_the_mask_is_one_token_more_that_can_be_typed() -> None:
    plain = Tokenizer.train(["the cat sat on the mat and the other cat sat there. "] * 20, 270)
    assert plain.mask_id is None
    masked = plain.with_mask()
    assert (masked.d_vocab, masked.mask_id, masked.eot_id) == (plain.d_vocab + 1, plain.d_vocab, plain.eot_id)
    assert masked.with_mask() is masked and plain.d_vocab == 270
    text = "the cat<|mask|> on the mat"
    before, after = text.split(MASK)
    expected = [*plain.encode(before), plain.d_vocab, *plain.encode(after)]
    assert masked.encode(text) == expected == masked.encode_batch([text])[0]
    assert masked.decode(expected) == text and masked.str_tokens([plain.d_vocab]) == [MASK]
    assert plain.d_vocab not in plain.encode(text), "elsewhere it is ordinary text"
    assert masked.eot_id not in masked.encode("<|endoftext|>")
    again = Tokenizer.from_json(masked.to_json())
    assert again.mask_id == masked.mask_id and again.encode(text) == expected
