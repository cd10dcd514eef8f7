"""A person's own images on disk: what is taken, what is refused, what a key can reach."""

from __future__ import annotations

import io
import os
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.core.errors import RequestError
from app.core.own_images import OwnImages, is_key
from app.core.settings import Settings
from tests.app.declared.conftest import picture_file
from tests.messages import refused


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnImages:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    return OwnImages(Settings(max_image_bytes=20_000, own_images=3, own_image_side=64))


@pytest.mark.parametrize(("kind", "mode", "channels"), [("PNG", "L", 1), ("PNG", "RGBA", 3), ("JPEG", "RGB", 3)])
def test_an_image_is_kept_by_what_it_shows(own: OwnImages, kind: str, mode: str, channels: int) -> None:
    key = own.keep(picture_file(kind, mode=mode), "one.png")
    assert is_key(key) and own.known(key) and own.keep(picture_file(kind, mode=mode), "again") == key
    pixels = own.read(key, 10, colour=channels == 3)
    assert pixels.shape == (channels, 10, 10) and pixels[:, 3:5, 6:8].float().mean() > 200 > 30 > pixels[:, -2:].max()
    assert [path.name for path in own.folder.iterdir()] == [f"{key}.png"]


def test_only_pixels_are_kept_and_not_too_many(own: OwnImages) -> None:
    image = Image.new("RGB", (400, 100), "red")
    place = image.getexif()
    place[0x010E] = "where I live"
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", exif=place)
    key = own.keep(buffer.getvalue())
    with Image.open(own.folder / f"{key}.png") as kept:
        assert (
            kept.size == (256, 64) and not kept.getexif() and b"where" not in (own.folder / f"{key}.png").read_bytes()
        )


def test_the_oldest_go_and_an_image_that_is_used_again_is_new(own: OwnImages) -> None:
    keys = [own.keep(picture_file(size=(30 + number, 20))) for number in range(3)]
    for age, key in enumerate(keys):
        os.utime(own.folder / f"{key}.png", (1000 + age, 1000 + age))
    own.keep(picture_file(size=(30, 20)))  # the first, again
    own.keep(picture_file(size=(60, 20)))
    assert [own.known(key) for key in keys] == [True, False, True]
    own.delete(keys[0])
    own.delete(keys[0])
    assert not own.known(keys[0])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "neither"), (b"GIF89a" + bytes(20), "neither"), (b"<svg/>", "neither"), (b"x" * 20_001, "at most"),
        (picture_file()[:60], "can't be read"), (b"\x89PNG\r\n\x1a\n" + bytes(40), "can't be read"),
        (b"\xff\xd8\xff\xe0" + bytes(40), "can't be read"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_and_nothing_kept(own: OwnImages, content: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        own.keep(content, "a file.png")
    assert not own.folder.exists() or not list(own.folder.iterdir())


def test_bombs_and_strips_are_refused_and_names_are_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path / "home"))
    own, bomb = OwnImages(Settings()), io.BytesIO()
    Image.new("1", (8000, 4000)).save(bomb, format="PNG")  # some kilobytes, and 32 million pixels
    assert len(bomb.getvalue()) < 10_000
    with refused("20,000,000 pixels", "8,000 × 4,000", error=RequestError):
        own.keep(bomb.getvalue(), "bomb.png")
    with refused("1 : 20", "3,000 × 2", error=RequestError):
        own.keep(picture_file(size=(3000, 2)))
    with refused(error=RequestError) as caught:
        own.keep(b"<svg onload=alert(1)/>", "\x1b[31m<script>\n" + "x" * 1_000_000)
    said = str(caught.value)
    assert len(said) < 300 and "\x1b" not in said and "\n" not in said
    assert not own.folder.exists()


def test_damaged_images_are_refused_by_name(own: OwnImages, seed: int) -> None:
    """Bytes of PNG and JPEG files at random, with checksums that fit: an image, or what is wrong with it."""
    drawn, exif = random.Random(seed), Image.Exif()
    exif[0x0112], exif[0x8769] = 6, {0x9003: "2020"}
    taken = 0
    for kind in ("PNG", "JPEG"):
        buffer = io.BytesIO()
        Image.new("RGB", (24, 20), "red").save(buffer, format=kind, exif=exif)
        for _ in range(300):
            content = bytearray(buffer.getvalue())
            for _ in range(drawn.choice((1, 2, 8))):
                content[drawn.randrange(8, len(content))] = drawn.choice((0, 1, 255, drawn.randrange(256)))
            damaged = with_checksums(bytes(content)) if kind == "PNG" else bytes(content)
            try:
                own.keep(damaged, "picture")
                taken += 1
            except RequestError as error:
                assert re.search("can't be read: (picture: )?expected|is neither", str(error)), error
    assert taken > 20 and len(list(own.folder.iterdir())) <= 3


def with_checksums(png: bytes) -> bytes:
    """A PNG file with the checksum of each of its parts as its content says."""
    whole, place = png[:8], 8
    while place + 12 <= len(png) and (length := int.from_bytes(png[place : place + 4], "big")) <= len(png):
        part = png[place + 4 : place + 8 + length]
        whole += length.to_bytes(4, "big") + part + zlib.crc32(part).to_bytes(4, "big")
        place += 12 + length
    return whole


@pytest.mark.parametrize(
    "key", [None, "", "image-", "../image-0123456789abcdef", "image-0123456789ABCDEF", "image-0/../x"]
)
def test_a_key_is_no_path(own: OwnImages, key: Any) -> None:
    assert not is_key(key) and not own.known(key)
    with pytest.raises(RequestError, match="no longer kept"):
        own.read(key, 8, colour=False)


def test_an_uploaded_image_fits_into_a_request() -> None:
    settings = Settings()
    assert settings.max_image_bytes * 4 / 3 + 1000 < settings.max_request_bytes
