"""What nobody watches and what everybody watches is the same model.

Without a listener attention runs through `scaled_dot_product_attention` and the norm through `layer_norm`;
a listener on every hook forces scores, patterns, per-head results and scales into being. Outputs and
gradients agree over the whole space of configurations (in float64, where tiny odd models are not
ill-conditioned), and to 1e-5 in float32 at a usual size.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig


@st.composite
def configurations(draw: Any) -> dict[str, Any]:
    """Fields of small configurations that fit together."""
    fields: dict[str, Any] = {
        "n_layers": draw(st.integers(1, 2)),
        "d_model": draw(st.integers(2, 9)),
        "n_heads": draw(st.integers(1, 3)),
        "d_head": draw(st.integers(1, 5)),
        "n_ctx": draw(st.integers(2, 6)),
        "d_vocab": draw(st.integers(2, 9)),
        "attention": draw(st.sampled_from(["mhsa", "mssa"])),
        "attn_scale": draw(st.sampled_from([None, 1.0, 0.4])),
        "norm": draw(st.sampled_from(["layernorm", None])),
        "causal": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "d_mlp": draw(st.sampled_from([None, 5])),
        "act_fn": draw(st.sampled_from(["gelu", "gelu_new", "relu", "silu"])),
        "seed": draw(st.integers(0, 100)),
    }
    phi = draw(st.sampled_from(["softmax", "softmax", "thresholded_softmax", "linear", "fixed"]))
    fields["phi"] = phi
    if phi == "thresholded_softmax":
        fields["threshold"] = draw(st.sampled_from([0.05, 0.3]))
    if phi == "fixed":
        fields["fixed_pattern"] = draw(st.sampled_from(["random", "learned"]))
    fields["positions"] = draw(st.sampled_from(["learned", None] if phi == "fixed" else ["learned", "qk", None]))
    if fields["attention"] == "mssa" and draw(st.booleans()):
        fields |= {"tied_output": True, "step_size": draw(st.sampled_from([1.0, 0.5]))}
    if not fields["bias"]:
        fields["tied_embeddings"] = draw(st.booleans())
    if draw(st.booleans()):
        heads, n = draw(st.sampled_from([1, fields["n_heads"]])), fields["n_ctx"]
        mask = torch.rand(heads, n, n, generator=torch.Generator().manual_seed(fields["seed"])) < 0.5
        fields["attn_mask"] = (mask | torch.eye(n, dtype=torch.bool)).tolist()
    return fields


def loss_and_gradients(
    model: AttentionOnlyTransformer, tokens: Tensor, mask: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    logits = model(tokens, attention_mask=mask)
    # A smooth function of every logit that weighs no two alike.
    weights = torch.linspace(-1, 1, logits.numel()).view(logits.shape)
    ((logits * weights).sum() + logits.square().mean()).backward()
    return logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def compare(model: AttentionOnlyTransformer, tokens: Tensor, mask: Tensor | None, tolerance: float) -> None:
    plain, gradients = loss_and_gradients(model, tokens, mask)
    heard: set[str] = set()
    for name, point in model.hook_dict.items():
        point.add_hook(lambda tensor, hook, name=name: heard.add(name))
    hooked, hooked_gradients = loss_and_gradients(model, tokens, mask)
    model.reset_hooks()

    silent = {name.rsplit(".", 1)[-1] for name in model.hook_dict.keys() - heard}
    assert silent == ({"hook_q", "hook_k", "hook_attn_scores"} if model.cfg.phi == "fixed" else set())
    torch.testing.assert_close(hooked, plain, rtol=tolerance, atol=tolerance)
    assert gradients.keys() == hooked_gradients.keys()
    # Relative to the largest: some gradients (b_K's) are sums of large terms that cancel to zero.
    scale = max(1.0, *(float(gradient.abs().max()) for gradient in gradients.values()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(hooked_gradients[name], gradient, rtol=tolerance, atol=tolerance * scale)


@hypothesis.given(fields=configurations(), n_pos=st.integers(1, 6), padding=st.booleans())
@hypothesis.settings(max_examples=40)
def test_they_agree_over_the_configurations(fields: dict[str, Any], n_pos: int, padding: bool):
    cfg = ModelConfig(**fields)
    model = AttentionOnlyTransformer(cfg).double()
    generator = torch.Generator().manual_seed(cfg.seed)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    n_pos = min(n_pos, cfg.n_ctx)
    tokens = torch.randint(cfg.d_vocab or 0, (2, n_pos), generator=generator)
    mask = None
    if padding and n_pos > 1 and cfg.attn_mask is None:
        mask = torch.ones(2, n_pos, dtype=torch.bool)
        mask[0, 0] = cfg.phi == "fixed"  # a fixed pattern takes padding on the right only
        mask[1, -1] = False
    compare(model, tokens, mask, tolerance=1e-8)


@pytest.mark.parametrize("fields", [{}, {"attention": "mssa"}, {"positions": "qk"}, {"causal": False}])
def test_they_agree_in_float32(fields: dict[str, Any]):
    cfg = ModelConfig(n_layers=3, d_model=64, n_heads=4, d_head=16, n_ctx=128, d_vocab=200, bias=True, **fields)
    compare(AttentionOnlyTransformer(cfg), torch.randint(200, (2, 128)), None, tolerance=1e-5)


def test_only_softmax_without_a_listener_is_fused(make, tokens, monkeypatch):
    calls = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(1)
        return fused(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    model = make()
    model(tokens)
    assert len(calls) == 2
    model.run_with_cache(tokens, names_filter="blocks.0.hook_resid_pre")
    assert len(calls) == 4
    model.run_with_cache(tokens, names_filter="blocks.1.attn.hook_pattern")
    assert len(calls) == 5, "the layer that nobody watches stays fused"
    make(phi="linear")(tokens)
    assert len(calls) == 5


def test_the_cache_leaves_out_per_head_results_unless_asked(make, tokens):
    model = make()
    _, cache = model.run_with_cache(tokens)
    assert "blocks.0.attn.hook_result" not in cache.cache_dict
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_result"))
    assert cache["result", 0].shape == (2, 7, 3, 12)
    torch.testing.assert_close(cache["result", 0].sum(2), model.run_with_cache(tokens)[1]["attn_out", 0])


def test_caches_come_as_objects_or_dictionaries_and_without_a_batch(make, tokens):
    model = make()
    logits, cache = model.run_with_cache(tokens, return_cache_object=False)
    assert isinstance(cache, dict) and cache["blocks.0.attn.hook_pattern"].shape == (2, 3, 7, 7)
    torch.testing.assert_close(logits, model(tokens))
    _, cache = model.run_with_cache(tokens[:1], remove_batch_dim=True)
    assert cache["pattern", 1].shape == (3, 7, 7) and not cache.has_batch_dim
    _, cache = model.run_with_cache(tokens[:1], remove_batch_dim=True, return_cache_object=False)
    assert cache["hook_embed"].shape == (7, 12)
    assert not any(point.has_hooks() for point in model.hook_dict.values()), "hooks are taken off again"
