"""Every kind of image file as uint8 pixels, against the pixels that were written; and what is refused."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from aotlens.data.images import ImageData, ImageSet, choose_images, decode_image
from aotlens.data.images.decoding import MAX_PIXELS
from tests.messages import refused

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 9), dtype=np.uint8)
COLOURED = RNG.integers(0, 256, (6, 9, 3), dtype=np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def expect(content: bytes, pixels: np.ndarray) -> None:
    decoded = decode_image(content)
    wanted = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    assert decoded.dtype == torch.uint8
    np.testing.assert_array_equal(decoded.numpy(), wanted)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_grey_and_coloured(kind: str):
    expect(saved(Image.fromarray(GREY), kind), GREY)
    expect(saved(Image.fromarray(COLOURED), kind), COLOURED)


def test_black_and_white():
    expect(saved(Image.fromarray(GREY > 99)), np.where(GREY > 99, 255, 0))


def test_a_jpeg_is_near_its_picture():
    smooth = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)
    decoded = decode_image(saved(Image.fromarray(smooth), "JPEG", quality=95))[0].numpy().astype(int)
    assert abs(decoded - smooth).max() <= 4


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_rounded_to_eight(kind: str):
    deep = RNG.integers(0, 2**16, (5, 7), dtype=np.uint16)
    expect(saved(Image.fromarray(deep), kind), np.round(deep / 257).astype(np.uint8))


def test_palettes_of_colours_and_of_greys():
    colours, numbers = RNG.integers(0, 256, (4, 3), dtype=np.uint8), RNG.integers(0, 4, (6, 9), dtype=np.uint8)
    image = Image.fromarray(numbers, "P")
    image.putpalette(colours.tobytes())
    expect(saved(image), colours[numbers])
    image.putpalette(np.repeat(colours[:, :1], 3, axis=1).tobytes())
    expect(saved(image), colours[numbers][..., 0])


def test_cmyk_becomes_colours():
    ink = np.zeros((4, 5, 4), dtype=np.uint8)
    ink[..., 1] = 255  # magenta alone takes green away
    expect(saved(Image.fromarray(ink, "CMYK"), "TIFF"), np.broadcast_to([255, 0, 255], (4, 5, 3)))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_becomes_white(mode: str):
    alpha = np.zeros((6, 9, 1), dtype=np.uint8)
    alpha[:3] = 255
    if mode == "P":
        image = Image.fromarray(np.repeat([[0], [1]], [3, 3], axis=0).astype(np.uint8).repeat(9, 1), "P")
        image.putpalette([10, 20, 30, 40, 50, 60])
        expected = np.full((6, 9, 3), 255)
        expected[:3] = [10, 20, 30]
        expect(saved(image, transparency=1), expected)
        return
    front = COLOURED if mode == "RGBA" else GREY[..., None]
    expected = np.where(alpha > 0, front, 255)
    content = saved(Image.fromarray(np.concatenate([front, alpha], axis=2), mode))
    expect(content, expected if mode == "RGBA" else expected[..., 0])


def png(samples: np.ndarray, bits: int, kind: int, hidden: bytes) -> bytes:
    """A PNG written by hand: samples of so many bits, `[height, width]` or `[height, width, channel]`, and its tRNS."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    height, width = samples.shape[:2]
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([bits, kind, 0, 0, 0])
    planes = (samples.reshape(height, -1, 1) >> np.arange(bits - 1, -1, -1)) & 1
    rows = [b"\0" + np.packbits(row.ravel()).tobytes() for row in planes]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            chunk(b"IHDR", header),
            chunk(b"tRNS", hidden),
            chunk(b"IDAT", zlib.compress(b"".join(rows))),
            chunk(b"IEND", b""),
        ]
    )


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("hidden", ["first", "last"])
def test_the_transparent_shade_of_a_grey_png_becomes_white(bits: int, hidden: str):
    samples = np.random.default_rng(bits).integers(0, 2**bits, (5, 11))
    shade = int(samples[0, 0] if hidden == "first" else samples[-1, -1])
    # 16 bits: a neighbour that rounds to the same 8 bits stays visible
    if bits == 16:
        samples[2, 2] = shade = 300
        samples[3, 3] = 301
    grey = np.round(samples * 255 / (2**bits - 1))
    expect(png(samples, bits, 0, shade.to_bytes(2, "big")), np.where(samples == shade, 255, grey))


def test_the_transparent_colour_of_a_png_of_16_bits_becomes_white():
    samples = np.array([[[0xFFFF, 0, 0], [0x1234, 0x4567, 0x89AB]]])
    expect(png(samples, 16, 2, bytes.fromhex("1234456789ab")), np.array([[[255, 0, 0], [255, 255, 255]]]))


def test_grey_stays_grey_where_it_is_transparent():
    """Half-transparent pixels are mixed with white, of a grey palette and of grey with 16 bits and alpha too."""
    numbers = np.array([[0, 1, 2]], dtype=np.uint8)
    image = Image.fromarray(numbers, "P")
    image.putpalette(np.repeat([[0], [100], [200]], 3, axis=1).astype(np.uint8).tobytes())
    expect(saved(image, transparency=bytes([0, 128, 255])), np.array([[255, 177, 200]]))
    deep = np.array([[[0, 0], [100 * 257, 128 * 257], [200 * 257, 0xFFFF]]])
    assert decode_image(png(deep, 16, 4, b"")).tolist() == [[[255, 177, 200]]]


def test_exif_turns_the_picture():
    exif = Image.Exif()
    exif[0x0112] = 6  # "to be turned clockwise"
    expect(saved(Image.fromarray(GREY), exif=exif), np.rot90(GREY, -1))


def test_the_first_picture_of_an_animation():
    frames = [Image.fromarray(np.full((4, 4), value, dtype=np.uint8)) for value in (10, 200)]
    expect(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]), np.full((4, 4), 10))


def test_the_middle_is_scaled():
    wide = np.concatenate([np.zeros((8, 8)), np.full((8, 8), 100), np.zeros((8, 8))], axis=1).astype(np.uint8)
    content = saved(Image.fromarray(wide))
    np.testing.assert_array_equal(decode_image(content, size=4).numpy(), np.full((1, 4, 4), 100))
    assert decode_image(content, size=4, colour=True).shape == (3, 4, 4)
    assert decode_image(saved(Image.fromarray(COLOURED)), colour=False).shape == (1, 6, 9)


def bomb(width: int) -> bytes:
    """A PNG of a few bytes that says it has width² pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    size = width.to_bytes(4, "big")
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size + size + bytes([8, 0, 0, 0, 0]))
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a whole image"),
        (b"GIF89a nonsense", "expected a whole image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "expected a whole image"),
        (saved(Image.fromarray(COLOURED))[:-40], "expected a whole image"),
        (bomb(8000), rf"at most {MAX_PIXELS:,} pixels, got 8,000 × 8,000"),
        (bomb(60_000), "pixels"),
        (saved(Image.fromarray(GREY.astype(np.float32)), "TIFF"), "float numbers"),
        (saved(Image.fromarray(GREY.astype(np.int32)), "TIFF"), "32-bit numbers"),
    ],
    ids=["nothing", "nonsense", "svg", "cut off", "large", "bomb", "float", "32 bit"],
)
def test_what_cannot_be_met_is_refused_by_name(content: bytes, message: str):
    with pytest.raises(ValueError, match=rf"^shoe\.png: .*{message}"):
        decode_image(content, name="shoe.png")


def test_a_file_is_named_by_its_path(tmp_path: Path):
    path = tmp_path / "shoe.png"
    with refused("shoe.png", "does not exist"):
        decode_image(path)
    path.write_bytes(saved(Image.fromarray(GREY)))
    np.testing.assert_array_equal(decode_image(path)[0].numpy(), GREY)


LABELS = torch.tensor([1, 0, 0, 1, 0, 1, 2])
RAMP = torch.arange(7, dtype=torch.uint8)[:, None, None, None].expand(7, 1, 4, 4)
TEST = ImageSet(images=RAMP, labels=LABELS, classes=("a", "b", "c"))


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
    other = ImageSet(images=RAMP[:3] + 100, labels=LABELS[:3], classes=TEST.classes)
    assert ImageData(spec="x", train=other, test=TEST).reference(2).images[:, 0, 0, 0].tolist() == [101, 100]
    none = ImageSet(images=RAMP[:0], labels=LABELS[:0], classes=TEST.classes)
    assert ImageData(spec="x", train=none, test=TEST).reference(2).images[:, 0, 0, 0].tolist() == [1, 0]
