"""The variance over keys that groups explain, against the products of every cell's own expansion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.paths import expand, explained_variance
from tests.messages import refused
from tests.small_models import MakeModel

KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {"n_layers": 3, "bias": True},
    "mssa, qk": {"n_layers": 2, "attention": "mssa", "bias": True, "positions": "qk"},
    "mlps": {"n_layers": 2, "bias": True, "d_mlp": 5},
    "linear": {"n_layers": 2, "phi": "linear", "bias": True, "causal": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_groups_explain_what_a_loop_over_cells_says(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**KINDS[kind])
    expansion, head = expand(model, tokens), (model.cfg.n_layers - 1, 1)
    found = explained_variance(expansion, head, k=1000)
    terms: list[np.ndarray] = []
    weights: list[float] = []
    for query in range(5):
        for key in range(5 if kind == "linear" else query + 1):
            score = expansion.score(head, query, key, "mean")
            sums = score.by_head_pair()
            terms.append(sums.values.flatten().numpy())
            p = score.log_probability
            weights.append(1 / 5 if p is None else float(np.exp(p)))
    parts, w = np.array(terms), np.array(weights)  # [cell, group], [cell]
    whole, left = parts.sum(1), parts.sum(1)
    n, taken = len(sums.names), set()
    for place, (group, r2) in enumerate(zip(found.groups, found.r2, strict=True)):
        number = sums.names.index(group[0]) * n + sums.names.index(group[1])
        if place < 5:
            rest = {g: float(w @ (left - parts[:, g]) ** 2) for g in range(n * n) if g not in taken}
            assert rest[number] == pytest.approx(min(rest.values()), abs=1e-12)
        taken.add(number)
        left = left - parts[:, number]
        assert r2 == pytest.approx(1 - float(w @ left**2) / float(w @ whole**2), abs=1e-9)
    assert found.n_groups == len(found.groups) == len(set(found.groups)) == n * n
    assert found.r2[-1] == pytest.approx(1) and found.explained(5) == found.r2[4] and found.explained(10**6) == 1
    assert found.variance == pytest.approx(float(w @ whole**2) / 5)
    assert found.cancellation == pytest.approx(float(w @ abs(parts).sum(1)) / float(w @ abs(whole)))
    assert list(found.to_frame().columns) == ["query", "key", "r2"] and "explains" in found.headline


def test_bad_questions_are_refused(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(), tokens)
    with pytest.raises(ValueError, match="k=0"):
        explained_variance(expansion, (1, 0), 0)
    with refused("at most 2", "groups"):
        explained_variance(expansion, (1, 0), 2).explained(5)
    one = explained_variance(expand(make(), tokens[:1]), (1, 0), 2)  # one key: nothing varies
    assert one.variance == pytest.approx(0) and torch.isfinite(torch.tensor(one.r2)).all()


def test_the_first_group_alone_is_the_first_of_many(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(**KINDS["mhsa"]), tokens)
    alone, many = (explained_variance(expansion, (2, 0), k) for k in (1, 5))
    assert len(alone.r2) == 1 and alone.groups == many.groups[:1]
    assert alone.explained(1) == pytest.approx(many.explained(1))
