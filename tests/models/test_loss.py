"""The loss beside torch's and by hand: label smoothing, and targets that do not count."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

SIZES = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "causal": False}
CLASSES = AttentionOnlyTransformer(
    ModelConfig(**SIZES, n_ctx=4, read_in="patches", image_size=4, patch_size=2, read_out="classes", d_out=5,
                pooling="mean", seed=1)
).double()  # fmt: skip
VECTORS = AttentionOnlyTransformer(
    ModelConfig(**SIZES, n_ctx=6, read_in="vectors", d_in=3, read_out="vectors", d_out=2, seed=1)
).double()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_is_the_mixture_that_it_says(smoothing: float):
    torch.manual_seed(0)
    images, labels = torch.randn(6, 1, 4, 4, dtype=torch.float64), torch.randint(5, (6,))
    log_p = CLASSES(images).log_softmax(-1)
    q = (1 - smoothing) * F.one_hot(labels, 5) + smoothing / 5
    by_hand = -(q * log_p).sum(-1)
    loss = CLASSES(images, return_type="loss", targets=labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss, by_hand.mean())
    torch.testing.assert_close(loss, F.cross_entropy(CLASSES(images), labels, label_smoothing=smoothing))
    each = CLASSES(images, return_type="loss", targets=labels, label_smoothing=smoothing, loss_per_token=True)
    torch.testing.assert_close(each, by_hand)


def test_label_smoothing_that_means_nothing_is_refused():
    images, labels = torch.randn(2, 1, 4, 4, dtype=torch.float64), torch.tensor([0, 1])
    with refused("label_smoothing=1.0", "0 to below 1"):
        CLASSES(images, return_type="loss", targets=labels, label_smoothing=1.0)
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    with refused("vectors"):
        VECTORS(x, return_type="loss", targets=torch.zeros(2, 6, 2, dtype=torch.float64), label_smoothing=0.1)


def test_targets_of_vectors_that_are_nan_do_not_count():
    torch.manual_seed(0)
    x, targets = torch.randn(3, 6, 3, dtype=torch.float64), torch.randn(3, 6, 2, dtype=torch.float64)
    counts = torch.rand(3, 6, 2) < 0.6
    sparse = torch.where(counts, targets, torch.nan)
    outputs = VECTORS(x).detach()
    expected = sum(
        float((outputs[place] - targets[place]) ** 2) for place in map(tuple, counts.nonzero().tolist())
    ) / int(counts.sum())
    loss = VECTORS(x, return_type="loss", targets=sparse)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    loss.backward()
    gradients = [p.grad.clone() for p in VECTORS.parameters() if p.grad is not None]
    VECTORS.zero_grad()
    (((VECTORS(x) - targets) * counts).pow(2).sum() / counts.sum()).backward()  # autograd without a NaN
    for gradient, parameter in zip(gradients, (p for p in VECTORS.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
    VECTORS.zero_grad()
    each = VECTORS(x, return_type="loss", targets=sparse, loss_per_token=True)
    assert each.shape == targets.shape and (each[~counts] == 0).all()


def test_padding_and_nan_together():
    x, targets = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(2, 6, 2, dtype=torch.float64)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    sparse = targets.clone()
    sparse[0, 0] = torch.nan
    errors = (VECTORS(x, attention_mask=mask) - targets).pow(2)
    kept = mask.clone()
    kept[0, 0] = False
    loss = VECTORS(x, return_type="loss", targets=sparse, attention_mask=mask)
    torch.testing.assert_close(loss, errors[kept].mean())
    with refused("NaN", "average"):
        VECTORS(x, return_type="loss", targets=torch.full_like(targets, torch.nan))


def test_images_of_another_type_than_the_weights_are_named():
    with refused("torch.float64"):
        CLASSES(torch.randn(2, 1, 4, 4))
    with pytest.raises(ValueError, match=r"as floats, got .*uint8"):
        CLASSES(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))  # it has no image processor
