"""Which images are chosen, by hand."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from aotlens.data.images import ImageData, ImageSet, choose_images
from tests.messages import refused

LABELS = torch.tensor([1, 0, 0, 1, 0, 1, 2])
GREY = torch.arange(7, dtype=torch.uint8)[:, None, None, None].expand(7, 1, 4, 4)
TEST = ImageSet(images=GREY, labels=LABELS, classes=("a", "b", "c"))


def test_one_of_each_class_in_turn_or_of_one_class() -> None:
    chosen = choose_images(TEST, 4, start=1)
    assert chosen.indices == (0, 6, 2, 3) and chosen.labels.tolist() == [1, 2, 0, 1] and chosen.n_all == 7
    assert chosen.images[:, 0, 0, 0].tolist() == [0, 6, 2, 3]
    of_one = choose_images(TEST, 9, of=1, start=1)
    assert of_one.indices == (3, 5) and of_one.n_all == 3
    with refused("of=3", "from 0 to 2"):
        choose_images(TEST, 1, of=3)
    with refused("start=3", "test images, 3"):
        choose_images(TEST, 1, of=1, start=3)


def test_own_files_come_first_in_colour_where_the_model_has_colours(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (250, 10, 20)).save(tmp_path / "mine.png")
    chosen = choose_images(TEST, 2, own=["mine"], folder=tmp_path, channels=3)
    assert chosen.n_own == 1 and chosen.labels.tolist() == [-1, 0, 1] and chosen.images.shape == (3, 3, 4, 4)
    assert chosen.images[0, :, 2, 2].tolist() == [250, 10, 20] and chosen.images[2, :, 1, 1].tolist() == [0, 0, 0]
    with refused("missing"):
        choose_images(TEST, 2, own=["missing"], folder=tmp_path)


def test_a_reference_is_of_training_images_where_there_are_some() -> None:
    other = ImageSet(images=GREY[:3] + 100, labels=LABELS[:3], classes=TEST.classes)
    assert ImageData(spec="x", train=other, test=TEST).reference(2).images[:, 0, 0, 0].tolist() == [101, 100]
    none = ImageSet(images=GREY[:0], labels=LABELS[:0], classes=TEST.classes)
    assert ImageData(spec="x", train=none, test=TEST).reference(2).images[:, 0, 0, 0].tolist() == [1, 0]
