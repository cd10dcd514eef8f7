"""Insertion and deletion: images built pixel by pixel, an order that knows, the ends of curves, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.heads import image_maps
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import patch_contributions, patch_curves
from tests.image_models import MEAN_POOLED, make, random_images
from tests.messages import refused


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED], ids=["cls", "mean"])
def test_curves_are_the_model_on_images_put_together_patch_by_patch(changes: dict[str, object]) -> None:
    model, images = make(**changes), random_images(4)
    classes = torch.tensor([1, 0, 3, 3])
    made = patch_curves(model, images, classes, ["attention", "paths", "rollout"], n_steps=4, batch_size=3)
    assert made.methods == ("attention", "paths", "rollout") and made.shares.tolist() == [0, 2 / 9, 4 / 9, 7 / 9, 1]
    mean, maps = images.mean(0), image_maps(model, images)
    orders = {
        "attention": maps.attention()[:, -1].mean(1), "rollout": maps.rollout(),
        "paths": patch_contributions(model, images).of_class(classes.tolist()),
    }  # fmt: skip
    for place, method in enumerate(made.methods):
        for index, image in enumerate(images):
            order = np.argsort(-orders[method][index].ravel(), kind="stable")
            for step, count in enumerate((0, 2, 4, 7, 9)):
                deleted, inserted = image.clone(), mean.clone()
                for patch in order[:count]:
                    row, column = 2 * (patch // 3), 2 * (patch % 3)
                    deleted[:, row : row + 2, column : column + 2] = mean[:, row : row + 2, column : column + 2]
                    inserted[:, row : row + 2, column : column + 2] = image[:, row : row + 2, column : column + 2]
                for curve, picture in ((made.deletion, deleted), (made.insertion, inserted)):
                    logits = model(picture[None])[0].detach()
                    expected = float(logits[classes[index]] - logits.mean())
                    assert curve[place, index, step] == pytest.approx(expected, abs=1e-5)


def test_ends_are_image_and_baseline_whatever_the_order() -> None:
    model, images = make(), random_images(3)
    made = patch_curves(model, images, n_random=2)
    logits = model(images).detach()
    assert made.methods == ("paths", "rollout", "attention", "random") and len(made.shares) == 10
    assert (made.classes == logits.argmax(1).numpy()).all()
    whole = (logits.max(1).values - logits.mean(1)).numpy()
    for place in range(4):
        np.testing.assert_allclose(made.deletion[place, :, 0], whole, atol=1e-5)
        np.testing.assert_allclose(made.insertion[place, :, -1], whole, atol=1e-5)
        np.testing.assert_allclose(made.deletion[place, :, -1], made.insertion[place, :, 0], atol=1e-5)
    zero = patch_curves(model, images[:1], baseline="zero", methods="random", n_steps=1)
    blank = patch_curves(model, images[:1], baseline=torch.zeros(3, 6, 6), methods="random", n_steps=1)
    np.testing.assert_array_equal(zero.deletion, blank.deletion)
    others = random_images(5, seed=9)
    mean = patch_curves(model, images, reference=others, methods="random", n_steps=1)
    given = patch_curves(model, images, baseline=others.mean(0), methods="random", n_steps=1)
    np.testing.assert_array_equal(mean.deletion, given.deletion)
    assert np.allclose(zero.area_deletion, zero.deletion.mean(-1)), "the trapezoid of two points is their mean"


def test_an_order_by_paths_is_best_where_the_model_is_linear() -> None:
    """With fixed patterns and no norm, paths say exactly what replacing by 0 does: no order's deletion falls faster."""
    cfg = ModelConfig(
        n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=9, read_in="patches", image_size=6, patch_size=2,
        read_out="classes", d_out=3, pooling="mean", causal=False, phi="fixed", fixed_pattern="random", norm=None,
        n_channels=3,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg)
    made = patch_curves(model, random_images(12), baseline="zero", n_random=5)
    frame = made.to_frame().set_index("method")
    for other in ("rollout", "attention", "random"):
        place = made.methods.index(other)
        assert (made.deletion[0] <= made.deletion[place] + 1e-5).all()
        assert (made.insertion[0] >= made.insertion[place] - 1e-5).all()
    assert frame.loc["paths", "deletion_high"] < 0 < frame.loc["paths", "insertion_low"]
    assert frame.loc["random", "deletion_difference"] == 0


def test_a_model_with_mlps_is_ordered_by_paths_past_them() -> None:
    model, images = make(d_mlp=7), random_images(3)
    made = patch_curves(model, images, n_steps=2, n_random=1)
    assert made.methods == ("paths", "rollout", "attention", "random")
    alone = patch_curves(model, images, methods="paths", n_steps=2)
    np.testing.assert_array_equal(alone.deletion[0], made.deletion[0])


def test_what_cannot_be_asked_says_so() -> None:
    model, images = make(), random_images(3)
    for methods in ("gradient", []):
        with refused("methods", "paths, rollout, attention, random"):
            patch_curves(model, images, methods=methods)
    with refused("single image"):
        patch_curves(model, images[:1])
    with refused("baseline='blur'", "'mean', 'zero'"):
        patch_curves(model, images, baseline="blur")
    with refused("classes", "0 to 3", "3 images"):
        patch_curves(model, images, torch.tensor([0, 1, 4]))
    with pytest.raises(ValueError, match="n_steps=0"):
        patch_curves(model, images, n_steps=0)


def test_a_model_whose_attention_is_negative_somewhere_has_every_method_but_rollout() -> None:
    made = patch_curves(make(phi="linear"), random_images(2), n_steps=2)
    assert made.methods == ("paths", "attention", "random") and np.isfinite(made.deletion).all()
    with refused("rollout", "negative"):
        patch_curves(make(phi="linear"), random_images(2), methods="rollout", n_steps=2)
