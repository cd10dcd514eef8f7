"""The direct path against dense matrices and tables counted by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from aotlens.data import TokenFile, Tokenizer, open_corpus
from aotlens.data.corpus import Document
from aotlens.evaluate import BigramModel
from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams import (
    bigrams,
    count_bigrams,
    direct_path,
    distance_shares,
    own_token_heads,
    read_ids,
    zero_layer,
)
from aotlens.trigrams.background import BY_POSITION
from aotlens.trigrams.direct_path import constant_logits


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


def test_what_mlps_add_is_named(make, rng) -> None:
    counts = BigramModel.fit(rng.integers(0, 21, 300), 23)
    assert "MLPs" in zero_layer(make(norm=None, d_mlp=8), counts).relative
    assert "MLPs" not in zero_layer(make(), counts).relative


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
    predicted = alone(model).softmax(-1).numpy()
    np.testing.assert_allclose(found.predicted, predicted[found.first, found.second], rtol=1e-9)
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


def test_heads_that_see_the_last_token_alone_write_what_a_prompt_of_one_token_gets(make, rng) -> None:
    """A prompt of one token: every head's attention is on it, so the prediction with all heads is the model's own."""
    model = make(norm=None, positions="qk")
    with torch.no_grad():
        own = model(torch.arange(23)[:, None])[:, 0].log_softmax(-1)
    tokens = rng.integers(0, 23, 5000)
    every = [(0, 0), (0, 1)]
    loss = -own[tokens[:-1], tokens[1:]].mean().item()
    assert zero_layer(model, BigramModel.fit(tokens, 23), heads=every).cross_entropy == pytest.approx(loss, rel=1e-9)
    centred = own - own.mean(1, keepdim=True)
    # The biases are the same for every first token: differences between first tokens are the path's.
    path = direct_path(model, every).AB
    torch.testing.assert_close(path - path[4], centred - centred[4])
    alone = zero_layer(model, BigramModel.fit(tokens, 23))
    one = zero_layer(model, BigramModel.fit(tokens, 23), heads=[(0, 1)])
    assert len({round(found.mean_kl, 6) for found in (alone, one, zero_layer(model, tokens, heads=every))}) == 3
    assert one.heads == ((0, 1),)


@pytest.mark.parametrize("kind", [{"attention": "mssa"}, {"phi": "thresholded_softmax", "threshold": 0.3}], ids=str)
def test_one_token_is_all_the_attention_there_is(make, kind: dict) -> None:
    model = make(norm=None, positions=None, **kind)
    with torch.no_grad():
        own = model(torch.arange(23)[:, None])[:, 0]
    every = [(0, 0), (0, 1)]
    found = direct_path(model, every).AB + constant_logits(model, every)
    torch.testing.assert_close(found - found.mean(1, keepdim=True), own - own.mean(1, keepdim=True))


@pytest.mark.parametrize("norm", [None, "layernorm"])
def test_half_precision_is_widened(make, rng, norm: str | None) -> None:
    half, tokens = make(dtype=torch.bfloat16, norm=norm), rng.integers(0, 23, 3000)
    expected = zero_layer(make(dtype=torch.bfloat16, norm=norm).double(), tokens)
    assert zero_layer(half, tokens).mean_kl == pytest.approx(expected.mean_kl, rel=1e-5)
    assert half.dtype == torch.bfloat16


def test_chosen_first_tokens(make) -> None:
    model = make(norm=None)
    every = bigrams(model, 4, per_token=True)
    some = bigrams(model, 4, tokens=[9, 2])
    assert some.first.tolist() == [9] * 4 + [2] * 4
    for token in (9, 2):
        np.testing.assert_array_equal(some.second[some.first == token], every.second[every.first == token])
        np.testing.assert_allclose(some.predicted[some.first == token], every.predicted[every.first == token])
        np.testing.assert_allclose(some.logit[some.first == token], every.logit[every.first == token])


def test_text_is_counted_as_it_is_read(make, tmp_path) -> None:
    """A corpus, its token file, and its ids with the separators: pairs across documents go through the separator."""
    for name, text in (("a", "the cat sat on the mat "), ("b", "the dog ran to the dog ")):
        (tmp_path / f"{name}.txt").write_text(text * 20)
    corpus = open_corpus(f"dir:{tmp_path}")
    tokenizer = Tokenizer.train((d.text for d in corpus.documents()), 270)
    model = make(d_vocab=270)
    model.tokenizer = tokenizer
    file = TokenFile.build(corpus.documents(), tokenizer, tmp_path / "tokens.bin")
    ids = np.asarray(file.tokens).astype(np.int64)
    expected = Counter(pairwise(ids.tolist()))
    for form in (corpus, file, ids, torch.from_numpy(ids), BigramModel.fit(ids, 270)):
        found = count_bigrams(model, form)
        pairs = zip(found.first.tolist(), found.second.tolist(), strict=True)
        assert dict(zip(pairs, found.count.tolist(), strict=True)) == expected and found.n == len(ids) - 1
    np.testing.assert_array_equal(read_ids(model, corpus), ids[1:])
    np.testing.assert_array_equal(read_ids(model, file, max_tokens=9), ids[1:10])
    first = [tokenizer.eot_id, *tokenizer.encode("the dog ran to the dog " * 20)]
    assert count_bigrams(model, corpus, documents=["b"]).n == len(first) - 1
    assert bigrams(model, 3, corpus=corpus, documents=["a"], max_tokens=30).count is not None


def test_tokens_by_their_part_of_the_kl(make, rng) -> None:
    tokens = rng.integers(0, 20, 600)
    found = zero_layer(make(), tokens)
    frame = found.to_frame()
    assert len(frame) == 20 and frame["part"].is_monotonic_decreasing
    assert frame["part"].sum() == pytest.approx(found.mean_kl)
    row = frame.iloc[3]
    assert row["kl"] == found.kl[int(row.token_id)] and row["count"] == (tokens[:-1] == row.token_id).sum()


@pytest.mark.parametrize(
    ("changes", "heads", "message"),
    [
        ({}, [(0, 0)], "without norms"),
        ({"norm": None, "n_layers": 2}, [(1, 0)], r"first layer.*1\.0"),
        ({"norm": None, "phi": "linear"}, [(0, 0)], "phi='linear'"),
        ({"norm": None}, [(0, 7)], r"head 0\.7"),
    ],
)
def test_heads_that_cannot_be_added(make, changes: dict, heads: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        zero_layer(make(**changes), BigramModel.fit(np.arange(20), 23), heads=heads)


def test_counted_bigrams_are_not_counted_again(make) -> None:
    with pytest.raises(ValueError, match="counted already"):
        zero_layer(make(), BigramModel.fit(np.arange(20), 23), max_tokens=10)
    with pytest.raises(ValueError, match="got none"):
        read_ids(make(), np.empty(0, dtype=np.int64))


def test_heads_that_attend_to_the_token_itself(make) -> None:
    """A head whose positions score themselves far above all others, beside one whose positions say nothing."""
    model = make(positions="qk", norm=None, bias=False, n_ctx=6, d_model=12)
    with torch.no_grad():
        model.W_pos.zero_()
        model.W_pos[:, :6] = torch.eye(6)
        for head, strength in ((0, 30.0), (1, 0.0)):
            for weights in (model.blocks[0].attn.W_Q, model.blocks[0].attn.W_K):
                weights[head].zero_()
                weights[head, :5, :5] = strength * torch.eye(5)
    shares = [distance_shares(model, (0, head))[0] for head in range(2)]
    assert shares[0] > BY_POSITION > shares[1]
    assert own_token_heads(model) == ((0, 0),)
    assert own_token_heads(model, at_least=0.01) == ((0, 0), (0, 1)) and own_token_heads(model, at_least=1.1) == ()
    bigrams(model, 5, heads=own_token_heads(model))  # takes them
    for kind in ({"positions": None, "norm": None}, {"positions": "qk"}):
        assert own_token_heads(make(**kind)) == ()
