"""Text in and out of a model, with the project's own tokenizer."""

from __future__ import annotations

import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused


@pytest.fixture(scope="module")
def model(make, tokenizer: Tokenizer) -> AttentionOnlyTransformer:
    return make(d_vocab=tokenizer.d_vocab, n_ctx=64, tokenizer=tokenizer)


def test_the_start_token_comes_first(model, tokenizer):
    ids = tokenizer.encode("the cat")
    assert model.to_tokens("the cat").tolist() == [[0, *ids]]
    assert model.to_tokens("the cat", prepend_bos=False).tolist() == [ids]
    assert model.to_tokens("").tolist() == [[0]]
    assert model.to_tokens("", prepend_bos=False).shape == (1, 0)


def test_a_list_is_padded_on_the_right(model, tokenizer):
    tokens, mask = model.to_tokens(["the cat sat", "q"], return_mask=True)
    short = [0, *tokenizer.encode("q")]
    assert tokens[1].tolist() == short + [0] * (tokens.shape[1] - len(short))
    assert mask.sum(1).tolist() == [tokens.shape[1], len(short)] and mask[1, : len(short)].all()


def test_text_goes_straight_in(model):
    torch.testing.assert_close(model("the cat"), model(model.to_tokens("the cat")))


@pytest.mark.parametrize("text", ["the cat sat", "", "\x00", "naïve 🧵 ‮", "  \n\t" * 5])
def test_text_comes_back(model, text):
    tokens = model.to_tokens(text, prepend_bos=False)
    if tokens.numel():
        assert model.to_string(tokens[0]) == model.to_string(tokens)[0] == text
        assert model.to_string(tokens[0].tolist()) == text


def test_a_special_token_that_is_typed_stays_text(model):
    tokens = model.to_tokens("<|endoftext|>", prepend_bos=False)
    assert 0 not in tokens and tokens.shape[1] > 1
    assert model.to_string(tokens[0]) == "<|endoftext|>"


def test_one_string_for_each_token(model):
    strings = model.to_str_tokens("the cat")
    assert strings[0] == "<|endoftext|>" and "".join(strings[1:]) == "the cat"
    assert model.to_str_tokens("the cat", prepend_bos=False) == strings[1:]
    assert model.to_str_tokens(model.to_tokens("the cat")) == strings
    assert model.to_str_tokens(model.to_tokens("the cat")[0].tolist()) == strings
    with refused("[pos]", "[2, 3]"):
        model.to_str_tokens(torch.zeros(2, 3, dtype=torch.long))


def test_a_single_token(model, tokenizer):
    assert model.to_single_token("t") == tokenizer.encode("t")[0]
    with refused("'zq'", "2 tokens"):
        model.to_single_token("zq")
    direction = model.tokens_to_residual_directions("t")
    torch.testing.assert_close(direction, model.W_U[:, model.to_single_token("t")])


def test_what_cannot_be_text(model, make):
    with pytest.raises(ValueError, match="surrogate"):
        model.to_tokens("a\ud800b")
    with refused("one text", "empty"):
        model.to_tokens([])
    with pytest.raises(ValueError, match="no tokenizer"):
        make()("the cat")


def test_too_long_a_text_is_refused_not_cut(model):
    tokens = model.to_tokens("x" * 100)
    assert tokens.shape == (1, 101)
    with refused("101 positions", "1 to 64"):
        model("x" * 100)
