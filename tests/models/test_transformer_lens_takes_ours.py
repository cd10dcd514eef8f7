"""What TransformerLens offers for any model with hooks takes ours, and finds what it finds on the exported model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import SVDInterpreter, head_detector, patching
from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient
from transformer_lens.tools.analysis.direct_logit_attribution import direct_logit_attribution
from transformer_lens.tools.analysis.logit_lens import logit_lens

from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer

CORRUPTED, CLEAN = torch.tensor([[4, 4, 9], [0, 2, 7]]), torch.tensor([[4, 3, 9], [1, 2, 7]])
#: Each of the first two calls five others: of outputs, queries, keys, values and patterns. Those of direct paths need
#: a copy of its input for each head, which our models do not have.
OF_ATTENTION = [
    "attn_head_all_pos_every",
    "attn_head_by_pos_every",
    "attn_head_pattern_dest_src_pos",
    "resid_pre",
    "attn_out",
]
Pair = tuple[AttentionOnlyTransformer, Any]


def logit(logits: Tensor) -> Tensor:
    return (logits[:, -1, 3] - logits[:, -1, 5]).mean()


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def mhsa(make: Any) -> Pair:
    model = make(bias=True, n_heads=2, d_head=6)
    return model, to_transformer_lens(model)


@pytest.fixture(scope="module")
def mssa(make: Any) -> Pair:
    model = make(attention="mssa", n_heads=2, d_head=6)
    return model, to_transformer_lens(model)


@pytest.fixture(scope="module")
def with_mlps(make: Any) -> Pair:
    model = make(d_mlp=9, bias=True, n_layers=1, d_head=4)
    return model, to_transformer_lens(model)


def patched(name: str, pair: Pair) -> list[Tensor]:
    function = getattr(patching, f"get_act_patch_{name}")
    with torch.no_grad():
        return [function(owner, CORRUPTED, owner.run_with_cache(CLEAN)[1], logit) for owner in pair]


@pytest.mark.parametrize("name", OF_ATTENTION)
def test_patching_of_attention(mssa: Pair, name: str) -> None:
    ours, theirs = patched(name, mssa)
    assert_close(ours, theirs)
    assert (ours - logit(mssa[0](CORRUPTED)).detach()).abs().max() > 1e-2, "some patch changes something"


def test_patching_of_mlps(with_mlps: Pair) -> None:
    assert_close(*patched("block_every", with_mlps))
    # The bridge patches what the MLP reads there, and not the stream, so the stream's own logits are the oracle.
    corrupted, clean = (logit(with_mlps[0](tokens)) for tokens in (CORRUPTED, CLEAN))
    assert_close(patched("resid_mid", with_mlps)[0], torch.stack([corrupted, corrupted, clean])[None].detach())


def test_every_function_of_patching_is_walked() -> None:
    """A new one of a later TransformerLens is to be tried on our models."""
    components = ("out", "q", "k", "v", "pattern")
    walked = {*OF_ATTENTION, "block_every", "mlp_out", "resid_mid", "direct_path", "direct_path_all_sources"}
    walked |= {f"attn_head_{component}_{where}" for component in components for where in ("all_pos", "by_pos")}
    assert {name for name in vars(patching) if name.startswith("get_act_patch")} == {
        f"get_act_patch_{name}" for name in walked
    }


def test_lenses_attributions_and_gradients(mhsa: Pair) -> None:
    model, bridge = mhsa
    cache, theirs = model.run_with_cache(CLEAN)[1].to_transformer_lens(), bridge.run_with_cache(CLEAN)[1]
    assert_close(logit_lens(cache, positions=None).values, logit_lens(theirs, positions=None).values)
    found, expected = (cache_activation_and_gradient(owner, CLEAN, logit) for owner in mhsa)
    for name in ("hook_embed", "blocks.0.attn.hook_z"):
        assert_close(found.gradients[name], expected.gradients[name])


def test_attributions_of_a_logit_sum_to_it(make: Any) -> None:
    """The bridge asks for folded norms here; without a norm and biases the logit itself is the oracle."""
    model = make(norm=None)
    logits, cache = model.run_with_cache(CLEAN)
    found = direct_logit_attribution(model, answer_tokens=3, cache=cache.to_transformer_lens(), unit="component")
    assert_close(found.attribution.sum(0), logits[:, -1, 3])


def test_heads(mhsa: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in mhsa:
        monkeypatch.setattr(owner, "to_tokens", lambda text: CLEAN[:1])
    for kind in ("previous_token_head", "duplicate_token_head"):
        assert_close(*(head_detector.detect_head(owner, "", kind) for owner in mhsa))
    assert_close(*(SVDInterpreter(owner).get_singular_vectors("OV", 0, 3, head_index=1).abs() for owner in mhsa))
