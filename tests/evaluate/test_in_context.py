"""The in-context-learning score against means written out, and its null."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.evaluate import in_context_learning_score
from tests.messages import refused


def test_the_first_quarter_less_the_last() -> None:
    losses = np.array([[8.0, 6.0, 5.0, 5.0, 5.0, 5.0, 3.0, 1.0], [6.0, 4.0, 5.0, 5.0, 5.0, 5.0, 3.0, 1.0]])
    assert in_context_learning_score(losses) == pytest.approx((7 + 5) / 2 - (3 + 1) / 2)
    assert in_context_learning_score(losses[0]) == pytest.approx(7 - 2)
    assert in_context_learning_score(losses, early=1, late=7) == pytest.approx(5 - 1)
    assert in_context_learning_score(np.array([2.0])) == 0


def test_losses_in_any_order_have_none() -> None:
    losses = np.random.default_rng(0).exponential(size=(4000, 32))
    assert abs(in_context_learning_score(losses)) < 0.03


def test_what_cannot_be_compared_is_refused() -> None:
    losses = np.ones((2, 8))
    for given, words in (
        ({"early": 3}, ("early=3", "late=None")),
        ({"early": 5, "late": 5}, ("early", "4")),
        ({"early": 1, "late": 8}, ("late", "7")),
    ):
        with refused(*words):
            in_context_learning_score(losses, **given)
    with refused("finite"):
        in_context_learning_score(np.array([1.0, np.nan]))
