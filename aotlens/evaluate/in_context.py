"""The in-context-learning score: how much more context is worth to a language model (Olsson et al. 2022)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from aotlens.conventions import require_whole


def in_context_learning_score(
    losses: Float[np.ndarray, "*sequence pos"], *, early: int | None = None, late: int | None = None
) -> float:
    """Return the mean loss early in the context minus that late in it: nats a token; 0 where more context is no help.

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
