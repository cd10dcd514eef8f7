"""The direct path against dense matrices and tables counted by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from aotlens.data import TokenFile, Tokenizer
from aotlens.data.corpus import Document
from aotlens.evaluate import BigramModel
from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams import bigrams, zero_layer


def alone(model: AttentionOnlyTransformer) -> torch.Tensor:
    """The prediction `[first, second]` of the model's ends, run as they are; logits."""
    with torch.no_grad():
        stream = model.W_E
        if model.cfg.norm:
            stream = model.ln_final(stream)
        return stream @ model.W_U + model.b_U


@pytest.mark.parametrize("kind", [{"norm": None}, {}, {"tied_embeddings": True, "bias": False}], ids=str)
def test_zero_layer_is_the_kl_of_each_row(make, rng, kind: dict) -> None:
    model = make(**kind)
    tokens = rng.integers(0, 21, 3000)
    tokens[-1] = 22  # which nothing follows
    found = zero_layer(model, BigramModel.fit(tokens, 23))
    log_q = alone(model).log_softmax(-1).numpy()
    table = np.zeros((23, 23))
    np.add.at(table, (tokens[:-1], tokens[1:]), 1)
    for a in range(23):
        if not table[a].any():
            assert np.isnan(found.kl[a]) and found.frequency[a] == 0
            continue
        p = table[a] / table[a].sum()
        kl = sum(p[b] * (np.log(p[b]) - log_q[a, b]) for b in range(23) if p[b] > 0)
        assert found.kl[a] == pytest.approx(kl, rel=1e-9)
    loss = -np.mean([log_q[a, b] for a, b in pairwise(tokens)])
    assert found.cross_entropy == pytest.approx(loss, rel=1e-9)
    assert np.isnan(found.kl[21]) and np.isnan(found.kl[22])
    unigram = np.bincount(tokens[1:], minlength=23) / 2999
    against = -np.mean(np.log(unigram[tokens[1:]]))
    assert found.unigram_kl == pytest.approx(against - found.entropy, rel=1e-9)
    assert bool(found.relative) == bool(model.cfg.norm)


def test_a_zero_layer_transformer_has_its_own_loss(make, rng) -> None:
    """With heads that write nothing the model is its direct path, and the loss that it has itself is the one given."""
    model = make(positions="qk")
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
        model.blocks[0].attn.b_O.zero_()
        model.blocks[0].attn.b_V.zero_()
    tokens = rng.integers(0, 23, 10)
    own = model(torch.tensor(tokens)[None], return_type="loss").item()
    assert zero_layer(model, BigramModel.fit(tokens, 23)).cross_entropy == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("kind", [{"norm": None}, {}], ids=str)
def test_the_largest_bigrams(make, tmp_path, kind: dict) -> None:
    text = "the cat sat on the mat; the dog sat on the cat. " * 30
    tokenizer = Tokenizer.train([text], 270)
    model = make(d_vocab=270, **kind)
    model.tokenizer = tokenizer
    corpus = TokenFile.build([Document("a", text)], tokenizer, tmp_path / "tokens.bin")
    with torch.no_grad():
        stream = model.W_E
        if model.cfg.norm:
            stream = (model.ln_final(stream) - model.ln_final.b) @ model.W_U
        dense = stream if model.cfg.norm else stream @ model.W_U
        dense = (dense - dense.mean(1, keepdim=True)).numpy()
    found = bigrams(model, 50, corpus=corpus)
    np.testing.assert_allclose(found.logit, np.sort(dense.ravel())[::-1][:50], rtol=1e-9)
    np.testing.assert_allclose(found.logit, dense[found.first, found.second], rtol=1e-9)
    ids = np.asarray(corpus.tokens).tolist()
    pairs, firsts = Counter(pairwise(ids)), Counter(ids[:-1])
    per_token = bigrams(model, 40, per_token=True, corpus=corpus)
    assert len(per_token.first) == 40 * 270 and per_token.count is not None
    for i in range(0, 40 * 270, 7):
        a, b = int(per_token.first[i]), int(per_token.second[i])
        assert per_token.count[i] == pairs[a, b]
        if firsts[a]:
            assert per_token.probability[i] == pytest.approx(pairs[a, b] / firsts[a])
        else:
            assert np.isnan(per_token.probability[i])
        assert per_token.logit[i] == pytest.approx(np.sort(dense[a])[::-1][i % 40])
    assert per_token.count.sum() > 0
    assert found.to_frame().columns.tolist()[:2] == ["first", "second"]


def test_another_vocabulary_is_refused(make) -> None:
    with pytest.raises(ValueError, match="23 tokens, got 24"):
        zero_layer(make(), BigramModel.fit(np.arange(20), 24))
