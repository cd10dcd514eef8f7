"""A person's own images: uploaded or drawn, kept under the local folder by their hash, as PNG without anything else.

    $AOTLENS_HOME/images/image-0123456789abcdef.png    8 bits a channel, grey or red, green and blue

An image's key is its address, and whoever has no address of it is told nothing of it: there is no list. What a browser
says never becomes a path.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.core.errors import RequestError
from app.core.own_texts import plain_name
from app.core.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

_KEY = re.compile(r"image-[0-9a-f]{16}", re.ASCII)
#: The first bytes of PNG and JPEG files.
_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")

#: The longer side is at most so many times the shorter one: models see the middle square.
_LONGEST = 20


def is_key(name: object) -> bool:
    """Return whether something that a browser says has the form of a key."""
    return isinstance(name, str) and _KEY.fullmatch(name) is not None


class OwnImages:
    """The images below a folder. Raises RequestError for what a person can put right."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._decoding = threading.Lock()
        from aotlens.files import remove_unfinished

        with suppress(OSError):
            remove_unfinished(self.folder, "image-*")

    @property
    def folder(self) -> Path:
        """Return the folder that they are in; looked up at each use, like the folder of checkpoints."""
        from aotlens.checkpoints import user_folder

        return user_folder("images")

    def keep(self, content: bytes, name: str = "") -> str:
        """Keep what a PNG or JPEG file shows, in 8 bits, scaled down where it is large; its key.

        The same picture has the same key. Of more than `settings.own_images`, the oldest are removed.
        """
        from aotlens.data.images import decode_image
        from aotlens.files import replacing_file

        if len(content) > self._settings.max_image_bytes:
            raise RequestError(too_large(len(content), self._settings))
        if not content.startswith(_STARTS):
            file = plain_name(name) if name else "the file"
            raise RequestError(f"{file}: expected a PNG or JPEG image, and this is neither. Save it as one.")
        try:
            # One at a time: large ones take some hundred megabytes while they are decoded.
            with self._decoding:
                pixels = decode_image(
                    content, name=plain_name(name) if name else "the image", max_pixels=self._settings.max_image_pixels
                )
                png = self._as_png(pixels)
        except ValueError as error:
            raise RequestError(f"This image can't be read: {error}") from error
        key = f"image-{hashlib.sha256(png).hexdigest()[:16]}"
        if self.known(key):
            os.utime(self._path(key))  # it is the newest again
            return key
        with replacing_file(self._path(key)) as temporary:
            temporary.write_bytes(png)
        self._forget_oldest()
        return key

    def known(self, key: str | None) -> bool:
        """Return whether an image of that key is kept."""
        return key is not None and is_key(key) and self._path(key).is_file()

    def read(self, key: str, size: int, *, colour: bool) -> Tensor:
        """Return the image for a model: uint8 `[channel, size, size]`, its middle square, with three channels
        or one."""
        from aotlens.data.images import decode_image

        if not self.known(key):
            raise RequestError("One of your images is no longer kept here: upload or draw it again.")
        try:
            return decode_image(self._path(key), name=key, size=size, colour=colour)
        except ValueError as error:  # somebody has written over it
            raise RequestError(f"One of your images can't be read any more: give it again. {error}") from error

    def delete(self, key: str) -> None:
        """Remove an image, if it is kept."""
        if is_key(key):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        assert is_key(key)
        return self.folder / f"{key}.png"

    def _as_png(self, pixels: Tensor) -> bytes:
        from PIL import Image

        array = pixels[0].numpy() if len(pixels) == 1 else pixels.permute(1, 2, 0).numpy()
        image = Image.fromarray(array)
        if max(image.size) > _LONGEST * min(image.size):
            got = f"{image.width:,} × {image.height:,} pixels"
            raise ValueError(f"expected sides of at most 1 : {_LONGEST}, got {got}; cut a part of it out.")
        scale = self._settings.own_image_side / min(image.size)
        if scale < 1:
            size = tuple(max(1, round(scale * length)) for length in image.size)
            image = image.resize((size[0], size[1]), Image.Resampling.BILINEAR)
        buffer = io.BytesIO()
        image.save(buffer, format="PNG")
        return buffer.getvalue()

    def _forget_oldest(self) -> None:
        paths = [path for path in self.folder.glob("image-*.png") if is_key(path.stem)]
        for path in sorted(paths, key=_modified)[: max(len(paths) - self._settings.own_images, 0)]:
            path.unlink(missing_ok=True)


def too_large(n_bytes: int, settings: Settings) -> str:
    """Write the message about a file over the limit."""
    return (
        f"This file has {n_bytes / 2**20:,.1f} MB, and at most {settings.max_image_bytes / 2**20:g} MB are taken here: "
        "scale the image down; a model sees a small square of it anyway."
    )


def _modified(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:  # another request has removed it
        return 0.0
