"""MHSA, hooks and caches against TransformerLens's native bridge, built here from plain weights.

The bridge is filled through its state dict with no help from `aotlens.interop`, so that an error there cannot
hide one here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from aotlens.models import AttentionOnlyTransformer

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def as_bridge(model: AttentionOnlyTransformer) -> Any:
    cfg = model.cfg
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            n_layers=cfg.n_layers, d_model=cfg.d_model, n_heads=cfg.n_heads, d_head=cfg.d_head,
            n_ctx=cfg.n_ctx, d_vocab=cfg.d_vocab or 0, d_mlp=cfg.d_mlp, act_fn=cfg.act_fn,
            attn_only=cfg.attn_only, normalization_type=cfg.normalization_type, seed=0,
            attention_dir="causal" if cfg.causal else "bidirectional", device="cpu",
        ),
        dtype=model.dtype,
    )  # fmt: skip
    state = {"embed.weight": model.W_E, "pos_embed.weight": model.W_pos}
    state |= {"unembed.weight": model.W_U.T, "unembed.bias": model.b_U}
    for layer in range(cfg.n_layers):
        for name in "QKV":
            weight, bias = getattr(model, f"W_{name}")[layer], getattr(model, f"b_{name}")[layer]
            state[f"blocks.{layer}.attn.{name.lower()}.weight"] = torch.cat([head.T for head in weight])
            state[f"blocks.{layer}.attn.{name.lower()}.bias"] = bias.flatten()
        state[f"blocks.{layer}.attn.o.weight"] = torch.cat(list(model.W_O[layer])).T
        state[f"blocks.{layer}.attn.o.bias"] = model.b_O[layer]
        if not cfg.attn_only:
            for name in ("in", "out"):
                state[f"blocks.{layer}.mlp.{name}.weight"] = getattr(model, f"W_{name}")[layer].T
                state[f"blocks.{layer}.mlp.{name}.bias"] = getattr(model, f"b_{name}")[layer]
    if cfg.norm:
        norms = {"ln_final": model.ln_final} | {f"blocks.{i}.ln1": b.ln1 for i, b in enumerate(model.blocks)}
        if not cfg.attn_only:
            norms |= {f"blocks.{i}.ln2": b.ln2 for i, b in enumerate(model.blocks)}
        for name, norm in norms.items():
            state |= {f"{name}.weight": norm.w, f"{name}.bias": norm.b}
    bridge.load_state_dict(state, strict=True)
    return bridge


MODELS = {
    "plain": {"norm": None},
    "norm": {},
    "biases": {"bias": True},
    "both ways": {"causal": False, "bias": True},
    "mlp": {"d_mlp": 9, "act_fn": "gelu_new", "bias": True},
}


@pytest.fixture(params=MODELS)
def pair(request, make) -> tuple[AttentionOnlyTransformer, Any]:
    model = make(**MODELS[request.param])
    return model, as_bridge(model)


@torch.no_grad()
def test_logits_and_losses(pair, tokens):
    model, bridge = pair
    torch.testing.assert_close(model(tokens), bridge(tokens), **TOLERANCE)
    if model.cfg.causal:
        torch.testing.assert_close(
            model.loss_per_token(tokens), bridge(tokens, return_type="loss", loss_per_token=True), **TOLERANCE
        )
        torch.testing.assert_close(model(tokens, return_type="loss"), bridge(tokens, return_type="loss"), **TOLERANCE)


@torch.no_grad()
def test_every_hook_that_both_have_carries_the_same_values(pair, tokens):
    model, bridge = pair
    _, ours = model.run_with_cache(tokens, names_filter=lambda name: True)
    _, theirs = bridge.run_with_cache(tokens)
    # The native bridge (4.3) computes no hook_result, and its hook_attn_scores carries the pattern.
    common = {name for name in ours.keys() & theirs.keys() if not name.endswith("attn_scores")}
    for layer in range(model.cfg.n_layers):
        names = ["hook_q", "hook_k", "hook_v", "hook_z", "hook_pattern"]
        expected = {f"blocks.{layer}.attn.{name}" for name in names}
        expected |= {f"blocks.{layer}.hook_{name}" for name in ("resid_pre", "resid_post", "attn_out")}
        expected |= {"hook_embed", "hook_pos_embed"}
        expected |= {f"blocks.{layer}.ln1.hook_scale", "ln_final.hook_scale"} if model.cfg.norm else set()
        expected |= {f"blocks.{layer}.ln1.hook_normalized"} if model.cfg.norm else set()
        expected |= {f"blocks.{layer}.mlp.hook_{n}" for n in ("pre", "post")} if model.cfg.d_mlp else set()
        assert expected <= common
        torch.testing.assert_close(ours["attn_scores", layer].softmax(-1), theirs["pattern", layer])
    for name in common:
        assert ours[name].shape == theirs[name].shape, name
        torch.testing.assert_close(ours[name], theirs[name], **TOLERANCE, msg=lambda text, n=name: f"{n}: {text}")


@torch.no_grad()
def test_the_caches_answer_alike(pair, tokens):
    model, bridge = pair
    _, ours = model.run_with_cache(tokens)
    _, theirs = bridge.run_with_cache(tokens)
    has_norm = model.cfg.norm is not None
    torch.testing.assert_close(ours["pattern", 0], theirs["pattern", 0], **TOLERANCE)
    ours = ours.to_transformer_lens()
    same_labelled(ours.stack_head_results(return_labels=True), theirs.stack_head_results(return_labels=True))
    for apply_ln in {False, has_norm}:
        for ask in (
            lambda cache, ln=apply_ln: cache.decompose_resid(apply_ln=ln, return_labels=True),
            lambda cache, ln=apply_ln: cache.accumulated_resid(apply_ln=ln, return_labels=True),
            lambda cache, ln=apply_ln: cache.get_full_resid_decomposition(apply_ln=ln, return_labels=True),
            lambda cache, ln=apply_ln: cache.get_full_resid_decomposition(
                layer=1, expand_neurons=False, apply_ln=ln, return_labels=True
            ),
        ):
            same_labelled(ask(ours), ask(theirs))
    stack = ours.decompose_resid()
    targets = tokens[:, 0]
    for incorrect in (None, tokens[:, 1]):
        torch.testing.assert_close(
            ours.logit_attrs(stack, targets, incorrect),
            theirs.logit_attrs(stack, targets, incorrect),
            **TOLERANCE,
        )
    torch.testing.assert_close(ours.logit_attrs(stack, 3), theirs.logit_attrs(stack, 3), **TOLERANCE)


def same_labelled(ours: tuple[Tensor, list[str]], theirs: tuple[Tensor, list[str]]) -> None:
    assert ours[1] == theirs[1]
    torch.testing.assert_close(ours[0], theirs[0], **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("fields", [{"bias": True}, {"norm": None}, {"tied_embeddings": True}])
def test_the_logit_lens_ends_at_the_logits(make, tokens, fields):
    model = make(**fields)
    logits, cache = model.run_with_cache(tokens)
    lens = cache.to_transformer_lens().logit_lens(positions=None)
    assert lens.labels == ["0_pre", "1_pre", "final_post"]
    torch.testing.assert_close(lens.values[-1], logits, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "qk", None])
@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
def test_the_decomposition_sums_to_the_stream(make, tokens, attention, positions):
    """Whatever the operator: positions that never enter the stream are no part of it."""
    model = make(torch.float64, attention=attention, positions=positions, bias=True)
    _, cache = model.run_with_cache(tokens)
    parts, labels = cache.to_transformer_lens().get_full_resid_decomposition(return_labels=True)
    torch.testing.assert_close(parts.sum(0), cache["resid_post", 1])
    assert ("pos_embed" in labels) == (positions == "learned")


@torch.no_grad()
def test_edits_and_gradients_agree(make, tokens):
    model = make(bias=True)
    bridge = as_bridge(model)

    def halve(pattern: Tensor, hook: Any) -> Tensor:
        return pattern * torch.tensor([1.0, 0.5, 0.0])[:, None, None]

    hooks = [("blocks.0.attn.hook_pattern", halve)]
    edited = model.run_with_hooks(tokens, fwd_hooks=hooks)
    torch.testing.assert_close(edited, bridge.run_with_hooks(tokens, fwd_hooks=hooks), **TOLERANCE)
    assert (edited - model(tokens)).abs().max() > 1e-2
    with torch.enable_grad():
        model(tokens, return_type="loss").backward()
        bridge(tokens, return_type="loss").backward()
    theirs = bridge.blocks[0].attn.q.original_component.weight.grad
    torch.testing.assert_close(torch.cat([head.T for head in model.blocks[0].attn.W_Q.grad]), theirs, **TOLERANCE)
