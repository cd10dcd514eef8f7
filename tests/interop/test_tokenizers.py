"""The tokenizer goes along: the same text has the same ids on both sides."""

from __future__ import annotations

import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.interop import from_transformer_lens, to_transformer_lens
from aotlens.interop.bridge_out import to_hugging_face

TEXTS = ["the cat", "", "<|endoftext|> typed", "naïve 🧵\x00", "  \n\t x"]


@pytest.fixture(scope="module")
def model(make, tokenizer):
    return make(d_vocab=tokenizer.d_vocab, n_ctx=64, tokenizer=tokenizer)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("prepend_bos", [True, False])
def test_a_bridge_reads_text_as_the_model_does(model, text, prepend_bos):
    bridge = to_transformer_lens(model)
    expected = model.to_tokens(text, prepend_bos=prepend_bos)
    if expected.numel():
        assert torch.equal(bridge.to_tokens(text, prepend_bos=prepend_bos), expected)
        assert bridge.to_string(expected[0]) == model.to_string(expected[0])


@torch.no_grad()
def test_text_goes_straight_in(model):
    bridge = to_transformer_lens(model)
    torch.testing.assert_close(bridge("the cat"), model("the cat"), rtol=1e-5, atol=1e-5)
    assert bridge.to_single_token("t") == model.to_single_token("t")
    tokens = bridge.to_tokens(["the cat sat", "a"])
    assert torch.equal(tokens, model.to_tokens(["the cat sat", "a"])), "padded on the right with the start token"


def test_it_comes_back_unchanged(model, tokenizer):
    bridge = to_transformer_lens(model)
    bridge.to_tokens(["the cat sat", "a"])  # leaves padding and truncation behind in the Hugging Face tokenizer
    back = from_transformer_lens(bridge)
    assert back.tokenizer.to_json() == tokenizer.to_json()
    assert back.tokenizer.encode_batch(["the cat sat", "a"]) == tokenizer.encode_batch(["the cat sat", "a"])


def test_without_a_tokenizer_there_is_none(make):
    bridge = to_transformer_lens(make())
    assert bridge.tokenizer is None and from_transformer_lens(bridge).tokenizer is None


def test_another_kind_of_tokenizer_comes_along_and_says_that_it_is_lossy(model):
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = PreTrainedTokenizerFast(tokenizer_object=Backend(WordLevel({"a": 0, "?": 1}, unk_token="?")))
    bridge = to_transformer_lens(model)
    bridge.tokenizer = words
    with pytest.warns(UserWarning, match="the tokenizer is lossy"):
        assert from_transformer_lens(bridge).tokenizer.str_tokens([0, 1]) == [" a", " ?"]
    with pytest.raises(ValueError, match="or a fast Hugging Face tokenizer, got int"):
        Tokenizer.of(3)


def test_the_context_is_its_longest_input(tokenizer):
    assert to_hugging_face(tokenizer, 64).model_max_length == 64
