"""The bundled checkpoints, of every kind: paths add up, the largest are proven, and TransformerLens says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import aotlens
from aotlens.interop import to_transformer_lens
from aotlens.paths import direct_logit_attribution, expand, term_importance

pytestmark = pytest.mark.usefixtures("real_bundled_folder")

TEXT = "It was on a dreary night that Mr. Henry Lambert came home. His sister Mary stood at the door."


@pytest.mark.parametrize("name", ["novels-1l-mhsa", "novels-2l-mhsa", "novels-6l-mhsa", "novels-12l-mssa"])
@torch.no_grad()
@pytest.mark.slow
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


@torch.no_grad()
def test_the_gpt_baseline_decomposes_with_its_mlps_as_sources() -> None:
    model = aotlens.load("novels-2l-gpt", device="cpu").double()
    expansion = expand(model, TEXT)
    assert expansion.residual().largest < 1e-11
    target = int(expansion.frozen.logits[-1].argmax())
    whole = expansion.all_paths(-1, target)
    assert float(whole.values.sum()) == pytest.approx(expansion.logit(-1, target), abs=1e-9)
    top = expansion.top(20)
    assert top.complete and any(path.source == "mlp" for path in top.paths)
    score = expansion.score((1, 0), -1, 5)
    assert score.residual().largest < 1e-9 and score.top(20).complete
    importance = term_importance(model, TEXT, heads=False)
    assert importance.loss_up_to[-1] == pytest.approx(importance.loss, abs=1e-9)


@torch.no_grad()
def test_an_imported_gpt2_decomposes(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=8, n_positions=8, vocab_size=11)
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False).double()
    for parameter in theirs.parameters():
        parameter += 0.3 * torch.randn(parameter.shape)
    theirs.save_pretrained(tmp_path)
    tokens = torch.tensor([3, 1, 4, 1, 5])
    expansion = expand(aotlens.load(tmp_path, "cpu").double(), tokens)
    single = sum(expansion.logits(path) for path in expansion.paths())
    torch.testing.assert_close(single, theirs(tokens[None]).logits[0], rtol=0, atol=1e-4)
    assert expansion.residual().largest < 1e-9 and expansion.score("2.1", 4, 2).residual().largest < 1e-9
    assert expansion.n_paths == 3 * 3**3 + 9 + 3 + 1


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
