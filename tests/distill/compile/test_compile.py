"""Compiled networks compute what torch computes, within what is proven; and have the heads that are claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from aotlens.distill import compile_ffn, read_ffn
from aotlens.distill.compile.layers import heads_needed, stream_width
from tests.distill.compile.networks import mlp, networks, uniform
from tests.messages import says

CONSTRUCTIONS = ("lean", "narrow", "paper")
GAP = 0.27846454276107380  # W(1/e): scipy.special.lambertw(1 / math.e)


def compile_within_reach(network, *, tolerance, **kwargs):
    """At the tolerance asked, or, where float64 cannot reach it, at the first that it can, doubling."""
    for doubled in range(200):
        try:
            return compile_ffn(network, tolerance=tolerance * 2.0**doubled, **kwargs)
        except ValueError as refusal:
            says(str(refusal), "tolerance=", "float64")
    raise AssertionError("no tolerance is within reach")


@settings(max_examples=40)
@given(
    network=networks(),
    construction=st.sampled_from(CONSTRUCTIONS),
    log_bound=st.floats(-2, 4),
    log_tolerance=st.floats(-9, 1),
    auxiliary=st.sampled_from(["unit", "vector", "small last", "large"]),
    n_tokens=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
@pytest.mark.long
def test_never_farther_from_torch_than_proven(
    network, construction, log_bound, log_tolerance, auxiliary, n_tokens, seed
):
    d_model = stream_width(read_ffn(network), construction)
    v = torch.randn(d_model, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    if auxiliary == "small last":
        v[-1] = 1e-6
    if auxiliary == "large":
        v *= 1e4
    bound = 10**log_bound
    compiled = compile_within_reach(
        network,
        bound=bound,
        tolerance=10**log_tolerance,
        construction=construction,
        auxiliary="unit" if auxiliary == "unit" else v,
        n_tokens=n_tokens,
    )
    assert 0 < compiled.proven_error <= compiled.tolerance
    points = compiled.adversarial_points(100, seed)
    assert points.abs().max() <= bound
    error = (compiled(points) - network(points)).abs().max()
    assert error <= compiled.proven_error
    assert compiled.measured_error(points) <= compiled.proven_error


@settings(max_examples=25)
@given(network=networks((nn.SiLU,)), construction=st.sampled_from(CONSTRUCTIONS))
def test_silu_is_exact_to_rounding(network, construction):
    compiled = compile_ffn(network, bound=2, tolerance=1.0, construction=construction)
    assert compiled.approximation_error == 0 and set(compiled.etas) == {1.0}
    x = uniform(50, compiled.ffn.d_in, 2)
    out = network(x)
    scale = 2.0
    for linear in network:
        if isinstance(linear, nn.Linear):
            bias = 0.0 if linear.bias is None else float(linear.bias.abs().max())
            # What a layer is given was rounded beside numbers of size 1 at least, however small it is.
            scale = max(scale, 1.0) * float(linear.weight.abs().sum(1).max()) + bias
    assert_close(compiled(x), out, atol=5e-14 * max(scale, 1.0), rtol=1e-12)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_against_extended_precision(construction: str):
    """The proof is of exact arithmetic too: 64 bits of mantissa, no torch."""
    network = mlp(4, 7, 5, 3)
    compiled = compile_ffn(network, bound=3, tolerance=1e-7, construction=construction)  # type: ignore[arg-type]
    x = compiled.adversarial_points(400)
    h = x.numpy().astype(np.longdouble)
    for module in network:
        if isinstance(module, nn.Linear):
            h = h @ module.weight.numpy().astype(np.longdouble).T + module.bias.numpy().astype(np.longdouble)
        else:
            h = np.maximum(h, 0)
    assert np.abs(compiled(x).numpy() - h).max() <= compiled.proven_error


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_one_relu_by_hand(construction: str):
    """ReLU(x) on the line: the error at |x| = 1.2785 η is W(1/e) η, which is all of the tolerance."""
    compiled = compile_ffn(
        [(torch.eye(1), None), (torch.eye(1), None)],
        activation="relu", bound=1, tolerance=1e-3, construction=construction,  # type: ignore[arg-type]
    )  # fmt: skip
    (eta,) = compiled.etas
    assert math.isclose(eta * GAP, 1e-3, rel_tol=1e-5)
    worst = torch.tensor([[1 + GAP], [-1 - GAP]], dtype=torch.float64) * eta
    assert_close(compiled(worst), torch.tensor([[eta], [-GAP * eta]], dtype=torch.float64), atol=1e-15, rtol=0)
    assert_close(compiled.error(worst), torch.full((2, 1), GAP * eta, dtype=torch.float64), atol=1e-15, rtol=0)
    assert compiled.measured_error() > 0.999e-3


def test_the_bound_by_hand():
    """Two ReLU layers: 0.2785 (η_1 · |W_2||W_3| + η_2 · |W_3|), each half of the tolerance."""
    w1, w2, w3 = torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0], [-3.0]]), torch.tensor([[-5.0]])
    compiled = compile_ffn([(w1, None), (w2, None), (w3, None)], activation="relu", bound=1, tolerance=0.2)
    eta_1, eta_2 = compiled.etas
    assert math.isclose(GAP * eta_1 * (1 + 3) * 5, 0.1, rel_tol=1e-5)
    assert math.isclose(GAP * eta_2 * 5, 0.1, rel_tol=1e-5)
    assert math.isclose(compiled.approximation_error, 0.2, rel_tol=1e-5)
    assert 0 < compiled.rounding_error < 1e-11


def test_the_bound_is_reached_where_it_can_be():
    """One layer, W ≤ D and outputs of one sign: all units can err at once."""
    network = mlp(6, 4, 1)
    network[2].weight.abs_()
    network[0].weight *= 3
    network[0].bias *= 0.1
    compiled = compile_ffn(network, bound=1, tolerance=1e-2)
    assert compiled.measured_error() > 0.999 * compiled.proven_error


@pytest.mark.parametrize(
    ("widths", "heads"),
    [
        ((3, 5, 2), {"lean": (6,), "narrow": (5 + 3 + 1,), "paper": (6 + 2 * 4,)}),
        ((3, 5, 5, 2), {"lean": (6, 6), "narrow": (8, 5 + 5 + 1), "paper": (6 + 2 * 4, 3 * 6)}),
        ((5, 2, 4, 3), {"lean": (3, 5), "narrow": (7, 4 + 2 + 1), "paper": (3 + 2 * 6, 5 + 2 * 3)}),
    ],
)
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_heads_are_counted_by_their_weights(widths, heads, construction):
    compiled = compile_ffn(mlp(*widths), bound=1, tolerance=0.1, construction=construction)
    assert compiled.heads_per_layer == heads[construction]
    assert compiled.n_heads == sum(heads[construction])
    model = compiled.model
    circuits = model.W_V @ model.W_O  # an oracle: a head that counts has a W_OV that is not 0
    assert tuple((circuits.abs().amax((-1, -2)) > 0).sum(-1).tolist()) == heads[construction]
    assert model.cfg.d_model == max(widths if construction == "paper" else (*widths[:-2], widths[-1])) + 2
    assert model.cfg.attn_scale is None and not model.cfg.bias and model.cfg.norm is None
    if construction != "lean":
        assert model.cfg.d_head == 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_heads_are_foretold_with_and_without_biases(construction, bias):
    compiled = compile_ffn(mlp(3, 5, 4, 2, bias=bias), bound=1, tolerance=0.1, construction=construction)
    assert heads_needed(compiled.ffn, construction) == compiled.heads_per_layer
    if construction == "paper":
        assert compiled.heads_per_layer == (5 + 1 + 2 * 4, 4 + bias + 2 * 6)


def test_units_without_weights_need_no_head():
    network = mlp(3, 5, 2)
    network[0].weight[1:3] = 0.0
    network[0].bias[1:3] = 0.0
    assert compile_ffn(network, bound=1, tolerance=0.1).heads_per_layer == (3 + 1,)
    network[2].weight[:, 4] = 0.0
    assert compile_ffn(network, bound=1, tolerance=0.1).heads_per_layer == (2 + 1,)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("auxiliary", ["unit", "vector"])
def test_dense_attention_with_the_mask(construction: str, auxiliary: str):
    """The formula of Theorem 4.1 in numpy, heads one by one, on the stacked weights."""
    network = mlp(3, 4, 4, 2)
    v = torch.tensor([0.5, -1.0, 2.0, 3.0, 0.25, -0.7], dtype=torch.float64)
    compiled = compile_ffn(
        network, bound=2, tolerance=1e-3, n_tokens=4,
        construction=construction, auxiliary=v if auxiliary == "vector" else "unit",  # type: ignore[arg-type]
    )  # fmt: skip
    model, x = compiled.model, uniform(4, 3, 2)
    stream = compiled.embed(x[None])[0].numpy()
    mask = np.array(model.cfg.attn_mask)
    for layer in range(model.cfg.n_layers):
        added = np.zeros_like(stream)
        for head in range(model.cfg.n_heads):
            q, k, value, out = (getattr(model, f"W_{name}")[layer, head].numpy() for name in "QKVO")
            scores = (stream @ q) @ (stream @ k).T / math.sqrt(model.cfg.d_head)
            scores = np.where(mask[head % len(mask)], scores, -np.inf)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            added += weights / weights.sum(1, keepdims=True) @ (stream @ value) @ out
        stream = stream + added
    assert_close(torch.from_numpy(stream[1:, :2]), compiled(x), atol=1e-12, rtol=0)
    assert_close(torch.from_numpy(stream[0]), compiled.auxiliary, atol=1e-12, rtol=0)  # v passes through unchanged


def test_tokens_see_themselves_and_the_auxiliary_token_only():
    compiled = compile_ffn(mlp(3, 4, 2), bound=2, tolerance=1e-3, n_tokens=5)
    mask = torch.tensor(compiled.model.cfg.attn_mask)
    itself = torch.eye(6, dtype=torch.bool)
    with_auxiliary = itself.clone()
    with_auxiliary[:, 0] = True
    assert mask.shape == (5, 6, 6)
    assert torch.equal(mask[0], itself) and all(torch.equal(head, with_auxiliary) for head in mask[1:])
    x = uniform(5, 3, 2)
    other = x.clone()
    other[2] = 1.5
    changed = (compiled(x) != compiled(other)).any(1)
    assert changed.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 3000])
def test_any_number_of_rows(n: int):
    network = mlp(3, 4, 2)
    compiled = compile_ffn(network, bound=2, tolerance=1e-6)
    x = uniform(n, 3, 2)
    assert_close(compiled(x), network(x), atol=1e-6, rtol=0)


def test_scores_are_pre_activations_over_eta():
    """W_Q undoes the model's scale."""
    network = mlp(3, 4, 2)
    compiled = compile_ffn(network, bound=2, tolerance=1e-3, n_tokens=5)
    x = uniform(5, 3, 2)
    _, cache = compiled.model.run_with_cache(compiled.embed(x[None]))
    scores = cache["attn_scores", 0][0, 1:, 1:, 0]  # [unit, token]: of the auxiliary key
    assert_close(scores.T, -network[0](x) / compiled.etas[0], atol=1e-9, rtol=1e-12)
    pattern = cache["pattern", 0][0, 1:, 1:, 1:].diagonal(dim1=1, dim2=2)
    assert_close(pattern.T, torch.sigmoid(network[0](x) / compiled.etas[0]), atol=1e-12, rtol=1e-12)


def test_the_corollary_needs_its_correction():
    """With the paper's W_V = [b; 0] the auxiliary token's value is not 0 and the result is wrong."""
    network = mlp(3, 4, 2)
    v = torch.tensor([1.0, 2.0, -1.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    compiled = compile_ffn(network, bound=2, tolerance=1e-3, auxiliary=v, construction="paper")
    x = uniform(20, 3, 2)
    assert_close(compiled(x), network(x), atol=1e-3, rtol=0)
    values = torch.einsum("m,lhmd->lhd", v, compiled.model.W_V)
    assert values.abs().max() < 1e-14
    compiled.model.blocks[0].attn.W_V[:, -1] = 0.0
    assert (compiled(x) - network(x)).abs().max() > 0.01


def test_many_layers_and_a_wide_one():
    deep = mlp(2, *[3] * 12, 1)
    compiled = compile_ffn(deep, bound=1, tolerance=1e-4)
    assert compiled.measured_error(n=300) <= compiled.proven_error <= 1e-4
    wide = mlp(2, 150, 1)
    assert compile_ffn(wide, bound=1, tolerance=1e-4).measured_error(n=300) <= 1e-4


def test_the_table():
    compiled = compile_ffn(mlp(3, 5, 5, 2), bound=1, tolerance=0.1, construction="paper")
    frame = compiled.to_frame()
    assert frame["heads"].tolist() == [14, 18] and frame["paper_heads"].tolist() == [6, 6]
    assert frame["units"].tolist() == [5, 5] and frame["eta"].tolist() == list(compiled.etas)
    assert frame["unit_error"].tolist() == pytest.approx([GAP * eta for eta in compiled.etas], rel=1e-9)


def test_units_that_read_nothing_have_an_eta_within_the_tolerance():
    """Found by hypothesis: nothing reaches this layer, but its own error reaches the output."""
    compiled = compile_ffn(
        [(torch.zeros(1, 1), None), (torch.ones(1, 1), None)], activation="relu", bound=1, tolerance=0.1
    )
    assert compiled.proven_error <= 0.1 and compiled.measured_error(n=10) == 0


def test_what_silu_makes_of_earlier_errors_by_hand():
    """SiLU is steepest, 1.0998, at 2.3994: there a ReLU unit's error grows by as much, and the bound says so."""
    network = mlp(1, 1, 1, 1)
    network[3] = nn.SiLU()
    for linear, bias in ((network[0], 0.0), (network[2], 2.3993572805), (network[4], 0.0)):
        linear.weight.fill_(1.0)
        linear.bias.fill_(bias)
    compiled = compile_ffn(network, bound=1, tolerance=1e-4)
    assert math.isclose(compiled.etas[0] * GAP * 1.0998393, 1e-4, rel_tol=1e-5) and compiled.etas[1] == 1
    assert 0.999e-4 < compiled.measured_error(n=200) <= compiled.proven_error


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_the_rounding_that_a_large_auxiliary_vector_leaves_is_in_the_bound(construction: str):
    network = mlp(3, 4, 4, 2, activation=nn.SiLU)
    points = uniform(500, 3, 2)
    v = torch.tensor([1.3, -0.7, 2.1, 0.9, -1.1, 0.0], dtype=torch.float64) * 1e9
    v[-1] = 0.3
    plain = compile_ffn(network, bound=2, tolerance=1e-2, construction=construction)  # type: ignore[arg-type]
    large = compile_ffn(network, bound=2, tolerance=1e-2, construction=construction, auxiliary=v)  # type: ignore[arg-type]
    assert plain.proven_error < large.measured_error(points) <= large.proven_error
