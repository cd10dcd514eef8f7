"""Composition against TransformerLens, against dense products, and against scipy's random rotations."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from aotlens.circuits.composition import BAND, EDGE_Z, all_compositions, composition
from aotlens.circuits.nulls import rotation_mean, rotation_std
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused
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


@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1e30])
def test_size_is_no_evidence(factor: float) -> None:
    """z and p-values of heads that write next to nothing, or very much, are those of heads of ordinary size."""
    model = make().double()
    expected = composition(model, "v", n_random=2000)
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] *= factor
        model.blocks[1].attn.W_O *= factor
    result = composition(model, "v", n_random=2000)
    for name in ("values", "z", "z_signs", "p_above", "p_below"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(result.edges, expected.edges)
    np.testing.assert_allclose(result.norms[0, 0, 2], factor * expected.norms[0, 0, 2])


def test_q_k_and_v_differ_for_mhsa_and_q_is_k_for_mssa() -> None:
    mhsa, mssa = make(), make(attention="mssa")
    assert np.abs(composition(mhsa, "q").values - composition(mhsa, "k").values).max() > 0.01
    for folded in (False, True):
        q, k, v = (composition(mssa, mode, folded=folded) for mode in MODES)
        np.testing.assert_array_equal(q.values, k.values)
        np.testing.assert_array_equal(q.z, k.z)
        assert np.abs(q.values - v.values).max() > 0.01


def test_a_planted_pair_stands_out() -> None:
    """Of 3 × 8 × 8 pairs one is planted: head 2.5 reads with its keys exactly what 0.3 writes. Nothing is drawn."""
    model = make(d_model=32, d_head=4, n_heads=8)
    with torch.no_grad():
        model.blocks[2].attn.W_K[5] = model.blocks[0].attn.W_O[3].T
    result = composition(model, "k")
    first = result.to_frame().iloc[0]
    assert (first.earlier_layer, first.earlier_head, first.later_layer, first.later_head) == (0, 3, 2, 5)
    assert first.z > 5 and first.z > 2 * composition(model, "q").to_frame().z.max()
    assert first.edge and first["rank"] == 1 and result.edges.sum() <= 6 and first.z_signs > 2 * EDGE_Z
    assert result.n_random == 0 and np.isnan(result.p_above).all() and np.isnan(result.p_below).all()


def turned(A: np.ndarray, B: np.ndarray, n: int, seed: int) -> np.ndarray:
    """‖A R B‖² for `n` rotations R of scipy's, by dense products."""
    R = ortho_group.rvs(A.shape[1], size=n, random_state=seed)
    return np.square(A @ R @ B).sum((1, 2))


def matrices(model: AttentionOnlyTransformer, mode: str, pair: tuple[int, int, int, int]) -> tuple[np.ndarray, ...]:
    """The earlier head's matrix and the later one's, dense, bare weights."""
    i, a, j, b = pair
    W = {name: getattr(model, name).detach().double().numpy() for name in ("W_Q", "W_K", "W_V", "W_O")}
    later = W["W_Q"][j, b] @ W["W_K"][j, b].T
    return W["W_V"][i, a] @ W["W_O"][i, a], {"q": later, "k": later.T, "v": W["W_V"][j, b] @ W["W_O"][j, b]}[mode]


def centred_basis(width: int) -> np.ndarray:
    """An orthonormal basis of what centring leaves, `[width, width − 1]`."""
    return np.linalg.svd(np.eye(width) - 1 / width)[0][:, : width - 1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 8, "d_head": 2},
        {"d_model": 8, "d_head": 6, "attention": "mssa"},
        {"d_model": 5, "d_head": 7},
        {"d_model": 6, "d_head": 3, "attention": "mssa", "tied_output": True, "step_size": 0.3},
    ],
)
def test_the_null_is_that_of_20_000_rotations(mode: str, changes: dict) -> None:
    model = make(**changes)
    result = composition(model, mode, n_random=20_000)
    for seed, pair in enumerate([(0, 0, 1, 1), (1, 1, 2, 0)]):
        A, B = matrices(model, mode, pair)
        random = turned(A, B, 20_000, seed)
        assert result.random_mean[pair] == pytest.approx(random.mean(), rel=0.01)
        assert result.random_std[pair] == pytest.approx(random.std(), rel=0.02)
        square = np.square(A @ B).sum()
        assert result.z[pair] == pytest.approx((square - random.mean()) / random.std(), abs=0.05)
        assert result.norms[pair] ** 2 == pytest.approx(square)
        for tail, p in (((random >= square).mean(), result.p_above), ((random <= square).mean(), result.p_below)):
            if not BAND[0] <= result.z[pair] <= BAND[1]:
                assert np.isnan(p[pair])
                continue
            assert p[pair] == pytest.approx(tail, abs=5 * math.sqrt((tail * (1 - tail) + 1e-4) * 2 / 20_000))


def test_behind_a_norm_the_rotation_has_one_dimension_less() -> None:
    model = make(d_model=6, d_head=3)
    result = composition(model, "k", folded=True, n_random=20_000)
    centring, basis = np.eye(6) - 1 / 6, centred_basis(6)
    gain = np.diag(model.blocks[1].ln1.w.detach().double().numpy())
    first_gain = np.diag(model.blocks[0].ln1.w.detach().double().numpy())
    W = {name: getattr(model, name).detach().double().numpy() for name in ("W_Q", "W_K", "W_V", "W_O")}
    A = centring @ first_gain @ W["W_V"][0, 0] @ W["W_O"][0, 0] @ basis
    B = basis.T @ gain @ W["W_K"][1, 1] @ (centring @ gain @ W["W_Q"][1, 1]).T
    random = turned(A, B, 20_000, 3)
    assert result.norms[0, 0, 1, 1] ** 2 == pytest.approx(np.square(A @ B).sum())
    assert result.random_mean[0, 0, 1, 1] == pytest.approx(random.mean(), rel=0.01)
    assert result.random_std[0, 0, 1, 1] == pytest.approx(random.std(), rel=0.02)
    assert result.random_rms == 5**-0.5


def test_the_exact_variance_in_two_dimensions() -> None:
    """A rotation by θ turns N₀ by 2θ, so that T = mean + |M₀||N₀| cos 2θ, with variance |M₀|²|N₀|²/2."""
    s, t = torch.tensor([2.0, 1.0]).double(), torch.tensor([3.0, 1.0]).double()
    expected = math.sqrt(((16 + 1) - 25 / 2) * ((81 + 1) - 100 / 2) / 2)
    assert rotation_std(s, t, 2).item() == pytest.approx(expected)
    assert rotation_mean(s, t, 2).item() == pytest.approx(5 * 10 / 2)


def test_trained_spectra_do_not_raise_the_level() -> None:
    """Heads with one large singular value, randomly rotated: independent Gaussian heads would call a third of them far
    from chance. Uniform p-values keep about 5% below 0.05, and no edge on average in 19 of 20 models."""
    model = AttentionOnlyTransformer(ModelConfig(n_layers=2, d_model=16, n_heads=24, d_head=4, n_ctx=4, d_vocab=5))
    spikes = torch.tensor([9.0, 1.0, 0.3, 0.1])
    with torch.no_grad():
        for block in model.blocks:
            for name in ("W_Q", "W_K", "W_V"):
                getattr(block.attn, name).copy_(torch.linalg.qr(torch.randn(24, 16, 4)).Q * spikes)
            block.attn.W_O.copy_(torch.linalg.qr(torch.randn(24, 16, 4)).Q.mT)
    for mode in MODES:
        result = composition(model, mode, n_random=2000)
        p = result.to_frame().p_above
        near = result.to_frame().z.between(*BAND)
        assert len(p) == 24 * 24 and (p.notna() == near).all() and 0.02 < (p <= 0.05).mean() < 0.09
        assert abs(result.to_frame().z.mean()) < 0.3 and result.to_frame().z.std() == pytest.approx(1, abs=0.3)
        assert result.edges.sum() <= 0.03 * 24 * 24


def test_the_rank_is_among_all_that_the_later_head_can_read() -> None:
    result = composition(make(), "q")
    for j, b in ((1, 0), (2, 0), (2, 1)):
        scores = sorted(result.values[:j, :, j, b].ravel(), reverse=True)
        for i, a in np.ndindex(j, 2):
            assert result.rank[i, a, j, b] == 1 + scores.index(result.values[i, a, j, b])
    assert not result.rank[1, :, :2].any()


def test_all_modes_at_once_are_the_same() -> None:
    model = make()
    told: list[tuple[int, int]] = []
    together = all_compositions(
        model, folded=True, n_random=2000, progress=lambda done, total: told.append((done, total))
    )
    assert list(together) == list(MODES) and told[-1] == (2, 2)
    for mode in MODES:
        alone = composition(model, mode, folded=True, n_random=2000)
        for field in fields(alone):
            np.testing.assert_array_equal(getattr(together[mode], field.name), getattr(alone, field.name))
    assert list(all_compositions(make(phi="fixed", fixed_pattern="random"))) == ["v"]


def test_the_same_seed_is_the_same_rotations() -> None:
    model = make()
    p = [composition(model, n_random=2000, seed=seed).p_above for seed in (1, 1, 2)]
    np.testing.assert_array_equal(p[0], p[1])
    assert not np.array_equal(p[0], p[2], equal_nan=True)


def test_the_frame_is_sorted_by_score_and_has_every_pair() -> None:
    result = composition(make(), "q")
    frame = result.to_frame()
    assert len(frame) == 3 * 4 and frame.composition.is_monotonic_decreasing
    assert (frame.earlier_layer < frame.later_layer).all()
    first = frame.iloc[0]
    pair = tuple(int(first[name]) for name in ("earlier_layer", "earlier_head", "later_layer", "later_head"))
    for column, field in (("norm", "norms"), ("edge", "edges"), ("random_std", "random_std"), ("z_signs", "z_signs")):
        assert first[column] == getattr(result, field)[pair]


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
    result = composition(model, "q", n_random=100)
    assert np.isnan(result.z[0, 1]).all() and (result.p_above[0, 1, 1:] == 1).all()
    assert np.isnan(result.z_signs[0, 1]).all() and not result.edges[0, 1].any()


def test_what_no_rotation_changes_has_no_z() -> None:
    """In one dimension, and where a head is a multiple of a rotation."""
    for model in (make(d_model=1, d_head=2, norm=None), make(d_model=2, d_head=1)):
        frame = composition(model, folded=True, n_random=100).to_frame()
        assert frame.z.isna().all() and frame.random_std.isna().all() and not frame.edge.any()
        assert (frame[["p_above", "p_below"]] == 1).all(axis=None)
    model = make(d_model=4, d_head=4, norm=None)
    with torch.no_grad():
        model.blocks[0].attn.W_V.copy_(torch.eye(4))
        model.blocks[0].attn.W_O.copy_(-torch.eye(4))
    result = composition(model, "v", n_random=100)
    assert np.isnan(result.z[0, :, 1:]).all() and (result.p_above[0, :, 1:] == 1).all()
    assert np.isfinite(result.z[1, :, 2]).all()


def test_half_precision_and_no_gradients() -> None:
    model = make().bfloat16()
    assert composition(model).values[0, 0, 1, 0] > 0


def test_what_cannot_be_asked() -> None:
    fixed = make(phi="fixed", fixed_pattern="random")
    assert composition(fixed, "v").to_frame().z.notna().all()
    for mode in ("q", "k"):
        with refused("no queries or keys", "mode='v'"):
            composition(fixed, mode)
    wrong = {
        "mode": ("Q", "mode='Q': expected one of 'q', 'k', 'v'"),
        "n_random": (-1, "from 0"),
        "attention_mask": (torch.ones(1, 8), "data"),
    }
    for name, (value, words) in wrong.items():
        with refused(name, words):
            composition(make(), **{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(make, value: float) -> None:  # type: ignore[no-untyped-def]
    model = make()
    with torch.no_grad():
        model.blocks[0].attn.W_V[2, 0, 0] = value
    with refused("W_V", "finite"):
        composition(model, "q")


@pytest.mark.parametrize(
    ("mode", "changes", "about_mean"),
    [
        ("q", {}, True),
        ("k", {"attention": "mssa", "bias": True}, True),
        ("v", {}, False),
        ("k", {"norm": None}, False),
        ("v", {"norm": None}, True),
    ],
)
@torch.no_grad()
def test_on_a_text_the_earlier_matrix_is_what_was_written(mode: str, changes: dict, about_mean: bool) -> None:
    """M and N as d_model × d_model matrices, from the results that hooks see; the null by drawn rotations."""
    model = make(**changes).double()
    tokens = torch.randint(SMALL["d_vocab"], (3, 7), generator=torch.Generator().manual_seed(1))
    found = composition(model, mode, data=tokens, about_mean=about_mean, n_random=8000)
    _, cache = model.run_with_cache(tokens)
    cfg, d = model.cfg, model.cfg.d_model
    centring = np.eye(d) - (1 / d if cfg.norm else 0)
    assert found.folded and found.n_positions == 21
    for i, a, j, b in ((0, 0, 1, 1), (0, 1, 2, 0), (1, 1, 2, 1)):
        rows = (cache["z", i][:, :, a] @ model.W_O[i, a]).flatten(0, 1)
        if cfg.norm:
            rows = rows / cache["scale", j, "ln1"].flatten(0, 1)
        rows = rows.numpy() @ centring
        M = np.cov(rows.T, bias=True) if about_mean else rows.T @ rows / len(rows)
        gain = np.diag(model.blocks[j].ln1.w.numpy()) if cfg.norm else np.eye(d)
        W = {name: (centring @ gain @ getattr(model, name)[j, b].numpy()) for name in ("W_Q", "W_K", "W_V")}
        B = {"q": W["W_Q"] @ W["W_K"].T, "k": W["W_K"] @ W["W_Q"].T}.get(
            mode, W["W_V"] @ model.W_O[j, b].numpy() @ centring
        )
        N = B @ B.T
        T = np.trace(M @ N)
        at = (i, a, j, b)
        assert found.norms[at] ** 2 == pytest.approx(T, rel=1e-8)
        assert found.values[at] == pytest.approx(math.sqrt(T / np.trace(M) / np.trace(N)), rel=1e-8)
        width = d - 1 if cfg.norm else d
        basis = np.linalg.svd(centring)[0][:, :width]
        M, N = basis.T @ M @ basis, basis.T @ N @ basis
        turned = np.array([np.trace(M @ R @ N @ R.T) for R in ortho_group.rvs(width, size=4000, random_state=0)])
        assert found.random_mean[at] == pytest.approx(np.trace(M) * np.trace(N) / width, rel=1e-8)
        assert found.random_mean[at] == pytest.approx(turned.mean(), rel=0.1)
        assert found.random_std[at] == pytest.approx(turned.std(), rel=0.1)
        near = BAND[0] <= found.z[at] <= BAND[1]
        assert np.isnan(found.p_above[at]) or found.p_above[at] == pytest.approx((turned >= T).mean(), abs=0.04)
        assert np.isfinite(found.p_above[at]) == near


def test_a_head_that_writes_a_constant_composes_with_nothing_on_a_text() -> None:
    model = make(norm=None, bias=True)
    with torch.no_grad():
        model.blocks[0].attn.W_V[0] = 0  # its values are b_V everywhere
    values = composition(model, "k", data=torch.arange(8), n_random=50).values
    assert (values[0, 0] == 0).all() and values[0, 1, 1, 0] > 0.01
    assert (composition(model, "k", data=torch.arange(8), about_mean=False, n_random=50).values[0, 0, 1:] > 0.01).all()
    assert composition(model, "k", n_random=50).n_positions is None


def test_a_distance_reaches_as_far_as_the_layers_that_are_fed() -> None:
    rotary = maker({**SMALL, "d_head": 4, "positions": "rotary", "norm": "rms"})
    local_first, local_last, without = (rotary(windows=each) for each in ((2, None), (None, 2), None))
    without.load_state_dict(local_first.state_dict())
    np.testing.assert_allclose(*(composition(each, "k", distance=5).values for each in (local_first, without)))
    with refused("distance", "0 to 1"):
        all_compositions(local_last, distance=2)
