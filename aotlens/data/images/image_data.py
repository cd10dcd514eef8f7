"""Labelled images, and their split: the test set is never part of what a model is trained or chosen by."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.untrusted import check_name


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Images of one size with their classes. Raises `ValueError` for what does not fit together."""

    images: UInt8[Tensor, "image channel height width"]
    """Grey (one channel) or red, green and blue; 0 is black, 255 full."""
    labels: Int64[Tensor, " label"]
    """The number of each image's class."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""

    def __post_init__(self) -> None:
        for name in self.classes:
            check_name(name, "a class")
        if self.images.dim() != 4 or self.images.shape[1] not in (1, 3) or self.images.dtype != torch.uint8:
            raise ValueError(
                "expected images [image, 1 or 3 channels, height, width] of uint8, got "
                f"{list(self.images.shape)} of {self.images.dtype}."
            )
        if self.labels.shape != self.images.shape[:1]:
            raise ValueError(f"expected a label for each of {len(self.images)} images, got {list(self.labels.shape)}.")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise ValueError(
                f"expected labels from 0 to {len(self.classes) - 1}, the numbers of {len(self.classes)} classes, got "
                f"{int(self.labels.min())} to {int(self.labels.max())}."
            )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: Int64[Tensor, " chosen"]) -> ImageSet:
        """Return the images at these indices, in this order."""
        return ImageSet(images=self.images[indices], labels=self.labels[indices], classes=self.classes)

    def by_turns(self, label: int | None = None) -> Int64[Tensor, " turn"]:
        """Return indices of one image of each class in turn, each class in its order, so that the first few show them
        all.

        Classes that have no more images are passed over. With a `label`, the images of that class alone.
        """
        if label is not None:
            return (self.labels == label).nonzero().flatten()
        turn = torch.empty_like(self.labels)
        for number in range(len(self.classes)):
            members = (self.labels == number).nonzero().flatten()
            turn[members] = torch.arange(len(members))
        return (turn * len(self.classes) + self.labels).argsort(stable=True)

    @property
    def mean(self) -> Float[Tensor, " channel"]:
        """The mean of each channel's pixels over all images, where 1 is full, float32."""
        return self._moments()[0]

    @property
    def deviation(self) -> Float[Tensor, " channel"]:
        """Standard deviation of each channel's pixels over all images, where 1 is full, float32; 1 for a constant."""
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        # Sums of whole numbers, so that the order of the images decides nothing.
        total = torch.zeros(2, self.images.shape[1], dtype=torch.int64)
        for part in self.images.split(4096):
            pixels = part.long()
            total += torch.stack([pixels.sum((0, 2, 3)), (pixels * pixels).sum((0, 2, 3))])
        mean, square = total.double() / max(1, self.images[:, 0].numel()) / torch.tensor([[255.0], [255.0**2]])
        deviation = (square - mean * mean).clamp(min=0).sqrt()
        return mean.float(), torch.where(deviation > 0, deviation, 1.0).float()


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageData:
    """The data set of a name: images to train with, and a test set that is read once, at the end."""

    spec: str
    train: ImageSet
    test: ImageSet

    def __post_init__(self) -> None:
        if self.train.images.shape[1:] != self.test.images.shape[1:] or self.train.classes != self.test.classes:
            raise ValueError(
                f"{self.spec}: expected training and test images of one size and with the same classes, got "
                f"{list(self.train.images.shape[1:])} of {len(self.train.classes)} classes and "
                f"{list(self.test.images.shape[1:])} of {len(self.test.classes)}."
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their numbers."""
        return self.train.classes

    def reference(self, n: int) -> ImageSet:
        """Return `n` training images, classes in turn, from which means over images are taken; test images where there
        are no others."""
        others = self.train if len(self.train) else self.test
        return others.take(others.by_turns()[:n])

    def named(self, classes: Sequence[str]) -> ImageData:
        """Return the same images with other names of the classes. Raises `ValueError` for another number of them."""
        if len(classes) != len(self.classes):
            raise ValueError(
                f"{self.spec}: expected names of its {len(self.classes)} classes, got {len(classes)}: "
                f"{', '.join(classes)}."
            )
        train, test = (dataclasses.replace(each, classes=tuple(classes)) for each in (self.train, self.test))
        return ImageData(spec=self.spec, train=train, test=test)

    def split(self, validation: float, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Return training images and, drawn from them by `seed`, the share `validation` of every class.

        Of a class with n images round(validation · n) are held out. The test set is not touched. Raises `ValueError`
        for a share that is not between 0 and 1, and where nothing would be left on a side.
        """
        if not 0 < validation < 1:
            raise ValueError(f"validation={validation}: expected a share between 0 and 1, as 0.1.")
        held_out = held_out_images(self.train.labels, len(self.classes), validation, seed)
        if not 0 < int(held_out.sum()) < len(held_out):
            raise ValueError(
                f"validation={validation} of {len(held_out)} images in {len(self.classes)} classes leaves nothing on "
                "one side; choose a share that fits, or bring more images."
            )
        return self.train.take((~held_out).nonzero().flatten()), self.train.take(held_out.nonzero().flatten())

    def sha256(self) -> str:
        """Hash names, sizes, labels and pixels of both sets."""
        digest = hashlib.sha256()
        for part in _parts(self):
            digest.update(part)
        return digest.hexdigest()


def held_out_images(labels: Int64[Tensor, " image"], n_classes: int, share: float, seed: int) -> Tensor:
    """Draw the images that are held out: of each class the share `share`, by `seed`; bool `[image]`."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    held_out = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(n_classes):
        members = (labels == label).nonzero().flatten()
        order = torch.randperm(len(members), generator=generator)
        held_out[members[order[: round(share * len(members))]]] = True
    return held_out


def _parts(data: ImageData) -> Iterator[bytes]:
    yield repr((data.classes, *(list(side.images.shape) for side in (data.train, data.test)))).encode()
    for side in (data.train, data.test):
        yield side.labels.numpy().tobytes()
        for part in side.images.split(4096):
            yield part.contiguous().numpy().tobytes()
