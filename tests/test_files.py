"""Files are replaced whole or not at all; a run resumes from its own state only; an array's header is not believed."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aotlens.files import csv_text, load_progress, read_metadata, read_npz, replacing_file, save_progress, write_csv
from tests.messages import refused

KILLED = """
import os, signal, sys
from pathlib import Path
from aotlens.files import replacing_file
with replacing_file(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "figures.json"
    with replacing_file(path) as temporary:
        temporary.write_text("old")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), replacing_file(path) as temporary:
        temporary.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(path.parent) == ["figures.json"]
    with replacing_file(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and os.listdir(path.parent) == ["figures.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask(), "others may read what they may read otherwise"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text("old")
    process = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert process.returncode == -signal.SIGKILL and path.read_text() == "old"


def test_a_run_resumes_from_its_own_state_only(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensors = {"weights": torch.arange(6.0).view(2, 3), "step": torch.tensor(4), "half": torch.ones(2).bfloat16()}
    save_progress(path, tensors, {"step": 4}, {"seed": 0, "heads": [(0, 1)]})
    loaded, progress = load_progress(path, {"seed": 0, "heads": [(0, 1)]}, "the run", "resume it as it was")
    assert progress == {"step": 4}
    for name, tensor in tensors.items():
        torch.testing.assert_close(loaded[name], tensor, rtol=0, atol=0)
    with refused("device, seed"):
        load_progress(path, {"seed": 1, "heads": [(0, 1)], "device": "cpu"}, "the run", "resume it as it was")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with refused("damaged"):
        load_progress(path, {"seed": 0, "heads": [(0, 1)]}, "the run", "resume it as it was")
    with refused("state of the run"):
        load_progress(tmp_path / "none", {}, "the run", "resume it as it was")


def test_a_run_of_a_large_model_is_not_too_large_to_resume(tmp_path: Path) -> None:
    """Weights and moments of a model of 800 million parameters have 10 GB, which a result never has."""
    with (tmp_path / "run").open("wb") as file:
        file.truncate(10**10)
    with refused("more than 4 GB"):
        read_metadata(tmp_path / "run", "a result")
    with refused("the state of the run", "header"):  # it is empty, not too large
        load_progress(tmp_path / "run", {}, "the run", "resume it")


def test_every_field_of_a_table_is_quoted_and_read_back(tmp_path: Path) -> None:
    """Also on a Python before 3.11.9, whose csv module quotes a carriage return only where it is asked to quote all."""
    tokens = ["\r", "a\rb", "\r\n", 'say "no", now', "", "plain"]
    frame = pd.DataFrame({"to\rken": tokens, "count": range(6), "logit": [0.1, 1e-30, None, -2.5, 3.0, 1 / 3]})
    assert set(re.sub(r'"(?:[^"]|"")*"', "", csv_text(frame))) == {",", "\n"}
    write_csv(frame, tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, strict=True))
    assert rows[0] == list(frame.columns) and [row[0] for row in rows[1:]] == tokens
    read = pd.read_csv(tmp_path / "t.csv", keep_default_na=False, na_values={"logit": [""]})
    pd.testing.assert_frame_equal(read, frame)


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
