"""One image file as uint8 pixels, whatever its format, or a refusal by name; and some images to look at: test images,
classes in turn, after a user's files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.data.images.image_data import ImageSet
from aotlens.results import Result
from aotlens.untrusted import require_regular

if TYPE_CHECKING:
    from PIL import Image


#: Pixels of an image at most: what decoding it costs is known before it is begun.
MAX_PIXELS = 50_000_000
#: The formats that are read, as Pillow names them: pictures without programs, layers or pages.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")


class _Refused(ValueError):
    """The refusal of an image that can be read and is not taken; its message begins with the image's name."""


def decode_image(
    content: bytes | Path,
    *,
    name: str = "",
    size: int | None = None,
    colour: bool | None = None,
    max_pixels: int = MAX_PIXELS,
) -> UInt8[Tensor, "channel height width"]:
    """Decode an image as uint8 `[channel, height, width]`: one channel where it is grey, three where it has colours.

    EXIF's rotation is applied; palettes and CMYK become red, green and blue; 16 bits a channel become 8 by rounding;
    what is transparent becomes white; of an animation the first picture is taken. `size` scales the shorter side to
    so many pixels and cuts the middle square out; `colour` asks for three channels (True) or one (False).

    Raises `ValueError`, which begins with `name` (the path where one is given), for what is not an image of `FORMATS`,
    is damaged or cut off, has more than `max_pixels`, or numbers of which nobody knows what white is (float, 32 bit).
    """
    from PIL import Image

    name = name or (str(content) if isinstance(content, Path) else "the image")
    source = content if isinstance(content, Path) else BytesIO(content)
    try:
        with warnings.catch_warnings():
            if isinstance(content, Path):
                require_regular(content, "result")
            warnings.simplefilter("ignore")  # Pillow warns of what is checked here, or of metadata
            with Image.open(source, formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > max_pixels:
                    raise _Refused(
                        f"{name}: expected at most {max_pixels:,} pixels, got {width:,} × {height:,}; scale it down."
                    )
                return pixels_of(opened, name=name, size=size, colour=colour)
    except (_Refused, MemoryError):
        raise
    except FileNotFoundError as error:
        raise ValueError(f"{name}: the file does not exist.") from error
    except Exception as error:  # whatever a damaged file leads Pillow's readers to, struct.error and KeyError too
        raise ValueError(f"{name}: expected a whole image ({', '.join(FORMATS)}), but: {error}.") from error


def pixels_of(
    image: Image.Image, *, name: str, size: int | None = None, colour: bool | None = None
) -> UInt8[Tensor, "channel height width"]:
    """Return the pixels of an image that Pillow has opened, as `decode_image` does."""
    from PIL import Image, ImageOps

    # The packing of the pixels in the file ("L;4": 4 bits), in which the transparent shade is given; loading loses it.
    tiles = getattr(image, "tile", None)
    packed = str(tiles[0][3]) if image.format == "PNG" and tiles else ""
    image.load()
    image = _plain(ImageOps.exif_transpose(image), name, packed)
    if size is not None:
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        middle = image.crop((left, top, left + side, top + side))
        image = middle.resize((size, size), Image.Resampling.BILINEAR)
    if colour is not None:
        image = image.convert("RGB" if colour else "L")
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1).contiguous()


def _plain(image: Image.Image, name: str, packed: str) -> Image.Image:
    """Return the same picture in the mode L (grey) or RGB, on white where it is transparent."""
    from PIL import Image

    if image.mode in ("I", "F"):
        kind = "float" if image.mode == "F" else "32-bit"
        raise _Refused(
            f"{name}: has {kind} numbers for pixels, of which nobody knows what "
            "white is; save it with 8 or 16 bits a channel."
        )
    hidden = image.info.get("transparency")
    if image.mode in ("1", "L") or image.mode.startswith("I;16"):
        grey = np.array(image if image.mode.startswith("I;16") else image.convert("L"))
        # Pillow scales pixels of 2 and 4 bits to 8, and leaves the shade that is transparent as it was.
        visible = grey != (-1 if hidden is None else hidden * {"L;2": 85, "L;4": 17}.get(packed, 1))
        rounded = grey if grey.dtype == np.uint8 else (grey.astype(np.uint32) + 128) // 257
        return Image.fromarray(np.where(visible, rounded, 255).astype(np.uint8))
    grey_palette = image.mode == "P" and image.getpalette() is not None and _is_grey(image)
    mode = "L" if image.mode in ("LA", "La") or packed.startswith("LA") or grey_palette else "RGB"
    if not image.has_transparency_data:
        return image.convert(mode)
    if packed == "RGB;16B" and hidden is not None:  # of these pixels Pillow keeps the upper byte
        image.info["transparency"] = tuple(value >> 8 for value in hidden)
    front = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert(mode)


def _is_grey(image: Image.Image) -> bool:
    """Whether all colours of a palette are shades of grey."""
    colours = np.array(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
    return bool((colours == colours[:, :1]).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenImages(Result):
    """Images of one size, and which they are."""

    images: UInt8[Tensor, "image channel height width"]
    labels: Int64[Tensor, " image"]
    """The number of each image's class; −1 for a user's own image, whose class is unknown."""
    indices: tuple[int, ...]
    """The indices of the test images among them, without the user's own."""
    n_all: int
    """The number of test images: of the class, or all."""
    classes: tuple[str, ...] = ()
    """The names of the classes."""

    @property
    def n_own(self) -> int:
        """The number of the user's own images, which come first."""
        return len(self.images) - len(self.indices)

    @property
    def headline(self) -> str:
        own = f"{self.n_own} of the user's own and " if self.n_own else ""
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
    `ValueError` for an unknown class, and for files that cannot be read.
    """
    require_whole("n", n, 1)
    require_whole("start", start, 0)
    if of is not None:
        require_whole("of", of, 0, len(test.classes) - 1)
    order = test.by_turns(of)
    here = order[start : start + n]
    if not len(here) and not own:
        raise ValueError(f"start={start}: expected less than the number of such test images, {len(order)}.")
    sample = test.take(here)
    channels, size = max(sample.images.shape[1], channels), sample.images.shape[-1]
    files = [(Path(folder) / f"{name}.png", name) for name in own]
    decoded = [decode_image(path, name=name, size=size, colour=channels == 3)[None] for path, name in files]
    return ChosenImages(
        images=torch.cat([*decoded, sample.images.expand(-1, channels, -1, -1)]),
        labels=torch.cat([torch.full((len(own),), -1), sample.labels]),
        indices=tuple(here.tolist()), n_all=len(order), classes=test.classes,
    )  # fmt: skip
