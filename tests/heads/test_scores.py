"""Attention in prompts of regression, to marked keys, and the one label of each head."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from aotlens.data import RegressionTask
from aotlens.heads import (
    MOTIFS,
    MotifScores,
    attention_to,
    head_labels,
    motifs_of,
    open_bracket,
    previous_indentation,
    previous_use,
    targeted_attention,
)
from aotlens.heads.scores import attention_in_prompts
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused, says
from tests.small_models import maker

D, N = 3, 5


def vector_model(**changes: object) -> AttentionOnlyTransformer:
    cfg = {
        "n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "n_ctx": 2 * N - 1, "read_in": "vectors", "d_in": D,
        "read_out": "vectors", "d_out": 1,
    }  # fmt: skip
    return AttentionOnlyTransformer(ModelConfig.from_dict({**cfg, **changes})).eval()


def test_scores_are_sums_over_the_pattern() -> None:
    model = vector_model(position_init_std=2.0)
    tokens = RegressionTask(d=D).sample(4, N).tokens
    scores = attention_in_prompts(model, tokens, batch_size=3)
    _, cache = model.run_with_cache(tokens)
    inputs, labels = range(0, 2 * N - 1, 2), range(1, 2 * N - 1, 2)
    pairs = {
        "own_input": [(label, [label - 1]) for label in labels],
        "all_labels": [(query, [label for label in labels if label < query]) for query in inputs if query],
        "all_inputs": [(query, [key for key in inputs if key < query]) for query in inputs if query],
        "last_label": [(query, [query - 1]) for query in inputs if query],
        "current_token": [(query, [query]) for query in range(2 * N - 1)],
    }
    assert set(pairs) == set(motifs_of("prompts")) == set(scores.motifs)
    for name, queries in pairs.items():
        for layer in range(2):
            pattern = cache["pattern", layer].mean(0)  # [head, query, key]
            expected = sum(pattern[:, query, keys].sum(-1) for query, keys in queries) / len(queries)
            np.testing.assert_allclose(scores[name][layer], expected.numpy(), atol=1e-6)
        even = np.mean([len(keys) / (query + 1) for query, keys in queries])
        assert scores.uniform is not None
        np.testing.assert_allclose(scores.uniform[list(scores.motifs).index(name)], even, atol=1e-6)


def test_motifs_of_prompts_are_none_of_text() -> None:
    own = {"own_input", "all_labels", "all_inputs", "last_label"}
    assert own <= set(MOTIFS) and not own & (set(motifs_of("tokens")) | set(motifs_of("images")))
    model = maker()()
    scores = attention_to(model, torch.zeros(2, 6, dtype=torch.long), ["previous_token", "own_input"])
    assert scores.reasons == {"own_input": "it is about prompts, and this model reads tokens"}
    assert np.isnan(scores["own_input"]).all() and np.isfinite(scores["previous_token"]).all()


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="reads tokens"):
        attention_in_prompts(maker()(), torch.zeros(1, 5, 3))
    with pytest.raises(ValueError, match="x_1, y_1, x_2"):
        attention_in_prompts(vector_model(), torch.zeros(1, 2, D))


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


NAMES = ("previous_token", "first_token", "induction", "uniform_attention")


def scores(*rows: tuple[float, float, float, float], chance: float = 0.05, n_layers: int = 1) -> MotifScores:
    """Of each head its score for each of `NAMES`, beside one chance."""
    values = np.array(rows).T.reshape(len(NAMES), n_layers, -1)
    return MotifScores(motifs=NAMES, values=values, n_queries=np.full(4, 9), chance=np.full(values.shape, chance))


@pytest.mark.parametrize(
    ("head", "label", "resting", "margin"),
    [
        ((0.50, 0.10, 0.00, 0.0), "previous_token", False, 0.45 - 0.05),
        ((0.10, 0.90, 0.00, 0.0), "first_token", False, 0.85 - 0.05),
        ((0.25, 0.50, 0.00, 0.0), "previous_token", True, 0.2 / 0.5),  # half of what is left
        ((0.15, 0.50, 0.00, 0.0), "first_token", False, 0.45 - 0.10),  # .3 of it is no half
        ((0.04, 0.92, 0.00, 0.0), "first_token", False, 0.87),  # too little is left
        ((0.30, 0.35, 0.00, 0.0), "mixed", False, np.nan),  # who does not rest is not divided
        ((0.10, 0.10, 0.00, 0.95), "uniform_attention", False, 0.05),
    ],
)
def test_the_first_position_is_where_heads_rest(head: tuple, label: str, resting: bool, margin: float) -> None:
    found = scores(head)
    assert found.labels() == [[label]] and found.resting().tolist() == [[resting]]
    assert found.margins()[0, 0] == pytest.approx(margin, nan_ok=True)
    alone = head_labels(text=found)
    assert alone.names == ((label,),) and alone.resting.tolist() == [[resting]]


def test_random_tokens_decide_of_what_compares_tokens_and_text_of_the_rest() -> None:
    random = scores((0.0, 0.1, 0.9, 0.0), (0.9, 0.0, 0.0, 0.0), (0.0, 0.0, 0.9, 0.0), (0.0, 0.1, 0.3, 0.0), n_layers=2)
    text = scores((0.0, 0.8, 0.1, 0.0), (0.1, 0.6, 0.0, 0.0), (0.5, 0.1, 0.0, 0.0), (0.1, 0.1, 0.5, 0.0), n_layers=2)
    found = head_labels(random, text)
    assert found.names == (("induction", "first_token"), ("induction", "induction"))
    assert found.resting.tolist() == [[True, False], [False, False]]
    np.testing.assert_allclose(found.margins.ravel(), [0.85 - 0.05, 0.55 - 0.05, 0.85, 0.45 - 0.05])
    assert [found.source(head) is random for head in ("0.0", "0.1", "1.0", "1.1")] == [True, False, True, False]
    says(found.sentence("0.0"), "what followed an earlier occurrence", "on random tokens", "0.90 (chance 0.05)")
    says(found.sentence("0.0"), "Otherwise it attends to the first token (0.80)", "A head of the first layer")
    assert "first layer" not in found.sentence("1.0") and "random" not in found.sentence("1.1")
    assert list(found.to_frame()) == ["layer", "head", "label", "resting", "margin"]
    assert head_labels(random).names == (("induction", "previous_token"), ("induction", "mixed"))
    says(head_labels(random).sentence("1.1"), "no one motif", "induction (+0.25)")
    assert found.headline == "3 induction, 1 first_token"
    with refused("random tokens", "text", "neither"):
        head_labels()
