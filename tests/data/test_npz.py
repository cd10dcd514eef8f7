"""Arrays of an untrusted archive: what their headers say is held to what the archive has, before there is room made."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlens.files import read_npz
from tests.messages import refused


def entry(shape: tuple[int, ...], dtype: str = "<i8", data: bytes = b"") -> bytes:
    file = io.BytesIO()
    about: Any = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue() + data


def archive(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name, data in entries.items():
            written.writestr(f"{name}.npy", data)
    return path


def test_what_is_asked_for_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), names=np.array(["é", "b"]), other=np.ones(2))
    found = read_npz(tmp_path / "a.npz", ["x"], 100, optional=["names", "none"])
    assert found["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["names"].tolist() == ["é", "b"] and len(found) == 2


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (entry((100,)), "of which it holds"),  # NumPy makes the room before it reads
        (entry((10**12,)), "at most 1,000 bytes"),
        (entry((2**62, 2**62)), "at most 1,000 bytes"),
        (entry((-5,)), "can't be read"),
        (entry((0, 10**12)), None),
        (entry((10**9,), "<U0"), "got 0 bytes"),  # 10⁹ names of nothing
        (entry((1,), "|O", bytes(8)), "Python objects"),
        (b"nothing", "can't be read"),
        (b"", "can't be read"),
    ],
)
def test_a_header_is_not_believed(tmp_path: Path, data: bytes, says: str | None) -> None:
    path = archive(tmp_path / "a.npz", x=data)
    if says is None:
        assert not read_npz(path, ["x"], 1000)["x"].size
        return
    with refused("x", says):
        read_npz(path, ["x"], 1000)


def test_arrays_are_bounded_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(100), y=np.zeros(100))
    with refused("y", "at most 200 bytes", "800 bytes"):
        read_npz(tmp_path / "a.npz", ["x", "y"], 1000)


def test_a_damaged_archive_is_one_kind_of_error(tmp_path: Path) -> None:
    """Flipped bits lead the readers of zip and of NumPy to a dozen kinds of errors."""
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(50), y=np.arange(9))
    whole = (tmp_path / "a.npz").read_bytes()
    rng, n_refused = np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        (tmp_path / "b.npz").write_bytes(damaged)
        try:
            read_npz(tmp_path / "b.npz", ["x", "y"], 10_000)
        except ValueError:
            n_refused += 1
    assert n_refused > 150
