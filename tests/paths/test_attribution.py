"""Direct logit attribution against TransformerLens's `logit_attrs` on the exported model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.interop import to_transformer_lens
from aotlens.paths import Path, direct_logit_attribution, expand
from tests.small_models import MakeModel

EXPORTABLE: dict[str, dict[str, Any]] = {
    "mhsa": {"bias": True},
    "mssa": {"attention": "mssa", "positions": None},
    "tied": {"attention": "mssa", "tied_output": True, "step_size": 0.7, "attn_scale": 1.0},
    "both ways": {"causal": False, "bias": True, "n_layers": 3},
}


@pytest.mark.parametrize("kind", EXPORTABLE)
@torch.no_grad()
def test_it_is_what_transformer_lens_attributes_to_each_head(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(torch.float32, **EXPORTABLE[kind], d_model=8, d_head=4)
    bridge = to_transformer_lens(model)
    bridge.process_weights(fold_ln=True, center_writing_weights=True, center_unembed=False, fold_value_biases=False)
    _, cache = bridge.run_with_cache(tokens[None])
    stack = cache.stack_head_results(layer=-1)  # [layer · head, batch, pos, d_model]
    shape = (model.cfg.n_layers, model.cfg.n_heads, len(tokens))
    expected = cache.logit_attrs(stack, 5, has_batch_dim=True)[:, 0].reshape(shape)
    ours = direct_logit_attribution(model, tokens, 5)
    torch.testing.assert_close(ours.heads, expected, rtol=0, atol=1e-4)
    contrast = direct_logit_attribution(model, tokens, (5, 2))
    expected = cache.logit_attrs(stack, 5, 2)[:, 0].reshape(shape)
    torch.testing.assert_close(contrast.heads, expected, rtol=0, atol=1e-4)
    targets = torch.tensor([1, 4, 1, 8, 0])
    each = direct_logit_attribution(model, tokens, targets)
    expected = cache.logit_attrs(stack, targets[None])[:, 0].reshape(shape)
    torch.testing.assert_close(each.heads, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("target", [3, (3, 1), torch.tensor([1, 4, 1, 8, 0]), None])
def test_it_adds_up_to_the_logit(make: MakeModel, tokens: Tensor, target: Any) -> None:
    model = make(bias=True)
    found = direct_logit_attribution(model, tokens, target)
    torch.testing.assert_close(found.heads.sum((0, 1)) + sum(found.direct.values()), found.logit)
    logits = model(tokens[None])[0]
    if target is None:
        torch.testing.assert_close(found.logit, logits.amax(-1))
    elif isinstance(target, int):
        torch.testing.assert_close(found.logit, logits[:, 3])
    elif isinstance(target, tuple):
        torch.testing.assert_close(found.logit, logits[:, 3] - logits[:, 1])
    frame = found.to_frame(2)
    assert frame.logits.sum() == pytest.approx(float(found.logit[2])) and len(frame) == 4 + 3
    assert frame.set_index("term").loc["1.1", "logits"] == pytest.approx(float(found.heads[1, 1, 2]))
    assert frame.layer.isna().sum() == 3


def test_for_one_layer_it_is_the_view_of_order_one(make: MakeModel, tokens: Tensor) -> None:
    model = make(n_layers=1, bias=False, norm=None)
    expansion = expand(model, tokens)
    found = direct_logit_attribution(model, tokens, 3)
    for head in range(2):
        parts = [expansion.logits(Path(name, ((0, head),)))[:, 3] for name in expansion.source_names]
        torch.testing.assert_close(found.heads[0, head], torch.stack(parts).sum(0))


def test_bad_targets_are_named(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    with pytest.raises(ValueError, match="output 0 to 8"):
        direct_logit_attribution(model, tokens, 11)
    for wrong in (torch.tensor([1, 2]), torch.tensor([1.0, 4, 1, 8, 0]), torch.tensor([1, 4, 1, 9, 0])):
        with pytest.raises(ValueError, match="expected 5 outputs 0 to 8"):
            direct_logit_attribution(model, tokens, wrong)
    with pytest.raises(ValueError, match="whole number"):
        direct_logit_attribution(model, tokens, torch.tensor(2.0))
    one, same = direct_logit_attribution(model, tokens, torch.tensor(2)), direct_logit_attribution(model, tokens, 2)
    assert torch.equal(one.heads, same.heads)
