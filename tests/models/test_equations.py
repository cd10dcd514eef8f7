"""The operators against the paper's equations, written out as it writes them: tokens are columns.

aot Eq. (4):  MSSA(Z) = Σ_k U_k U_kᵀ Z φ(Zᵀ U_k U_kᵀ Z)
aot Eq. (5):  MHSA(Z) = W_O [V_1ᵀ Z φ(Zᵀ K_1 Q_1ᵀ Z); …; V_Hᵀ Z φ(Zᵀ K_H Q_Hᵀ Z)]
aot Eq. (7):  Z ← Z + η MSSA(Z)

φ acts on columns there: column i of its argument holds query i's scores over the keys. Everything is computed
head by head and query by query in float64, from the model's stacked weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig

N_POS = 7


def softmax(scores: Tensor) -> Tensor:
    weights = (scores - scores.max()).exp()
    return weights / weights.sum()


def thresholded(scores: Tensor) -> Tensor:
    return torch.tensor([0.15 if weight > 0.15 else 0.0 for weight in softmax(scores)], dtype=torch.float64)


def linear(scores: Tensor) -> Tensor:
    return scores / len(scores)


PHI: dict[str, tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "softmax": ({}, softmax),
    "thresholded_softmax": ({"phi": "thresholded_softmax", "threshold": 0.15}, thresholded),
    "linear": ({"phi": "linear"}, linear),
}


def phi_of_columns(scores: Tensor, phi: Callable[[Tensor], Tensor], causal: bool) -> Tensor:
    """φ column by column; in a causal model query i has the keys 0…i, and the others count for nothing."""
    n = scores.shape[1]
    out = torch.zeros(n, n, dtype=torch.float64)
    for query in range(n):
        visible = query + 1 if causal else n
        out[:visible, query] = phi(scores[:visible, query])
    return out


def norm(model: AttentionOnlyTransformer, layer: Any, Z: Tensor) -> Tensor:
    if model.cfg.norm is None:
        return Z
    centred = Z - Z.mean(0)
    return centred / (centred.square().mean(0) + model.cfg.norm_eps).sqrt() * layer.w[:, None] + layer.b[:, None]


def logits_by_equation(model: AttentionOnlyTransformer, tokens: Tensor, attention: Callable[..., Tensor]) -> Tensor:
    cfg = model.cfg
    Z = model.W_E[tokens].T.clone()
    if cfg.positions == "learned":
        Z = Z + model.W_pos[: len(tokens)].T
    for layer, block in enumerate(model.blocks):
        X = norm(model, block.ln1, Z)
        X_qk = X + model.W_pos[: len(tokens)].T if cfg.positions == "qk" else X
        Z = Z + attention(model, layer, X, X_qk) + model.b_O[layer][:, None]
    return (model.W_U.T @ norm(model, model.ln_final, Z) + model.b_U[:, None]).T


def score_scale(model: AttentionOnlyTransformer) -> float:
    return 1 / math.sqrt(model.cfg.d_head) if model.cfg.attn_scale is None else model.cfg.attn_scale


def mssa(phi: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Σ_k W_Oᵀ (U_kᵀ Z) φ((U_kᵀ Z)ᵀ (U_kᵀ Z)): Eq. (4), whose W_O is η U_k when tied (η is Eq. 7's)."""

    def attention(model: AttentionOnlyTransformer, layer: int, X: Tensor, X_qk: Tensor) -> Tensor:
        total = torch.zeros_like(X)
        for head in range(model.cfg.n_heads):
            attn = model.blocks[layer].attn
            U, bias = attn.U[head], 0.0 if attn.b is None else attn.b[head][:, None]
            W_O = model.cfg.step_size * U if model.cfg.tied_output else model.W_O[layer, head].T
            Y, Y_qk = U.T @ X + bias, U.T @ X_qk + bias
            scores = score_scale(model) * Y_qk.T @ Y_qk
            total += W_O @ Y @ phi_of_columns(scores, phi, model.cfg.causal)
        return total

    return attention


def mhsa(phi: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def attention(model: AttentionOnlyTransformer, layer: int, X: Tensor, X_qk: Tensor) -> Tensor:
        total = torch.zeros_like(X)
        for head in range(model.cfg.n_heads):
            Q = model.W_Q[layer, head].T @ X_qk + model.b_Q[layer, head][:, None]
            K = model.W_K[layer, head].T @ X_qk + model.b_K[layer, head][:, None]
            V = model.W_V[layer, head].T @ X + model.b_V[layer, head][:, None]
            scores = score_scale(model) * K.T @ Q  # [key, query]
            total += model.W_O[layer, head].T @ V @ phi_of_columns(scores, phi, model.cfg.causal)
        return total

    return attention


def assert_equal_logits(model: AttentionOnlyTransformer, attention: Callable[..., Tensor]) -> None:
    tokens = torch.randint(model.cfg.d_vocab or 0, (3, N_POS))
    with torch.no_grad():
        expected = torch.stack([logits_by_equation(model, row, attention) for row in tokens])
        torch.testing.assert_close(model(tokens), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("phi", PHI)
@pytest.mark.parametrize("attn_scale", [None, 1.0])
@pytest.mark.parametrize("output", [{"tied_output": True, "step_size": 0.3}, {"tied_output": False}])
def test_mssa_is_equation_4(make, causal, phi, attn_scale, output):
    fields, function = PHI[phi]
    model = make(torch.float64, attention="mssa", causal=causal, attn_scale=attn_scale, norm=None, **fields, **output)
    assert_equal_logits(model, mssa(function))


@pytest.mark.parametrize("positions", ["learned", "qk", None])
@pytest.mark.parametrize("attention", ["mssa", "mhsa"])
def test_norm_biases_and_positions_are_where_they_belong(make, attention, positions):
    model = make(torch.float64, attention=attention, positions=positions, bias=True)
    assert_equal_logits(model, {"mssa": mssa, "mhsa": mhsa}[attention](softmax))


@pytest.mark.parametrize("phi", PHI)
@pytest.mark.parametrize("causal", [True, False])
def test_mhsa_is_equation_5(make, causal, phi):
    fields, function = PHI[phi]
    assert_equal_logits(make(torch.float64, causal=causal, attn_scale=0.7, **fields), mhsa(function))


def test_thresholds_are_crossed(make, tokens):
    """The threshold that these tests use does both: it passes some weights and stops others."""
    model = make(phi="thresholded_softmax", threshold=0.15)
    _, cache = model.run_with_cache(tokens)
    pattern = cache["pattern", 1]
    assert pattern.unique().tolist() == pytest.approx([0.0, 0.15])
    assert (pattern == 0)[..., torch.ones(7, 7, dtype=torch.bool).tril()].any()


@pytest.mark.parametrize("attention", ["mssa", "mhsa"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["given", "random", "learned"])
def test_a_fixed_pattern_mixes_values_as_it_says(make, attention, causal, kind):
    """Σ_k W_Oᵀ Vₖ Aᵀ, A's top-left block, whatever the tokens are."""
    pattern = torch.randn(2, 3, 8, 8, dtype=torch.float64) if kind == "given" else None
    if pattern is not None and causal:
        pattern = pattern.tril()  # a pattern that looks ahead is refused
    model = make(torch.float64, attention=attention, causal=causal, phi="fixed", fixed_pattern=kind, pattern=pattern)

    def attend(model: AttentionOnlyTransformer, layer: int, X: Tensor, X_qk: Tensor) -> Tensor:
        total = torch.zeros_like(X)
        for head in range(model.cfg.n_heads):
            A = model.blocks[layer].attn.fixed_pattern[head, :N_POS, :N_POS].clone()
            if kind == "given":
                assert pattern is not None
                torch.testing.assert_close(A, pattern[layer, head, :N_POS, :N_POS])
            if causal:
                A = A.tril()
            V = model.W_V[layer, head].T @ X + model.b_V[layer, head][:, None]
            total += model.W_O[layer, head].T @ V @ A.T
        return total

    assert_equal_logits(model, attend)


@pytest.mark.parametrize("causal", [True, False])
def test_a_random_pattern_is_a_softmax_of_noise(causal):
    cfg = ModelConfig(
        n_layers=2, d_model=4, n_heads=3, d_head=2, n_ctx=6, d_vocab=5, phi="fixed", fixed_pattern="random",
        causal=causal, seed=3,
    )  # fmt: skip
    model, again = AttentionOnlyTransformer(cfg), AttentionOnlyTransformer(cfg)
    pattern = torch.stack([block.attn.fixed_pattern for block in model.blocks])
    torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 3, 6))
    assert (pattern.triu(1).abs().sum() == 0) == causal
    assert len(pattern.flatten(2).unique(dim=1)) == 2 and pattern[0].unique(dim=0).shape[0] == 3
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
    assert not any("fixed_pattern" in name for name, _ in model.named_parameters())


def test_attn_mask_replaces_the_causal_one(make):
    """Heads see what their own mask shows, also what lies ahead."""
    generator = torch.Generator().manual_seed(5)
    mask = (torch.rand(3, 8, 8, generator=generator) < 0.5) | torch.eye(8, dtype=torch.bool)
    model = make(torch.float64, attn_mask=mask, bias=True)

    def attend(model: AttentionOnlyTransformer, layer: int, X: Tensor, X_qk: Tensor) -> Tensor:
        total = torch.zeros_like(X)
        for head in range(model.cfg.n_heads):
            Q = model.W_Q[layer, head].T @ X + model.b_Q[layer, head][:, None]
            K = model.W_K[layer, head].T @ X + model.b_K[layer, head][:, None]
            V = model.W_V[layer, head].T @ X + model.b_V[layer, head][:, None]
            for query in range(N_POS):
                seen = [key for key in range(N_POS) if mask[head, query, key]]
                weights = softmax(K[:, seen].T @ Q[:, query] / math.sqrt(model.cfg.d_head))
                total[:, query] += model.W_O[layer, head].T @ (V[:, seen] @ weights)
        return total

    assert_equal_logits(model, attend)


def test_mlp_baselines_add_an_mlp_after_attention(make, tokens):
    model = make(torch.float64, d_mlp=9, act_fn="gelu_new", bias=True, n_layers=1)
    _, cache = model.run_with_cache(tokens)
    mid = cache["resid_pre", 0] + cache["attn_out", 0]
    x = mid - mid.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * model.blocks[0].ln2.w + model.blocks[0].ln2.b
    pre = x @ model.W_in[0] + model.b_in[0]
    post = 0.5 * pre * (1 + torch.tanh(math.sqrt(2 / math.pi) * (pre + 0.044715 * pre**3)))
    expected = mid + post @ model.W_out[0] + model.b_out[0]
    torch.testing.assert_close(cache["resid_post", 0], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(cache["resid_mid", 0], mid)
