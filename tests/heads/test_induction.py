"""The induction circuit on one that was built by hand, beside one that is broken, and on the bundled model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.heads import (
    AttentionPatterns,
    InductionCircuit,
    ablate,
    atlas,
    attention_patterns,
    induction_circuit,
    stored_atlas,
)
from aotlens.heads.induction import strongest_repeat
from tests.heads.hand_built import induction, repeated
from tests.messages import refused

M = 12


def measured(model: Any, tokens: torch.Tensor) -> InductionCircuit:
    made = atlas(model, tokens, hows=(), cache=None)
    return induction_circuit(model, made, n_sequences=6, half_length=M)


def test_the_circuit_that_was_built_is_found_and_its_numbers_hold_by_hand() -> None:
    model, (tokens, _) = induction(M, 8.0, decoys=2), repeated(M, 8)
    found = measured(model, tokens)
    assert found.heads == ((1, 2),) and found.previous == ((0, 2),)
    assert found.induction[0] > 0.9 and found.previous_token[0] > 0.99
    assert found.matching[0] == 1.0, "every token's own row is highest at itself"
    whole = model.W_E @ model.W_Q[1, 2] @ (model.W_E @ model.W_V[0, 2] @ model.W_O[0, 2] @ model.W_K[1, 2]).T
    assert (whole.argmax(1) == torch.arange(M + 1)).all()
    assert found.copying[0] == 1.0
    # Without either part the model knows nothing: a loss of log(vocabulary) or more. (With so few tokens some come
    # twice within a half, and what the circuit says there is wrong: that is in the loss on the first half.)
    assert found.gain > 1.0
    for without in (found.without_heads, found.without_previous):
        assert without.ablated_mean > np.log(M + 1) and without.interval()[0] > 0
    assert found.each.heads == tuple(np.ndindex(2, 3))
    alone = found.each.changes[found.each.heads.index((1, 2))]
    assert alone == pytest.approx(found.without_heads.change, abs=1e-9)
    assert len(found.to_frame()) == 1 and found.to_frame()["lost_alone"][0] == pytest.approx(alone / found.gain)


def test_without_the_earlier_head_the_claims_fail() -> None:
    model, (tokens, _) = induction(M, 8.0, decoys=2), repeated(M, 8)
    made = atlas(model, tokens, hows=(), cache=None)
    with torch.no_grad():
        model.blocks[0].attn.W_O[2] = 0  # 1.2 still has its score in the atlas, and reads nothing any more
    found = induction_circuit(model, made, n_sequences=6, half_length=M)
    assert found.matching[0] < 0.5
    failed = [place for place, check in enumerate(found.checks, start=1) if not check.holds]
    assert {3, 5} <= set(failed) and "is no induction circuit by claim" in found.verdict


@pytest.mark.parametrize(
    ("gamma", "dtype", "gains"),
    [
        (0.05, torch.float64, True), (0.05, torch.bfloat16, False), (8.0, torch.bfloat16, True),
        (0.0, torch.float64, False),
    ],
)  # fmt: skip
def test_no_share_of_a_gain_that_is_rounding_is_lost(gamma: float, dtype: torch.dtype, gains: bool) -> None:
    """A gain of some gamma nats, of a loss of 2.6, of which bfloat16 has two decimals."""
    made = atlas(induction(M, 8.0, decoys=2), repeated(M, 8)[0], hows=(), cache=None)
    found = induction_circuit(induction(M, gamma, decoys=2).to(dtype), made, n_sequences=6, half_length=M)
    lost = [found.lost(found.without_heads), *found.to_frame()["lost_alone"]]
    assert found.gains == gains and np.isfinite(lost).all() == gains
    assert ("no gain but rounding" in found.checks[4].measured) != gains
    assert gains or not found.checks[4].holds


def test_what_has_no_induction_heads_is_refused() -> None:
    model = induction(M, 8.0, decoys=1)
    with torch.no_grad():
        model.blocks[1].attn.W_Q.zero_()
    tokens, _ = repeated(M, 8)
    made = atlas(model, tokens, hows=(), cache=None)
    with refused("no head", "induction score"):
        induction_circuit(model, made)
    with refused("2 × 3 heads", "got"):
        induction_circuit(induction(M, 8.0, decoys=2), made)


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_bundled_model_has_one_and_its_losses_are_those_of_ablate() -> None:
    model, kept = aotlens.load("novels-2l-mhsa", device="cpu"), stored_atlas("novels-2l-mhsa").atlas
    found = induction_circuit(model, kept, n_sequences=4)
    assert found.heads == ((1, 0), (1, 1), (1, 3)) and set(found.previous) == {(0, 3)}
    assert all(check.holds for check in found.checks) and "0.3 → 1.0, 1.1, 1.3" in found.verdict
    from aotlens.data import repeated_random_tokens

    tokens = repeated_random_tokens(4096, 4, 50, 0, eot_id=0)
    targets = torch.full_like(tokens, -100)
    targets[:, 51:-1] = tokens[:, 52:]
    alone = ablate(model, tokens, "0.3", "position_mean", targets=targets)
    np.testing.assert_allclose(found.without_previous.ablated, alone.ablated, atol=1e-5)
    losses = model.loss_per_token(tokens).double()
    assert found.first_half == pytest.approx(float(losses[:, :50].mean()), abs=1e-5)
    assert found.without_heads.clean_mean == pytest.approx(float(losses[:, 51:].mean()), abs=1e-5)


def prompt(tokens: np.ndarray, pattern: np.ndarray) -> AttentionPatterns:
    n = len(tokens)
    return AttentionPatterns(
        tokens=tokens, str_tokens=(), pattern=pattern, scores=None, value_norms=np.ones((1, 1, n), dtype=np.float32),
        visible=np.tri(n, dtype=bool)[None],
    )  # fmt: skip


def test_where_a_prompt_repeats_most() -> None:
    tokens = np.array([0, 5, 6, 7, 5, 6, 9])
    pattern = np.zeros((1, 1, 7, 7), dtype=np.float32)
    pattern[0, 0, 4, 2], pattern[0, 0, 5, 3], pattern[0, 0, 6, 1] = 0.6, 0.7, 0.9
    given = prompt(tokens, pattern)
    assert strongest_repeat(given, "0.0") == (5, 3, pytest.approx(0.7)), "no 9 comes before"
    with refused("no token", "twice"):
        strongest_repeat(prompt(np.arange(7), pattern), "0.0")
    model = induction(M, 8.0)
    own, _ = repeated(M, 1)
    query, key, attention = strongest_repeat(attention_patterns(model, own[0]), "1.0")
    assert key == query - M + 1 and attention > 0.99
