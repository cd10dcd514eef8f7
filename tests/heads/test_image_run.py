"""A model's maps and predictions on images, against its own cache, a model whose weights were cut, and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import torch

from aotlens.data.images import ImageProcessor
from aotlens.heads import ImageRun, image_run
from aotlens.models import AttentionOnlyTransformer, hook_names
from tests.image_models import make
from tests.messages import refused

PIXELS = torch.randint(256, (4, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def with_processor(**rest: object) -> AttentionOnlyTransformer:
    model = make(**rest)
    model.image_processor = ImageProcessor(mean=(0.4,) * 3, deviation=(0.2,) * 3, classes=tuple("abcd"))
    return model


@pytest.fixture(scope="module")
def model() -> AttentionOnlyTransformer:
    return with_processor(init_std=0.6)


@pytest.fixture(scope="module")
def run(model: AttentionOnlyTransformer) -> ImageRun:
    return image_run(model, PIXELS)


def test_a_head_and_a_layer_are_rows_of_the_pattern(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    logits, cache = model.run_with_cache((PIXELS.float() / 255 - 0.4) / 0.2)
    pattern = cache[hook_names.attn(1, hook_names.PATTERN)].detach().numpy()  # [image, head, query, key], [CLS] first
    lengths = cache[hook_names.attn(1, hook_names.V)].norm(dim=-1).detach().numpy()  # [image, pos, head]
    np.testing.assert_allclose(run.logits, logits.detach().numpy(), atol=1e-5)
    patch = 1 + 2 * 3 + 1  # row 2, column 1, after [CLS]
    head = run.head("1.1", 3, (2, 1))
    np.testing.assert_allclose(head.attention.ravel(), pattern[3, 1, patch, 1:], atol=1e-6)
    np.testing.assert_allclose(head.value_weighted.ravel(), pattern[3, 1, patch, 1:] * lengths[3, 1:, 1], atol=1e-5)
    layer = run.layer(1, quantity="value_weighted")
    expected = pattern[:, :, 0, 1:] * lengths[:, 1:].transpose(0, 2, 1)
    np.testing.assert_allclose(layer.values.reshape(4, 2, 9), expected, atol=1e-5)
    frame = layer.to_frame().set_index(["image", "head", "row", "column"])["value_weighted"]
    assert frame[3, 1, 2, 1] == layer.values[3, 1, 2, 1]
    assert list(head.to_frame().columns) == ["row", "column", "attention", "value_weighted", "rollout"]


def test_predictions_with_and_without_heads(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    ablated = image_run(model, PIXELS, ["0.1", "2.0"])
    cut = with_processor(init_std=0.6)
    cut.load_state_dict(model.state_dict())
    with torch.no_grad():
        cut.blocks[0].attn.W_O[1], cut.blocks[2].attn.W_O[0] = 0, 0
        expected = cut(cut.to_images(PIXELS)).double().numpy()
    predictions = run.predictions(2, ablated)
    np.testing.assert_allclose(predictions.ablated, scipy.special.softmax(expected, -1)[2], atol=1e-6)
    np.testing.assert_allclose(predictions.probabilities, scipy.special.softmax(run.logits[2]), atol=1e-12)
    assert predictions.n_changed == int((expected.argmax(1) != run.logits.argmax(1)).sum())
    assert predictions.best()[0] == "abcd"[run.logits[2].argmax()]
    assert list(predictions.to_frame().columns) == ["class", "logit", "probability", "probability_ablated"]
    means = image_run(model, PIXELS, "0.1", "mean", reference=PIXELS.flip(0))
    assert np.abs(means.logits - ablated.logits).max() > 1e-4


def test_attention_with_a_sign_has_no_rollout() -> None:
    head = image_run(with_processor(phi="linear"), PIXELS).head((0, 1))
    assert head.rollout is None and "rollout" not in head.to_frame() and (head.attention < 0).any()


def test_labels_say_what_is_wrong(model: AttentionOnlyTransformer) -> None:
    best = image_run(model, PIXELS).predicted
    labels = torch.tensor([best[0], (best[1] + 1) % 4, -1, best[3]])
    run = image_run(model, PIXELS, labels=labels)
    assert run.truth == ("abcd"[best[0]], "abcd"[labels[1]], None, "abcd"[best[3]]) and run.wrong == (1,)
    assert run.predictions(1).truth == run.truth[1]
    assert list(run.to_frame()["class"].dropna()) == [*run.truth[:2], run.truth[3]]
    other = image_run(model, PIXELS, labels=labels, label_names="wxyz")
    assert other.truth[0] == "wxyz"[best[0]] and other.wrong == () and not other.has_model_classes
    with refused("labels", "4 images"):
        image_run(model, PIXELS, labels=labels + 4)


@pytest.mark.unchecked
def test_every_image_has_a_label_or_none_has(model: AttentionOnlyTransformer) -> None:
    with refused("labels", "4 images"):
        image_run(model, PIXELS, labels=torch.tensor([0, 1]))


def test_what_there_is_not_is_refused(model: AttentionOnlyTransformer, run: ImageRun) -> None:
    with refused("image=4", "from 0 to 3"):
        run.head("0.0", 4)
    with refused("head 3.0", "layers 0 to 2"):
        run.head("3.0")
    with refused("layer=3"):
        run.layer(3)
    with refused("quantity", "value_weighted"):
        run.layer(0, quantity="values")
    with refused("image=9"):
        run.predictions(9)
    with refused("'mean'", "reference"):
        image_run(model, PIXELS, "0.1", "mean")
    with refused("image processor"):
        image_run(make(), PIXELS)
    with refused("each of the model's 5 classes", "has 4"):
        image_run(with_processor(d_out=5), PIXELS)
    with refused("reads out classes", "vectors"):
        image_run(with_processor(read_out="vectors", pooling=None), PIXELS)
