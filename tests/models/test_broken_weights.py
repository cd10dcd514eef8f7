"""Weights that are no numbers are noticed also after the model was found good: changed in place, put in their place."""

from __future__ import annotations

import pytest
import torch

from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_changed_since_is_read_again(value: float) -> None:
    model = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=4, n_heads=2, d_head=2, n_ctx=16, d_vocab=6))

    def scores() -> object:
        return motif_scores(model, half_length=3, n_sequences=2)

    scores()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1, 0, 0] = value
    with refused("blocks.0.attn.W_O", "not finite"):
        scores()
    with torch.no_grad():
        model.blocks[0].attn.W_O[1, 0, 0] = 0.0
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    scores()
    model.load_state_dict({**state, "embed.W_E": torch.full((6, 4), value)}, assign=True)  # another tensor, as new
    with refused("embed.W_E", "not finite"):
        scores()
    model.to("meta")
    with refused("meta device"):
        scores()
