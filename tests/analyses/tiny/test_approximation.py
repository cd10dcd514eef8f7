"""Networks that learn an FFN: batched is as alone, F can what S cannot, and errors mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

from analyses._tiny import approximate_ffn

SMALL = {"d": 4, "n_pos": 3, "ffn_width": 6, "ffn_depth": 1, "n_train": 20, "n_test": 10, "learning_rate": 0.01}


@pytest.mark.parametrize("kind", ["S", "F"])
def test_runs_together_are_as_alone(kind: str) -> None:
    heads, layers, seeds = [3, 8, 8], [2, 1, 2], [0, 1, 0]
    together = approximate_ffn(kind, heads, layers, seeds, epochs=4, batch_size=6, **SMALL)
    for run in range(3):
        alone = approximate_ffn(kind, heads[run : run + 1], layers[run : run + 1], seeds[run : run + 1], epochs=4,
                                batch_size=6, **SMALL)  # fmt: skip
        np.testing.assert_allclose(together.constant_loss[run], alone.constant_loss[0], rtol=1e-6)
        np.testing.assert_allclose(together.test_loss[run], alone.test_loss[0], rtol=1e-4)


def test_f_learns_what_acts_on_each_token_alone_and_s_does_not() -> None:
    found = {
        kind: approximate_ffn(
            kind, [24], [2], [0], epochs=60, batch_size=10, **{**SMALL, "n_train": 60, "learning_rate": 0.02}
        )
        for kind in ("S", "F")
    }
    assert found["F"].relative[0, -1] < 0.5 * found["S"].relative[0, -1]
    assert found["F"].relative[0, -1] < 0.5
    assert found["F"].test_loss.shape == (1, 61)


def test_a_loss_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="lower learning_rate"):
        approximate_ffn("F", [4], [2], [0], epochs=3, **{**SMALL, "learning_rate": 1e30})
