"""Runs of a prompt and their differences, against hooks written by hand, `ablate`, and loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.heads import ablate, compare_runs, run_prompt
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

TEXT = "the cat sat on the mat and the dog sat on the cat"
OTHER = "so the cat sat down on the mat"
TOKENIZER = Tokenizer.train([f"{TEXT}. {OTHER}. " * 5], 275)


def small(**rest: object) -> AttentionOnlyTransformer:
    torch.manual_seed(0)
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 3, "d_head": 8, "n_ctx": 48, "d_vocab": 275, **rest}
    return AttentionOnlyTransformer(ModelConfig(**sizes), TOKENIZER).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    return small()


def test_losses_of_a_run_without_heads_are_those_of_ablate(model: AttentionOnlyTransformer):
    runs = compare_runs(run_prompt(model, TEXT), run_prompt(model, TEXT, ablated=["1.2", "0.1"]))
    expected = ablate(model, TEXT, ["0.1", "1.2"])
    assert expected.clean_loss_per_token is not None and expected.ablated_loss_per_token is not None
    losses = runs.losses()
    np.testing.assert_allclose(losses.left[1:], expected.clean_loss_per_token[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(losses.right[1:], expected.ablated_loss_per_token[0].numpy(), atol=1e-5)
    frame = losses.to_frame()
    assert runs.aligned and np.isnan(frame["difference"][0]) and runs.right.ablated == ((0, 1), (1, 2))
    np.testing.assert_allclose(frame["difference"][1:].mean(), expected.change, atol=1e-5)
    with refused("run_prompt(…, losses=True)"):
        compare_runs(run_prompt(model, TEXT, losses=False), runs.right).losses()


@pytest.mark.parametrize("quantity", ["attention", "weighted", "scores"])
def test_the_difference_of_two_maps_is_that_of_two_runs(model: AttentionOnlyTransformer, quantity: str):
    maps = []
    for hooks in ([], [("blocks.0.attn.hook_z", _without_head_1)]):
        with model.hooks(fwd_hooks=hooks), torch.no_grad():
            _, cache = model.run_with_cache(model.to_tokens(TEXT))
        pattern, scores = (cache[f"blocks.1.attn.hook_{name}"][0, 0] for name in ("pattern", "attn_scores"))
        weighted = pattern * cache["blocks.1.attn.hook_v"][0, :, 0].norm(dim=-1)
        maps.append({"attention": pattern, "weighted": weighted, "scores": scores}[quantity].numpy())
    seen = np.tril(np.ones_like(maps[0])) > 0
    expected = np.full_like(maps[0], np.nan)
    expected[seen] = maps[1][seen] - maps[0][seen]
    runs = compare_runs(run_prompt(model, TEXT), run_prompt(model, TEXT, ablated=["0.1"]))
    compared = runs.maps("1.0", quantity=quantity)
    np.testing.assert_allclose(compared.difference, expected, atol=1e-5)
    assert np.nanmax(np.abs(expected)) > 1e-3
    hidden = runs.maps("1.0", quantity=quantity, without_first=True).difference
    assert np.isnan(hidden[:, 0]).all() and np.array_equal(hidden[1:, 1:], compared.difference[1:, 1:], equal_nan=True)
    frame = compared.to_frame()
    assert len(frame) == seen.sum()
    pd.testing.assert_series_equal(frame["right"] - frame["left"], frame["difference"], check_names=False)


def _without_head_1(z: torch.Tensor, hook: object) -> torch.Tensor:
    z = z.clone()
    z[:, :, 1] = 0
    return z


def test_two_texts_are_compared_where_their_positions_correspond(model: AttentionOnlyTransformer):
    runs = compare_runs(run_prompt(model, TEXT), run_prompt(model, OTHER))
    tokens = [run.patterns.str_tokens for run in (runs.left, runs.right)]
    assert not runs.aligned and len(runs.positions) > 3 and runs.losses().difference is None
    assert all(tokens[0][here] == tokens[1][there] for here, there in runs.positions)
    compared = runs.maps("1.1", "0.2")
    found, left, right = compared.difference, compared.left.values, compared.right.values
    for query, other_query in runs.positions:
        for key, other_key in runs.positions:
            np.testing.assert_array_equal(found[query, key], right[other_query, other_key] - left[query, key])
    apart = sorted({*range(len(left))} - {here for here, _ in runs.positions})
    assert np.isnan(found[apart]).all() and np.isnan(found[:, apart]).all()
    assert list(runs.losses().to_frame()["pane"].unique()) == ["left", "right"]


def test_texts_of_one_length_are_compared_position_by_position_if_one_tokenizer_cut_them(
    model: AttentionOnlyTransformer,
):
    left, right = run_prompt(model, "the cat sat"), run_prompt(model, "the cat the")
    n = left.patterns.n_pos
    assert right.patterns.n_pos == n and compare_runs(left, right).positions == tuple((i, i) for i in range(n))
    assert len(compare_runs(left, right, one_tokenizer=False).positions) < n


def test_one_text_in_different_tokens_is_not_compared(model: AttentionOnlyTransformer):
    other = AttentionOnlyTransformer(
        ModelConfig(n_layers=1, d_model=16, n_heads=3, d_head=8, n_ctx=200, d_vocab=260), Tokenizer.train([OTHER], 260)
    )
    runs = compare_runs(run_prompt(model, TEXT), run_prompt(other, TEXT), one_tokenizer=False)
    assert runs.positions == () and not runs.aligned
    with refused("different tokens", str(runs.right.patterns.n_pos)):
        runs.maps("0.0")


def test_what_is_not_there_is_refused(model: AttentionOnlyTransformer):
    run = run_prompt(model, TEXT)
    with refused("head 2.0"):
        run.map("2.0")
    with refused("quantity 'norms'", "'weighted'"):
        run.map("1.0", "norms")
