"""Statements of *structures* and of *nonlinearity*, run on random inputs."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

import aotlens
from analyses._claims import Claim, zero
from aotlens.distill import compile_ffn, distinguish_mask, masked_lm, point_fit
from aotlens.models import AttentionOnlyTransformer, ModelConfig, generate
from aotlens.paths import Kronecker

SEED = 0
_FLOAT64 = {"dtype": torch.float64}


@torch.no_grad()
def of_structures() -> list[Claim]:
    """Check Definitions 1 and 12, Algorithm 10, Remark 11 and Example 15."""
    generator = torch.Generator().manual_seed(SEED)
    z = torch.randn(50, generator=generator, **_FLOAT64)
    A, B = torch.tensor([[1, 2], [3, 4]], **_FLOAT64), torch.tensor([[0, 5], [6, 7]], **_FLOAT64)
    printed = [[0, 5, 0, 10], [6, 7, 12, 14], [0, 15, 0, 20], [18, 21, 24, 28]]
    model = aotlens.load("novels-1l-mhsa", device="cpu")
    tokens = model.to_tokens("The cat sat on the mat and looked at the dog.")
    changed = tokens.clone()
    changed[0, 6:] = changed[0, 6:].flip(0)
    ids = tokens
    for _ in range(5):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
    generated = generate(model, tokens, 5, temperature=0)
    assert isinstance(generated, torch.Tensor)
    before, after = model(tokens)[0, :6], model(changed)[0, :6]
    return [
        zero("Definition 1: softmax(z + c) = softmax(z)", (z.softmax(0) - (z + 3).softmax(0)).abs().max(), 1e-12),
        zero("Algorithm 10: generate, and its steps written out, differ in so many ids", (ids != generated).sum(), 0),
        zero("Remark 11: later tokens do not change earlier logits", (before - after).abs().max(), 1e-4),
        zero("Definition 12: a layer is X + W_O W_V X Aᵀ", _simplified_layer(), 1e-10),
        zero(
            "Example 15: A ⊗ B as printed",
            (Kronecker(A, B.T).dense() - torch.tensor(printed, **_FLOAT64)).abs().max(), 0, None,
        ),
    ]  # fmt: skip


def _simplified_layer() -> float:
    """A model of one head without norm, scale or biases, beside Definition 12 written out in columns."""
    cfg = ModelConfig(
        n_layers=1, d_model=6, n_heads=1, d_head=4, n_ctx=5, d_vocab=7, norm=None, positions=None, attn_scale=1.0,
        causal=False, seed=SEED,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double()
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    X = model.W_E[tokens[0]].T
    W_Q, W_K, W_V, W_O = (getattr(model, name)[0, 0].T for name in ("W_Q", "W_K", "W_V", "W_O"))
    A = ((W_Q @ X).T @ (W_K @ X)).softmax(1)
    biases = model.b_O[0][:, None]
    _, cache = model.run_with_cache(tokens)
    return float((X + W_O @ W_V @ X @ A.T + biases - cache["resid_post", 0][0].T).abs().max())


def _network(width: int, depth: int, d: int) -> nn.Sequential:
    """A ReLU network with biases and torch's initial weights, its widths all alike."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        widths = [d, *[width] * depth]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, d))


@torch.no_grad()
def of_nonlinearity(*, quick: bool) -> list[Claim]:
    """Check Theorem 4.1, Corollary 4.1, Lemmas E.1 to E.4 and H.4, Propositions 5.1 to 5.3, Theorem 6.1."""
    W, D = 8, 4
    network = _network(W, 2, D)
    lean, paper = (compile_ffn(network, bound=3, tolerance=1e-3, construction=how) for how in ("lean", "paper"))
    generator = torch.Generator().manual_seed(SEED)
    v = torch.randn(lean.model.cfg.d_model, generator=generator, **_FLOAT64)
    other = compile_ffn(network, bound=3, tolerance=1e-3, auxiliary=v)
    silu = compile_ffn(nn.Sequential(nn.Linear(D, W), nn.SiLU(), nn.Linear(W, D)).double(), bound=3, tolerance=1e-6)
    x = torch.linspace(-3, 3, 100_001, **_FLOAT64)
    eta = 1e-3
    relu_error = (functional.relu(x * eta) - eta * functional.silu(x)).abs().max() / eta
    n = 10 if quick else 60
    vocabulary = torch.randn(2 * n, 16, generator=generator, **_FLOAT64)
    X = torch.stack([vocabulary[torch.randperm(2 * n, generator=generator)[:8]] for _ in range(n)])
    X[:, 3] = torch.randn(16, generator=generator, **_FLOAT64)
    y = torch.randint(1, 2 * n, (n,), generator=generator).double()
    points, values = torch.randn(n, 5, generator=generator, **_FLOAT64), torch.randn(n, generator=generator, **_FLOAT64)
    model = masked_lm(X, y, tolerance=0.1)
    claims = [
        zero("Theorem 4.1: largest error of the compiled network, tolerance 10⁻³", lean.measured_error(), 1e-3),
        Claim(
            claim="Theorem 4.1: heads in a layer, max{W, D} + 1, by its own proof's construction",
            expected=max(W, D) + 1, measured=max(paper.heads_per_layer), tolerance=0, seed=SEED,
        ),
        Claim(
            claim="Theorem 4.1: heads in a layer, W + 1 with one wide head (corrected)",
            expected=W + 1, measured=max(lean.heads_per_layer), tolerance=0, seed=SEED,
        ),
        zero("Corollary 4.1 (corrected): largest error with any auxiliary vector", other.measured_error(), 1e-3),
        zero("Lemma E.1: biases as weights of a constant coordinate (narrow), largest error",
             compile_ffn(network, bound=3, tolerance=1e-3, construction="narrow").measured_error(), 1e-3),
        Claim(
            claim="Lemma E.2 as printed: σ_L(ηx)/x at x = 1, η = 10⁻³, which should be ReLU(1)",
            expected=1, measured=float(functional.silu(torch.tensor(eta, **_FLOAT64))), tolerance=0.3 * eta,
        ),
        Claim(
            claim="Lemma E.2 (corrected): largest |η·SiLU(x/η) − ReLU(x)| ÷ η is Lambert's W(1/e)",
            expected=0.2784645427610738, measured=float(relu_error), tolerance=1e-6,
        ),
        zero("Lemmas E.3 and E.4: a SiLU layer as heads, largest error", silu.measured_error(), 1e-6),
    ]  # fmt: skip
    for proposition, method in (("5.1", "attention"), ("5.2", "fixed"), ("5.3", "random")):
        masks = distinguish_mask(X, method=method)
        different = len(masks.contexts.unique())
        claims.append(
            Claim(
                claim=f"Proposition {proposition}: of {n} sequences, masks that are told apart ({method})",
                expected=n, measured=different, tolerance=0, seed=SEED,
            )
        )  # fmt: skip
        if masks.ffn is not None:
            tokens = len(X.reshape(-1, 16).unique(dim=0))
            claims.append(
                Claim(
                    claim="Proposition 5.3 (corrected): hidden units, 3 for each of the |S| different tokens",
                    expected=3 * tokens, measured=masks.ffn.ffn.weights[0].shape[1], tolerance=3, seed=SEED,
                )
            )  # fmt: skip
    claims += [
        Claim(
            claim=f"Theorem 6.1: of {n} masked tokens, named right by two layers",
            expected=n, measured=int(model.recovered.sum()), tolerance=0, seed=SEED,
        ),
        zero("Theorem 6.1: largest error of an id, tolerance 0.1", model.errors.max(), 0.1),
        zero("Lemma H.4: largest error of 3n ReLU units at n points", (point_fit(points, values)(points) - values).abs()
             .max(), 1e-6),
    ]  # fmt: skip
    return claims
