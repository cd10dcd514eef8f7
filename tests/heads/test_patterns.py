"""Attention patterns against formulas written out head by head."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.heads import attention_patterns
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused


def tiny(**rest) -> AttentionOnlyTransformer:
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "d_vocab": 20, "n_ctx": 9}
    return AttentionOnlyTransformer(ModelConfig(**{**sizes, **rest}))


TOKENS = torch.tensor([0, 7, 7, 3, 19, 1])


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_the_first_layer_is_the_formula(attention: str):
    """Scores x W_Q (x W_K)ᵀ / √d_head, softmax over visible keys, ‖x W_V‖: one head and one query at a time."""
    model = tiny(attention=attention, norm=None)
    found = attention_patterns(model, TOKENS)
    x = (model.W_E[TOKENS] + model.W_pos[: len(TOKENS)]).detach().double().numpy()
    W_Q, W_K, W_V = (weight[0].detach().double().numpy() for weight in (model.W_Q, model.W_K, model.W_V))
    for head in range(3):
        q, k, v = x @ W_Q[head], x @ W_K[head], x @ W_V[head]
        np.testing.assert_allclose(found.value_norms[0, head], np.sqrt((v**2).sum(-1)), rtol=1e-4)
        for query in range(len(TOKENS)):
            scores = [float(q[query] @ k[key]) / math.sqrt(4) for key in range(query + 1)]
            np.testing.assert_allclose(found.scores[0, head, query, : query + 1], scores, rtol=1e-3, atol=1e-5)
            weights = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(found.pattern[0, head, query, : query + 1], weights, rtol=1e-3, atol=1e-5)
            assert (found.pattern[0, head, query, query + 1 :] == 0).all()
            assert np.isneginf(found.scores[0, head, query, query + 1 :]).all()


def test_value_weighted_is_what_a_key_alone_adds():
    """The norm of each term of z = Σ_key pattern · v."""
    model = tiny()
    found = attention_patterns(model, TOKENS)
    _, cache = model.run_with_cache(TOKENS[None])
    v = cache["v", 1][0].detach()  # [pos, head, d_head]
    terms = torch.from_numpy(found.pattern[1])[..., None] * v.transpose(0, 1)[:, None]
    np.testing.assert_allclose(found.value_weighted()[1], terms.norm(dim=-1).numpy(), rtol=1e-4, atol=1e-6)


def test_what_is_visible():
    causal = attention_patterns(tiny(), TOKENS)
    np.testing.assert_array_equal(causal.visible, np.tril(np.ones((1, 6, 6), dtype=bool)))
    both = attention_patterns(tiny(causal=False), TOKENS)
    assert both.visible.all() and both.visible.shape == (1, 6, 6)
    mask = torch.eye(9, dtype=torch.bool).repeat(3, 1, 1)
    mask[1] = True
    own = attention_patterns(tiny(attn_mask=mask), TOKENS)
    np.testing.assert_array_equal(own.visible, mask[:, :6, :6].numpy())
    assert (own.pattern[:, 0] == np.eye(6)).all()


def test_a_fixed_pattern_has_no_scores():
    found = attention_patterns(tiny(phi="fixed", fixed_pattern="random"), TOKENS)
    assert found.scores is None
    assert found.n_bytes == found.pattern.nbytes + found.value_norms.nbytes + found.visible.nbytes + found.tokens.nbytes


def test_shapes_and_a_batch_of_one():
    model = tiny()
    found = attention_patterns(model, TOKENS[None])
    assert (found.n_layers, found.n_heads, found.n_pos) == (2, 3, 6)
    assert found.str_tokens == ()
    np.testing.assert_array_equal(found.pattern, attention_patterns(model, TOKENS).pattern)
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


@pytest.mark.parametrize("tokens", [torch.zeros(2, 3, dtype=torch.long), torch.zeros(0, dtype=torch.long)])
def test_what_is_not_one_prompt_is_refused(tokens: torch.Tensor):
    with pytest.raises(ValueError, match="one prompt"):
        attention_patterns(tiny(), tokens)


def test_half_precision_comes_out_as_float32():
    model = tiny().to(torch.bfloat16)
    assert attention_patterns(model, TOKENS).pattern.dtype == np.float32


@pytest.mark.parametrize("class_token", [True, False])
def test_of_an_image_the_positions_are_its_patches(class_token: bool):
    """The first layer's formula on patches cut out by hand, [CLS] before them."""
    model = tiny(
        read_in="patches", image_size=6, patch_size=2, n_channels=3, class_token=class_token, n_ctx=9 + class_token,
        read_out="classes", d_out=4, causal=False, norm=None, d_vocab=None, pooling="mean",
    )  # fmt: skip
    torch.manual_seed(0)
    image = torch.randn(3, 6, 6)
    found = attention_patterns(model, image)
    patches = [
        image[:, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].flatten() @ model.embed.W for r in range(3) for c in range(3)
    ]
    x = torch.stack([*([model.embed.cls] if class_token else []), *patches]) + model.W_pos
    scores = (x @ model.W_Q[0, 1]) @ (x @ model.W_K[0, 1]).T / 2
    np.testing.assert_allclose(found.pattern[0, 1], scores.softmax(-1).detach().numpy(), rtol=1e-3, atol=1e-5)
    assert found.n_pos == 9 + class_token and found.tokens.size == 0 and "positions" in found.headline
    names = [f"{row}, {column}" for row in range(3) for column in range(3)]
    assert found.str_tokens == (("[CLS]", *names) if class_token else tuple(names))
    with refused("one prompt", "patches"):
        attention_patterns(model, torch.stack([image, image]))


def test_of_vectors_the_positions_are_numbered():
    model = tiny(read_in="vectors", d_in=5, read_out="vectors", d_out=2, norm=None, d_vocab=None).double()
    vectors = torch.randn(7, 5, dtype=torch.float64)
    found = attention_patterns(model, vectors)
    x = vectors @ model.embed.W + model.W_pos[:7]
    scores = ((x @ model.W_Q[0, 0]) @ (x @ model.W_K[0, 0]).T / 2).masked_fill(
        torch.ones(7, 7).triu(1).bool(), -math.inf
    )
    np.testing.assert_allclose(found.pattern[0, 0], scores.softmax(-1).detach().numpy(), rtol=1e-5)
    assert found.str_tokens == tuple("0123456")
    with refused("torch.float64"):
        attention_patterns(model, vectors.float())
