"""Labelled images by name: digits, a NumPy file, a folder, OpenML, Hugging Face."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aotlens.data.images.decoding import FORMATS, decode_image, pixels_of
from aotlens.data.images.image_data import ImageData, ImageSet, held_out_images
from aotlens.data.sources import dataset_classes, dataset_rows, parse_spec, row_field
from aotlens.files import read_npz
from aotlens.untrusted import require_regular

#: Share of the images that are the test set where a source has none of its own.
TEST_SHARE = 0.2
#: Bytes of the arrays of a NumPy file, and of the pictures of a folder, at most.
MAX_BYTES = 4 * 2**30
#: The largest number of classes of a data set.
MOST_CLASSES = 10_000
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
_EXPECTED = (
    "expected images 'digits', 'fashion-sample', 'npz:PATH', 'folder:PATH', 'openml:NAME' or "
    "'hf:NAME[:config[:field]]', got "
)


def open_images(spec: str, *, size: int | None = None, root: str | PathLike[str] | None = None) -> ImageData:
    """Open labelled images by name, with a training and a test set.

    - ``digits``: scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, always there;
    - ``fashion-sample``: the first 10 images of each class of Fashion-MNIST's test set (MIT license), always there; no
      training images;
    - ``npz:PATH``: a NumPy file with uint8 `x_train`, `x_test` `[image, height, width(, channel)]` and whole numbers
      `y_train`, `y_test`, and, where it has them, `classes`, their names;
    - ``folder:PATH``: a folder a class with image files below, within `train` and `test` where these two are there;
    - ``openml:NAME``: a data set of square images of OpenML, as ``openml:Fashion-MNIST``, kept by scikit-learn;
    - ``hf:NAME[:config[:field]]``: a Hugging Face dataset with splits `train` and `test`; `field` is
      the one with images (``image`` if not given), labels are in `label`.

    Where there is no test set, a fifth of every class is (drawn with seed 0); of OpenML's MNIST family, which are
    70,000 images, the last 10,000, as everybody does. `size` scales the shorter side to so many pixels and cuts the
    middle square out; without it all images must have one size. Images are grey where all are grey.

    Raises `ValueError`, which names the file, for what is missing, empty, damaged, of several sizes, or too large.
    """
    kind, _, argument = spec.partition(":")
    if spec == "digits":
        return _resized(_digits(), size)
    if spec == "fashion-sample":
        return _resized(_npz(spec, Path(__file__).parent / "bundled" / "fashion-sample.npz"), size)
    path = (Path(root) if root is not None else Path()) / Path(argument).expanduser()
    if kind == "npz" and argument:
        return _resized(_npz(spec, path), size)
    if kind == "folder" and argument:
        return _folder(spec, path, size)
    if kind == "openml" and argument:
        return _resized(_openml(spec, argument), size)
    if kind == "hf" and argument:
        return _hugging_face(spec, size)
    raise ValueError(f"{_EXPECTED}{spec!r}")


def _digits() -> ImageData:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(np.round(digits.images * (255 / 16)).astype(np.uint8))[:, None]
    labels = torch.from_numpy(digits.target).long()
    return _drawn("digits", ImageSet(images=images, labels=labels, classes=tuple("0123456789")))


def _drawn(spec: str, whole: ImageSet) -> ImageData:
    """Images without a test set of their own: a fifth of every class is."""
    test = held_out_images(whole.labels, len(whole.classes), TEST_SHARE, 0)
    if not 0 < int(test.sum()) < len(test):
        raise ValueError(
            f"{spec}: expected several images a class, of which {TEST_SHARE:.0%} are the test set, got {len(test)} "
            f"images in {len(whole.classes)} classes."
        )
    return ImageData(
        spec=spec, train=whole.take((~test).nonzero().flatten()), test=whole.take(test.nonzero().flatten())
    )


def _npz(spec: str, path: Path) -> ImageData:
    names = ("x_train", "y_train", "x_test", "y_test")
    if not path.exists() or path.is_dir():
        hint = "it is a folder: use folder:PATH" if path.is_dir() else "it does not exist"
        raise ValueError(f"{spec}: expected a NumPy file at {path.absolute()}, but {hint}.")
    try:
        arrays = read_npz(path, names, MAX_BYTES, optional=["classes"])
    except (ValueError, OSError) as error:
        raise ValueError(f"{spec}: {error}") from error
    labels = {side: _whole_numbers(spec, f"y_{side}", arrays[f"y_{side}"]) for side in ("train", "test")}
    largest = max((int(part.max()) for part in labels.values() if len(part)), default=0)
    n_classes = max(largest + 1, arrays["classes"].size if "classes" in arrays else 0)
    if n_classes > MOST_CLASSES:
        raise ValueError(f"{spec}: expected at most {MOST_CLASSES:,} classes, got {n_classes:,}.")
    classes = tuple(str(name) for name in arrays.get("classes", range(largest + 1)))
    sets = {
        side: _named_set(f"{spec}, {side}", _pixels(spec, f"x_{side}", arrays[f"x_{side}"]), labels[side], classes)
        for side in labels
    }
    return ImageData(spec=spec, **sets)


def _whole_numbers(spec: str, name: str, array: np.ndarray) -> Tensor:
    array = array.squeeze(-1) if array.ndim == 2 and array.shape[-1] == 1 else array
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{spec}: expected {name} as whole numbers [image], got {list(array.shape)} of {array.dtype}.")
    return torch.from_numpy(array.astype(np.int64))


def _pixels(spec: str, name: str, array: np.ndarray) -> Tensor:
    pixels = array[..., None] if array.ndim == 3 else array
    if pixels.ndim != 4 or array.dtype != np.uint8 or pixels.shape[-1] not in (1, 3):
        raise ValueError(
            f"{spec}: expected {name} as uint8 [image, height, width] or [image, height, width, 1 or 3], got "
            f"{list(array.shape)} of {array.dtype}."
        )
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _named_set(name: str, images: Tensor, labels: Tensor, classes: tuple[str, ...]) -> ImageSet:
    try:
        return ImageSet(images=images, labels=labels, classes=classes)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _folder(spec: str, path: Path, size: int | None) -> ImageData:
    if not path.is_dir():
        hint = "it is a file: use npz:PATH" if path.is_file() else "it does not exist"
        raise ValueError(f"{spec}: expected a folder at {path.absolute()}, but {hint}.")
    sides = [path / side for side in ("train", "test")]
    if all(side.is_dir() for side in sides):
        classes = _below(sides[0])
        train, test = (_labelled(spec, side, classes) for side in sides)
        images = _decoded(spec, [file for file, _ in (*train, *test)], size)
        labels = torch.tensor([label for _, label in (*train, *test)])
        cut = len(train)
        return ImageData(
            spec=spec,
            train=_named_set(spec, images[:cut], labels[:cut], classes),
            test=_named_set(spec, images[cut:], labels[cut:], classes),
        )
    classes = _below(path)
    files = _labelled(spec, path, classes)
    images, labels = _decoded(spec, [file for file, _ in files], size), torch.tensor([label for _, label in files])
    return _drawn(spec, _named_set(spec, images, labels, classes))


def _below(path: Path) -> tuple[str, ...]:
    return tuple(sorted(side.name for side in path.iterdir() if side.is_dir() and not side.name.startswith(".")))


def _labelled(spec: str, path: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """Every image file below a folder a class, with the class's number, sorted by path."""
    if unknown := sorted(set(_below(path)) - set(classes)):
        raise ValueError(f"{spec}: the test set has the class {unknown[0]!r}, of which there is no training image.")
    files = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((path / name).rglob("*"))
        if file.suffix.lower() in _SUFFIXES and file.is_file()
    ]
    if not files:
        raise ValueError(
            f"{spec}: expected a folder a class with image files ({', '.join(sorted(_SUFFIXES))}) below "
            f"{path.absolute()}, found {len(classes)} folders and no image."
        )
    return files


def _decoded(spec: str, files: list[Path], size: int | None) -> Tensor:
    """All files as one array; grey where all are grey."""
    for file in files:
        require_regular(file, "result")
    if size is None and (n_bytes := _pixels_of_all(files)) > MAX_BYTES:
        raise ValueError(
            f"{spec}: expected images of at most {MAX_BYTES:,} bytes together, got {n_bytes:,}; give size=, to which "
            "all are scaled."
        )
    return _stacked(spec, ((str(file), decode_image(file, size=size)) for file in files))


def _pixels_of_all(files: list[Path]) -> int:
    """Bytes of all pictures as uint8 in three channels, by what each file says of itself."""
    from PIL import Image

    total = 0
    for path in files:
        with suppress(Exception), Image.open(path, formats=FORMATS) as opened:  # what is damaged is said by its decoder
            total += 3 * opened.width * opened.height
    return total


def _stacked(spec: str, named: Iterable[tuple[str, Tensor]]) -> Tensor:
    names, images = zip(*named, strict=True)
    first = images[0].shape[1:]
    for name, image in zip(names, images, strict=True):
        if image.shape[1:] != first:
            raise ValueError(
                f"{spec}: {name} has {' × '.join(map(str, image.shape[1:]))} pixels and {names[0]} "
                f"{' × '.join(map(str, first))}; give size=, to which all are scaled, or make them one size."
            )
    colours = any(image.shape[0] == 3 for image in images)
    return torch.stack([image.expand(3, -1, -1) if colours else image for image in images])


def _openml(spec: str, name: str) -> ImageData:
    from sklearn.datasets import fetch_openml

    try:
        data_set = fetch_openml(name, version=1, as_frame=False)
    except Exception as error:  # of many kinds: no network, no such data set, a broken cache
        raise ValueError(f"{spec}: can't be had from OpenML or scikit-learn's cache of it: {error}.") from error
    data = np.asarray(data_set.data)
    side = round(data.shape[1] ** 0.5) if data.ndim == 2 else 0
    whole = data.ndim == 2 and side**2 == data.shape[1] and np.array_equal(data, np.clip(np.round(data), 0, 255))
    if not whole:
        raise ValueError(
            f"{spec}: expected images as rows of side² whole numbers from 0 to 255, got {list(data.shape)} of "
            f"{data.dtype}."
        )
    images = torch.from_numpy(data.astype(np.uint8)).view(-1, 1, side, side)
    classes, labels = np.unique(np.asarray(data_set.target), return_inverse=True)
    images_set = _named_set(spec, images, torch.from_numpy(labels), tuple(map(str, classes)))
    if len(images) != 70_000:
        return _drawn(spec, images_set)
    order = torch.arange(70_000)
    return ImageData(spec=spec, train=images_set.take(order[:60_000]), test=images_set.take(order[60_000:]))


def _hugging_face(spec: str, size: int | None) -> ImageData:
    name, config, field = parse_spec(spec)
    sides: dict[str, tuple[Tensor, Tensor]] = {}
    for side in ("train", "test"):
        images, labels = [], []
        for number, row in enumerate(dataset_rows(spec, name, config, side)):
            images.append((f"row {number} of {side}", _of_row(spec, row, field or "image", number, size)))
            if not isinstance(row.get("label"), int):
                raise ValueError(f"{spec}: expected a whole number in the field 'label', got {row.get('label')!r}.")
            labels.append(row["label"])
        if not images:
            raise ValueError(f"{spec}: the split {side!r} has no rows.")
        sides[side] = _stacked(spec, images), torch.tensor(labels)
    largest = max(int(labels.max()) for _, labels in sides.values())
    classes = dataset_classes(spec, name, config, "train", "label") or tuple(map(str, range(largest + 1)))
    sets = {side: _named_set(f"{spec}, {side}", *pair, classes) for side, pair in sides.items()}
    return ImageData(spec=spec, **sets)


def _of_row(spec: str, row: dict[str, Any], field: str, number: int, size: int | None) -> Tensor:
    image = row_field(spec, row, field)
    if isinstance(image, dict) and isinstance(image.get("bytes"), bytes):
        return decode_image(image["bytes"], name=f"{spec}, row {number}", size=size)
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise ValueError(f"{spec}: expected images in field {field!r}, got {type(image).__name__} in row {number}.")
    return pixels_of(image, name=f"{spec}, row {number}", size=size)


def _resized(data: ImageData, size: int | None) -> ImageData:
    """All images at another size, by bilinear interpolation with antialiasing; as they are where they have it."""
    if size is None or tuple(data.train.images.shape[2:]) == (size, size):
        return data
    sets = {side: _resized_set(images, size) for side, images in (("train", data.train), ("test", data.test))}
    return ImageData(spec=data.spec, **sets)


def _resized_set(images: ImageSet, size: int) -> ImageSet:
    from torch.nn.functional import interpolate

    height, width = images.images.shape[2:]
    shorter = min(height, width)
    top, left = (height - shorter) // 2, (width - shorter) // 2
    square = images.images[..., top : top + shorter, left : left + shorter]
    parts = [
        interpolate(part.float(), (size, size), mode="bilinear", antialias=True).round().clamp(0, 255).to(torch.uint8)
        for part in square.split(4096)
    ]
    return ImageSet(images=torch.cat(parts), labels=images.labels, classes=images.classes)
