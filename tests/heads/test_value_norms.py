"""Norms of value vectors against the values themselves, in our models and in BERT read through Hugging Face."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from analyses.mask_similarity import mask_similarity
from aotlens.heads import attention_by_place, attention_patterns, value_norms
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

CFG = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=8, d_vocab=20, seed=2, causal=False)
TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 20, (5, 8)))


def test_norms_are_the_patterns_value_norms() -> None:
    model = AttentionOnlyTransformer(CFG)
    kinds = torch.zeros_like(TOKENS)
    kinds[:, 1:3], kinds[:, 5:] = 1, -1
    found = value_norms(model, [(TOKENS[:2], kinds[:2]), (TOKENS[2:], kinds[2:])], ("rest", "two", "none"))
    expected = np.stack([attention_patterns(model, row).value_norms for row in TOKENS], 2)  # [layer, head, row, key]
    np.testing.assert_allclose(found.norms[..., 1], expected[..., 1:3].mean((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found.norms[..., 0], expected[..., [0, 3, 4]].mean((2, 3)), rtol=1e-5)
    assert np.isnan(found.norms[..., 2]).all() and found.counts.tolist() == [15, 10, 0]
    np.testing.assert_allclose(found.relative("two", "rest"), found.norms[..., 1] / found.norms[..., 0])
    np.testing.assert_allclose(found.by_layer()[:, :2], found.norms[..., :2].mean(1))
    assert list(found.to_frame().columns) == ["layer", "head", "rest", "two", "none"] and len(found.to_frame()) == 6
    with pytest.raises(ValueError, match="no class 'third'"):
        found.relative("third", "rest")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [(torch.zeros(5, 7, dtype=torch.long), "for each of"), (torch.full((5, 8), 2), "from 2 to 2"),
     (torch.full((5, 8), -1), "at least one token")],
)  # fmt: skip
def test_classes_that_do_not_fit_are_refused(kinds: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_norms(AttentionOnlyTransformer(CFG), [(TOKENS, kinds)], ("a", "b"))


def test_mask_similarity_is_the_cosine_of_streams() -> None:
    model = AttentionOnlyTransformer(CFG)
    one, other = TOKENS.clone(), TOKENS.roll(1, 0)
    one[:, 2] = other[:, 2] = 19
    other[0] = one[0]
    cosine = mask_similarity(model, one, other, 2, batch_size=2)
    caches = [model.run_with_cache(rows)[1] for rows in (one, other)]
    for depth in range(3):
        names = ("resid_pre", 0) if depth == 0 else ("resid_post", depth - 1)
        u, v = (cache[names][:, 2].detach().double().numpy() for cache in caches)
        expected = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
        np.testing.assert_allclose(cosine[depth], expected, atol=1e-6)
    np.testing.assert_allclose(cosine[0], 1, atol=1e-6)
    np.testing.assert_allclose(cosine[:, 0], 1, atol=1e-6)
    assert (cosine[1, 1:] < 1 - 1e-4).all()
    for wrong in ((one, other[:2], 2), (one, other, 3)):
        with pytest.raises(ValueError, match="the same token"):
            mask_similarity(model, *wrong)


def test_bert_through_a_bridge_is_as_hugging_face_has_it(tiny_bert: Path) -> None:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import BertForMaskedLM

    bridge = TransformerBridge.boot_transformers(str(tiny_bert), device="cpu")
    theirs = BertForMaskedLM.from_pretrained(tiny_bert, attn_implementation="eager").eval()
    tokens = torch.randint(5, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    tokens[:, 0], tokens[:, -1], tokens[:, 1] = 2, 3, 4
    with torch.no_grad():
        out = theirs(tokens, output_hidden_states=True, output_attentions=True)
        values = [
            layer.attention.self.value(hidden).view(3, 9, 2, 12)
            for layer, hidden in zip(theirs.bert.encoder.layer, out.hidden_states, strict=False)
        ]
    kinds = torch.full_like(tokens, 2)
    kinds[:, 0], kinds[:, -1] = 0, 1
    found = value_norms(bridge, [(tokens, kinds)], ("[CLS]", "[SEP]", "other"))
    for layer, value in enumerate(values):
        norms = value.norm(dim=-1)  # [batch, pos, head]
        np.testing.assert_allclose(found.norms[layer, :, 0], norms[:, 0].mean(0), rtol=1e-4)
        np.testing.assert_allclose(found.norms[layer, :, 2], norms[:, 1:-1].mean((0, 1)), rtol=1e-4)
    similarity = mask_similarity(bridge, tokens[:1], tokens[1:2], 1)
    for depth, hidden in enumerate(out.hidden_states):
        expected = torch.nn.functional.cosine_similarity(hidden[0, 1], hidden[1, 1], dim=0)
        assert similarity[depth, 0] == pytest.approx(float(expected), abs=1e-5)
    places = attention_by_place(bridge, tokens)
    expected_first = torch.stack(out.attentions)[:, :, :, 2:-2, 0].mean((1, 3))
    np.testing.assert_allclose(places["first_token"], expected_first, rtol=1e-4)


def test_other_objects_are_refused() -> None:
    with refused("value norms", "AttentionOnlyTransformer", "TransformerBridge", "Linear"):
        HeadReader.of(torch.nn.Linear(2, 2), "value norms")
