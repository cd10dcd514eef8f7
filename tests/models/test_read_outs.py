"""Classes at every position or at the last one, and a read-out without the layers' biases: against the same weights."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F
from transformer_lens.head_detector import detect_head

from aotlens.circuits import copying_rate, ov_circuit
from aotlens.heads import ablate
from aotlens.models import ModelConfig
from aotlens.paths import direct_logit_attribution, expand, term_importance
from tests.messages import refused
from tests.small_models import maker, small_tokenizer, small_tokens

#: Task models: bidirectional or not, with and without a norm.
KINDS = [
    pytest.param({"causal": causal, "norm": norm, "bias": True}, id=f"causal={causal}, norm={norm}")
    for causal in (True, False)
    for norm in ("layernorm", None)
]


def classes(pooling, **fields):
    return maker(dtype=torch.float64)(read_out="classes", d_out=4, pooling=pooling, **fields)


def every_position(model, tokens):
    """The read-out of each position, from the stream that a hook saw: norm, W_U and b_U written out."""
    _, cache = model.run_with_cache(tokens)
    stream = cache["blocks.1.hook_resid_post"]
    if model.cfg.norm:
        stream = F.layer_norm(stream, stream.shape[-1:], model.ln_final.w, model.ln_final.b, model.cfg.norm_eps)
    return stream @ model.W_U + model.b_U


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_where_classes_are_read(kind):
    tokens = small_tokens()
    expected = every_position(classes(None, **kind), tokens)
    for pooling, want in ((None, expected), ("last", expected[:, -1]), ("first", expected[:, 0])):
        torch.testing.assert_close(classes(pooling, **kind)(tokens), want)


@torch.no_grad()
def test_the_last_position_is_the_last_real_one():
    model, tokens = classes("last"), small_tokens()
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, 4:] = False
    padded = model(tokens, attention_mask=mask)
    torch.testing.assert_close(padded[1:], model(tokens[1:, :4]))
    torch.testing.assert_close(padded[:1], model(tokens[:1]))
    torch.testing.assert_close(model(tokens.flip(1), attention_mask=mask.flip(1))[1:], model(tokens.flip(1)[1:, 3:]))


@torch.no_grad()
@pytest.mark.parametrize("pooling", [None, "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_ablations_of_labels(kind, pooling):
    model, tokens = classes(pooling, **kind), small_tokens()
    targets = torch.randint(
        4, tuple(tokens.shape) if pooling is None else (2,), generator=torch.Generator().manual_seed(2)
    )
    result = ablate(model, tokens, "1.0", targets=targets)
    silent = copy.deepcopy(model)
    silent.blocks[1].attn.W_O[0] = 0
    for row in range(2):
        for got, one in ((result.clean, model), (result.ablated, silent)):
            logits = one(tokens[row : row + 1]).flatten(0, -2)
            assert got[row] == pytest.approx(float(F.cross_entropy(logits, targets[row].reshape(-1))))


@torch.no_grad()
@pytest.mark.parametrize("pooling", [None, "last", "first", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_paths_sum_to_the_classes(kind, pooling):
    model, tokens = classes(pooling, **kind), small_tokens()[0]
    expansion = expand(model, tokens)
    torch.testing.assert_close(expansion.frozen.logits, model(tokens[None]).reshape(expansion.frozen.logits.shape))
    last = len(expansion.frozen.logits) - 1
    torch.testing.assert_close(
        sum(value[last] for value in expansion.by_order(2)), expansion.frozen.logits[last, 2], rtol=1e-9, atol=1e-9
    )
    assert direct_logit_attribution(model, tokens, 1).heads.shape[-1] == len(expansion.frozen.logits)
    targets = torch.tensor([[0, 3, 1, 2, 0, 1, 2]]) if pooling is None else torch.tensor([3])
    importance = term_importance(model, tokens[None], targets=targets)
    assert importance.loss == pytest.approx(float(model(tokens[None], return_type="loss", targets=targets)))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_ov_circuits_end_in_classes(kind):
    model = classes(None, **kind)
    W_E, gain = model.W_E - model.W_E.mean(-1, keepdim=True), torch.ones(12).double()
    if model.cfg.norm:
        read = W_E / (W_E.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * model.blocks[0].ln1.w
        gain = model.ln_final.w
    else:
        read = model.W_E
    written = read @ model.W_V[0, 1] @ model.W_O[0, 1]
    written = written - written.mean(-1, keepdim=True) if model.cfg.norm else written
    circuit = ov_circuit(model, "0.1")
    torch.testing.assert_close(circuit.A @ circuit.B, written * gain @ model.W_U)
    assert circuit.right.index == "class"


@torch.no_grad()
def test_copying_rate_where_symbols_in_and_out_are_the_same():
    make = maker(dtype=torch.float64)
    model = make(read_out="classes", d_out=11, pooling="last", norm=None)
    circuit = ov_circuit(model, "0.2")
    same = (circuit.A @ circuit.B).argmax(1) == torch.arange(11)
    assert copying_rate(model, "0.2").top1 == pytest.approx(float(same.double().mean()))
    with refused("same tokens", "4 classes"):
        copying_rate(classes(None), "0.2")


@torch.no_grad()
def test_a_tied_model_keeps_its_layers_biases():
    model = maker(dtype=torch.float64)(tied_embeddings=True, bias=True, read_out_bias=False)
    assert bool(model.b_O.any()) and not model.b_U.any() and model.unembed.b_U is None
    stream = model.run_with_cache(small_tokens())[1]["ln_final.hook_normalized"] * model.ln_final.w + model.ln_final.b
    torch.testing.assert_close(model(small_tokens()), stream @ model.W_E.T)
    alone = maker()(read_out_bias=True)
    assert alone.unembed.b_U is not None and alone.blocks[0].attn.b_O is None
    with refused("read_out_bias='yes'", "True, False or None"):
        maker()(read_out_bias="yes")


def test_a_configuration_knows_where_its_model_is():
    model = maker()()
    plain = ModelConfig(**{f.name: getattr(model.cfg, f.name) for f in dataclasses.fields(ModelConfig)})
    assert (model.cfg.device, model.cfg.dtype) == (torch.device("cpu"), torch.float32)
    assert (plain.device, plain.dtype) == (None, None)
    assert plain == model.cfg and hash(plain) == hash(model.cfg) and repr(plain) == repr(model.cfg)
    assert not {"device", "dtype"} & model.cfg.to_dict().keys()
    kept, copied = model.cfg, copy.deepcopy(model)
    model.to(torch.float64)
    assert kept.dtype == model.cfg.dtype == torch.float64 and copied.cfg.dtype == torch.float32
    assert copied.to(torch.float16).cfg.dtype == torch.float16 and model.cfg.dtype == torch.float64
    assert pickle.loads(pickle.dumps(model.cfg)).dtype is None and copy.deepcopy(model.cfg) == model.cfg
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.cfg.dtype = torch.float32  # type: ignore[misc]


@torch.no_grad()
def test_transformer_lenses_head_detector_reads_our_models():
    tokenizer = small_tokenizer()
    model = maker()(d_vocab=tokenizer.d_vocab, n_ctx=32, tokenizer=tokenizer)
    text = "the cat sat on the mat"
    scores = detect_head(model, text, "previous_token_head")
    _, cache = model.run_with_cache(model.to_tokens(text))
    pattern = cache["pattern", 1][0, 2]
    assert scores.shape == (2, 3)
    assert float(scores[1, 2]) == pytest.approx(float(pattern.diagonal(-1).sum() / pattern.sum()), abs=1e-4)


IMAGES = {
    "read_in": "patches", "image_size": 4, "patch_size": 2, "n_channels": 3, "n_ctx": 5, "class_token": True,
    "read_out": "classes", "d_out": 6, "d_vocab": None, "causal": False, "bias": True,
}  # fmt: skip
VECTORS = {"read_in": "vectors", "read_out": "vectors", "d_in": 4, "d_out": 3, "d_vocab": None, "bias": True}


@torch.no_grad()
def test_patches_are_read_in_reading_order_channels_first(make):
    model = make(torch.float64, **IMAGES)
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    _, cache = model.run_with_cache(images)
    embedded = cache["hook_embed"]
    assert embedded.shape == (2, 5, 12)
    torch.testing.assert_close(embedded[:, 0], model.embed.cls.expand(2, -1))
    for patch, (row, column) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2)]):
        pixels = images[:, :, row : row + 2, column : column + 2].reshape(2, 12)
        torch.testing.assert_close(embedded[:, 1 + patch], pixels @ model.embed.W + model.embed.b)
    torch.testing.assert_close(cache["resid_pre", 0], embedded + model.W_pos)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_classes_are_read_from_the_pooled_position(make, pooling):
    model = make(torch.float64, **IMAGES, pooling=pooling)
    images = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    logits, cache = model.run_with_cache(images)
    last = cache["resid_post", 1]
    centred = last - last.mean(-1, keepdim=True)
    final = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    final = final * model.ln_final.w + model.ln_final.b
    pooled = final[:, 0] if pooling == "first" else final.mean(1)
    torch.testing.assert_close(logits, pooled @ model.W_U + model.b_U)
    targets = torch.tensor([5, 1])
    loss = model(images, return_type="loss", targets=targets)
    torch.testing.assert_close(loss, -logits.log_softmax(-1)[[0, 1], targets].mean())
    with pytest.raises(ValueError, match="needs targets"):
        model(images, return_type="loss")
    with pytest.raises(ValueError, match=r"targets: expected \[2\], got \[1\]"):
        model(images, return_type="loss", targets=targets[:1])


@torch.no_grad()
def test_vectors_are_read_in_and_out(make):
    model = make(torch.float64, **VECTORS)
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    out, cache = model.run_with_cache(x)
    assert out.shape == (2, 6, 3)
    torch.testing.assert_close(cache["hook_embed"], x @ model.embed.W + model.embed.b)
    targets = torch.randn_like(out)
    loss, each = (model(x, return_type="loss", targets=targets, loss_per_token=flag) for flag in (False, True))
    torch.testing.assert_close(loss, (out - targets).square().mean())
    torch.testing.assert_close(each, (out - targets).square())
    with refused("[2, 6, 3]", "None"):
        model(x, return_type="loss")
    with pytest.raises(ValueError, match=r"got \[2, 6, 1\]"):
        model(x, return_type="loss", targets=targets[..., :1])


@torch.no_grad()
def test_vectors_can_be_the_stream_itself(make):
    """No read-in, no read-out, no norm, no positions: a model with W_O = 0 is the identity."""
    model = make(
        torch.float64,
        read_in="vectors",
        read_out="vectors",
        d_vocab=None,
        norm=None,
        positions=None,
        causal=False,
    )
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    assert not torch.equal(model(x), x)
    for block in model.blocks:
        block.attn.W_O.zero_()
    torch.testing.assert_close(model(x), x)
    with refused("W_U", "residual stream"):
        _ = model.W_U
    with refused("W_E", "vectors", "tokens"):
        _ = model.W_E
    with refused("W_pos", "positions=None"):
        _ = model.W_pos


def test_tokens_in_and_classes_out(make, tokens):
    model = make(read_out="classes", d_out=4, causal=False, pooling="mean")
    assert model(tokens).shape == (2, 4) and model.W_U.shape == (12, 4)


def test_shapes_that_do_not_fit(make):
    with refused("[batch, 3, 4, 4]", "[2, 4, 4]"):
        make(**IMAGES)(torch.zeros(2, 4, 4))
    with pytest.raises(ValueError, match=r"expected images .* torch.uint8"):
        make(**IMAGES)(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    with refused("[batch, pos, 4]", "[2, 6, 5]"):
        make(**VECTORS)(torch.zeros(2, 6, 5))
    with refused("[batch, pos, 4]", "[6, 4]"):
        make(**VECTORS)(torch.zeros(6, 4))
    with refused("9 positions", "1 to 8"):
        make(**VECTORS)(torch.zeros(1, 9, 4))
