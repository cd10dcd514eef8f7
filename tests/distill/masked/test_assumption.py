"""Assumption 3.1: what it finds, and which violation it names."""

from __future__ import annotations

import pytest
import torch
from scipy.spatial.distance import pdist

from aotlens.distill import check_assumption, distinguish_mask, masked_lm
from tests.distill.compile.networks import unchecked_shapes
from tests.distill.masked.sequences import masked_sequences
from tests.messages import refused


def test_what_it_finds():
    X, _, positions, mask = masked_sequences(12, seed=3)
    data = check_assumption(X)
    assert torch.equal(data.mask, mask) and torch.equal(data.positions, positions)
    assert torch.equal(data.tokens[data.ids], X)
    lengths = X.norm(dim=-1)
    assert (data.shortest, data.longest) == (float(lengths.min()), float(lengths.max()))
    assert data.separation == pytest.approx(pdist(data.tokens.numpy()).min(), rel=1e-12)
    assert torch.equal(check_assumption(X, mask).positions, positions)


def broken(which: str) -> torch.Tensor:
    X, _, _, _ = masked_sequences(12, seed=3)
    if which == "zero":
        X[7, (check_assumption(X).positions[7] + 1) % 6] = 0.0
    if which == "permuted":
        X[9] = X[4].flip(0)
    if which == "twice":
        position = int(check_assumption(X).positions[5])
        X[5, (position + 1) % 6] = X[5, (position + 2) % 6]
    if which == "nan":
        X[2, 0, 0] = float("nan")
    if which == "unmasked":
        X[8, check_assumption(X).positions[8]] += 1.0
    return X


CASES = [
    ("zero", r"condition 1 .* is violated by sequences 7\."),
    ("permuted", r"condition 3 .* is violated by sequences 4, 9 "),
    ("twice", r"condition 4 .* is violated by sequences 5\."),
    ("nan", "sequences 2: expected finite"),
    ("unmasked", "no token is in every sequence"),
]


@pytest.mark.parametrize(("which", "message"), CASES)
@pytest.mark.parametrize("use", [check_assumption, distinguish_mask, lambda X: masked_lm(X, torch.arange(12), 0.1)])
def test_violations_are_named(which, message, use):
    with pytest.raises(ValueError, match=message):
        use(broken(which))


def test_which_token_is_the_mask():
    X, _, positions, mask = masked_sequences(12, seed=3)
    with refused("6 tokens", "mask="):
        check_assumption(X[:1])
    assert check_assumption(X[:1], mask).positions.tolist() == positions[:1].tolist()
    with refused("sequences 8", "[MASK]"):
        check_assumption(broken("unmasked"), mask)
    with pytest.raises(ValueError, match=r"mask: expected \[5\], got \[4\]"):
        check_assumption(X, mask[:4])
    with pytest.raises(ValueError, match="of floats"):
        check_assumption(X[:0])


def test_many_violations_are_counted():
    X = torch.ones(30, 4, 3)
    with pytest.raises(ValueError, match=r"sequences 0, 1, 2, 3, 4, 5, 6, 7, … \(30 in all\)"):
        check_assumption(X)


def test_other_shapes_are_refused():
    with unchecked_shapes():
        for X in (torch.ones(6, 5), torch.ones(5), torch.ones(1, 1, 6, 5)):
            with refused("[sequence, position, d_model]", "floats"):
                check_assumption(X)


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e150])
@pytest.mark.parametrize("use", [check_assumption, lambda X: masked_lm(X, torch.arange(12), 0.1)])
def test_tokens_whose_products_float64_loses(scale, use):
    X, _, _, _ = masked_sequences(12, seed=3)
    with refused("1e-100", "1e+100", "Multiply X"):
        use(X * scale)


def test_minus_zero_is_zero():
    X, _, _, mask = masked_sequences(6, seed=3)
    X[2] = X[1].flip(0)
    other = int((check_assumption(X[1:2], mask).positions[0] + 1) % 6)
    X[1, other, 0], X[2, 5 - other, 0] = 0.0, -0.0
    with refused("condition 3", "sequences 1, 2"):
        check_assumption(X)
