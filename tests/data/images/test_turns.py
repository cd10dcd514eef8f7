"""Images by turns: the first few show every class."""

from __future__ import annotations

import torch

from aotlens.data.images import ImageSet, open_images


def test_one_of_each_class_in_turn() -> None:
    images = torch.zeros(5, 1, 2, 2, dtype=torch.uint8)
    few = ImageSet(images=images, labels=torch.tensor([2, 0, 0, 1, 0]), classes=("a", "b", "c", "none"))
    assert few.by_turns().tolist() == [1, 3, 0, 2, 4]
    assert few.by_turns(0).tolist() == [1, 2, 4] and few.by_turns(3).tolist() == []
    test = open_images("digits").test
    assert test.labels[test.by_turns()[:30]].tolist() == [*range(10)] * 3
    assert sorted(test.by_turns().tolist()) == [*range(len(test))]
