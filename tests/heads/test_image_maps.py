"""Maps of images: against the cache image by image, rollout by hand, the ViT of Hugging Face, and refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
import transformers
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

from aotlens.heads import image_maps
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from tests.image_models import MEAN_POOLED, make, random_images
from tests.messages import refused
from tests.small_models import SMALL, maker


@pytest.mark.parametrize("changes", [{}, MEAN_POOLED, {"d_mlp": 7}, {"attention": "mssa"}], ids=str)
def test_maps_are_rows_of_the_patterns_of_each_image_alone(changes: dict[str, object]) -> None:
    model, images = make(**changes), random_images(5)
    maps = image_maps(model, images, batch_size=2)
    before = int(model.cfg.class_token)
    assert maps.has_class_token == bool(before)
    assert maps.query_name == ("[CLS]" if before else "mean over queries")
    for index, image in enumerate(images):
        _, cache = model.run_with_cache(image[None])
        for layer in range(3):
            pattern = cache[hook_names.attn(layer, hook_names.PATTERN)][0]
            norms = cache[hook_names.attn(layer, hook_names.V)][0].norm(dim=-1).T
            row = pattern[:, 0] if before else pattern.mean(1)
            torch.testing.assert_close(
                torch.from_numpy(maps.attention()[index, layer]), row[:, before:].unflatten(-1, (3, 3))
            )
            at = before + 2 * 3 + 1
            weighted = (pattern[:, at] * norms)[:, before:].unflatten(-1, (3, 3))
            torch.testing.assert_close(torch.from_numpy(maps.value_weighted((2, 1))[index, layer]), weighted)
            mean = pattern[:, before:].mean(1)[:, before:].unflatten(-1, (3, 3))
            torch.testing.assert_close(torch.from_numpy(maps.attention("mean")[index, layer]), mean)
    assert np.allclose(maps.attention().sum((-2, -1)) + maps.to_class_token(), 1, atol=1e-5)


def test_rollout_by_hand_on_two_by_two_patches() -> None:
    """Two layers of given patterns, multiplied as fractions: half the pattern and half the skip connection."""
    first = [[1, 0, 0, 0], [0, 1, 0, 0], [Fraction(1, 2), 0, Fraction(1, 2), 0], [0, 0, 0, 1]]
    second = [[0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [Fraction(1, 4)] * 4]
    given = torch.tensor([[[[float(entry) for entry in row] for row in layer]] for layer in (first, second)])
    cfg = ModelConfig(
        n_layers=2, d_model=4, n_heads=1, d_head=4, n_ctx=4, read_in="patches", image_size=2, patch_size=1,
        read_out="classes", d_out=2, pooling="mean", causal=False, phi="fixed", fixed_pattern="given", positions=None,
    )  # fmt: skip
    maps = image_maps(AttentionOnlyTransformer(cfg, pattern=given), torch.ones(1, 1, 2, 2))

    def mixed(layer: list[list[Fraction]]) -> list[list[Fraction]]:
        return [[(Fraction(layer[i][j]) + (i == j)) / 2 for j in range(4)] for i in range(4)]

    a, b = mixed(first), mixed(second)
    product = [[sum(b[i][k] * a[k][j] for k in range(4)) for j in range(4)] for i in range(4)]
    for i in range(4):
        expected = np.array([float(entry) for entry in product[i]]).reshape(2, 2)
        assert np.allclose(maps.rollout((i // 2, i % 2))[0], expected, atol=1e-7)
    mean = [sum(product[i][j] for i in range(4)) / 4 for j in range(4)]
    assert np.allclose(maps.rollout()[0].ravel(), [float(entry) for entry in mean], atol=1e-7)


def test_rollout_divides_rows_by_their_sums_and_refuses_signs() -> None:
    pattern = torch.zeros(1, 1, 4, 4)
    pattern[0, 0, 0, 1] = 3.0  # this row sums to 3: with the skip connection 3/4 go to patch 1 and 1/4 stay
    fields = {
        "n_layers": 1, "n_heads": 1, "n_ctx": 4, "image_size": 4, "pooling": "mean", "class_token": False,
        "bias": False, "phi": "fixed", "fixed_pattern": "given",
    }  # fmt: skip
    model = maker({**make().cfg.to_dict(), **fields})(pattern=pattern)
    rollout = image_maps(model, torch.zeros(3, 4, 4)).rollout((0, 0))
    assert np.allclose(rollout[0], [[0.25, 0.75], [0, 0]])
    linear = image_maps(make(phi="linear"), random_images())
    with refused("rollout", "negative"):
        linear.rollout()


def vit() -> transformers.ViTForImageClassification:
    cfg = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, image_size=6, patch_size=2,
        num_channels=3, num_labels=4, initializer_range=0.5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    cfg._attn_implementation = "eager"
    return transformers.ViTForImageClassification(cfg).eval().requires_grad_(False)


def test_a_vision_transformer_of_hugging_face_has_its_own_attentions() -> None:
    torch.manual_seed(0)
    model, images = vit(), random_images()
    expected = model(images, output_attentions=True).attentions
    maps = image_maps(build_bridge_from_module(model, "ViTForImageClassification", hf_config=model.config), images)
    assert len(expected) == 2 and maps.grid.n_before == 1
    for layer, attention in enumerate(expected):
        assert np.allclose(maps.pattern[:, layer], attention.numpy(), atol=1e-6)
        assert np.allclose(maps.attention((1, 2))[:, layer].reshape(3, 2, 9), attention[:, :, 6, 1:].numpy(), atol=1e-6)
    assert maps.value_norms.shape == (3, 2, 2, 10) and (maps.value_norms > 0).all()


def test_what_does_not_fit_is_refused() -> None:
    model, images = make(), random_images()
    with refused("[image, 3, 6, 6]", "[3, 3, 6, 4]"):
        image_maps(model, images[..., :4])
    with pytest.raises(ValueError, match="as floats, got"):
        image_maps(model, (images * 10).to(torch.uint8))
    with refused("image maps", "tokens"):
        image_maps(maker(SMALL)(), images)
    with refused("max_bytes=100", "fewer images"):
        image_maps(model, images, max_bytes=100)
    maps = image_maps(model, images[0])
    with refused("patch (3, 0)", "0 to 2"):
        maps.attention((3, 0))
    with pytest.raises(ValueError, match="query='first': expected a patch"):
        maps.attention("first")
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


def test_progress_counts_images() -> None:
    seen: list[tuple[int, int]] = []
    image_maps(make(), random_images(5), batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]
