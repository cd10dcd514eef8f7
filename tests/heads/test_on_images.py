"""What works on text works on images: ablation, circuits between patch positions, subspaces; and what does not says
so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens import circuits, heads
from aotlens.models import hook_names
from tests.image_models import make, random_images
from tests.messages import refused


@pytest.mark.parametrize("how", ["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"])
def test_heads_are_left_out_of_the_loss_on_classes(how: str) -> None:
    model, images, labels = make(), random_images(5), torch.tensor([0, 3, 1, 1, 2])
    made = heads.ablate(model, images, "1.1", how, targets=labels, batch_size=2)
    clean = torch.nn.functional.cross_entropy(model(images), labels, reduction="none").detach()
    np.testing.assert_allclose(made.clean, clean.numpy(), rtol=1e-5)
    each = heads.ablate_each(model, images, how, targets=labels)
    place = each.heads.index((1, 1))
    np.testing.assert_allclose(each.changes[place], made.change, atol=1e-5)
    if how == "zero":

        def put(z: torch.Tensor, hook: object) -> torch.Tensor:
            z = z.clone()
            z[:, :, 1] = 0
            return z

        logits = model.run_with_hooks(images, fwd_hooks=[(hook_names.attn(1, hook_names.Z), put)])
        expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none").detach()
        np.testing.assert_allclose(made.ablated, expected.numpy(), rtol=1e-5)


def test_circuits_between_patches_add_up_to_the_scores() -> None:
    """Prompt and biases of one image, as on text; patch positions alone are a term of it where nothing is normed."""
    model, image = make(torch.float64), random_images(1, torch.float64)
    _, cache = model.run_with_cache(image)
    for layer, head in ((0, 1), (2, 0)):
        sides = [
            circuits.qk_circuit(model, (layer, head), left, right, frozen=cache).AB
            for left in ("prompt", "bias")
            for right in ("prompt", "bias")
        ]
        whole = sum(side.expand(10, 10) for side in sides)
        torch.testing.assert_close(whole, cache[hook_names.attn(layer, hook_names.SCORES)][0, head])
    positions = circuits.qk_circuit(model, "0.1", "positions", "positions", frozen=cache)
    assert positions.AB.shape == (10, 10)
    bare = make(torch.float64, norm=None, positions="learned")
    own = circuits.qk_circuit(bare, "0.1", "positions", "positions").AB
    W_pos = bare.W_pos.detach()
    expected = (W_pos @ bare.W_Q[0, 1]) @ (W_pos @ bare.W_K[0, 1]).T * bare.cfg.score_scale
    torch.testing.assert_close(own, expected.detach())
    with refused("W_E", "patches", "tokens"):
        circuits.qk_circuit(model, "0.1")


def test_subspaces_need_no_input_and_tables_of_text_are_refused_by_name() -> None:
    model = make(attention="mssa")
    made = heads.subspaces(model, n_random=20)
    assert made.matrix == "U" and made.overlap.shape == (3, 2, 3, 2)
    for name, call in {
        "an atlas": lambda: heads.atlas(model, torch.zeros(2, 10, dtype=torch.long), cache=None),
        "pattern consistency": lambda: heads.pattern_consistency(model, torch.zeros(2, 10, dtype=torch.long)),
    }.items():
        with pytest.raises(ValueError, match=f"{name}: expected a model of tokens; this one reads patches"):
            call()
