"""An induction circuit whose every weight is known: patching finds its two heads, at their positions, and no other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import PromptPairs
from aotlens.patching import attribution, patch
from tests.heads.hand_built import induction

#: Token 3 came after 5, and is asked for after another 5; corrupted, 6 came after it.
CLEAN, CORRUPTED = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 5, 6, 1, 5]])


@pytest.fixture(scope="module")
def made():
    model = induction(8, 12.0, copies=1, decoys=1)
    return model, PromptPairs.of_inputs(model, CLEAN, CORRUPTED, [3], [6])


def test_the_induction_heads_output_restores_the_answer_and_no_other_does(made):
    model, pairs = made
    found = patch(model, pairs, "z", by_position=True)
    assert found.clean[0] == pytest.approx(12, abs=0.2) and found.corrupted[0] == pytest.approx(-12, abs=0.2)
    assert found.restored[1, 1, 5] == pytest.approx(1, abs=0.02)  # head 1.1 at the end
    others = np.delete(found.restored.ravel(), np.ravel_multi_index((1, 1, 5), found.restored.shape))
    assert np.abs(others).max() < 0.05


def test_it_moves_the_value_of_the_token_that_came_after_its_own(made):
    model, pairs = made
    values = patch(model, pairs, "v", by_position=True).restored
    assert values[1, 1, 3] == pytest.approx(1, abs=0.02) and np.abs(np.delete(values[1, 1], 3)).max() < 0.05
    patterns = patch(model, pairs, "pattern").restored
    assert np.abs(patterns).max() < 0.05  # it looks at the same place in both


def test_where_it_looks_is_found_where_prompts_differ_in_that():
    """Here the answer is there in both prompts and only the token before it differs: keys through the previous-token
    head, and nothing of values, bring it back."""
    model = induction(8, 12.0, copies=1, decoys=1)
    clean, corrupted = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 4, 3, 1, 5]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [3], [6])
    keys = patch(model, pairs, "k").restored
    assert keys[1, 1] == pytest.approx(1, abs=0.02) and abs(keys[1, 0]) < 0.05
    earlier = patch(model, pairs, "z", by_position=True).restored
    assert earlier[0, 1, 3] == pytest.approx(1, abs=0.02)  # head 0.1 writes 5 where 3 stands
    assert np.abs(patch(model, pairs, "v").restored[1]).max() < 0.05


def test_a_saturated_softmax_makes_the_gradient_lie_and_the_check_shows_it():
    model = induction(8, 12.0, copies=1, decoys=1)
    clean, corrupted = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 4, 3, 1, 5]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [3], [6])
    found = attribution(model, pairs, "k", check=4)
    cell, miss = found.worst
    assert cell == (1, 1) and abs(miss) > 5  # the exact change is some 12 logits, the estimate next to nothing
