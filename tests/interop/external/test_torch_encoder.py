"""`torch.nn.TransformerEncoder` with each of its options, in memory and as a state dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotlens
from aotlens.checkpoints import CheckpointError
from tests.interop.external.conftest import noisy
from tests.messages import refused


def encoder(final: bool = True, **options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    given = {"nhead": 3, "dim_feedforward": 10, "batch_first": True, "layer_norm_eps": 1e-3, **options}
    layer = nn.TransformerEncoderLayer(12, dropout=0.0, **given)
    norm = nn.LayerNorm(12, eps=given["layer_norm_eps"]) if final else None
    made = noisy(nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False))
    assert isinstance(made, nn.TransformerEncoder)
    return made


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*comes without")
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("options", [
    {}, {"norm_first": True}, {"activation": "gelu"}, {"activation": nn.GELU("tanh"), "norm_first": True},
    {"bias": False}, {"activation": nn.SiLU()},
])  # fmt: skip
def test_vectors_are_those_of_the_encoder(options: dict[str, Any], final: bool) -> None:
    theirs = encoder(final, **options)
    ours = aotlens.load(theirs, "cpu")
    assert ours.cfg.norm_place == ("before" if options.get("norm_first") else "after")
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    _, cache = ours.run_with_cache(x)
    torch.testing.assert_close(cache["resid_post", 0], theirs.layers[0](x), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_a_state_dict_is_asked_what_shapes_do_not_tell(tmp_path: Path) -> None:
    theirs = encoder(activation="gelu")
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    with refused("nhead", "norm_first", "activation", error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu")
    said = {"nhead": 3, "norm_first": False, "activation": "gelu", "layer_norm_eps": 1e-3}
    x = torch.randn(1, 5, 12)
    torch.testing.assert_close(aotlens.load(tmp_path / "m.pt", "cpu", config=said)(x), theirs(x), rtol=1e-5, atol=1e-5)
    with refused("nhead=5 for d_model=12", "activation='mish'", error=CheckpointError):
        aotlens.load(tmp_path / "m.pt", "cpu", config={**said, "nhead": 5, "activation": "mish"})


def test_layers_of_different_options_are_refused() -> None:
    theirs = encoder()
    theirs.layers[1].norm_first = True
    with refused("with the same options"):
        aotlens.load(theirs, "cpu")
    other = encoder()
    other.norm = nn.LayerNorm(12, eps=1e-2)
    with refused("the layers' eps"):
        aotlens.load(other, "cpu")
