"""Theorem 25 on every kind of one-layer model, with terms recomputed one source at a time."""

from __future__ import annotations

import pytest
import torch

from analyses._ensemble import ensemble_check
from aotlens.heads import attention_patterns
from tests.small_models import MakeModel, maker

TOKENS = torch.tensor([[0, 7, 7, 3, 19, 1, 22], [0, 4, 2, 2, 4, 0, 11]])
SMALL = {"n_layers": 1, "d_model": 12, "n_heads": 2, "d_head": 5, "n_ctx": 10, "d_vocab": 23, "bias": True}
KINDS = [
    {},
    {"norm": None},
    {"norm": None, "positions": None, "bias": False},
    {"positions": "qk"},
    {"positions": "alibi"},
    {"attention": "mssa"},
    {"attention": "mssa", "tied_output": True, "step_size": 0.5},
    {"tied_embeddings": True, "bias": False},
    {"phi": "thresholded_softmax", "threshold": 0.2},
    {"phi": "linear"},
    {"phi": "fixed", "fixed_pattern": "random"},
    {"causal": False},
    {"attn_scale": 1.0},
]


@pytest.fixture(scope="module")
def make() -> MakeModel:
    """`make(**changes)`: a randomised model of one layer with some fields changed."""
    return maker(SMALL, dtype=torch.float64, seed=7)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_logits_are_the_sum_of_the_terms(make, kind: dict) -> None:
    model = make(**kind)
    check = ensemble_check(model, TOKENS)
    assert check.residual <= 1e-9 * max(1.0, check.largest)
    with torch.no_grad():
        torch.testing.assert_close(sum(check.terms.values()), model(TOKENS), rtol=1e-9, atol=1e-9)
    single = ensemble_check(make(dtype=torch.float32, **kind), TOKENS)
    assert 0 < single.residual <= 1e-4 * max(1.0, single.largest)


def test_terms_are_bigrams_and_skip_trigrams(make) -> None:
    """The paper's own setting: no norm, no positions, no biases. Each term from its definition."""
    model = make(norm=None, positions=None, bias=False)
    check = ensemble_check(model, TOKENS)
    assert list(check.terms) == ["bigram", "head 0", "head 1"]
    pattern = attention_patterns(model, TOKENS[:1]).pattern[0]
    with torch.no_grad():
        for i, token in enumerate(TOKENS[0]):
            torch.testing.assert_close(check.terms["bigram"][0, i], model.W_E[token] @ model.W_U)
            for head in (0, 1):
                ov = model.W_E @ model.W_V[0, head] @ model.W_O[0, head] @ model.W_U
                skip = sum(pattern[head, i, j] * ov[TOKENS[0, j]] for j in range(i + 1))
                torch.testing.assert_close(check.terms[f"head {head}"][0, i], skip, rtol=1e-5, atol=1e-6)


def test_a_missing_term_shows(make) -> None:
    """The check itself: logits that are not the sum leave a residual."""
    model = make()
    before = ensemble_check(model, TOKENS).residual
    model.ln_final.register_forward_hook(lambda module, inputs, out: out + 0.01)
    assert ensemble_check(model, TOKENS).residual > 1e3 * before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layers": 2}, "has 2"),
        ({"d_mlp": 8}, "1 and MLPs"),
        ({"read_out": "classes", "d_out": 3}, "writes classes"),
    ],
)
def test_other_models_are_refused(make, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ensemble_check(make(**changes), TOKENS)
