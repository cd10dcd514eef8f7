"""Composition's second null against every flip of signs, and its level on heads that share a stream."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from aotlens.circuits.composition import EDGE_Z, all_compositions, composition
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.circuits.test_composition import MODES, make, matrices


def all_signs(A: np.ndarray, B: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """‖A S B‖² for every S that flips directions of the covariance's eigenbasis, by dense products."""
    _, basis = np.linalg.eigh(covariance)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(basis))))
    return np.array([np.square(A @ (basis * row) @ basis.T @ B).sum() for row in signs])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("changes", [{}, {"attention": "mssa"}, {"norm": None}, {"positions": "qk"}])
def test_the_second_null_is_that_of_all_flips_of_signs(mode: str, changes: dict) -> None:
    """Exactly, in the eigenbasis of what the embeddings write."""
    model = make(d_model=7, d_head=3, d_vocab=30, **changes)
    result = composition(model, mode)
    rows = [model.W_E] if changes.get("positions") else [model.W_E, model.pos_embed.W_pos]
    covariance = sum(np.cov(each.detach().double().numpy().T, bias=True) for each in rows)
    for pair in ((0, 0, 1, 1), (1, 1, 2, 0), (0, 1, 2, 1)):
        A, B = matrices(model, mode, pair)
        flipped = all_signs(A, B, covariance)
        assert result.signs_mean[pair] == pytest.approx(flipped.mean())
        assert result.signs_std[pair] == pytest.approx(flipped.std())
        expected = (np.square(A @ B).sum() - flipped.mean()) / flipped.std()
        assert result.z_signs[pair] == pytest.approx(expected) and result.edges[pair] == (expected >= EDGE_Z)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_shared_stream_rejects_rotations_and_not_signs(power: float) -> None:
    """Heads drawn independently, which write and read each direction as strongly as the stream has it."""
    model = AttentionOnlyTransformer(
        ModelConfig(n_layers=2, d_model=32, n_heads=24, d_head=4, n_ctx=4, d_vocab=3000, positions=None, norm=None)
    )
    basis = torch.linalg.qr(torch.randn(32, 32)).Q
    root = basis * torch.arange(1.0, 33.0) ** (-power / 2) @ basis.T
    with torch.no_grad():
        model.embed.W_E.copy_(torch.randn(3000, 32) @ root)
        for block in model.blocks:
            for name in ("W_Q", "W_K", "W_V"):
                getattr(block.attn, name).copy_(root @ torch.randn(24, 32, 4))
            block.attn.W_O.copy_(torch.randn(24, 4, 32) @ root)
    results = all_compositions(model).values()
    by_signs, by_rotations = (np.array([getattr(r, name)[0, :, 1] for r in results]) for name in ("z_signs", "z"))
    assert (by_signs >= EDGE_Z).mean() < 0.015 and abs(by_signs.mean()) < 0.2
    assert (by_rotations >= EDGE_Z).mean() > {0.5: 0.03, 1.0: 0.4, 2.0: 0.75}[power]


@torch.no_grad()
def test_on_a_text_the_stream_is_that_of_the_later_layer() -> None:
    model = make(d_model=7, d_head=3).double()
    tokens = torch.randint(model.cfg.d_vocab, (5, 6), generator=torch.Generator().manual_seed(0))
    result = composition(model, "k", data=tokens)
    _, cache = model.run_with_cache(tokens)
    i, a, j, b = pair = (0, 1, 2, 0)
    scale = cache[f"blocks.{j}.ln1.hook_scale"]
    centring = np.eye(7) - 1 / 7
    written = (cache["z", i][:, :, a] @ model.W_O[i, a] / scale).flatten(0, 1).numpy() @ centring
    A = (written - written.mean(0)) / len(written) ** 0.5
    gain = np.diag(model.blocks[j].ln1.w.numpy())
    B = centring @ gain @ model.W_K[j, b].numpy() @ (centring @ gain @ model.W_Q[j, b].numpy()).T
    stream = (cache["resid_pre", j] / scale).flatten(0, 1).numpy() @ centring
    flipped = all_signs(A, B, np.cov(stream.T, bias=True))
    assert result.signs_mean[pair] == pytest.approx(flipped.mean())
    assert result.signs_std[pair] == pytest.approx(flipped.std())
