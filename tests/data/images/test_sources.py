"""Images by name: what each source holds, against what was written; the split; and what is wrong with which file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from aotlens.data.images import ImageData, ImageSet, open_images
from tests.messages import refused

RNG = np.random.default_rng(0)


def arrays(n: int = 12, **changes: Any) -> dict[str, Any]:
    made = {
        "x_train": RNG.integers(0, 256, (n, 6, 6), dtype=np.uint8),
        "y_train": np.arange(n) % 3,
        "x_test": RNG.integers(0, 256, (4, 6, 6), dtype=np.uint8),
        "y_test": np.arange(4) % 3,
    }
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def write(path: Path, **named: Any) -> str:
    np.savez(path, **named)
    return f"npz:{path}"


def test_digits_are_scikit_learns():
    data = open_images("digits")
    assert data.train.images.shape[1:] == (1, 8, 8) and data.classes == tuple("0123456789")
    together = {image.numpy().tobytes() for one in (data.train, data.test) for image in one.images}
    digits = load_digits().images
    assert together == {np.round(image / 16 * 255).astype(np.uint8).tobytes() for image in digits}
    assert len(data.train) + len(data.test) == 1797
    for label in range(10):  # a fifth of every class
        n = int((load_digits().target == label).sum())
        assert int((data.test.labels == label).sum()) == round(n / 5)
    assert data.sha256() == open_images("digits").sha256() != open_images("digits", size=4).sha256()


def test_a_numpy_file(tmp_path: Path):
    named = arrays(classes=np.array(["shoe", "coat", "bag"]))
    data = open_images(write(tmp_path / "data.npz", **named))
    np.testing.assert_array_equal(data.train.images[:, 0].numpy(), named["x_train"])
    np.testing.assert_array_equal(data.test.labels.numpy(), named["y_test"])
    assert data.classes == ("shoe", "coat", "bag")
    coloured = arrays(
        x_train=RNG.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8),
        x_test=RNG.integers(0, 256, (4, 6, 5, 3), dtype=np.uint8),
        y_train=(np.arange(12) % 3)[:, None].astype(np.uint8),
    )
    data = open_images(write(tmp_path / "colours.npz", **coloured))
    np.testing.assert_array_equal(data.train.images[5, 2].numpy(), coloured["x_train"][5, :, :, 2])
    assert data.classes == ("0", "1", "2") and data.train.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "but y_test is missing; there are x_test, x_train, y_train"),
        ({"x_train": np.zeros((12, 6, 6), np.float32)}, r"expected x_train as uint8 .* got \[12, 6, 6\] of float32"),
        ({"x_train": np.zeros((12, 6, 6, 2), np.uint8)}, "expected x_train as uint8"),
        ({"y_train": np.zeros(12)}, r"expected y_train as whole numbers \[image\], got \[12\] of float64"),
        ({"y_train": np.zeros(11, int)}, r"train: labels: expected \[12\], got \[11\]"),
        ({"y_train": np.full(12, -1)}, "train: expected labels from 0 to"),
        ({"x_test": np.zeros((4, 5, 6), np.uint8)}, "of one size"),
        ({"y_test": np.array([None] * 4)}, "y_test as plain numbers .* got Python objects"),
        ({"classes": np.array(["one"])}, "expected labels from 0 to 0"),
    ],
)
def test_what_is_wrong_with_a_numpy_file_is_said(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        open_images(write(tmp_path / "data.npz", **arrays(**changes)))


def test_a_file_that_is_none(tmp_path: Path):
    path = tmp_path / "data.npz"
    with refused(path, "does not exist"):
        open_images(f"npz:{path}")
    spec = write(path, **arrays())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="expected a whole NumPy file"):
        open_images(spec)
    with refused("folder:PATH"):
        open_images(f"npz:{tmp_path}")
    with refused("'cifar'", "'digits'", "'fashion-sample'", "'npz:PATH'", "'folder:PATH'"):
        open_images("cifar")


def test_an_array_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("aotlens.data.images.sources.MAX_BYTES", 100)
    monkeypatch.setattr("numpy.lib.format.read_array", None)  # would fail if it were called
    with refused("x_train", "100 bytes", "432 bytes"):
        open_images(write(tmp_path / "data.npz", **arrays()))


def picture(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def test_a_folder_a_class(tmp_path: Path):
    written = {}
    for name in ("bag", "coat"):
        for number in range(5):
            pixels = RNG.integers(0, 256, (4, 4), dtype=np.uint8)
            picture(tmp_path / name / f"{number}.png", pixels)
            written[pixels.tobytes()] = name
    (tmp_path / "notes.txt").write_text("no image")
    data = open_images(f"folder:{tmp_path}")
    assert data.classes == ("bag", "coat") and (len(data.train), len(data.test)) == (8, 2)
    for one in (data.train, data.test):
        for image, label in zip(one.images, one.labels, strict=True):
            assert written.pop(image.numpy().tobytes()) == data.classes[label]
    assert not written
    picture(tmp_path / "bag" / "coloured.png", np.zeros((4, 4, 3), np.uint8))
    assert open_images(f"folder:{tmp_path}").train.images.shape[1] == 3  # one of colours makes all of colours
    picture(tmp_path / "bag" / "large.png", np.zeros((8, 9), np.uint8))
    with refused("large.png", "8 × 9", "0.png", "4 × 4", "size="):
        open_images(f"folder:{tmp_path}")
    assert open_images(f"folder:{tmp_path}", size=3).train.images.shape[1:] == (3, 3, 3)
    (tmp_path / "coat" / "broken.jpg").write_bytes(b"no")
    with refused("broken.jpg", "whole image"):
        open_images(f"folder:{tmp_path}", size=3)


def test_a_folder_with_its_own_test_set(tmp_path: Path):
    for side, value in (("train", 1), ("test", 2)):
        for name in ("bag", "coat"):
            picture(tmp_path / side / name / "0.png", np.full((2, 2), value, np.uint8))
    data = open_images(f"folder:{tmp_path}")
    assert (int(data.train.images.max()), int(data.test.images.min())) == (1, 2)
    assert data.train.labels.tolist() == data.test.labels.tolist() == [0, 1]
    picture(tmp_path / "test" / "shoe" / "0.png", np.zeros((2, 2), np.uint8))
    with refused("test set", "'shoe'"):
        open_images(f"folder:{tmp_path}")


def test_an_empty_folder(tmp_path: Path):
    with refused("0 folders", "no image"):
        open_images(f"folder:{tmp_path}")
    with refused(tmp_path / "nowhere", "does not exist"):
        open_images(f"folder:{tmp_path / 'nowhere'}")


def test_openml(monkeypatch: pytest.MonkeyPatch):
    rows = RNG.integers(0, 256, (20, 16)).astype(float)
    names = np.array(["b", "a"] * 10)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *_, **__: Bunch(data=rows, target=names))
    data = open_images("openml:Tiny")
    assert data.classes == ("a", "b") and (len(data.train), len(data.test)) == (16, 4)
    labels = {row.astype(np.uint8).tobytes(): name for row, name in zip(rows, names, strict=True)}
    for image, label in zip(data.train.images, data.train.labels, strict=True):
        assert labels[image.numpy().tobytes()] == data.classes[label]
    rows[0, 0] = 0.5
    with pytest.raises(ValueError, match="whole numbers from 0 to 255"):
        open_images("openml:Tiny")

    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with refused("OpenML", "no network"):
        open_images("openml:Tiny")


def test_the_last_ten_thousand_of_seventy_are_the_test_set(monkeypatch: pytest.MonkeyPatch):
    rows, labels = np.arange(70_000)[:, None] % 256, np.arange(70_000) // 7000
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *_, **__: Bunch(data=rows, target=labels.astype(str)))
    data = open_images("openml:Fashion-MNIST")
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    np.testing.assert_array_equal(data.test.images.flatten().numpy(), rows[60_000:, 0])


def test_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    datasets = pytest.importorskip("datasets", reason="needs datasets: pip install 'aotlens[hf]'")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    pixels = RNG.integers(0, 256, (6, 4, 4), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["bag", "coat"])})
    (tmp_path / "set").mkdir()
    for side, part in (("train", slice(0, 4)), ("test", slice(4, 6))):
        columns = {"image": [Image.fromarray(one) for one in pixels[part]], "label": [0, 1, 0, 1][: len(pixels[part])]}
        datasets.Dataset.from_dict(columns, features=features).to_parquet(tmp_path / "set" / f"{side}.parquet")
    data = open_images(f"hf:{tmp_path / 'set'}")
    np.testing.assert_array_equal(data.train.images[:, 0].numpy(), pixels[:4])
    np.testing.assert_array_equal(data.test.images[:, 0].numpy(), pixels[4:])
    assert data.classes == ("bag", "coat") and data.train.labels.tolist() == [0, 1, 0, 1]
    with refused("'picture'", "'image', 'label'"):
        open_images(f"hf:{tmp_path / 'set'}::picture")


def test_the_split_takes_a_share_of_every_class():
    data = open_images("digits")
    train, validation = data.split(0.1, seed=3)
    assert len(train) + len(validation) == len(data.train)
    for label in range(10):
        n = int((data.train.labels == label).sum())
        assert int((validation.labels == label).sum()) == round(0.1 * n)
    one_by_one = [image.numpy().tobytes() for one in (train, validation) for image in one.images]
    assert sorted(one_by_one) == sorted(image.numpy().tobytes() for image in data.train.images)
    again, _ = data.split(0.1, seed=3)
    other, _ = data.split(0.1, seed=4)
    assert torch.equal(again.images, train.images) and not torch.equal(other.images, train.images)
    for share in (0.0, 1.0, 1e-9):
        with pytest.raises(ValueError, match="validation="):
            data.split(share)


def test_mean_and_deviation_are_numpys():
    images = torch.from_numpy(RNG.integers(0, 256, (50, 3, 7, 5), dtype=np.uint8))
    one = ImageSet(images=images, labels=torch.zeros(50, dtype=torch.long), classes=("only",))
    scaled = images.numpy() / 255
    np.testing.assert_allclose(one.mean.numpy(), scaled.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(one.deviation.numpy(), scaled.std((0, 2, 3)), rtol=1e-6)
    grey = ImageSet(images=torch.full((2, 1, 2, 2), 7, dtype=torch.uint8), labels=one.labels[:2], classes=("only",))
    assert grey.deviation.tolist() == [1.0]


def test_images_are_scaled_to_one_size(tmp_path: Path):
    flat = np.full((12, 6, 9), 77, np.uint8)
    data = open_images(write(tmp_path / "data.npz", **arrays(x_train=flat, x_test=flat[:4])), size=3)
    assert isinstance(data, ImageData) and data.train.images.shape == (12, 1, 3, 3)
    assert set(data.train.images.flatten().tolist()) == {77}


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"y_test": np.full(10, 10**12)}, "at most 10,000 classes, got 1,000,000,000,001"),
     ({"classes": np.zeros(20_000, dtype="U1")}, "at most 10,000 classes, got 20,000"),
     ({"classes": np.array(["a\x1b[31m", "b"])}, "expected text without control characters")],
)  # fmt: skip
def test_classes_that_would_fill_memory_or_a_terminal(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_images(write(tmp_path / "data.npz", **arrays(**changes)))


def test_a_folder_whose_name_would_write_into_a_terminal(tmp_path: Path) -> None:
    for name in ("a\x1b[31m", "b"):
        picture(tmp_path / "data" / name / "0.png", np.zeros((4, 4), np.uint8))
        picture(tmp_path / "data" / name / "1.png", np.zeros((4, 4), np.uint8))
    with refused("folder:", "without control characters", r"a\x1b[31m"):
        open_images(f"folder:{tmp_path / 'data'}")


def test_links_to_one_large_image_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aotlens.data.images.sources.MAX_BYTES", 100_000)
    Image.new("L", (100, 100)).save(tmp_path / "large.png")
    for label in ("a", "b"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "data" / label / f"{number}.png").symlink_to(tmp_path / "large.png")
    with refused("images of at most 100,000 bytes together, got 240,000", "give size="):
        open_images(f"folder:{tmp_path / 'data'}")
    assert len(open_images(f"folder:{tmp_path / 'data'}", size=8).train) == 6


@pytest.mark.parametrize("seed", range(25))
def test_a_flipped_archive_is_read_or_refused_by_name(tmp_path: Path, seed: int) -> None:
    """Whatever its readers raise: one kind of error, with the file's name."""
    path = tmp_path / "data.npz"
    write(path, **arrays())
    data, drawn = bytearray(path.read_bytes()), np.random.default_rng(seed)
    for at in drawn.integers(len(data), size=6):
        data[at] ^= 1 << int(drawn.integers(8))
    path.write_bytes(bytes(data))
    try:
        assert isinstance(open_images(f"npz:{path}"), ImageData)
    except ValueError as error:
        assert "data.npz" in str(error)
