"""Lenses against models that stop where they read, and the sum of what all heads add; Jacobians against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths import direct_logit_attribution, expand, head_lens, logit_jacobian, logit_lens
from tests.paths.conftest import KINDS
from tests.small_models import MakeModel

FAMILY: dict[str, dict[str, Any]] = {
    "mhsa": {"n_layers": 3, "bias": True},
    "mssa, positions in queries and keys": {"n_layers": 3, "attention": "mssa", "bias": True, "positions": "qk"},
    "no norm": {"n_layers": 3, "norm": None},
    "with MLPs": {"n_layers": 3, "d_mlp": 9, "bias": True},
    "fixed": KINDS["fixed"] | {"n_layers": 3},
}


@pytest.mark.parametrize("kind", FAMILY)
@torch.no_grad()
def test_a_row_is_the_model_without_the_layers_after_it(
    make: MakeModel, tokens: Tensor, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "no norm":
        monkeypatch.setattr("aotlens.paths.lens._MOST_NUMBERS", 20)  # two positions at a time
    model = make(**FAMILY[kind])
    found = logit_lens(model, tokens, k=4)
    own = model(tokens[None])[0].log_softmax(-1)
    for layer in range(4):

        def silent(x: Tensor, hook: Any) -> Tensor:
            return torch.zeros_like(x)

        after = range(layer, 3)
        hooks = [(hook_names.block(at, "hook_attn_out"), silent) for at in after]
        hooks += [(hook_names.mlp_out(at), silent) for at in after if "d_mlp" in FAMILY[kind]]
        log_p = model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0].log_softmax(-1)  # type: ignore[arg-type]
        top = log_p.topk(4, -1)
        np.testing.assert_array_equal(found.tokens[layer], top.indices)
        np.testing.assert_allclose(found.probabilities[layer], top.values.exp(), rtol=1e-5)
        kl = (own.exp() * (own - log_p)).sum(-1)
        np.testing.assert_allclose(found.kl[layer], kl, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.loss[layer, :-1], -log_p[range(4), tokens[1:]], rtol=1e-5)
        order = log_p.argsort(-1, descending=True).tolist()
        ranks = [row.index(int(choice)) for row, choice in zip(order, own.argmax(-1), strict=True)]
        assert found.rank[layer].tolist() == ranks
    assert np.isnan(found.loss[:, -1]).all() and (found.rank[-1] == 0).all() and (found.kl[-1] == 0).all()
    for at, settled in enumerate(found.settled):
        assert (found.rank[settled:, at] == 0).all() and (settled == 0 or found.rank[settled - 1, at] > 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAMILY)
def test_what_heads_promote_is_their_direct_contribution(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**FAMILY[kind])
    found = head_lens(model, tokens, 2, k=9)
    for output in range(9):
        exact = direct_logit_attribution(model, tokens, output).heads[..., 2]
        mean = torch.stack([direct_logit_attribution(model, tokens, each).heads[..., 2] for each in range(9)]).mean(0)
        for tokens_of, values in ((found.promoted, found.added), (found.suppressed, found.taken)):
            mine = np.where(tokens_of == output, values, 0).sum(-1)
            np.testing.assert_allclose(mine, exact - mean, rtol=0, atol=1e-9)
    assert (np.diff(found.added) <= 0).all() and (np.diff(found.taken) >= 0).all()
    np.testing.assert_array_equal(head_lens(model, tokens, -3, k=2).promoted, found.promoted[..., :2])


def held(model: AttentionOnlyTransformer, tokens: Tensor, layer: int) -> Any:
    """Logits as a function of the stream before a layer, by hooks that put back patterns, scales and MLPs."""
    _, cache = model.run_with_cache(tokens[None], return_cache_object=False)
    names = [hook_names.FINAL_SCALE]
    for at in range(layer, 3):
        names += [hook_names.attn(at, hook_names.PATTERN), hook_names.norm_scale(at), hook_names.mlp_out(at)]
    hooks = [(name, lambda x, hook: cache[hook.name].detach()) for name in names if name in cache]

    def run(stream: Tensor) -> Tensor:
        name = hook_names.resid_pre(layer) if layer < 3 else hook_names.resid_post(2)
        return model.run_with_hooks(tokens[None], fwd_hooks=[(name, lambda x, hook: stream[None]), *hooks])[0]

    return run, cache[hook_names.resid_pre(layer) if layer < 3 else hook_names.resid_post(2)][0].detach()


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_frozen_jacobian_is_autograd_with_patterns_and_scales_held(
    make: MakeModel, tokens: Tensor, kind: str, layer: int
) -> None:
    model = make(**FAMILY[kind])
    run, stream = held(model, tokens, layer)
    for target, at in ((3, -1), ((3, 5), 2)):
        found = logit_jacobian(model, tokens, target, layer=layer, at=at)
        leaf = stream.clone().requires_grad_()
        row = run(leaf)[at]
        (gradient,) = torch.autograd.grad(row[3] - (row[5] if target != 3 else 0), leaf)
        np.testing.assert_allclose(found.frozen, gradient, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.by_order.sum(0), found.frozen, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.by_order[0], found.direct, rtol=0, atol=1e-12)
        assert found.by_head.shape[:2] == (3 - layer, model.cfg.n_heads)
        # The function is affine: a step of any length does exactly what the gradient says.
        step = torch.linspace(-3, 3, 7, dtype=torch.float64)
        moved = stream.clone()
        moved[1] += step
        change = run(moved)[at] - run(stream)[at]
        expected = float(change[3] - (change[5] if target != 3 else 0))
        assert found.effect(step.numpy()).frozen[1] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", FAMILY)
@torch.no_grad()
def test_beside_it_stands_the_models_own_gradient(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**FAMILY[kind])
    found = logit_jacobian(model, tokens, 4, layer=1, at=3)
    step = torch.linspace(-1, 1, 7, dtype=torch.float64)
    for position in (0, 3):
        ends = []
        for size in (1e-5, -1e-5):

            def moved(x: Tensor, hook: Any, at: int = position, size: float = size) -> Tensor:
                x = x.clone()
                x[0, at] += size * step
                return x

            ends.append(model.run_with_hooks(tokens[None], fwd_hooks=[(hook_names.resid_pre(1), moved)])[0, 3, 4])
        expected = float(ends[0] - ends[1]) / 2e-5
        assert found.effect(step.numpy()).moving[position] == pytest.approx(expected, abs=1e-6)
    assert not found.frozen[4].any() and not found.moving[4].any()  # a later position


def test_a_part_by_a_head_is_all_that_goes_through_it_first(make: MakeModel, tokens: Tensor) -> None:
    """Of one layer what a head reads goes to the read-out alone: the value path of the head, by the expansion."""
    model = make(n_layers=1, norm=None)
    found = logit_jacobian(model, tokens, 3, at=2)
    expansion = expand(model, tokens)
    embedded = expansion.frozen.embedded
    for head in range(model.cfg.n_heads):
        through = float((torch.from_numpy(found.by_head[0, head]) * embedded).sum())
        bias = float((expansion.frozen.patterns[0, head, 2].sum() * expansion.frozen.v_bias[0, head])
                     @ expansion.frozen.W_O[0, head] @ expansion.frozen.R[:, 3])  # fmt: skip
        assert through + bias == pytest.approx(float(direct_logit_attribution(model, tokens, 3).heads[0, head, 2]))


def test_what_there_is_not_is_refused(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    for work, words in (
        (lambda: logit_lens(model, tokens, k=0), "k"),
        (lambda: logit_lens(model, tokens, k=10), "k"),
        (lambda: logit_lens(model, tokens.expand(2, -1)), "one prompt"),
        (lambda: logit_lens(make(read_out="classes", d_out=4, pooling="mean", causal=False), tokens), "read_out"),
        (lambda: head_lens(model, tokens, 5), "position"),
        (lambda: logit_jacobian(model, tokens, 3, layer=3), "layer"),
        (lambda: logit_jacobian(model, tokens, 3, at=5), "at"),
        (lambda: logit_jacobian(model, tokens, 11), "target 11"),
        (lambda: logit_jacobian(model, tokens, 3).effect(np.ones(3)), r"step: expected \[7\]"),
    ):
        with pytest.raises(ValueError, match=words):
            work()
