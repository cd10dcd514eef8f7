"""Heads of a compiled model, their roles, patterns and gates, and the error over a range, against the model and
torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

from aotlens.distill.compile import CompiledFFN, attention_masks, compile_ffn, describe_heads, head_at_input, head_gate
from aotlens.distill.compile.curves import error_curve, error_surface, find_kinks
from aotlens.distill.compile.described import head_roles
from aotlens.distill.compile.examples import (
    absolute_value,
    fit,
    interpolate,
    on_each_coordinate,
    ramp,
    random_network,
    sawtooth,
    with_activation,
)
from aotlens.distill.compile.ffn import FeedForward
from aotlens.distill.compile.layers import heads_needed
from tests.messages import refused

CONSTRUCTIONS = ("lean", "narrow", "paper")


def small(d_in: int = 2) -> FeedForward:
    return random_network(d_in, width=4, depth=3, seed=3)


# ── networks ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_drawn_function_goes_through_its_points_and_is_straight_between():
    x, y = [1.5, -2.0, 0.25, 0.0], [0.5, 1.0, -3.0, 2.0]
    f = interpolate(x, y)
    t = torch.linspace(-4, 4, 1001, dtype=torch.float64)
    order = np.argsort(x)
    expected = np.interp(t.numpy(), np.array(x)[order], np.array(y)[order])  # flat outside, too
    np.testing.assert_allclose(f(t[:, None])[:, 0].numpy(), expected, atol=1e-13)
    assert f.widths == (4,)
    assert interpolate([0, 1, 2], [0, 1, 2]).widths == (2,)  # the middle point is on the line
    assert float(interpolate([0, 1], [3, 3])(torch.zeros(1, 1, dtype=torch.float64))) == 3.0


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [([0], [1], "two points"), ([0, 0], [1, 2], "x = 0"), ([0, math.nan], [1, 2], "finite"), ([0, 1], [1], "1 y")],
)  # fmt: skip
def test_what_is_no_function_is_refused(x: list[float], y: list[float], why: str):
    with pytest.raises(ValueError, match=why):
        interpolate(x, y)


def test_the_examples_are_what_they_are_called():
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)[:, None]
    torch.testing.assert_close(absolute_value()(x), x.abs())
    torch.testing.assert_close(ramp(0.5)(x), (x / 0.5 + 0.5).clamp(0, 1))
    inside = torch.linspace(-1, 1, 2**6 + 1, dtype=torch.float64)[:, None]
    for depth in (1, 2, 4):
        teeth = sawtooth(depth)(inside)[:, 0]
        u = 2 ** (depth - 1) * (inside[:, 0] + 1) / 2
        torch.testing.assert_close(teeth, 1 - (2 * (u % 1) - 1).abs())
        assert sawtooth(depth)(torch.tensor([[-1.5], [1.5]], dtype=torch.float64)).abs().max() == 0
    pair = torch.randn(20, 2, dtype=torch.float64)
    torch.testing.assert_close(on_each_coordinate(sawtooth(2), 2)(pair), sum(sawtooth(2)(pair[:, [i]]) for i in (0, 1)))
    offset = interpolate([0, 1], [3, 4])
    torch.testing.assert_close(on_each_coordinate(offset, 2)(pair), sum(offset(pair[:, [i]]) for i in (0, 1)))
    knots = torch.linspace(-3, 3, 9, dtype=torch.float64)[:, None]
    torch.testing.assert_close(fit("square", width=8, bound=3)(knots), knots**2)
    torch.testing.assert_close(fit("sine", width=8, bound=3)(knots), torch.sin(torch.pi * knots), atol=1e-14, rtol=0)
    silu = with_activation(absolute_value(), "silu")
    torch.testing.assert_close(silu(x), torch.nn.functional.silu(x) + torch.nn.functional.silu(-x))


# ── η ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_other_etas_have_their_own_bound_which_holds(construction):
    first = compile_ffn(small(), bound=1.5, tolerance=1e-3, construction=construction)
    proven = [first.proven_error]
    for eta in (1e-6, 1e-2, 0.3):
        other = first.with_etas([eta] * 3)
        assert other.etas == (eta,) * 3 and other.tolerance == other.proven_error
        assert 0 < other.measured_error(n=300) <= other.proven_error
        proven.append(other.proven_error)
    assert proven[1] < proven[2] < proven[3] and first.with_etas(first.etas).proven_error == first.proven_error
    for etas, why in (
        ([0.1], "expected 3"),
        ([0.1, 0.0, 0.1], "layer 1"),
        ([0.1, 0.1, math.inf], "layer 2"),
        ([1e302] * 3, "hold"),
    ):
        with pytest.raises(ValueError, match=why):
            first.with_etas(etas)
    silu = compile_ffn(with_activation(small(), "silu"), bound=1.0, tolerance=1e-9)
    with pytest.raises(ValueError, match="SiLU"):
        silu.with_etas([0.1, 1.0, 1.0])


# ── roles ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("auxiliary", ["unit", "random"])
def test_every_head_writes_what_its_role_says(construction, auxiliary):
    v = "unit" if auxiliary == "unit" else torch.randn(6, generator=torch.Generator().manual_seed(0))
    compiled = compile_ffn(small(), bound=1.5, tolerance=1e-2, construction=construction, auxiliary=v, n_tokens=3)
    roles = head_roles(compiled)
    assert [sum(role.layer == layer for role in roles) for layer in range(3)] == list(compiled.heads_per_layer)
    assert compiled.heads_per_layer == heads_needed(compiled.ffn, construction)
    x = torch.tensor([[[0.3, -0.7], [1.2, 0.1], [-0.4, -1.5]]], dtype=torch.float64)
    _, cache = compiled.model.run_with_cache(compiled.embed(x))
    for role in roles:
        stream = cache[f"blocks.{role.layer}.hook_resid_pre"][0, 1:, :-1]
        read = stream @ role.reads
        if role.gated:
            weight = cache[f"blocks.{role.layer}.attn.hook_pattern"][0, role.head].diagonal()[1:]
            np.testing.assert_allclose(weight.numpy(), expit(read[:, 0].numpy() / role.eta), atol=1e-9)
            read = read * weight[:, None]
        z = cache[f"blocks.{role.layer}.attn.hook_z"][0, 1:, role.head]  # [pos, d_head]
        wrote = (z @ compiled.model.W_O[role.layer, role.head])[:, :-1]
        torch.testing.assert_close(wrote, read @ role.writes, atol=1e-9, rtol=0)
    units = [(role.layer, role.unit) for role in roles if role.job == "unit"]
    assert sorted(units) == [(layer, unit) for layer in range(3) for unit in range(4)]


def test_what_the_proof_needs_is_more_than_the_theorem_states():
    compiled = compile_ffn(small(), bound=1.0, tolerance=1e-2, construction="paper")
    assert compiled.heads_per_layer == (5 + 6, 5 + 10, 5 + 10)
    assert min(compiled.heads_per_layer) > max(4, 2) + 1


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────────────


def brute_kinks(ffn: FeedForward, bound: float) -> list[float]:
    """Where the gradient by autograd jumps, on a fine grid."""
    x = torch.linspace(-bound, bound, 40_001, dtype=torch.float64)[:, None].requires_grad_(True)
    (gradient,) = torch.autograd.grad(ffn(x).sum(), x)
    jumps = gradient[:, 0].diff().abs() > 1e-9
    return ((x[:-1, 0] + x[1:, 0]) / 2)[jumps].tolist()


@pytest.mark.parametrize("ffn", [sawtooth(3), random_network(1, width=5, depth=3, seed=1)], ids=["teeth", "random"])
def test_kinks_are_where_the_slope_jumps(ffn: FeedForward):
    found = find_kinks(ffn, 2.0)
    step = 4 / 40_000
    for at in brute_kinks(ffn, 2.0):
        assert np.abs(found.x - at).min() < 2 * step
    zero = [abs(float(ffn.pre_activations(torch.tensor([[x]]))[layer][0, unit])) for x, layer, unit in zip(found.x, found.layer, found.unit, strict=True)]  # fmt: skip # noqa: E501
    assert max(zero) < 1e-12
    assert (np.diff(found.x) >= 0).all()


def curve_of(compiled: CompiledFFN) -> None:
    curve = error_curve(compiled, 200)
    assert curve.error.max() <= compiled.proven_error
    x = torch.from_numpy(curve.x)[:, None]
    torch.testing.assert_close(torch.from_numpy(curve.model), compiled(x), atol=1e-13, rtol=0)
    torch.testing.assert_close(torch.from_numpy(curve.ffn), compiled.ffn(x), atol=0, rtol=0)
    assert list(curve.to_frame().columns) == ["x", "ffn", "model", "error"]
    assert curve.error.max() >= 0.9 * compiled.measured_error(n=600)


def test_the_curve_finds_errors_as_narrow_as_eta():
    curve_of(compile_ffn(absolute_value(), bound=2.0, tolerance=1e-7))
    curve_of(compile_ffn(interpolate([-1, 0, 1], [0, 1, 0]), bound=2.0, tolerance=1e-5, construction="paper"))
    silu = compile_ffn(with_activation(sawtooth(2), "silu"), bound=2.0, tolerance=1e-9)
    curve = error_curve(silu, 100)
    assert len(curve.kinks.x) == 0 and curve.error.max() <= silu.proven_error < 1e-10


def test_the_surface_is_the_curve_twice():
    f = absolute_value()
    compiled = compile_ffn(on_each_coordinate(f, 2), bound=1.0, tolerance=1e-2)
    surface = error_surface(compiled, 21)
    x = torch.from_numpy(surface.x)[:, None]
    ours = f(x)[:, 0]
    np.testing.assert_allclose(surface.ffn, (ours[:, None] + ours[None]).numpy(), atol=1e-15)
    assert (surface.error >= np.abs(surface.model - surface.ffn)).all()
    away = np.delete(np.delete(surface.error, 10, 0), 10, 1)
    assert away.max() < 0.1 * surface.error[10, 10]  # both ridges, which no other grid point is near
    assert 0.9 * compiled.measured_error(n=400) <= surface.error.max() <= compiled.proven_error
    one = surface.to_frame().query("x1 > 0.999 and abs(x2) < 1e-9").iloc[0]
    assert one.ffn == pytest.approx(1.0) and one.error == surface.error[10, 20]
    for call in (lambda: error_curve(compiled), lambda: find_kinks(compiled.ffn, 1.0)):
        with pytest.raises(ValueError, match="one number"):
            call()
    with pytest.raises(ValueError, match="two numbers"):
        error_surface(compile_ffn(f, bound=1.0, tolerance=1e-2))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("auxiliary", ["unit", "random"])
def test_a_heads_numbers_are_the_models(construction, auxiliary: str):
    network = random_network(1, width=3, depth=2, seed=1)
    compiled = compile_ffn(
        network, bound=2, tolerance=0.05, construction=construction, auxiliary=auxiliary, n_tokens=4
    ).with_etas([0.4, 0.4])
    wrote = [torch.zeros(compiled.model.cfg.d_model - 1, dtype=torch.float64).numpy() for _ in range(2)]
    for role in describe_heads(compiled).roles:
        result = head_at_input(compiled, (role.layer, role.head), [0.7])
        np.testing.assert_allclose(result.pattern.sum(1), 1.0, atol=1e-12)
        assert np.all(result.pattern[~result.visible] == 0)
        assert len(result.to_frame()) == result.visible.sum()
        wrote[role.layer] += result.wrote
        if role.eta is None:
            continue
        t = float(result.read[0])
        assert result.pattern[1, 1] == pytest.approx(1 / (1 + np.exp(-t / role.eta)), abs=1e-9)
        np.testing.assert_allclose(result.wrote, t * result.pattern[1, 1] * role.writes.numpy()[0], atol=1e-9)
        gate = head_gate(compiled, (role.layer, role.head), [0.7])
        np.testing.assert_allclose(gate.result, gate.read / (1 + np.exp(-gate.read / role.eta)), atol=1e-9)
        assert gate.at == pytest.approx(t) and (gate.gap is not None) == (role.job == "unit")
    # What a layer's heads write, and the stream before it, are the stream after it.
    _, cache = compiled.model.run_with_cache(
        compiled.embed(torch.tensor([[[0.7], [-2.0], [0.0], [2.0]]], dtype=torch.float64))
    )
    for layer in range(2):
        before, after = (cache[f"blocks.{layer}.hook_resid_{end}"][0, 1, :-1].numpy() for end in ("pre", "post"))
        np.testing.assert_allclose(before + wrote[layer], after, atol=1e-9)


def test_a_gate_is_silu_and_every_kind_of_mask_is_there_once():
    compiled = compile_ffn(interpolate([-1, 0, 1], [0, 1, 0]), bound=2, tolerance=0.05)
    gate = head_gate(compiled)
    t = torch.from_numpy(gate.t)
    silu = gate.eta * torch.nn.functional.silu(t / gate.eta)
    np.testing.assert_allclose(gate.t * gate.weight, silu, atol=1e-12)
    assert (torch.relu(t) - silu).max() <= gate.gap == pytest.approx(0.2785 * gate.eta, rel=1e-3)
    assert list(gate.to_frame().columns) == ["x", "t", "result"] and np.abs(gate.x).max() == 2
    masks = attention_masks(compiled)
    np.testing.assert_array_equal(masks.masks[0], np.eye(9, dtype=bool))
    assert masks.masks[1][1:, 0].all() and not masks.masks[1][1, 2] and not masks.masks[1][0, 1]
    assert masks.n_heads == (1, 3) and len(masks.to_frame()) == masks.masks.sum()
    smooth = compile_ffn(with_activation(compiled.ffn, "silu"), bound=2, tolerance=1e-9)
    assert head_gate(smooth).gap is None and describe_heads(smooth).kinks == ("",) * 4


@pytest.mark.unchecked
def test_wrong_heads_and_inputs_are_refused():
    compiled = compile_ffn(interpolate([-1, 0, 1], [0, 1, 0]), bound=2, tolerance=0.05, n_tokens=1)
    assert head_at_input(compiled).str_tokens == ("aux.", "x=0.5")  # the rest of the sequence is left out
    for head, x, why in (
        ((0, 9), None, "0.9"), ((0, 1), (3.0,), "in [-2, 2]"), ((0, 1), (0.1, 0.2), "expected 1 numbers"),
        ((0, 1), (float("nan"),), "nan"),
    ):  # fmt: skip
        with refused(why):
            head_at_input(compiled, head, x)
    with refused("'random'"):
        compile_ffn(compiled.ffn, bound=2, tolerance=0.05, auxiliary="none")
