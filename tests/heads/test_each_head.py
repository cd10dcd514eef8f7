"""Heads left out one by one, against `ablate`, which runs the full model anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.heads import Metric, ablate, ablate_each
from aotlens.heads.replacement import HOWS
from tests.messages import refused, says
from tests.small_models import SMALL, maker

make = maker({**SMALL, "n_layers": 3, "norm": "layernorm", "bias": True}, dtype=torch.float64)
TOKENS = torch.randint(SMALL["d_vocab"], (5, 7), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("positions", ["learned", "qk"])
def test_each_is_what_ablate_gives(how: str, positions: str) -> None:
    model = make(positions=positions)
    found = ablate_each(model, TOKENS, how, batch_size=2, seed=4)
    assert found.heads == tuple(np.ndindex(3, 3)) and found.unit == "nats"
    frame = found.to_frame()
    for place, head in enumerate(found.heads):
        alone = ablate(model, TOKENS, head, how, seed=4)
        np.testing.assert_allclose(found.ablated[place], alone.ablated, atol=1e-10)
        np.testing.assert_allclose(found.clean, alone.clean, atol=1e-10)
        np.testing.assert_allclose(frame.loc[place, ["low", "high"]].astype(float), alone.interval(), atol=1e-10)
    assert np.ptp(found.changes) > 1e-4


def test_targets_padding_metrics_and_some_heads() -> None:
    model = make(d_mlp=6)
    mask = torch.ones_like(TOKENS, dtype=torch.bool)
    mask[0, 5:] = False
    targets = TOKENS.flip(1).masked_fill(TOKENS == 3, -100)
    options: dict[str, Any] = {"targets": targets, "attention_mask": mask, "reference": TOKENS.flip(0)}
    found = ablate_each(model, TOKENS, "mean", heads=["2.1", (0, 2)], **options)
    assert found.heads == ((0, 2), (2, 1))
    for place, head in enumerate(found.heads):
        np.testing.assert_allclose(found.ablated[place], ablate(model, TOKENS, head, "mean", **options).ablated)

    def last(logits: Tensor, targets: Tensor | None) -> Tensor:
        return logits[:, -1, 2]

    by_metric = ablate_each(model, TOKENS, metric=last)
    np.testing.assert_allclose(by_metric.ablated[4], ablate(model, TOKENS, "1.1", metric=last).ablated)
    assert by_metric.unit == "last" and "changes it most" in by_metric.headline  # which way is better is not said
    changes = dict(zip(by_metric.heads, by_metric.changes, strict=True))
    for higher, missed in (
        (True, min(changes, key=changes.__getitem__)),
        (False, max(changes, key=changes.__getitem__)),
    ):
        metric = Metric(measure=last, unit="logits", higher_is_better=higher)
        signed = ablate_each(model, TOKENS, metric=metric)
        says(signed.headline, f"head {missed[0]}.{missed[1]} is missed most", f"{changes[missed]:+.4f} logits")
    with pytest.raises(ValueError, match=r"head 3\.0"):
        ablate_each(model, TOKENS, heads="3.0")


def test_earlier_layers_are_not_computed_again() -> None:
    model = make()
    runs = [0, 0, 0]
    handles = [
        block.attn.register_forward_hook(lambda *_, layer=layer: runs.__setitem__(layer, runs[layer] + 1))
        for layer, block in enumerate(model.blocks)
    ]
    ablate_each(model, TOKENS)
    assert runs == [1 + 3, 1 + 6, 1 + 9]
    for handle in handles:
        handle.remove()


def test_a_model_run_from_a_layer_on_is_the_whole_model() -> None:
    for positions in ("learned", "qk", None):
        model = make(positions=positions, d_mlp=6)
        logits, cache = model.run_with_cache(TOKENS)
        for layer in range(3):
            resid_pre = cache["resid_pre", layer]
            torch.testing.assert_close(model(TOKENS, start_at_layer=layer, resid_pre=resid_pre), logits)
            loss = model(TOKENS, return_type="loss", targets=TOKENS, start_at_layer=layer, resid_pre=resid_pre)
            torch.testing.assert_close(loss, model(TOKENS, return_type="loss", targets=TOKENS))
        with refused("start_at_layer=3", "0 to 2"):
            model(TOKENS, start_at_layer=3, resid_pre=resid_pre)
        with refused("stream"):
            model(TOKENS, start_at_layer=1)
