"""Models with FFNs in heads' places: a perfect copy changes nothing, and ablations are those of `aotlens.heads`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.checkpoints import CheckpointInfo
from aotlens.distill import distill_heads, substitute, substitution_costs, substitution_hooks, token_errors
from aotlens.distill.heads.substitution import replacement_hooks
from aotlens.heads import ablate
from aotlens.heads.reader import HeadReader
from tests.messages import refused

from .conftest import FAST, build, random_windows


def assert_same(first: Tensor, second: Tensor) -> None:
    torch.testing.assert_close(first, second, atol=1e-12, rtol=1e-12)


@pytest.fixture
def found(model, windows):
    return distill_heads(model, windows, [0, 4], seeds=2, **FAST)


@pytest.mark.parametrize("kind", ["mhsa", "mssa", "gpt"])
def test_a_perfect_copy_changes_nothing(kind):
    """Heads that attend to themselves are linear maps of their input; width 0 finds them."""
    fields = {"d_mlp": 16} if kind == "gpt" else {"attention": kind}
    pattern = torch.eye(12).expand(2, 2, 12, 12)
    model = build(phi="fixed", fixed_pattern="given", pattern=pattern, bias=True, **fields)
    found = distill_heads(model, (random_windows(200), random_windows(20, seed=1)), 0, **FAST)
    assert found.error.max() < 1e-20
    tokens = random_windows(3, seed=5)
    copy = substitute(model, found)
    torch.testing.assert_close(copy(tokens), model(tokens), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(copy.loss_per_token(tokens), model.loss_per_token(tokens), atol=1e-9, rtol=1e-9)


def test_a_perfect_copy_of_any_head_changes_nothing(model):
    """What the head writes, put back where it was, through the hooks that FFNs go through."""
    tokens = random_windows(3, seed=5)
    clean, cache = model.run_with_cache(tokens)
    read = HeadReader.of(model).read(tokens, [0, 1])

    def copy(head, x: Tensor) -> Tensor:
        torch.testing.assert_close(x, read[head[0]][0])
        return cache["z", head[0]][:, :, head[1]]

    heads = [(0, 1), (1, 0), (1, 1)]
    assert_same(model.run_with_hooks(tokens, fwd_hooks=replacement_hooks(model, heads, copy)), clean)
    assert not any(point.has_hooks() for point in model.hook_dict.values())


def test_only_the_chosen_heads_change(model, found):
    tokens = random_windows(3, seed=5)
    copy = substitute(model, found, [(1, 0)], width=4, seed=1)
    logits, cache = copy.run_with_cache(tokens)
    _, clean = model.run_with_cache(tokens)
    x = model.blocks[1].ln1(clean["resid_pre", 1])
    expected = clean["z", 1].clone()
    expected[:, :, 0] = found.predict_z((1, 0), x, width=4, seed=1)
    torch.testing.assert_close(cache["z", 1], expected)
    torch.testing.assert_close(cache["z", 0], clean["z", 0])
    by_hooks = model.run_with_hooks(tokens, fwd_hooks=substitution_hooks(model, found, [(1, 0)], width=4, seed=1))
    torch.testing.assert_close(logits, by_hooks)
    assert not torch.allclose(logits, model(tokens))


def test_the_copy_takes_hooks_as_a_model_does(model, found):
    tokens = random_windows(3, seed=5)
    copy = substitute(model, found, width=4)
    plain = copy(tokens)
    zero = copy.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: 0 * z)])
    assert not torch.allclose(zero, plain)
    copy.reset_hooks()
    torch.testing.assert_close(copy(tokens), plain)
    ablated = ablate(copy, tokens, [(1, 0), (1, 1)])
    assert torch.isfinite(ablated.ablated_loss_per_token).all() and ablated.change != 0
    assert not any(point.has_hooks() for point in model.hook_dict.values())


def test_later_ffns_read_what_earlier_ones_have_changed(model, found):
    tokens = random_windows(3, seed=5)
    _, cache = substitute(model, found, width=4).run_with_cache(tokens)
    x = model.blocks[1].ln1(cache["resid_pre", 1])
    torch.testing.assert_close(cache["z", 1][:, :, 1], found.predict_z((1, 1), x, width=4))


def test_token_errors_add_up_to_the_error(model, found, windows):
    for head in found.heads:
        error, scale = token_errors(model, found, windows[2], head, width=4, seed=0)
        assert error.shape == windows[2].shape
        expected = found.error[found.place(head), 1, 0]
        assert float(error.sum() / scale.sum()) == pytest.approx(expected, rel=1e-5)


def test_costs_alone_are_ablations(model, found):
    """Zero as `aotlens.heads.ablate` has it; the mean of these very tokens, put in the means' place, its `mean`."""
    tokens = random_windows(6, seed=5)
    costs = substitution_costs(model, found, tokens, width=4, batch_size=4)
    for place, head in enumerate(found.heads):
        assert costs.alone[place, 2] == pytest.approx(ablate(model, tokens, [head]).change)
    assert costs.by_error[2, -1] == pytest.approx(ablate(model, tokens, found.heads).change)
    _, cache = model.run_with_cache(tokens)
    mean = cache["z", 1][:, :, 0].mean((0, 1))
    hooks = replacement_hooks(model, [(1, 0)], lambda head, x: mean)
    loss = model.run_with_hooks(tokens, return_type="loss", fwd_hooks=hooks)
    assert float(loss) == pytest.approx(ablate(model, tokens, [(1, 0)], "mean", reference=tokens).ablated_mean)


def test_costs_by_order(model, found):
    tokens = random_windows(6, seed=5)
    seen: list[tuple[int, int]] = []
    costs = substitution_costs(
        model, found, tokens, width=4, n_random=2, progress=lambda done, total: seen.append((done, total))
    )
    assert costs.sizes == (1, 2, 4) and seen[-1][0] == seen[-1][1] == len(seen)
    first = found.place(found.order(4)[0])
    assert costs.by_error[0, 0] == pytest.approx(costs.alone[first, 0])
    assert costs.reverse[0] == pytest.approx(costs.alone[found.place(found.order(4)[-1]), 0])
    assert costs.by_cost[0] == pytest.approx(costs.alone[:, 0].min())
    everything = [costs.by_error[0, -1], costs.reverse[-1], costs.by_cost[-1], *costs.random[:, -1]]
    assert everything == pytest.approx([everything[0]] * 5)
    both = substitute(model, found, found.order(4)[:2], width=4)
    expected = float((both.loss_per_token(tokens) - model.loss_per_token(tokens)).mean())
    assert costs.by_error[0, 1] == pytest.approx(expected)
    assert -1 <= costs.rank_correlation <= 1
    assert len(costs.curve_frame()) == 3 * (3 + 2 + 2) and len(costs.to_frame()) == 4
    assert costs.mean_cost(costs.random).shape == (2,)
    with pytest.raises(ValueError, match="sizes"):
        substitution_costs(model, found, tokens, width=4, sizes=[9])


def test_a_model_that_sees_later_tokens_is_judged_by_divergence():
    model = build(causal=False, bias=True)
    text = random_windows(100), random_windows(20, seed=1)
    found = distill_heads(model, text, 4, seeds=1, **FAST)
    tokens = random_windows(4, seed=5)
    costs = substitution_costs(model, found, tokens)
    assert costs.measure == "kl" and costs.clean_loss is None and (costs.alone >= 0).all()
    p, q = (torch.log_softmax(m(tokens), -1) for m in (model, substitute(model, found)))
    expected = torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(-1).mean()
    assert costs.by_error[0, -1] == pytest.approx(float(expected))


def test_mistakes_are_named(model, found, windows):
    with refused("width=None", "0, 4"):
        substitute(model, found)
    with pytest.raises(ValueError, match=r"seed=7: expected .* 0 to 1"):
        substitute(model, found, width=4, seed=7)
    with pytest.raises(ValueError, match=r"head 5\.0: this model has"):
        substitute(model, found, [(5, 0)], width=4)
    with refused("layer 1", "layers 0–0"):
        substitute(build(n_layers=1), found, width=4)
    few = distill_heads(model, (random_windows(60), random_windows(9, seed=1)), 4, heads=[(0, 1)], seeds=1, **FAST)
    with refused("head 1.1", "0.1"):
        substitute(model, few, [(1, 1)])
    assert np.isfinite(few.error).all()
    other = dataclasses.replace(found, model_name="other")
    assert_same(*(substitute(model, one, width=4)(windows[2]) for one in (found, other)))  # a model without a name
    model.card = CheckpointInfo(name="own")
    with refused("other", "own"):
        substitute(model, other, width=4)
    substitute(model, dataclasses.replace(other, model_name=""), width=4)
