"""An edit through a hook changes the output as recomputing by hand says; invalid hooks are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from tests.small_models import small_tokens


def one_layer_by_hand(model: AttentionOnlyTransformer, tokens: Tensor, pattern: Tensor) -> Tensor:
    """Logits of a one-layer model whose pattern is `pattern`, from its weights alone."""
    x = model.W_E[tokens] + model.W_pos[: tokens.shape[1]]
    values = torch.einsum("bpd,hde->bhpe", x, model.W_V[0]) + model.b_V[0][:, None]
    mixed = torch.einsum("bhqk,bhke->bqhe", pattern, values)
    out = torch.einsum("bqhe,hed->bqd", mixed, model.W_O[0]) + model.b_O[0]
    return (x + out) @ model.W_U + model.b_U


@pytest.mark.parametrize("attention", ["mhsa", "mssa"])
@torch.no_grad()
def test_an_edited_pattern_is_what_mixes_the_values(make, tokens, attention):
    model = make(torch.float64, n_layers=1, norm=None, bias=True, attention=attention)
    _, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(one_layer_by_hand(model, tokens, cache["pattern", 0]), model(tokens))
    edited = cache["pattern", 0].clone()
    edited[:, 1] = 0  # a head switched off
    edited[:, 2, 4] = torch.eye(7, dtype=torch.float64)[1]  # a query sent to key 1

    def edit(pattern: Tensor, hook: Any) -> Tensor:
        pattern[:, 1] = 0
        pattern[:, 2, 4] = torch.eye(7, dtype=torch.float64)[1]
        return pattern

    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", edit)])
    torch.testing.assert_close(logits, one_layer_by_hand(model, tokens, edited))
    assert (logits - model(tokens)).abs().max() > 0.1


@torch.no_grad()
def test_edited_scores_go_through_phi(make, tokens):
    model = make(torch.float64, n_layers=1, norm=None, bias=True)

    def point_at_the_first_key(scores: Tensor, hook: Any) -> Tensor:
        scores[..., 1:] = float("-inf")
        return scores

    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_attn_scores", point_at_the_first_key)])
    first = torch.zeros(2, 3, 7, 7, dtype=torch.float64)
    first[..., 0] = 1
    torch.testing.assert_close(logits, one_layer_by_hand(model, tokens, first))


@torch.no_grad()
def test_results_values_and_scales_can_be_edited(make, tokens):
    model = make(torch.float64, n_layers=1, norm=None, bias=True)
    _, cache = model.run_with_cache(tokens, names_filter=lambda name: True)

    def drop_head(result: Tensor, hook: Any) -> Tensor:
        result[:, :, 0] = 0
        return result

    dropped = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_result", drop_head)])
    torch.testing.assert_close(dropped, model(tokens) - cache["result", 0][:, :, 0] @ model.W_U)
    tripled = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_v", lambda v, hook: 3 * v)])
    expected = model(tokens) + 2 * (cache["attn_out", 0] - model.b_O[0]) @ model.W_U
    torch.testing.assert_close(tripled, expected)

    normed = make(torch.float64, n_layers=1)
    halved = normed.run_with_hooks(tokens, fwd_hooks=[("ln_final.hook_scale", lambda s, hook: 2 * s)])
    bias = normed.ln_final.b @ normed.W_U
    torch.testing.assert_close(halved - bias, (normed(tokens) - bias) / 2)


def test_the_stream_can_be_replaced_between_layers(make, tokens):
    model = make(torch.float64)
    donor = torch.randint(11, (2, 7))
    _, cache = model.run_with_cache(donor)
    patched = model.run_with_hooks(
        tokens, fwd_hooks=[("blocks.1.hook_resid_pre", lambda stream, hook: cache["resid_pre", 1])]
    )
    torch.testing.assert_close(patched, model(donor))


def test_positions_of_queries_and_keys_have_a_hook_of_their_own(make, tokens):
    """`hook_pos_embed` says what is added to the stream, so it must not exist where nothing is."""
    model = make(positions="qk")
    assert "hook_pos_embed" not in model.hook_dict and "hook_qk_pos_embed" in model.hook_dict
    without = model.run_with_hooks(tokens, fwd_hooks=[("hook_qk_pos_embed", lambda p, hook: 0 * p)])
    assert (without - model(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize("tied", [False, True])
def test_hooks_alone_compute_no_logits(make, tokens, tied):
    """A pass that nobody wants logits of does not multiply by the vocabulary; every hook is called all the same."""
    model = make(tied_embeddings=tied)
    shapes: list[tuple[int, ...]] = []
    handle = model.unembed.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    _, cache = model.run_with_cache(tokens, return_type=None)
    _, expected = model.run_with_cache(tokens)
    handle.remove()
    assert shapes == [(len(tokens), 0, model.cfg.d_vocab), (*tokens.shape, model.cfg.d_vocab)]
    assert cache.keys() == expected.keys()
    assert all(torch.equal(cache[name], expected[name]) for name in expected)


TOKENS = small_tokens()  # two sequences of 7
PATTERN, Z = "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_z"
WRONG: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "name": (
        lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(Z, print), ("blocks.0.hook_pattern", print)]),
        ["'blocks.0.hook_pattern'", PATTERN],
    ),
    "backward name": (
        lambda model: model.run_with_hooks(TOKENS, bwd_hooks=[("embed", print)]),
        ["'embed'", "hook_embed"],
    ),
    "a module": (lambda model: model.add_hook("blocks.0", print), ["'blocks.0'", "blocks.0."]),
    "filter": (lambda model: model.run_with_cache(TOKENS, names_filter="attn.hook_z"), ["names_filter", Z]),
    "filter's list": (lambda model: model.run_with_cache(TOKENS, names_filter=[Z, "hook_emed"]), ["'hook_emed'"]),
    "hook": (lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(Z, TOKENS)]), [Z, "function"]),
    "batch": (lambda model: model.run_with_cache(TOKENS, remove_batch_dim=True), ["remove_batch_dim", "2 rows"]),
    "positions": (lambda model: model.run_with_cache(TOKENS, pos_slice=[0.5]), ["pos_slice", "0.5"]),
    "a word": (lambda model: model.run_with_cache(TOKENS, pos_slice="last"), ["pos_slice", "'last'"]),
    "no scalar": (lambda model: model.run_with_cache(TOKENS, incl_bwd=True), ["incl_bwd", "[2, 7, 11]", "'loss'"]),
    "no gradient": (
        lambda model: model.requires_grad_(False).run_with_cache(TOKENS, incl_bwd=True, return_type="loss"),
        ["incl_bwd", "gradient", "[]"],
    ),
    "device": (lambda model: model.run_with_cache(TOKENS, device="gpu"), ["gpu", "cuda"]),
    "layer": (lambda model: model.hook_embed.layer(), ["hook_embed", "blocks."]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_and_leaves_nothing(make: Any, what: str) -> None:
    model, (ask, words) = make(), WRONG[what]
    with pytest.raises(ValueError) as caught:
        ask(model)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not model.list_hooks() and model.context_level == 0


@pytest.mark.parametrize(
    ("ask", "word"),
    [
        (lambda model: model.run_with_hooks(TOKENS, fwd_hooks=[(("pattern", 0), print)]), "pattern"),
        (lambda model: model.add_hook(Z, print, dir="sideways"), "sideways"),
        (lambda model: model.hook_embed.has_hooks("sideways"), "sideways"),
        (lambda model: model.reset_hooks(direction="sideways"), "sideways"),
    ],
)
def test_a_wrong_type_is_named(make: Any, ask: Callable[[Any], Any], word: str) -> None:
    with pytest.raises(Exception, match=word):  # by the function, or before it where types are checked
        ask(make())
