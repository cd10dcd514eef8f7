"""Some images to look at: test images, classes in turn, and before them files of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.data.images.decoding import decode_image
from aotlens.data.images.image_data import ImageSet
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenImages(Result):
    """Images of one size, and which they are."""

    images: UInt8[Tensor, "image channel height width"]
    labels: Int64[Tensor, " image"]
    """The number of each image's class; −1 for one of one's own, whose class nobody knows."""
    indices: tuple[int, ...]
    """The indices of the test images among them, without one's own."""
    n_all: int
    """Test images that could be chosen: of the class, or all."""
    classes: tuple[str, ...] = ()
    """The names of the classes."""

    @property
    def n_own(self) -> int:
        """Images of one's own, which come first."""
        return len(self.images) - len(self.indices)

    @property
    def headline(self) -> str:
        own = f"{self.n_own} of one's own and " if self.n_own else ""
        return f"{own}{len(self.indices)} of {self.n_all} test images"


def choose_images(
    test: ImageSet,
    n: int,
    *,
    of: int | None = None,
    start: int = 0,
    own: Sequence[str] = (),
    folder: str | Path = ".",
    channels: int = 1,
) -> ChosenImages:
    """Return `n` test images from number `start`, one of each class in turn, or of class `of` alone; before them the
    files `own` (`NAME.png` in `folder`), their middle squares at the size of the others.

    Images have three channels where the test images have, or where `channels`, those of a model, are three. Raises
    `ValueError` for a class that there is not, and for files that cannot be read.
    """
    require_whole("n", n, 1)
    require_whole("start", start, 0)
    if of is not None:
        require_whole("of", of, 0, len(test.classes) - 1)
    order = test.by_turns(of)
    here = order[start : start + n]
    if not len(here) and not own:
        raise ValueError(f"start={start}: expected less than the number of such test images, {len(order)}.")
    chosen = test.take(here)
    channels, size = max(chosen.images.shape[1], channels), chosen.images.shape[-1]
    files = [(Path(folder) / f"{name}.png", name) for name in own]
    decoded = [decode_image(path, name=name, size=size, colour=channels == 3)[None] for path, name in files]
    return ChosenImages(
        images=torch.cat([*decoded, chosen.images.expand(-1, channels, -1, -1)]),
        labels=torch.cat([torch.full((len(own),), -1), chosen.labels]),
        indices=tuple(here.tolist()), n_all=len(order), classes=test.classes,
    )  # fmt: skip
