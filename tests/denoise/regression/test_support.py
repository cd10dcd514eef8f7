"""Scores on and off the support of sparse prompts, against a plain regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import RegressionTask
from aotlens.denoise.regression import one_step_interleaved, support_scores
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

SPARSE = RegressionTask(d=4, n_nonzero=2)


def test_a_head_that_compares_inputs_does_so_on_and_off_the_support() -> None:
    found = support_scores(one_step_interleaved(4, 6), SPARSE, n_prompts=20)
    np.testing.assert_allclose(found.on[1, 0], 1.0, atol=1e-10)
    np.testing.assert_allclose(found.off[1, 0], 1.0, atol=1e-10)
    np.testing.assert_allclose([found.on[0, 0], found.off[0, 0]], 0.0, atol=1e-10)


def test_slopes_are_those_of_least_squares_with_a_constant_for_each_query() -> None:
    cfg = ModelConfig(
        n_layers=1, d_model=12, n_heads=2, d_head=6, n_ctx=9, read_in="vectors", d_in=4, read_out="vectors", d_out=1
    )
    model = AttentionOnlyTransformer(cfg)
    prompts = SPARSE.sample(6, 5, dtype=torch.float64)
    _, cache = model.run_with_cache(prompts.tokens.float())
    found = support_scores(model, SPARSE, n_prompts=6)
    for head in range(2):
        rows, values = [], []
        for prompt in range(6):
            on = (prompts.weights[prompt] != 0).double()
            for query in range(1, 5):
                for key in range(query):
                    product = prompts.inputs[prompt, query] * prompts.inputs[prompt, key]
                    constant = np.zeros(6 * 5)
                    constant[prompt * 5 + query] = 1
                    answer = float(prompts.inputs[prompt, query] @ prompts.weights[prompt])
                    compared = answer * float(prompts.labels[prompt, key])
                    rows.append([float((product * on).sum()), float((product * (1 - on)).sum()), compared, *constant])
                    values.append(float(cache["attn_scores", 0][prompt, head, 2 * query, 2 * key + 1]))
        slopes = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
        own = [found.on[0, head], found.off[0, head], found.labels[0, head]]
        np.testing.assert_allclose(own, slopes[:3], atol=1e-5)
    assert (found.standard_error > 0).all() and len(found.to_frame()) == 2


def test_a_head_that_compares_its_answer_with_labels_has_not_found_the_support() -> None:
    """Without a term for labels it has β_on near E w_k² = 1 and β_off near 0."""
    cfg = ModelConfig(
        n_layers=1, d_model=12, n_heads=2, d_head=6, n_ctx=11, read_in="vectors", d_in=4, read_out="vectors", d_out=1
    )
    model, prompts = AttentionOnlyTransformer(cfg).double(), SPARSE.sample(40, 6, dtype=torch.float64)

    def compare(scores: torch.Tensor, hook: object) -> torch.Tensor:
        scores = scores.clone()
        scores[:, 0, ::2, 1::2] = prompts.labels[:, :, None] * prompts.labels[:, None, :-1]  # the answers are right
        return scores

    model.add_hook("blocks.0.attn.hook_attn_scores", compare)
    found = support_scores(model, SPARSE, n_prompts=40)
    np.testing.assert_allclose([found.on[0, 0], found.off[0, 0], found.labels[0, 0]], [0, 0, 1], atol=1e-9)


@pytest.mark.slow
def test_z_is_that_of_heads_that_know_nothing() -> None:
    """The null: heads of random weights cannot know a prompt's support, so z² averages 1."""
    squares = []
    for seed in range(30):
        cfg = ModelConfig(
            n_layers=1, d_model=12, n_heads=4, d_head=6, n_ctx=11, read_in="vectors", d_in=4, read_out="vectors",
            d_out=1, seed=seed,
        )  # fmt: skip
        found = support_scores(AttentionOnlyTransformer(cfg), SPARSE, n_prompts=100, seed=seed)
        squares.append(float((found.z**2).mean()))
    assert 0.7 < np.mean(squares) < 1.5


def test_a_dense_task_is_refused() -> None:
    with pytest.raises(ValueError, match="a sparse task"):
        support_scores(one_step_interleaved(4, 6), RegressionTask(d=4))
    with refused("3 points", "4 prompts"):
        support_scores(one_step_interleaved(4, 6), SPARSE, n_prompts=3)
    cfg = ModelConfig(
        n_layers=1, d_model=4, n_heads=1, d_head=4, n_ctx=5, read_in="vectors", d_in=4, read_out="vectors", d_out=1,
        phi="fixed", fixed_pattern="random",
    )  # fmt: skip
    with pytest.raises(ValueError, match="phi='fixed' has no scores"):
        support_scores(AttentionOnlyTransformer(cfg), SPARSE)
