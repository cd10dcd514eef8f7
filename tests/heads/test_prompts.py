"""Motifs of interleaved prompts, against plain sums over the patterns of a model built by hand and of a random one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import RegressionTask
from aotlens.heads import MOTIFS, attention_to, motifs_of
from aotlens.heads.scores import attention_in_prompts
from aotlens.models import AttentionOnlyTransformer, ModelConfig
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
