"""Labelled images, their split (the test set is never part of what a model is trained or chosen by), and batches.

A batch is a pure function of (seed, step), flips, shifts and crops included: its randomness is the raw words of
`aotlens.data.sampler`'s generator, so that a resumed run sees what an unbroken one would and processes can slice one
global batch. `ImageProcessor` is to a model of images what a tokenizer is to a model of text.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, pad

from aotlens.conventions import require_between, require_seed, require_shape, require_whole
from aotlens.data.sampler import uniform_words
from aotlens.untrusted import check_name


def require_pixels(images: Tensor) -> None:
    """Raise `ValueError` unless these are images [image, 1 or 3 channels, height, width] of uint8."""
    if images.dim() != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8:
        raise ValueError(
            f"expected images [image, 1 or 3 channels, height, width] of uint8, got {list(images.shape)} of "
            f"{images.dtype}."
        )


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
        require_pixels(self.images)
        require_shape("labels", self.labels, self.images.shape[:1])
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
        train, test = (dataclasses.replace(part, classes=tuple(classes)) for part in (self.train, self.test))
        return ImageData(spec=self.spec, train=train, test=test)

    def split(self, validation: float, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Return training images and, drawn from them by `seed`, the share `validation` of every class.

        Of a class with n images round(validation · n) are held out. The test set is not touched. Raises `ValueError`
        for a share that is not between 0 and 1, and where nothing would be left on a side.
        """
        require_between("validation", validation, above=0, below=1)
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


_ORDER_STREAM, _CHANGE_STREAM = 6, 7


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSampler:
    """Every image once an epoch, in an order drawn for each; an epoch's last batch runs over into the next.

    Raises `ValueError` for settings that do not fit the images.
    """

    images: ImageSet
    batch_size: int
    seed: int
    flip: bool = False
    """Mirror half of the images, left to right."""
    shift: int = 0
    """Move each image by up to so many pixels, down or up and right or left, over black."""
    crop: float | None = None
    """Scale a part of each image to its whole size: of a random place, an area from this share to 1, and a ratio of
    sides from 3/4 to 4/3 (Szegedy et al. 2015); None takes the whole image."""

    def __post_init__(self) -> None:
        if self.batch_size < 1 or len(self.images) < 1:
            raise ValueError(
                f"expected batch_size ≥ 1 and at least one image, got {self.batch_size} and {len(self.images)}."
            )
        side = min(self.images.images.shape[2:])
        require_whole("shift", self.shift, 0, side - 1)
        if self.crop is not None:
            require_between("crop", self.crop, above=0, most=1)

    def indices(self, step: int) -> Int64[Tensor, " batch"]:
        """Return the indices of the images that the step sees."""
        places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, within = np.divmod(places, len(self.images))
        orders = [
            _order(self.seed, int(epoch), len(self.images))[within[epochs == epoch]] for epoch in np.unique(epochs)
        ]
        return torch.from_numpy(np.concatenate(orders))

    def batch(self, step: int) -> tuple[UInt8[Tensor, "batch channel height width"], Int64[Tensor, " batch"]]:
        """Return the images of a step, each changed in its own way, and their classes."""
        indices = self.indices(step)
        images = self.images.images[indices]
        uniform = uniform_words(self.seed, _CHANGE_STREAM, step, (self.batch_size, 7)) >> np.uint64(11)
        draws = torch.from_numpy(uniform.astype(np.float64) * 2.0**-53)  # from 0 to 1
        if self.flip:
            images = torch.where((draws[:, 0] < 0.5)[:, None, None, None], images.flip(-1), images)
        if self.shift:
            images = _shifted(images, ((2 * self.shift + 1) * draws[:, 1:3]).long(), self.shift)
        if self.crop is not None:
            images = _cropped(images, draws[:, 3:], self.crop)
        return images, self.images.labels[indices]


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, n_images: int) -> np.ndarray:
    """The order of all images in an epoch."""
    return uniform_words(seed, _ORDER_STREAM, epoch, (n_images, 1))[:, 0].argsort(kind="stable")


def _shifted(images: Tensor, corners: Int64[Tensor, "batch 2"], shift: int) -> Tensor:
    """The part of each image, with `shift` black pixels around it, whose upper left corner is given."""
    batch, channels, height, width = images.shape
    rows = corners[:, 0, None] + torch.arange(height)  # [batch, height]
    columns = corners[:, 1, None] + torch.arange(width)
    around = pad(images, (shift, shift, shift, shift))
    return around[
        torch.arange(batch)[:, None, None, None],
        torch.arange(channels)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def _cropped(images: Tensor, draws: Tensor, least: float) -> Tensor:
    """A part of each image at its whole size, by bilinear interpolation; `draws` `[batch, 4]` from 0 to 1."""
    height, width = images.shape[2:]
    area = least + (1 - least) * draws[:, 0]
    ratio = (4 / 3) ** (2 * draws[:, 1] - 1)
    scale_x, scale_y = ((area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1))
    centre_x, centre_y = (
        (1 - scale) * (2 * draw - 1) for scale, draw in ((scale_x, draws[:, 2]), (scale_y, draws[:, 3]))
    )
    across, down = ((torch.arange(n) * 2 + 1) / n - 1 for n in (width, height))  # centres of pixels, from −1 to 1
    x = (centre_x[:, None] + scale_x[:, None] * across)[:, None, :].expand(-1, height, -1)
    y = (centre_y[:, None] + scale_y[:, None] * down)[:, :, None].expand(-1, -1, width)
    grid = torch.stack([x, y], dim=-1).float()
    parts = grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return parts.round().clamp(0, 255).to(torch.uint8)


_GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R BT.601, as Pillow makes colours grey


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """A model's normalisation of pixels and the names of its classes.

    A pixel p from 0 to 255 is read as (p/255 − mean) / deviation, by channel. Raises `ValueError` for lists of several
    lengths, and for a mean or deviation that is not finite or a deviation that is not positive.
    """

    mean: tuple[float, ...]
    """The mean of each channel's pixels in the training images, where 1 is full."""
    deviation: tuple[float, ...]
    """Standard deviation of each channel's pixels in the training images, where 1 is full."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the model's outputs."""
    data: str = ""
    """The name of the data that it was trained on."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.deviation) or len(self.mean) not in (1, 3):
            raise ValueError(
                f"expected a mean and a deviation for each of 1 or 3 channels, got {len(self.mean)} and "
                f"{len(self.deviation)}."
            )
        if not all(math.isfinite(value) for value in (*self.mean, *self.deviation)) or min(self.deviation) <= 0:
            raise ValueError(
                f"expected finite means and positive deviations of pixels, got {self.mean} and {self.deviation}."
            )

    @classmethod
    def of(cls, images: ImageSet, data: str) -> ImageProcessor:
        """Return the processor with the mean, deviation and classes of `images`, those that a model is trained on."""
        mean, deviation = (tuple(values.tolist()) for values in (images.mean, images.deviation))
        return cls(mean=mean, deviation=deviation, classes=images.classes, data=data)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ImageProcessor:
        """Return the processor of which `to_dict` gave the fields. Raises `ValueError` for missing, unknown and
        misfitting values."""
        expected = ("mean", "deviation", "classes", "data")
        if sorted(values) != sorted(expected):
            raise ValueError(f"expected the keys {', '.join(expected)}, got {', '.join(values) or 'none'}.")
        numbers = all(
            isinstance(values[key], list | tuple)
            and all(isinstance(number, int | float) and not isinstance(number, bool) for number in values[key])
            for key in ("mean", "deviation")
        )
        names = isinstance(values["classes"], list | tuple) and all(isinstance(name, str) for name in values["classes"])
        if not (numbers and names and isinstance(values["data"], str)):
            raise ValueError(
                "expected lists of numbers (mean, deviation), a list of names (classes) and a name (data)."
            )
        return cls(
            mean=tuple(map(float, values["mean"])),
            deviation=tuple(map(float, values["deviation"])),
            classes=tuple(values["classes"]),
            data=values["data"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert it to JSON; `from_dict` undoes it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def encode(self, images: Tensor, size: int | None = None) -> Float[Tensor, "image channels height width"]:
        """Convert images to the model's input, float32: its channels, its `size` (None: as they are), normalised.

        `images` are uint8, `[image, 1 or 3 channels, height, width]`. Grey images become coloured ones by three equal
        channels, coloured ones grey by their luminance (ITU-R BT.601); of another size the middle square is cut out and
        scaled, with antialiasing. Raises `ValueError` for other images.
        """
        require_pixels(images)
        pixels = images.float()
        channels = len(self.mean)
        if pixels.shape[1] > channels:
            pixels = (pixels * pixels.new_tensor(_GREY)[:, None, None]).sum(1, keepdim=True)
        elif pixels.shape[1] < channels:
            pixels = pixels.expand(-1, channels, -1, -1)
        pixels = _square(pixels, size)
        mean, deviation = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.deviation))
        return (pixels / 255 - mean) / deviation


def _square(pixels: Tensor, size: int | None) -> Tensor:
    """The middle square at `size`; as they are where they have it, or none is asked for."""
    height, width = pixels.shape[2:]
    if size is None or (height, width) == (size, size):
        return pixels
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = pixels[..., top : top + side, left : left + side]
    return interpolate(middle, (size, size), mode="bilinear", antialias=True).clamp(0, 255)
