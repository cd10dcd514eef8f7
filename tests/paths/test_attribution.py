"""Direct logit attribution against TransformerLens's `logit_attrs` on the exported model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.interop import to_transformer_lens
from aotlens.paths import Path, direct_logit_attribution, expand
from tests.messages import refused
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
    right = torch.tensor([1, 4, 1, 8, 0])
    for wrong in (right[:2], right.double(), right.to(torch.complex64), right + 1):
        with refused("expected outputs 0 to 8", "one for each position, [1, 5]"):
            direct_logit_attribution(model, tokens, wrong)
    with refused("an output 0 to 8"):
        direct_logit_attribution(model, tokens, torch.tensor(2.0))
    one, same = direct_logit_attribution(model, tokens, torch.tensor(2)), direct_logit_attribution(model, tokens, 2)
    assert torch.equal(one.heads, same.heads)


BATCHED: dict[str, dict[str, Any]] = {
    "learned": {"bias": True},
    "no norm": {"norm": None, "positions": "qk"},
    "mlp": {"d_mlp": 11, "bias": True},
    "mean classes": {"read_out": "classes", "pooling": "mean", "d_out": 9, "bias": True},
    "last class": {"read_out": "classes", "pooling": "last", "d_out": 9},
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", BATCHED)
def test_each_row_of_a_padded_batch_is_the_sequence_alone(
    make: MakeModel, tokens: Tensor, kind: str, side: str
) -> None:
    model = make(**BATCHED[kind])
    prompts = [tokens, tokens.flip(0)[:3], tokens[1:3]]
    batch, mask = torch.zeros(3, 5, dtype=torch.long), torch.zeros(3, 5, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        where = slice(5 - len(prompt), None) if side == "left" else slice(0, len(prompt))
        batch[row, where], mask[row, where] = prompt, 1
    answers, wrong = torch.tensor([3, 1, 4]), torch.tensor([2, 2, 0])
    for target in (None, 3, (3, 1), answers, (answers, wrong)):
        found = direct_logit_attribution(model, batch, target, attention_mask=mask)
        torch.testing.assert_close(found.total(), found.logit, equal_nan=True)
        for row, prompt in enumerate(prompts):
            own = target
            if target is answers:
                own = int(answers[row])
            elif isinstance(target, tuple) and target[0] is answers:
                own = int(answers[row]), int(wrong[row])
            alone, part = direct_logit_attribution(model, prompt, own), found.of(row)
            torch.testing.assert_close(part.heads, alone.heads)
            torch.testing.assert_close(part.direct, alone.direct)
            torch.testing.assert_close(part.logit, alone.logit)
    if "read_out" not in BATCHED[kind]:
        assert found.heads[:, :, mask == 0].isnan().all() and not found.heads[:, :, mask == 1].isnan().any()
        frame = found.to_frame(-2)
        own = found.of(1).to_frame(-2)
        assert frame[frame.sequence == 1].drop(columns="sequence").reset_index(drop=True).equals(own)


def test_a_batch_of_texts_is_padded_and_bad_batches_are_named(make: MakeModel, tokens: Tensor) -> None:
    model, batch = make(), torch.stack([tokens, tokens.flip(0)])
    found = direct_logit_attribution(model, batch, torch.stack([tokens, tokens]))
    for row in range(2):
        torch.testing.assert_close(found.of(row).heads, direct_logit_attribution(model, batch[row], tokens).heads)
    with refused("attention_mask", "[2, 5]", "[2, 4]"):
        direct_logit_attribution(model, batch, 3, attention_mask=torch.ones(2, 4))
    for wrong in (
        torch.tensor([1, 2, 3]),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([1.0, 2.0]),
        torch.tensor([1, 9]),
    ):
        with refused("target", "sequences"):
            direct_logit_attribution(model, batch, wrong)
    with refused("of one prompt"):
        direct_logit_attribution(model, tokens, 3).of(0)
