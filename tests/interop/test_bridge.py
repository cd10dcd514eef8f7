"""Models and TransformerLens bridges compute the same, whichever way they were made."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from aotlens.interop import from_transformer_lens, to_transformer_lens
from aotlens.models import AttentionOnlyTransformer

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest logit (or of 1): without norms these random models write logits of 100."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * max(1.0, float(expected.abs().max())))


MODELS: dict[str, dict[str, Any]] = {
    "mhsa": {},
    "mhsa, no norm": {"norm": None},
    "mhsa, biases": {"bias": True},
    "mhsa, scale 1": {"attn_scale": 1.0, "bias": True},
    "mhsa, scale 0.3": {"attn_scale": 0.3},
    "mssa": {"attention": "mssa"},
    "mssa, no norm": {"attention": "mssa", "norm": None},
    "mssa, biases": {"attention": "mssa", "bias": True},
    "mssa, scale 1": {"attention": "mssa", "attn_scale": 1.0, "bias": True},
    "mssa, tied": {"attention": "mssa", "tied_output": True, "step_size": 0.37},
    "mssa, Eq. 4": {
        "attention": "mssa",
        "tied_output": True,
        "norm": None,
        "attn_scale": 1.0,
        "causal": False,
    },
    "no positions": {"positions": None},
    "both ways": {"causal": False},
    "tied embeddings": {"tied_embeddings": True},
    "tied embeddings, biases": {"tied_embeddings": True, "bias": True, "read_out_bias": False},
    "a bias of the read-out alone": {"read_out_bias": True},
    "classes": {"read_out": "classes", "d_out": 4, "pooling": None, "bias": True},
    "as many classes as tokens": {"read_out": "classes", "d_out": 11, "pooling": None, "causal": False, "norm": None},
    "eps": {"norm_eps": 0.1},
    "mlp": {"d_mlp": 9, "bias": True, "act_fn": "gelu_new"},
    "relu mlp": {"d_mlp": 9, "act_fn": "relu", "norm": None},
}


@pytest.fixture(params=MODELS)
def model(request, make) -> AttentionOnlyTransformer:
    return make(**MODELS[request.param])


def forget(bridge: Any) -> Any:
    """A bridge as if somebody else had made it."""
    del bridge.cfg.aotlens
    return bridge


@torch.no_grad()
def test_there_and_back(model, tokens):
    bridge = to_transformer_lens(model)
    assert_same(bridge(tokens), model(tokens))
    back = from_transformer_lens(bridge)
    assert_same(back(tokens), model(tokens))
    assert back.cfg == model.cfg
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(back.state_dict()[name], tensor, rtol=1e-6, atol=0)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_pooled_classes_are_at_every_position_of_a_bridge(make, tokens, pooling):
    model = make(read_out="classes", d_out=4, pooling=pooling, bias=True)
    bridge = to_transformer_lens(model)
    everywhere = bridge(tokens)
    own = {"first": everywhere[:, 0], "last": everywhere[:, -1], "mean": everywhere.mean(1)}[pooling]
    assert_same(own, model(tokens))
    assert from_transformer_lens(bridge).cfg == model.cfg


@torch.no_grad()
def test_back_from_the_weights_alone(model, tokens):
    """Without what the export remembers, MSSA is still seen, with its scale and its tied output."""
    back = from_transformer_lens(forget(to_transformer_lens(model)))
    assert_same(back(tokens), model(tokens))
    expected = model.cfg.to_dict()
    if model.cfg.attention == "mhsa":
        expected["attn_scale"] = None  # it has gone into W_Q, and nothing shows it
    if expected["read_out_bias"] and not expected["bias"]:
        expected |= {"bias": True, "read_out_bias": None}  # nothing shows that zeros were no biases
    if expected["d_out"] == expected["d_vocab"]:
        expected |= {"read_out": "tokens", "d_out": None, "pooling": "first"}  # nor that classes are not tokens
    assert back.cfg.to_dict() == expected


@torch.no_grad()
@pytest.mark.parametrize("kind", ["mhsa, scale 1", "mssa, biases", "mssa, Eq. 4", "no positions", "mlp"])
def test_a_processed_bridge_comes_back_as_it_is_now(make, tokens, kind):
    """Folded norms, centred weights and moved biases included: the bridge's logits of now."""
    model = make(**MODELS[kind])
    bridge = to_transformer_lens(model)
    bridge.enable_compatibility_mode(disable_warnings=True)
    processed = bridge(tokens)
    shift = (processed - model(tokens)).mean(-1, keepdim=True)  # centring W_U shifts all logits of a position
    assert_same(processed - shift, model(tokens))
    assert_same(from_transformer_lens(bridge)(tokens), processed)


@torch.no_grad()
@pytest.mark.parametrize("normalization", ["LN", "LNPre", None])
@pytest.mark.parametrize("scale", [-1.0, 2.5])
def test_somebody_elses_bridge(tokens, normalization, scale):
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            d_model=12, d_head=4, n_heads=3, n_layers=2, n_ctx=8, d_vocab=11, attn_only=True, device="cpu",
            normalization_type=normalization, attn_scale=scale, seed=3, eps=1e-3,
        )
    )  # fmt: skip
    for parameter in bridge.original_model.parameters():
        parameter.copy_(0.5 * torch.randn(parameter.shape))
    model = from_transformer_lens(bridge)
    assert_same(model(tokens), bridge(tokens))
    assert model.cfg.attention == "mhsa" and model.cfg.norm_eps == 1e-3 and model.cfg.bias
    assert model.cfg.attn_scale == (None if scale < 0 else pytest.approx(0.4))
    assert_same(to_transformer_lens(model)(tokens), bridge(tokens))


@torch.no_grad()
def test_three_equal_matrices_come_back_as_mssa(make, tokens):
    bridge = forget(to_transformer_lens(make(bias=True)))
    state = bridge.state_dict()
    for layer in range(2):
        for kind in ("weight", "bias"):
            for name in "kv":
                state[f"blocks.{layer}.attn.{name}.{kind}"] = state[f"blocks.{layer}.attn.q.{kind}"]
    bridge.load_state_dict(state)
    model = from_transformer_lens(bridge)
    assert model.cfg.attention == "mssa" and model.cfg.attn_scale is None and not model.cfg.tied_output
    assert_same(model(tokens), bridge(tokens))


@pytest.mark.parametrize("part", ["q.weight", "k.weight", "v.weight", "q.bias", "k.bias", "v.bias"])
def test_mssa_that_has_drifted_apart_comes_back_as_mhsa(make, tokens, part):
    """After training in the bridge, say. The scale that the export took out of W_Q is still put back."""
    bridge = to_transformer_lens(make(attention="mssa", attn_scale=1.0, bias=True))
    name, kind = part.split(".")
    with torch.no_grad():
        bridge.blocks[1].attn._modules[name].original_component.__getattr__(kind)[0].add_(0.01)
        model = from_transformer_lens(bridge)
        assert model.cfg.attention == "mhsa" and model.cfg.attn_scale == 1.0
        assert_same(model(tokens), bridge(tokens))


@torch.no_grad()
def test_what_is_zero_for_now_is_remembered(make, tokens):
    model = make(bias=True, position_init_std=0.0)
    for name, parameter in model.named_parameters():
        if name.rsplit(".", 1)[-1].startswith("b_") or "W_pos" in name:
            parameter.zero_()
    bridge = to_transformer_lens(model)
    assert from_transformer_lens(bridge).cfg == model.cfg
    anonymous = from_transformer_lens(forget(bridge))
    assert (anonymous.cfg.bias, anonymous.cfg.positions) == (False, None)
    assert_same(anonymous(tokens), model(tokens))


@torch.no_grad()
def test_a_zero_output_is_not_a_tied_one(make):
    model = make(attention="mssa")
    for block in model.blocks:
        block.attn.W_O.zero_()
    assert not from_transformer_lens(forget(to_transformer_lens(model))).cfg.tied_output


@torch.no_grad()
def test_the_output_bias_is_the_bridges_own(make, tokens):
    """The native read-out has no bias; the bridge keeps one beside it, which forward and processing use."""
    model = make(bias=True)
    bridge = to_transformer_lens(model)
    torch.testing.assert_close(bridge.b_U, model.b_U)
    torch.testing.assert_close(bridge.W_U, model.W_U)
    torch.testing.assert_close(bridge.unembed.b_U, model.b_U)
    bridge.process_weights(center_unembed=False)
    assert_same(bridge(tokens), model(tokens))
    assert bridge.b_U.abs().sum() > 0


@torch.no_grad()
def test_the_bridges_tools_work_on_an_export(make, tokens):
    model = make(attention="mssa", attn_scale=1.0, bias=True)
    bridge = to_transformer_lens(model)
    scaled = model.W_Q * math.sqrt(5)
    torch.testing.assert_close(bridge.W_Q, scaled)
    torch.testing.assert_close(bridge.QK.AB, scaled @ model.W_K.transpose(-1, -2))
    _, ours = model.run_with_cache(tokens)
    _, theirs = bridge.run_with_cache(tokens)
    torch.testing.assert_close(ours["pattern", 1], theirs["pattern", 1], **TOLERANCE)
    ours = ours.to_transformer_lens()
    torch.testing.assert_close(ours.get_full_resid_decomposition(), theirs.get_full_resid_decomposition(), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 0.1)])
def test_other_precisions(make, tokens, dtype, tolerance):
    model = make(dtype, attention="mssa", attn_scale=1.0, bias=True)
    bridge = to_transformer_lens(model)
    back = from_transformer_lens(bridge)
    assert bridge(tokens).dtype == back.dtype == dtype and back.cfg == model.cfg
    torch.testing.assert_close(bridge(tokens), model(tokens), rtol=tolerance, atol=tolerance)
    assert all(torch.equal(back.state_dict()[n], t) for n, t in model.state_dict().items())


@torch.no_grad()
def test_padding_is_masked_alike(make, tokens):
    """Right padding, with the bridge's own mask: real positions agree."""
    model = make()
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    theirs = to_transformer_lens(model)(tokens, attention_mask=mask)
    ours = model(tokens, attention_mask=mask)
    torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()], **TOLERANCE)


def test_weights_are_copied_and_random_numbers_left_alone(make):
    model = make()
    before = torch.random.get_rng_state()
    bridge = to_transformer_lens(model)
    back = from_transformer_lens(bridge)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.no_grad():
        bridge.embed.original_component.weight.zero_()
    assert model.W_E.any() and back.W_E.any()
    assert all(parameter.requires_grad for parameter in back.parameters())
    assert not bridge.training and not back.training


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"positions": "qk"},
            r"positions='qk' \(shortformer\): they are added to the inputs of queries and keys and not",
        ),
        ({"phi": "linear"}, "phi='linear'"),
        ({"phi": "thresholded_softmax", "threshold": 0.1}, "phi='thresholded_softmax'"),
        ({"phi": "fixed", "fixed_pattern": "learned"}, "phi='fixed'"),
        ({"attn_mask": torch.ones(1, 8, 8)}, "attn_mask"),
        ({"read_in": "vectors"}, "read_in='vectors'"),
        ({"read_out": "vectors"}, "read_out='vectors'"),
        ({"read_out": "vectors", "d_out": 3, "phi": "linear"}, "phi='linear'; read_out='vectors'"),
    ],
)
def test_models_that_a_bridge_cannot_express(make, fields, message):
    with pytest.raises(ValueError, match=f"native bridge cannot express this model: {message}"):
        to_transformer_lens(make(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positional_embedding_type": "rotary"}, "positional_embedding_type='rotary'"),
        ({"n_key_value_heads": 1}, "n_key_value_heads=1"),
        ({"normalization_type": "RMS"}, "normalization_type='RMS'"),
        ({"normalization_type": "RMSPre"}, "normalization_type='RMSPre'"),
        ({"final_rms": True}, "final_rms=True"),
        ({"gated_mlp": True, "attn_only": False, "act_fn": "silu"}, "gated_mlp=True"),
        ({"attn_only": False, "act_fn": "solu"}, "act_fn='solu'"),
        ({"attn_scores_soft_cap": 5.0}, "attn_scores_soft_cap=5.0"),
        ({"output_logits_soft_cap": 5.0, "final_rms": True}, "final_rms=True; output_logits_soft_cap=5.0"),
    ],
)
def test_bridges_outside_the_family(fields, message):
    sizes = {
        "d_model": 12,
        "d_head": 4,
        "n_heads": 3,
        "n_layers": 1,
        "n_ctx": 8,
        "d_vocab": 11,
        "attn_only": True,
    }
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**{**sizes, **fields}, seed=0))
    with pytest.raises(ValueError, match=f"outside the family of aotlens models: {message}"):
        from_transformer_lens(bridge)


def test_bridges_around_other_libraries_models(make):
    bridge = to_transformer_lens(make())
    bridge.cfg.architecture = "GPT2LMHeadModel"
    with pytest.raises(ValueError, match=r"architecture 'GPT2LMHeadModel', expected one that .*boot_native made"):
        from_transformer_lens(bridge)
