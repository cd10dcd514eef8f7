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
