"""Composition against TransformerLens, against dense products, and against random heads drawn the long way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.circuits.composition import composition, virtual_head_norms
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import SMALL, maker

MODES = ("q", "k", "v")


def make(**changes: object) -> AttentionOnlyTransformer:
    return maker({**SMALL, "n_layers": 3, "n_heads": 2})(**changes)


def dense(model: AttentionOnlyTransformer, mode: str, folded: bool = False) -> np.ndarray:
    """Pair by pair, with d_model × d_model products in float64; NaN where there is no pair."""
    cfg = model.cfg
    shape = (cfg.n_layers, cfg.n_heads, cfg.n_layers, cfg.n_heads)
    result = np.full(shape, np.nan)
    centring = np.eye(cfg.d_model) - folded / cfg.d_model
    W = {name: getattr(model, name).detach().double().numpy() for name in ("W_Q", "W_K", "W_V", "W_O")}

    def reads(name: str, layer: int, head: int) -> np.ndarray:
        gains = np.diag(model.blocks[layer].ln1.w.detach().double().numpy()) if folded else np.eye(cfg.d_model)
        return centring @ gains @ W[name][layer, head]

    for i, a, j, b in np.ndindex(shape):
        if i < j:
            earlier = reads("W_V", i, a) @ W["W_O"][i, a] @ centring
            later = reads("W_Q", j, b) @ reads("W_K", j, b).T
            later = {"q": later, "k": later.T, "v": reads("W_V", j, b) @ W["W_O"][j, b] @ centring}[mode]
            norm = np.linalg.norm
            result[i, a, j, b] = norm(earlier @ later) / norm(earlier) / norm(later)
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("changes", [{}, {"attention": "mssa"}, {"norm": None, "attn_scale": 1.0}])
def test_equals_transformer_lens(mode: str, changes: dict) -> None:
    model = make(**changes)
    theirs = to_transformer_lens(model).all_composition_scores(mode.upper()).scores
    torch.testing.assert_close(
        torch.from_numpy(composition(model, mode).values).float(), theirs.detach(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("changes", [{}, {"attention": "mssa", "tied_output": True, "step_size": 0.3}])
def test_equals_dense_products(mode: str, folded: bool, changes: dict) -> None:
    model = make(**changes)
    expected = dense(model, mode, folded)
    result = composition(model, mode, folded=folded)
    np.testing.assert_allclose(result.values, np.nan_to_num(expected), rtol=1e-10)
    np.testing.assert_array_equal(np.isnan(result.z), np.isnan(expected))


def test_q_k_and_v_differ_for_mhsa_and_q_is_k_for_mssa() -> None:
    mhsa, mssa = make(), make(attention="mssa")
    assert np.abs(composition(mhsa, "q").values - composition(mhsa, "k").values).max() > 0.01
    for folded in (False, True):
        q, k, v = (composition(mssa, mode, folded=folded) for mode in MODES)
        np.testing.assert_array_equal(q.values, k.values)
        np.testing.assert_array_equal(q.z, k.z)
        assert np.abs(q.values - v.values).max() > 0.01


def test_a_planted_pair_stands_out() -> None:
    """Head 1.1 reads with its keys exactly what 0.0 writes, and nobody else does."""
    model = make(d_model=32, d_head=4, n_layers=2)
    with torch.no_grad():
        model.blocks[1].attn.W_K[1] = model.blocks[0].attn.W_O[0].T
    first = composition(model, "k").to_frame().iloc[0]
    assert (first.earlier_layer, first.earlier_head, first.later_layer, first.later_head) == (0, 0, 1, 1)
    assert first.z > 5 and first.z > 2 * composition(model, "q").to_frame().z.max()


def test_virtual_heads() -> None:
    model = make()
    norms, result = virtual_head_norms(model), composition(model, "v")
    product = model.W_V[0, 1] @ model.W_O[0, 1] @ model.W_V[2, 0] @ model.W_O[2, 0]
    assert norms[0, 1, 2, 0] == pytest.approx(product.norm().item(), rel=1e-5)
    np.testing.assert_array_equal(norms, result.norms)
    assert (norms[2] == 0).all() and (norms[1, :, :2] == 0).all()


def drawn_the_long_way(d_model: int, d_head: int, kind: str, mode: str, n: int = 3600) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)

    def head() -> tuple[torch.Tensor, torch.Tensor]:
        W_Q, W_K, W_V, W_O = torch.randn(4, n, d_model, d_head, generator=generator, dtype=torch.float64)
        if kind != "mhsa":
            W_K = W_V = W_Q
        if kind == "tied":
            W_O = W_Q
        return W_Q @ W_K.mT, W_V @ W_O.mT

    (_, earlier), (qk, ov) = head(), head()
    later = {"q": qk, "k": qk.mT, "v": ov}[mode]
    norm = torch.linalg.matrix_norm
    return norm(earlier @ later) / norm(earlier) / norm(later)


@pytest.mark.parametrize("d_model, d_head", [(8, 2), (8, 6), (3, 5), (24, 4)])
@pytest.mark.parametrize("kind", ["mhsa", "mssa", "tied"])
@pytest.mark.parametrize("mode", ["q", "v"])
def test_the_random_level(d_model: int, d_head: int, kind: str, mode: str) -> None:
    changes = {} if kind == "mhsa" else {"attention": "mssa", "tied_output": kind == "tied"}
    result = composition(make(d_model=d_model, d_head=d_head, **changes), mode, n_random=3600)
    ratios = drawn_the_long_way(d_model, d_head, kind, mode)
    error = 5 * ratios.std().item() * math.sqrt(2 / 3600)
    assert result.random_mean == pytest.approx(ratios.mean().item(), abs=error)
    assert result.random_std == pytest.approx(ratios.std().item(), rel=0.1)
    assert result.random_rms == d_model**-0.5
    assert (ratios.square().mean() * d_model).item() == pytest.approx(
        1, abs=5 * float((ratios**2 * d_model).std()) / 60
    )
    assert result.random_mean < result.random_rms


def test_the_mean_is_below_the_root_mean_square() -> None:
    """At d_model 8 with heads of 2: 0.329 against 0.354."""
    result = composition(make(d_model=8, d_head=2), n_random=4000)
    assert result.random_rms == pytest.approx(0.354, abs=5e-4)
    assert result.random_mean == pytest.approx(0.329, abs=0.004)


def test_heads_at_random_have_the_z_scores_of_chance() -> None:
    for folded in (False, True):
        result = composition(
            AttentionOnlyTransformer(ModelConfig(n_layers=2, d_model=16, n_heads=24, d_head=4, n_ctx=4, d_vocab=5)),
            "v",
            folded=folded,
        )
        z = result.to_frame().z
        assert len(z) == 24 * 24 and abs(z.mean()) < 0.3 and z.std() == pytest.approx(1, abs=0.3)


def test_the_same_seed_is_the_same_level() -> None:
    model = make()
    assert composition(model, seed=1).random_mean == composition(model, seed=1).random_mean
    assert composition(model, seed=1).random_mean != composition(model, seed=2).random_mean


def test_the_frame_is_sorted_and_has_every_pair() -> None:
    frame = composition(make(), "q").to_frame()
    assert len(frame) == 3 * 4 and frame.z.is_monotonic_decreasing
    assert (frame.earlier_layer < frame.later_layer).all()


def test_one_layer_has_no_pairs() -> None:
    result = composition(make(n_layers=1), "k")
    assert result.values.shape == (1, 2, 1, 2) and not result.values.any() and np.isnan(result.z).all()
    assert list(result.to_frame().columns) == list(composition(make()).to_frame().columns)
    assert result.to_frame().empty


def test_a_head_of_zeros_composes_with_nothing() -> None:
    model = make()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1] = 0.0
    values = composition(model, "q").values
    assert (values[0, 1] == 0).all() and (values[0, 0, 1:] > 0).all()


def test_a_stream_of_one_dimension() -> None:
    result = composition(make(d_model=1, d_head=2, norm=None))
    assert result.random_std == 0 and set(result.to_frame().z) == {0.0}


def test_half_precision_and_no_gradients() -> None:
    model = make().bfloat16()
    assert composition(model).values[0, 0, 1, 0] > 0


def test_what_cannot_be_asked() -> None:
    fixed = make(phi="fixed", fixed_pattern="random")
    assert composition(fixed, "v").to_frame().z.notna().all()
    for mode in ("q", "k"):
        with pytest.raises(ValueError, match="no queries or keys to compose with; use mode='v'"):
            composition(fixed, mode)
    with pytest.raises(ValueError, match="mode='Q': expected 'q', 'k' or 'v'"):
        composition(make(), "Q")
    with pytest.raises(ValueError, match="n_random=1"):
        composition(make(), n_random=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(make, value: float) -> None:  # type: ignore[no-untyped-def]
    model = make()
    with torch.no_grad():
        model.blocks[0].attn.W_V[2, 0, 0] = value
    with pytest.raises(ValueError, match=r"W_V: expected finite weights, got others in head 0\.2"):
        composition(model, "q")
    with pytest.raises(ValueError, match=r"head 0\.2"):
        virtual_head_norms(model)
