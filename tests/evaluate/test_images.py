"""Accuracy, the table by class and calibration, counted again image by image."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from aotlens.data.images import ImageProcessor, ImageSet
from aotlens.evaluate import ImageEvaluation, evaluate_images
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

CLASSES = ("a", "b", "c")
RNG = np.random.default_rng(0)
IMAGES = ImageSet(
    images=torch.from_numpy(RNG.integers(0, 256, (70, 1, 4, 4), dtype=np.uint8)),
    labels=torch.from_numpy(RNG.integers(0, 3, 70)),
    classes=CLASSES,
)


def network() -> AttentionOnlyTransformer:
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 4, "image_size": 4, "patch_size": 2}
    cfg = ModelConfig(
        **sizes, read_in="patches", read_out="classes", d_out=3, causal=False, pooling="mean", init_std=1.0
    )
    model = AttentionOnlyTransformer(cfg).eval()
    model.image_processor = ImageProcessor(mean=(0.4,), deviation=(0.2,), classes=CLASSES)
    return model


def test_what_is_printed_is_what_is_counted():
    model = network()
    found = evaluate_images(model, IMAGES, batch_size=16)
    right, losses, confusion = [], [], np.zeros((3, 3), dtype=int)
    with torch.no_grad():
        for image, label in zip(IMAGES.images, IMAGES.labels.tolist(), strict=True):
            p = model((image[None].float() / 255 - 0.4) / 0.2)[0].double().softmax(-1).numpy()
            right.append(p.argmax() == label)
            losses.append(-np.log(p[label]))
            confusion[label, p.argmax()] += 1
    assert found.accuracy == np.mean(right) and found.loss == pytest.approx(np.mean(losses), abs=1e-5)
    np.testing.assert_array_equal(found.confusion, confusion)
    interval = scipy.stats.binomtest(int(sum(right)), 70).proportion_ci(0.95, method="wilson")
    assert found.accuracy_interval == pytest.approx((interval.low, interval.high))
    table = found.to_frame().set_index("class")
    for number, name in enumerate(CLASSES):
        assert table.loc[name, "images"] == confusion[number].sum()
        assert table.loc[name, "recall"] == pytest.approx(confusion[number, number] / confusion[number].sum())
        taken = confusion[:, number].sum()
        assert table.loc[name, "precision"] == pytest.approx(confusion[number, number] / taken, nan_ok=True)
        others = np.delete(confusion[number], number)
        if others.any():
            worst = np.delete(np.array(CLASSES), number)[others.argmax()]
            assert table.loc[name, "most often taken for"] == worst


def test_calibration_of_a_model_that_knows_what_it_knows():
    """Labels drawn by the probabilities themselves: each bin is as right as it is sure, within its interval."""
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet([0.7, 0.7, 0.7], 20_000)
    labels = np.array([rng.choice(3, p=p) for p in probabilities])
    found = ImageEvaluation(classes=CLASSES, labels=labels, log_probabilities=np.log(probabilities))
    assert found.calibration_error < 0.01
    table = found.calibration()
    assert table["images"].sum() == 20_000
    assert ((table["low"] - 0.01 < table["confidence"]) & (table["confidence"] < table["high"] + 0.01)).all()
    sure = np.where(probabilities == probabilities.max(1, keepdims=True), 0.98, 0.01)
    overconfident = ImageEvaluation(classes=CLASSES, labels=labels, log_probabilities=np.log(sure))
    assert overconfident.calibration_error == pytest.approx(0.98 - overconfident.accuracy)
    assert len(overconfident.calibration()) == 1


def test_what_cannot_be_evaluated_is_named():
    model = network()
    other = ImageSet(images=IMAGES.images, labels=IMAGES.labels, classes=("a", "b", "d"))
    with refused("a, b, c", "a, b, d"):
        evaluate_images(model, other)
    with refused("labelled image"):
        evaluate_images(model, IMAGES.take(torch.tensor([], dtype=torch.long)))
    model.image_processor = None
    with pytest.raises(ValueError, match="no image processor"):
        evaluate_images(model, IMAGES)
    text = AttentionOnlyTransformer(ModelConfig(n_layers=1, d_model=4, n_heads=1, d_head=4, n_ctx=4, d_vocab=5))
    with pytest.raises(ValueError, match="writes tokens"):
        evaluate_images(text, IMAGES)
