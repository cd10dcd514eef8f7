"""What a model refuses, in words: shape, range and length of its input, and targets that do not fit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig, resolve_device
from tests.messages import refused


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[0, 11]], r"ids run from 0 to 11, but this vocabulary has ids 0 to 10"),
        ([[-1, 3]], r"ids run from -1 to 3.*another tokenizer"),
        ([[0] * 9], r"got 9 positions, but this model takes 1 to 8 \(n_ctx\)"),
        ([[]], r"got 0 positions, but this model takes 1 to 8"),
        ([0, 1], r"expected integer token ids \[batch, pos\], got \[2\] torch.int64"),
        ([[0.0, 1.0]], r"expected integer token ids \[batch, pos\], got \[1, 2\] torch.float32"),
        ([[True, False]], r"got \[1, 2\] torch.bool"),
    ],
)
def test_ids_that_do_not_fit(make, ids, message):
    tensor = torch.tensor(ids) if ids != [[]] else torch.zeros(1, 0, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        make()(tensor)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integer_type_will_do(make, tokens, dtype):
    model = make()
    torch.testing.assert_close(model(tokens.to(dtype)), model(tokens))
    torch.testing.assert_close(model.loss_per_token(tokens.to(dtype)), model.loss_per_token(tokens))


def test_the_full_context_fits(make):
    assert make()(torch.zeros(1, 8, dtype=torch.long)).shape == (1, 8, 11)


def test_an_empty_batch_has_empty_logits(make):
    assert make()(torch.zeros(0, 5, dtype=torch.long)).shape == (0, 5, 11)


def test_return_types(make, tokens):
    model = make()
    logits, loss = model(tokens, return_type="both")
    torch.testing.assert_close(logits, model(tokens))
    torch.testing.assert_close(loss, model(tokens, return_type="loss"))
    with pytest.raises(Exception, match=r"return_type|logits"):
        model(tokens, return_type="logit")


@torch.no_grad()
def test_loss_is_next_token_cross_entropy_in_nats(make, tokens):
    model = make(torch.float64)
    log_probabilities = model(tokens).log_softmax(-1)
    expected = torch.tensor(
        [[-float(log_probabilities[b, p, tokens[b, p + 1]]) for p in range(6)] for b in range(2)],
        dtype=torch.float64,
    )
    torch.testing.assert_close(model.loss_per_token(tokens), expected)
    torch.testing.assert_close(model(tokens, return_type="loss"), expected.mean())


def test_given_targets_replace_the_next_token(make, tokens):
    model = make(torch.float64, causal=False)
    targets = torch.randint(11, (2, 7))
    targets[0, 3] = -100
    per_token = model(tokens, return_type="loss", targets=targets, loss_per_token=True)
    expected = -model(tokens).log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    expected[0, 3] = 0
    torch.testing.assert_close(per_token, expected)
    mean = model(tokens, return_type="loss", targets=targets)
    torch.testing.assert_close(mean, expected.sum() / 13)


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"causal": False}, {}, "needs targets: only a causal model of tokens predicts its own input"),
        ({}, {"targets": torch.zeros(2, 6, dtype=torch.long)}, r"targets: expected \[2, 7\], got \[2, 6\]"),
        ({}, {"targets": torch.full((2, 7), 11)}, r"targets run from 11 to 11, expected 0 to 10"),
        ({}, {"targets": torch.full((2, 7), -1)}, r"targets run from -1 to -1"),
        ({}, {"targets": torch.full((2, 7), -100)}, r"every target is padding or ignored"),
    ],
)
def test_losses_that_cannot_be_taken(make, tokens, fields, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**fields)(tokens, return_type="loss", **arguments)


def test_one_position_has_no_next_token(make):
    with refused("at least 2", "got 1"):
        make()(torch.zeros(1, 1, dtype=torch.long), return_type="loss")


def test_a_mask_that_fits_the_context_but_not_a_shorter_prompt(make):
    """Query 0 sees only key 7: fine with 8 positions, a softmax over nothing with 5."""
    mask = torch.ones(1, 8, 8, dtype=torch.bool)
    mask[0, 0] = torch.arange(8) == 7
    model = make(attn_mask=mask)
    assert model(torch.zeros(1, 8, dtype=torch.long)).isfinite().all()
    with refused("without a key", "5 positions"):
        model(torch.zeros(1, 5, dtype=torch.long))


def test_patterns_are_given_exactly_when_the_configuration_says_so(make):
    sizes = {"n_layers": 1, "d_model": 4, "n_heads": 2, "d_head": 2, "n_ctx": 3, "d_vocab": 5}
    given = ModelConfig(**sizes, phi="fixed", fixed_pattern="given")
    with refused("no pattern", "'given'"):
        AttentionOnlyTransformer(given)
    with refused("fixed_pattern=None", "a pattern"):
        AttentionOnlyTransformer(ModelConfig(**sizes), pattern=torch.eye(3))
    with pytest.raises(ValueError, match=r"broadcasts to \[1, 2, 3, 3\], got \[4, 4\]"):
        AttentionOnlyTransformer(given, pattern=torch.eye(4))
    with pytest.raises(ValueError, match="finite"):
        AttentionOnlyTransformer(given, pattern=torch.full((3, 3), float("nan")))
    model = AttentionOnlyTransformer(given, pattern=torch.eye(3, dtype=torch.float64))
    assert model.blocks[0].attn.fixed_pattern.dtype == torch.float32
    with refused("W_Q", "phi='fixed'"):
        _ = model.W_Q


def test_devices():
    assert resolve_device("cpu").type == "cpu" and resolve_device(torch.device("meta")).type == "meta"
    assert resolve_device().type in ("cpu", "cuda")
    with refused("auto, cpu, cuda, cuda:N or mps"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="not available to torch"):
            resolve_device("cuda")


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_other_precisions(make, tokens, attention):
    exact = make(torch.float64, attention=attention, bias=True)
    assert exact.dtype == exact(tokens).dtype == torch.float64
    single = make(attention=attention, bias=True)
    torch.testing.assert_close(single.double()(tokens), exact(tokens), rtol=1e-5, atol=1e-5)
    half = make(attention=attention, bias=True).bfloat16()
    logits, cache = half.run_with_cache(tokens)
    assert logits.dtype == cache["pattern", 0].dtype == torch.bfloat16
    torch.testing.assert_close(half(tokens).double(), exact(tokens), rtol=0.1, atol=0.2)
    torch.testing.assert_close(logits.double(), exact(tokens), rtol=0.1, atol=0.2)


def test_vectors_of_another_type_are_refused_by_name():
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_head": 4, "n_ctx": 5, "d_vocab": None, "d_in": 3}
    model = AttentionOnlyTransformer(ModelConfig(**sizes, read_in="vectors", read_out="vectors"))
    vectors = torch.randn(1, 5, 3, dtype=torch.float64)
    with refused("torch.float32", "torch.float64", "model.dtype"):
        model(vectors)
    torch.testing.assert_close(model(vectors.to(model.dtype)).double(), model.double()(vectors), atol=1e-5, rtol=1e-4)


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


FAMILY = {
    "mhsa": {},
    "mssa": {"attention": "mssa", "bias": True},
    "both ways": {"causal": False},
    "qk": {"positions": "qk"},
    "none": {"positions": None},
    "linear": {"phi": "linear"},
    "linear both ways": {"phi": "linear", "causal": False},
    "thresholded": {"phi": "thresholded_softmax", "threshold": 0.1},
}


def pad(prompts: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), 9)
    mask = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        where = slice(longest - len(prompt), None) if side == "left" else slice(0, len(prompt))
        tokens[row, where], mask[row, where] = prompt, True
    return tokens, mask


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64])
@torch.no_grad()
def test_padded_rows_equal_single_prompts(make, kind, side, mask_dtype):
    model = make(torch.float64, **FAMILY[kind])
    prompts = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2]), torch.tensor([6, 5, 3])]
    tokens, mask = pad(prompts, side)
    logits = model(tokens, attention_mask=mask.to(mask_dtype))
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(logits[row][mask[row]], model(prompt[None])[0])
    assert logits.isfinite().all(), "padding's own rows mean nothing, but must not be NaN"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32])
@torch.no_grad()
def test_the_loss_counts_real_tokens_only(make, side, mask_dtype):
    model = make(torch.float64)
    prompts = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2]), torch.tensor([6, 5, 3])]
    tokens, mask = pad(prompts, side)
    alone = [model.loss_per_token(prompt[None])[0] for prompt in prompts]
    padded = model.loss_per_token(tokens, attention_mask=mask.to(mask_dtype))
    assert padded.shape == (3, 4)
    for row, losses in enumerate(alone):
        torch.testing.assert_close(padded[row][padded[row] != 0], losses)
    mean = model(tokens, return_type="loss", attention_mask=mask.to(mask_dtype))
    torch.testing.assert_close(mean, torch.cat(alone).mean())


@torch.no_grad()
def test_texts_of_different_lengths_are_padded_and_masked(make, tokenizer):
    model = make(torch.float64, d_vocab=tokenizer.d_vocab, n_ctx=40, tokenizer=tokenizer, causal=False)
    texts = ["the cat sat", "that", "on the mat, the rat"]
    logits = model(texts)
    for row, text in enumerate(texts):
        alone = model(text)[0]
        torch.testing.assert_close(logits[row, : len(alone)], alone)


@torch.no_grad()
def test_a_mask_of_the_wrong_shape_is_refused(make, tokens):
    with pytest.raises(ValueError, match=r"attention_mask: expected \[2, 7\], got \[2, 6\]"):
        make()(tokens, attention_mask=torch.ones(2, 6))


@torch.no_grad()
def test_mean_pooling_leaves_padding_out(make):
    model = make(
        torch.float64, read_in="vectors", read_out="classes", d_in=4, d_out=3, d_vocab=None, pooling="mean",
        causal=False,
    )  # fmt: skip
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    mask = torch.tensor([[True] * 4 + [False] * 2])
    torch.testing.assert_close(model(x, attention_mask=mask), model(x[:, :4]))
