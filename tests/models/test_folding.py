"""A folded norm against the norm itself."""

from __future__ import annotations

import pytest
import torch

from aotlens.models import folded_norm, hook_names, widened
from tests.small_models import maker

ROWS = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("layer", [0, 1, None])
@pytest.mark.parametrize("norm", ["layernorm", None])
def test_its_parts_make_up_the_norm(layer: int | None, norm: str | None) -> None:
    model = maker(dtype=torch.float64)(norm=norm)
    module = model.ln_final if layer is None else model.blocks[layer].ln1
    folded, weight = folded_norm(model, layer), torch.randn(3, 12, 5, dtype=torch.float64)
    expected = module(ROWS).detach()
    scale = folded.scale(ROWS)
    torch.testing.assert_close(folded.read(ROWS, scale) + folded.bias, expected)
    torch.testing.assert_close(folded.gained(folded.centre(ROWS) / scale) + folded.bias, expected)
    through = (ROWS / scale)[:, None] @ folded.into(weight) + folded.bias @ weight[:, None]
    torch.testing.assert_close(through, expected[:, None] @ weight)


@pytest.mark.parametrize("layer", [0, 1, None])
def test_a_prompts_scale(layer: int | None) -> None:
    model = maker(dtype=torch.float64)()
    _, cache = model.run_with_cache(torch.tensor([[1, 2, 3]]), return_cache_object=False)
    stream = cache[hook_names.resid_post(1) if layer is None else hook_names.resid_pre(layer)]
    folded = folded_norm(model, layer)
    torch.testing.assert_close(cache[folded.scale_hook], folded.scale(stream))
    assert torch.equal(folded_norm(maker()(norm=None), layer).scale(stream), torch.ones_like(stream[..., :1]))


def test_half_precision_is_widened_and_what_is_given_keeps_its_own() -> None:
    model = maker(dtype=torch.bfloat16)()
    folded = folded_norm(model, 0)
    assert (folded.gain.dtype, folded.into(model.W_V[0]).dtype) == (torch.float32, torch.bfloat16)
    assert folded.read(ROWS, folded.scale(ROWS)).dtype == torch.float64 and not folded.gain.requires_grad
    assert widened(ROWS) is not ROWS or not ROWS.requires_grad
    assert widened(model.W_V).dtype == torch.float32 and widened(ROWS).dtype == torch.float64
