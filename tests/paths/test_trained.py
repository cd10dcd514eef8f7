"""The bundled checkpoints, of every kind: paths add up, the largest are proven, and TransformerLens says the same."""

from __future__ import annotations

import pytest
import torch

import aotlens
from aotlens.interop import to_transformer_lens
from aotlens.paths import direct_logit_attribution, expand, term_importance

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

TEXT = "It was on a dreary night that Mr. Henry Lambert came home. His sister Mary stood at the door."


@pytest.mark.parametrize("name", ["novels-1l-mhsa", "novels-2l-mhsa", "novels-6l-mhsa", "novels-12l-mssa"])
@torch.no_grad()
def test_paths_of_a_trained_model_add_up_and_the_largest_are_proven(name: str) -> None:
    model = aotlens.load(name, device="cpu")
    expansion = expand(model, TEXT)
    assert expansion.residual().within_tolerance
    top = expansion.top(20)
    assert top.complete and len(top.paths) == min(20, expansion.n_paths)
    target = int(expansion.frozen.logits[-1].argmax())
    for path, value in zip(top.paths, top.values, strict=True):
        assert float(expansion.logits(path)[-1, target]) == pytest.approx(value, abs=1e-4)
    importance = term_importance(model, TEXT, heads=False)
    assert importance.loss_up_to[-1] == pytest.approx(importance.loss, abs=1e-5)
    assert expand(model.double(), TEXT).residual().largest < 1e-11


def test_a_model_with_mlps_is_refused_with_a_reason() -> None:
    model = aotlens.load("novels-2l-gpt", device="cpu")
    for refused in (lambda: expand(model, TEXT), lambda: term_importance(model, TEXT)):
        with pytest.raises(ValueError, match=r"attention-only model, got one with MLPs .* An MLP is not linear"):
            refused()


@torch.no_grad()
def test_a_trained_model_is_attributed_as_transformer_lens_does() -> None:
    model = aotlens.load("novels-2l-mhsa", device="cpu").requires_grad_(False)
    tokens = model.to_tokens(TEXT)
    bridge = to_transformer_lens(model)
    bridge.process_weights(fold_ln=True, center_writing_weights=True, center_unembed=False, fold_value_biases=False)
    _, cache = bridge.run_with_cache(tokens)
    expected = cache.logit_attrs(cache.stack_head_results(layer=-1), 300, 12)[:, 0]
    ours = direct_logit_attribution(model, tokens, (300, 12)).heads
    torch.testing.assert_close(ours, expected.reshape(ours.shape), rtol=0, atol=1e-4)
