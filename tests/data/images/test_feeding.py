"""Batches of images for training, and pixels as a model reads them, against loops over single pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from aotlens.data.images import ImageProcessor, ImageSampler, ImageSet, open_images
from tests.messages import refused

RNG = np.random.default_rng(0)


def images(n: int = 23, channels: int = 1, side: int = 6) -> ImageSet:
    pixels = torch.from_numpy(RNG.integers(1, 256, (n, channels, side, side), dtype=np.uint8))  # none is black
    return ImageSet(images=pixels, labels=torch.arange(n) % 3, classes=("a", "b", "c"))


def test_an_epoch_sees_every_image_once_and_the_next_in_another_order():
    sampler = ImageSampler(images=images(), batch_size=5, seed=7)
    seen = torch.cat([sampler.indices(step) for step in range(23)])  # five epochs of 23
    epochs = seen.view(5, 23)
    assert all(sorted(epoch.tolist()) == list(range(23)) for epoch in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    pixels, labels = sampler.batch(4)  # runs over into the second epoch
    assert torch.equal(pixels, sampler.images.images[sampler.indices(4)])
    assert torch.equal(labels, sampler.indices(4) % 3)


def test_a_batch_is_a_function_of_seed_and_step():
    settings = {"batch_size": 8, "flip": True, "shift": 2, "crop": 0.5}
    one, same = (ImageSampler(images=images(), seed=1, **settings) for _ in range(2))
    same = ImageSampler(images=one.images, seed=1, **settings)
    other = ImageSampler(images=one.images, seed=2, **settings)
    one.batch(0)
    assert torch.equal(one.batch(9)[0], same.batch(9)[0])
    assert not torch.equal(one.batch(9)[0], other.batch(9)[0])


def test_flips_and_shifts_are_what_a_loop_over_pixels_gives():
    own = images(n=40, channels=3)
    sampler = ImageSampler(images=own, batch_size=40, seed=0, flip=True, shift=2)
    pixels, _ = sampler.batch(0)
    moves = set()
    for image, index in zip(pixels.numpy(), sampler.indices(0).tolist(), strict=True):
        original = own.images[index].numpy()
        matches = []
        for flipped in (False, True):
            source = original[:, :, ::-1] if flipped else original
            for down in range(-2, 3):
                for right in range(-2, 3):
                    moved = np.zeros_like(source)
                    for row in range(6):
                        for column in range(6):
                            if 0 <= row - down < 6 and 0 <= column - right < 6:
                                moved[:, row, column] = source[:, row - down, column - right]
                    if np.array_equal(moved, image):
                        matches.append((flipped, down, right))
        assert len(matches) == 1
        moves.add(matches[0])
    assert {flipped for flipped, _, _ in moves} == {False, True}
    assert {down for _, down, _ in moves} == {right for _, _, right in moves} == {-2, -1, 0, 1, 2}


def test_crops():
    own = images(n=12, side=16)
    whole = ImageSampler(images=own, batch_size=12, seed=0, crop=1.0)
    narrowest = (3 / 4) ** 0.5  # an area of 1 at a ratio of 3 to 4 does not fit: a side is cut
    pixels, _ = whole.batch(0)
    assert pixels.shape == (12, 1, 16, 16) and narrowest > 0.8
    ramp = torch.arange(16, dtype=torch.uint8)[None, None, None, :].expand(12, 1, 16, 16).contiguous() * 16
    ramps = ImageSet(images=ramp, labels=torch.zeros(12, dtype=torch.long), classes=("a",))
    cut = ImageSampler(images=ramps, batch_size=12, seed=0, crop=0.25).batch(0)[0].double()
    widths = (cut[:, 0, 0, 15] - cut[:, 0, 0, 0]) / 15 / 16  # of the part, in pixels a pixel of the result
    assert ((widths > 0.25**0.5 * narrowest - 0.05) & (widths <= 1.01)).all() and widths.std() > 0.05
    assert (cut == cut[:, :, :1]).all()  # each column keeps one shade


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift": 6}, "shift=6: expected a whole number from 0 to 5"),
        ({"crop": 0.0}, "crop=0.0: .* above 0 and at most 1"),
        ({"batch_size": 0}, "batch_size ≥ 1"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        ImageSampler(**{"images": images(), "batch_size": 4, "seed": 0, **settings})


def processor(channels: int) -> ImageProcessor:
    return ImageProcessor(
        mean=(0.5, 0.4, 0.3)[:channels], deviation=(0.2, 0.3, 0.4)[:channels], classes=("a", "b"), data="made up"
    )


def test_pixels_are_normalised_by_channel():
    pixels = images(channels=3).images
    encoded = processor(3).encode(pixels)
    for channel, (mean, deviation) in enumerate(zip((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), strict=True)):
        np.testing.assert_allclose(
            encoded[:, channel], (pixels[:, channel].numpy() / 255 - mean) / deviation, rtol=1e-5, atol=1e-6
        )


def test_grey_and_coloured_images_become_the_models_kind():
    grey, coloured = images(channels=1).images, images(channels=3).images
    spread = processor(3).encode(grey)
    expected = (grey.numpy()[:, 0] / 255 - 0.4) / 0.3
    np.testing.assert_allclose(spread[:, 1], expected, rtol=1e-5, atol=1e-6)
    made_grey = processor(1).encode(coloured)[0, 0] * 0.2 + 0.5
    by_pillow = np.asarray(Image.fromarray(coloured[0].permute(1, 2, 0).numpy()).convert("L")) / 255
    np.testing.assert_allclose(made_grey, by_pillow, atol=1 / 255)  # which rounds


def test_another_size_is_cut_and_scaled():
    pixels = torch.zeros(1, 1, 8, 12, dtype=torch.uint8)
    pixels[..., 2:10] = 255  # the middle square
    assert torch.allclose(processor(1).encode(pixels, 4), torch.tensor((1 - 0.5) / 0.2))
    assert processor(1).encode(pixels, 4).shape == (1, 1, 4, 4)


@pytest.mark.parametrize(
    "pixels",
    [torch.zeros(2, 1, 4, 4), torch.zeros(2, 2, 4, 4, dtype=torch.uint8), torch.zeros(4, 4, dtype=torch.uint8)],
)
def test_other_pixels_are_refused(pixels: torch.Tensor):
    with refused("[image, 1 or 3 channels, height, width]", "uint8"):
        processor(1).encode(pixels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deviation": [0.0]}, "positive deviations"),
        ({"mean": [float("nan")]}, "finite means"),
        ({"mean": [0.1, 0.2]}, "1 or 3 channels"),
        ({"mean": ["a"]}, "lists of numbers"),
        ({"classes": "ab"}, "list of names"),
        ({"colour": 1}, "expected the keys mean, deviation, classes, data"),
    ],
)
def test_a_processor_is_its_dictionary_and_refuses_another(change: dict[str, object], message: str):
    values = processor(1).to_dict()
    assert ImageProcessor.from_dict(values) == processor(1)
    with pytest.raises(ValueError, match=message):
        ImageProcessor.from_dict(values | change)


def test_one_of_each_class_in_turn() -> None:
    images = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
    few = ImageSet(images=images, labels=torch.tensor([2, 0, 0, 1, 0]), classes=("a", "b", "c", "none"))
    assert few.by_turns().tolist() == [1, 3, 0, 2, 4]
    assert few.by_turns(0).tolist() == [1, 2, 4] and few.by_turns(3).tolist() == []
    test = open_images("digits").test
    assert test.labels[test.by_turns()[:30]].tolist() == [*range(10)] * 3
    assert sorted(test.by_turns().tolist()) == [*range(len(test))]
