"""Attention to chosen keys, against loops over the patterns, and the pairs that code marks, written out."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from aotlens.heads import open_bracket, previous_indentation, previous_use, targeted_attention
from aotlens.models import AttentionOnlyTransformer, ModelConfig

TOKENS = torch.randint(0, 15, (5, 9), generator=torch.Generator().manual_seed(2))


def small(**changes: object) -> AttentionOnlyTransformer:
    fields = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 16, "d_vocab": 15}
    return AttentionOnlyTransformer(ModelConfig(**{**fields, **changes})).double()


def test_against_a_loop_over_pairs() -> None:
    model = small()
    targets = (torch.rand(5, 9, 9, generator=torch.Generator().manual_seed(3)) < 0.2).tril()
    targets[:, 4] = False
    result = targeted_attention(model, TOKENS, targets, batch_size=2)
    _, cache = model.run_with_cache(TOKENS)
    queries = [(b, q) for b in range(5) for q in range(9) if targets[b, q].any()]
    assert result.n_queries == len(queries)
    for layer in range(2):
        for head in range(3):
            pattern = cache["pattern", layer][:, head]
            total, expected = 0.0, 0.0
            for b, q in queries:
                for k in range(9):
                    if targets[b, q, k]:
                        total += float(pattern[b, q, k])
                        expected += float(torch.stack([pattern[:, i + q - k, i] for i in range(9 - (q - k))]).mean())
            assert result.attention[layer, head] == pytest.approx(total / len(queries), abs=1e-6)
            assert result.expected[layer, head] == pytest.approx(expected / len(queries), abs=1e-6)
    frame = result.to_frame()
    assert len(frame) == 6 and frame["ratio"][4] == pytest.approx(result.ratio[1, 1])


def test_a_head_that_knows_only_distance_has_ratio_one() -> None:
    previous = torch.zeros(16, 16)
    previous[torch.arange(1, 16), torch.arange(15)] = 1.0
    cfg = small(n_layers=1, n_heads=1, phi="fixed", fixed_pattern="random").cfg
    model = AttentionOnlyTransformer(dataclasses.replace(cfg, fixed_pattern="given"), pattern=previous)
    targets = torch.zeros(5, 9, 9, dtype=torch.bool)
    targets[:, torch.arange(2, 9), torch.arange(1, 8)] = True
    targets[0, 8, 3] = True
    result = targeted_attention(model, TOKENS, targets)
    assert result.attention[0, 0] == pytest.approx(1.0) and result.ratio[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.ones(5, 9, 8, dtype=torch.bool), r"targets: expected \[5, 9, 9\]"),
        (torch.ones(5, 9, 9, dtype=torch.bool), "at or before their query"),
        (torch.zeros(5, 9, 9, dtype=torch.bool), "at least one marked pair"),
    ],
)
def test_bad_targets_are_refused(targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        targeted_attention(small(), TOKENS, targets)


def pairs(targets: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in targets.nonzero().tolist()]


def test_the_pairs_of_code() -> None:
    code = ["def", " f", "(", "self", ", x", "[", "0", "])", ":", "\n    ", "return", " self", "\n", ")", "x"]
    assert pairs(open_bracket(code)) == [(3, 2), (4, 2), (5, 2), (6, 5), (7, 5)]
    assert pairs(previous_indentation(code)) == [(12, 9)]
    assert pairs(previous_use(code, "self")) == [(11, 3)]
    assert pairs(open_bracket(["a"])) == []
