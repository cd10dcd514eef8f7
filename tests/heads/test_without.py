"""A model without some heads, against `ablate`, other weights and hooks written by hand; and two runs compared."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from aotlens.conventions import FROM_OTHERS
from aotlens.data import Tokenizer
from aotlens.evaluate import masked_loss, next_token_predictions, predictions_of_logits, token_losses
from aotlens.heads import HeadSwitches, ablate, attention_patterns, compare_runs, motif_scores, run_prompt, without
from aotlens.heads.patterns import patterns_and_logits
from aotlens.heads.replacement import HOWS
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from tests.heads.test_ablation import TOKENS, small
from tests.heads.test_ablation import without as without_by_weights
from tests.messages import refused

PROMPT = TOKENS[:1]
REFERENCE = torch.randint(0, 15, (5, 11), generator=torch.Generator().manual_seed(8))


@pytest.fixture
def model() -> AttentionOnlyTransformer:
    return small()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("heads", [["0.1"], ["1.2", "0.1", "1.0"]])
def test_a_run_is_the_one_that_ablate_compares(model: AttentionOnlyTransformer, how: str, heads: list[str]) -> None:
    expected = ablate(model, PROMPT, heads, how, reference=REFERENCE, seed=4).ablated_loss_per_token
    with without(model, heads, how, reference=REFERENCE, seed=4, batch_size=2):
        torch.testing.assert_close(model.loss_per_token(PROMPT), expected)
    switches = HeadSwitches(model, how, reference=REFERENCE, seed=4)  # prepared for all heads, used for some
    for _ in range(2):
        with switches.off(heads):
            torch.testing.assert_close(model.loss_per_token(PROMPT), expected)
    assert (expected - model.loss_per_token(PROMPT)).abs().max() > 1e-4


@pytest.mark.parametrize("how", ["position_mean", "fixed_pattern", "resample"])
def test_a_shorter_run_takes_the_references_first_positions(model: AttentionOnlyTransformer, how: str) -> None:
    shorter, cut = PROMPT[:, :7], REFERENCE[:, :7]
    expected = ablate(model, shorter, ["0.0", "1.1"], how, reference=cut).ablated_loss_per_token
    with without(model, ["0.0", "1.1"], how, reference=REFERENCE):
        torch.testing.assert_close(model.loss_per_token(shorter), expected)
        with pytest.raises(ValueError, match="at least 12 positions"):
            model(torch.zeros(1, 12, dtype=torch.long))
    both_sides = small(causal=False)
    with without(both_sides, "0.0", how, reference=REFERENCE):
        both_sides(PROMPT)
        with pytest.raises(ValueError, match="of 7 positions"):
            both_sides(shorter)


def test_padding_is_nobodys_key(model: AttentionOnlyTransformer) -> None:
    mask = torch.ones(1, 11, dtype=torch.bool)
    mask[:, 8:] = False
    with without(model, "0.1", "uniform"):
        padded = small(causal=False)
        alone = model(PROMPT[:, :8])
        torch.testing.assert_close(model(PROMPT, attention_mask=mask)[:, :8], alone)
    with without(padded, "0.1", "uniform"):
        torch.testing.assert_close(padded(PROMPT, attention_mask=mask)[:, :8], padded(PROMPT[:, :8]))
    left = PROMPT.roll(3, 1)
    for how in ("position_mean", "fixed_pattern", "resample"):
        with without(model, "0.1", how, reference=REFERENCE):
            alone = model(PROMPT[:, :8])
            torch.testing.assert_close(model(PROMPT, attention_mask=mask)[:, :8], alone)
            torch.testing.assert_close(model(left, attention_mask=mask.roll(3, 1))[:, 3:], alone)
    other = REFERENCE[:, : PROMPT.shape[1]]
    with without(padded, "0.1", "resample", reference=other), pytest.raises(ValueError, match="without padding"):
        padded(PROMPT, attention_mask=mask)


def test_patterns_and_predictions_are_those_of_the_lesser_model(model: AttentionOnlyTransformer) -> None:
    lesser = without_by_weights(model, (0, 1), (1, 2))
    with without(model, ["0.1", "1.2"]):
        patterns, logits = patterns_and_logits(model, PROMPT)
        found = next_token_predictions(model, PROMPT, 5, 4)
    np.testing.assert_allclose(patterns.pattern, attention_patterns(lesser, PROMPT).pattern, atol=1e-7)
    torch.testing.assert_close(logits, lesser(PROMPT)[0])
    read = predictions_of_logits(model, PROMPT[0], logits, 5, 4)
    for each in (found, read):
        np.testing.assert_allclose(each.probabilities, lesser(PROMPT)[0, 5].softmax(-1).topk(4)[0].detach(), rtol=1e-5)
    whole = attention_patterns(model, PROMPT).pattern
    assert np.array_equal(patterns.pattern[0], whole[0].copy()) and not np.allclose(patterns.pattern[1], whole[1])
    with without(model, "0.1", "uniform"):
        even = attention_patterns(model, PROMPT).pattern[0, 1]
    np.testing.assert_allclose(even, np.tril(np.ones((11, 11))) / np.arange(1, 12)[:, None], rtol=1e-6)


def test_after_it_the_model_is_whole_and_others_wait(model: AttentionOnlyTransformer) -> None:
    whole, elsewhere = model(PROMPT), []
    with without(model, "1.0"):
        thread = threading.Thread(target=lambda: elsewhere.append(model(PROMPT)))
        thread.start()
        assert not torch.equal(model(PROMPT), whole)
    thread.join()
    assert torch.equal(model(PROMPT), whole) and torch.equal(elsewhere[0], whole)
    with pytest.raises(RuntimeError, match="ours"), without(model, "1.0"):
        raise RuntimeError("ours")
    assert torch.equal(model(PROMPT), whole)
    assert not any(model._forward_pre_hooks.values())


def test_what_cannot_be_is_refused(model: AttentionOnlyTransformer) -> None:
    for how in FROM_OTHERS:
        with pytest.raises(ValueError, match="expected reference="), without(model, "0.0", how):
            pass
    with pytest.raises(ValueError, match="how='none'"), without(model, "0.0", "none"):
        pass
    with pytest.raises(ValueError, match="layers 0 to 1"), without(model, "2.0"):
        pass
    with pytest.raises(ValueError, match="were made for"), HeadSwitches(model, heads="0.0").off("0.1"):
        pass
    with HeadSwitches(model).off([]):
        assert torch.equal(model(PROMPT), small()(PROMPT))


# The loss of each token


def test_token_losses_are_the_models_own(model: AttentionOnlyTransformer) -> None:
    expected = model.loss_per_token(PROMPT)[0].detach()
    logits = model(PROMPT)[0]
    for losses in (token_losses(model, PROMPT), token_losses(model, PROMPT[0], logits=logits)):
        assert np.isnan(losses[0])
        np.testing.assert_allclose(losses[1:], expected, rtol=1e-5)
    assert np.isnan(token_losses(model, PROMPT[:, :1])).all()


@pytest.mark.parametrize("batch_size", [3, 32])
def test_a_masked_model_is_asked_for_one_hidden_token_at_a_time(batch_size: int) -> None:
    text = "the cat sat on the mat"
    tokenizer = Tokenizer.train([text * 20], 262).with_mask()
    cfg = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=16, d_vocab=tokenizer.d_vocab, causal=False)
    masked = AttentionOnlyTransformer(cfg, tokenizer)
    tokens = masked.to_tokens(text)[:, :9]
    tokens[0, 4] = tokenizer.mask_id
    expected: list[Any] = [np.nan] * 9
    for place in (1, 2, 3, 5, 6, 7, 8):
        hidden: Tensor = tokens.clone()
        hidden[0, place] = tokenizer.mask_id
        expected[place] = -masked(hidden)[0, place].log_softmax(-1)[tokens[0, place]].item()
    np.testing.assert_allclose(token_losses(masked, tokens, batch_size=batch_size), expected, rtol=1e-5)
    with without(masked, "0.1"):
        lesser = token_losses(masked, tokens)
    assert np.isnan(lesser[[0, 4]]).all() and not np.allclose(lesser[1:4], expected[1:4])
    assert masked_loss(masked, masked.to_tokens(text)[:, :9]).loss > 0
    with pytest.raises(ValueError, match="mask token"):
        token_losses(small(causal=False), PROMPT)


def test_hooks_by_hand_give_the_same(model: AttentionOnlyTransformer) -> None:
    def silence(z: Tensor, hook: object) -> Tensor:
        z[:, :, 2] = 0
        return z

    expected = model.run_with_hooks(PROMPT, fwd_hooks=[(hook_names.attn(1, hook_names.Z), silence)])
    with without(model, (1, 2)):
        torch.testing.assert_close(model(PROMPT), expected)
        stream = model.run_with_cache(PROMPT)[1]["resid_pre", 1]
        torch.testing.assert_close(model(PROMPT, start_at_layer=1, resid_pre=stream), expected)


def test_a_run_with_hooks_is_without_them_too(model: AttentionOnlyTransformer) -> None:
    """TransformerLens's `run_with_hooks` calls `forward` itself, past what is registered for calls of the model."""
    seen: list[Tensor] = []
    with without(model, ["0.1"]):
        expected = model(PROMPT)
        name = hook_names.attn(1, hook_names.PATTERN)
        logits = model.run_with_hooks(PROMPT, fwd_hooks=[(name, lambda pattern, hook: seen.append(pattern))])
        assert motif_scores(model, n_sequences=2)["induction"].shape == (2, 3)
    torch.testing.assert_close(logits, expected)
    assert len(seen) == 1 and (logits - model(PROMPT)).abs().max() > 1e-4


TEXT = "the cat sat on the mat and the dog sat on the cat"
OTHER = "so the cat sat down on the mat"
TOKENIZER = Tokenizer.train([f"{TEXT}. {OTHER}. " * 5], 275)


def worded(**rest: object) -> AttentionOnlyTransformer:
    torch.manual_seed(0)
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 3, "d_head": 8, "n_ctx": 48, "d_vocab": 275, **rest}
    return AttentionOnlyTransformer(ModelConfig(**sizes), TOKENIZER).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def read() -> AttentionOnlyTransformer:
    return worded()


def test_losses_of_a_run_without_heads_are_those_of_ablate(read: AttentionOnlyTransformer):
    runs = compare_runs(run_prompt(read, TEXT), run_prompt(read, TEXT, ablated=["1.2", "0.1"]))
    expected = ablate(read, TEXT, ["0.1", "1.2"])
    assert expected.clean_loss_per_token is not None and expected.ablated_loss_per_token is not None
    losses = runs.losses()
    np.testing.assert_allclose(losses.left[1:], expected.clean_loss_per_token[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(losses.right[1:], expected.ablated_loss_per_token[0].numpy(), atol=1e-5)
    frame = losses.to_frame()
    assert runs.aligned and np.isnan(frame["difference"][0]) and runs.right.ablated == ((0, 1), (1, 2))
    np.testing.assert_allclose(frame["difference"][1:].mean(), expected.change, atol=1e-5)
    with refused("run_prompt(…, losses=True)"):
        compare_runs(run_prompt(read, TEXT, losses=False), runs.right).losses()


@pytest.mark.parametrize("quantity", ["attention", "weighted", "scores"])
def test_the_difference_of_two_maps_is_that_of_two_runs(read: AttentionOnlyTransformer, quantity: str):
    maps = []
    for hooks in ([], [("blocks.0.attn.hook_z", _without_head_1)]):
        with read.hooks(fwd_hooks=hooks), torch.no_grad():
            _, cache = read.run_with_cache(read.to_tokens(TEXT))
        pattern, scores = (cache[f"blocks.1.attn.hook_{name}"][0, 0] for name in ("pattern", "attn_scores"))
        weighted = pattern * cache["blocks.1.attn.hook_v"][0, :, 0].norm(dim=-1)
        maps.append({"attention": pattern, "weighted": weighted, "scores": scores}[quantity].numpy())
    seen = np.tril(np.ones_like(maps[0])) > 0
    expected = np.full_like(maps[0], np.nan)
    expected[seen] = maps[1][seen] - maps[0][seen]
    runs = compare_runs(run_prompt(read, TEXT), run_prompt(read, TEXT, ablated=["0.1"]))
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


def test_two_texts_are_compared_where_their_positions_correspond(read: AttentionOnlyTransformer):
    runs = compare_runs(run_prompt(read, TEXT), run_prompt(read, OTHER))
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
    read: AttentionOnlyTransformer,
):
    left, right = run_prompt(read, "the cat sat"), run_prompt(read, "the cat the")
    n = left.patterns.n_pos
    assert right.patterns.n_pos == n and compare_runs(left, right).positions == tuple((i, i) for i in range(n))
    assert len(compare_runs(left, right, one_tokenizer=False).positions) < n


def test_one_text_in_different_tokens_is_not_compared(read: AttentionOnlyTransformer):
    other = AttentionOnlyTransformer(
        ModelConfig(n_layers=1, d_model=16, n_heads=3, d_head=8, n_ctx=200, d_vocab=260), Tokenizer.train([OTHER], 260)
    )
    runs = compare_runs(run_prompt(read, TEXT), run_prompt(other, TEXT), one_tokenizer=False)
    assert runs.positions == () and not runs.aligned
    with refused("different tokens", str(runs.right.patterns.n_pos)):
        runs.maps("0.0")


def test_what_is_not_there_is_refused(read: AttentionOnlyTransformer):
    run = run_prompt(read, TEXT)
    with refused("head 2.0"):
        run.map("2.0")
    with refused("quantity='norms'", "'weighted'"):
        run.map("1.0", "norms")
