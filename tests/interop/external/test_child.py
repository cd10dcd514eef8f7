"""The process that reads pickles: what takes long or much memory is refused in little of either; nothing is lost."""

from __future__ import annotations

import argparse
import math
import os
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aotlens.interop.external import archive
from aotlens.interop.external.archive import read_pickled, read_plain
from aotlens.interop.external.pickles import child
from tests.interop.external.test_threats import FLOATS, Calls, stored, zipped
from tests.messages import refused

SIXTEEN = b"\x80\x02X" + struct.pack("<I", 15_000_000) + b"a" * 15_000_000 + b"q\x010"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def settings(value: bytes) -> bytes:
    """A file of a tensor, and of a value among its settings."""
    state = stored(b"K\x04\x85", b"K\x01\x85")[2:-1]
    return b"\x80\x02}" + text("model") + state + b"s" + text("config") + b"}" + text("a") + value + b"ss."


def nested(levels: int, begin: bytes, end: bytes) -> bytes:
    """A value that is twice what it was at each level."""
    return begin + b"q\x01" + b"".join(b"h\x01h\x01\x86q\x01" for _ in range(levels)) + end


#: What fills memory or takes long, as programs; by what its refusal says.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "lists in a key": (b"\x80\x02}](" + b"](" * 30 + b"e" * 30 + b"eK\x01s.", "a key that is a list"),
    "nested tuples, added to a set": (b"\x80\x04\x8f(" + nested(40, b")", b"\x90."), "a key of more than plain values"),
    "a tensor as a key, of a size that doubles": (
        stored(b")q\x010" + b"h\x01h\x01\x86q\x010" * 40 + b"h\x01", b")")[:-2].replace(b"}" + text("t"), b"}")
        + b"K\x01s.",
        "found StoredTensor: int",
    ),
    "a tensor whose attributes are set": (
        stored(b"K\x04\x85", b"K\x01\x85")[:-2] + b"}" + text("key") + text("1") + b"sbs.", "it changes a tensor",
    ),
    "sizes copied from a list": (
        b"\x80\x02]q\x01(" + b"K\x01" * 2000 + b"e" + b"ctorch\nSize\nh\x01\x85R" * 20_000 + b"N.",
        "its calls make more than",
    ),
    "a text encoded again and again": (
        SIXTEEN + b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R" * 200 + b"N.",
        "its calls make more than",
    ),
    "frozen sets of one list": (
        b"\x80\x02](" + b"".join(b"M" + struct.pack("<H", i) for i in range(5000)) + b"eq\x01"
        + b"c__builtin__\nfrozenset\nh\x01\x85R" * 20_000 + b"N.", "MB of memory",
    ),
    "more settings than whoever asked has room for": (
        settings(b"](" + b"]" * 310_000 + b"e"), "more than 300,000 values",
    ),
    "millions of empty sets": (b"\x80\x04](" + b"\x8f" * 3_000_000 + b"e.", "MB of memory"),
    "settings that double at each level": (
        settings(b")q\x010" + b"h\x01h\x01\x86q\x010" * 25 + b"h\x01"), "more than 300,000 values",
    ),
    "a number of a million digits": (
        settings(b"\x8b" + struct.pack("<i", 400_000) + b"\x7f" * 400_000), "256 bits",
    ),
    "more tensors than whoever asked has room for": (
        stored(b"K\x04\x85", b"K\x01\x85")[:-2] + b"q\x010}(" + b"".join(text(str(i)) + b"h\x01" for i in range(51_000))
        + b"u.", "more than 50,000 tensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_fills_memory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    program, message = HOSTILE[name]
    path = zipped(tmp_path / "w.pt", program, _1=FLOATS)
    with refused(str(path), message):
        read_pickled(path)


def test_the_child_has_little_memory() -> None:
    """Its limit holds before it reads anything."""
    code = archive._CODE.replace("child.main()", "child.limit(); bytearray(child.MEMORY_BYTES)")
    command = [sys.executable, "-I", "-S", "-c", code, str(Path(archive.__file__).parent), "torch"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MemoryError" in ended.stderr and child.MEMORY_BYTES < 221e6


def test_old_files_whose_storages_have_keys_that_double(tmp_path: Path) -> None:
    from tests.interop.external.test_bounds import old_file

    path = old_file(tmp_path / "w.pt", b"\x80\x02N.")
    keys = pickle.dumps([], protocol=2)
    path.write_bytes(path.read_bytes().removesuffix(keys) + b"\x80\x02](" + nested(40, b")", b"e."))
    with refused("it names its storages by what are no names"):
        read_pickled(path)


def test_what_ends_at_a_limit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped has no answer."""
    path = zipped(tmp_path / "w.pt", b"\x80\x02}.")
    monkeypatch.setattr(archive, "_CODE", "import time; time.sleep(60)")
    monkeypatch.setattr(archive, "_PATIENCE", 0.2)
    with refused("w.pt", "10 seconds of a processor", "210 MB"):
        read_pickled(path)
    monkeypatch.setattr(archive, "_CODE", "import os; os.abort()")
    with refused("w.pt", "10 seconds of a processor"):
        read_pickled(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.pt")
    for read in (read_pickled, read_plain, archive.check_zip):
        with refused("expected a regular file, found a pipe"):
            read(tmp_path / "w.pt")


def test_tensors_and_settings_come_back_as_they_were(tmp_path: Path) -> None:
    """Plain settings of every kind, others by name; tensors that share their numbers."""
    shared: list[Any] = [1, "é\ud800"]
    numbers, args = torch.arange(6.0), argparse.Namespace(a=1, b=shared, device=torch.device("cpu"))
    settings = {
        "plain": [None, True, -(2**70), 2**62, 0.1, math.inf, {}], "tuple": (1, ("a", shared)), "map": {"a": {3: 0.5}},
        "nested": [{2}, b"ab", torch.nn.Linear, args, numbers], 5: "number", "left out": {1}, "bytes": b"a",
    }  # fmt: skip
    state = OrderedDict(a=numbers[:4], b=numbers[2:], c=numbers.view(2, 3).T)
    torch.save({"model": state, "config": settings, "args": args, "loss": 1.5, "more": {3}}, tmp_path / "w.pt")
    tensors, configs = read_pickled(tmp_path / "w.pt")
    for name, tensor in state.items():
        torch.testing.assert_close(tensors[name], tensor)
    assert tensors["a"].untyped_storage().data_ptr() == tensors["b"].untyped_storage().data_ptr()
    assert repr(configs["config"]["plain"]) == repr(settings["plain"])  # types as well: 1 is not True
    assert configs["config"].keys() == {"plain", "tuple", "map", "nested"}
    assert configs["config"]["tuple"] == [1, ["a", shared]] and configs["config"]["map"] == {"a": {"3": 0.5}}
    assert configs["config"]["nested"][:2] == ["<set>", "<bytes>"] and "Namespace" in configs["config"]["nested"][3]
    assert configs["args"] == {"a": 1, "b": shared, "device": "cpu"} and set(configs) == {"config", "args"}
    torch.save({"model": state, "config": {"a": math.nan}}, tmp_path / "n.pt")
    assert math.isnan(read_pickled(tmp_path / "n.pt")[1]["config"]["a"])
    ring: list[Any] = []
    ring.append(ring)
    torch.save({"model": state, "config": {"a": ring}}, tmp_path / "r.pt")
    with refused("30 levels"):
        read_pickled(tmp_path / "r.pt")


OURS, EMA = {"w": torch.ones(2)}, {"w": torch.zeros(2)}


@pytest.mark.parametrize(
    "value",
    [
        {"state_dict": {**OURS, "_extra_state": None}, "state_dict_ema": EMA},
        {"ema": EMA, "model": {**OURS, "n": 3, "rate": 0.1, "tied": True}},
        {**OURS, "step": 3},
        {"generator": OURS, "optimizer": {"state": {0: {"m": EMA["w"]}}}, "config": {"path": Path()}},
    ],
)
def test_of_two_sets_of_weights_the_models_own_are_read(tmp_path: Path, value: dict[str, Any]) -> None:
    torch.save(value, tmp_path / "w.pt")
    tensors, _ = read_pickled(tmp_path / "w.pt")
    assert tensors.keys() == {"w"} and torch.equal(tensors["w"], OURS["w"])


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"model": {"w": np.ones(2)}, "ema": EMA}, "'ema': dict, 'model': dict"),
        ({"mine": {**OURS, "version": "1"}, "ema": EMA}, "'ema': dict, 'mine': dict"),
        ({**{str(i): torch.ones(1) for i in range(20)}, "ema": EMA}, "'ema': dict, '0': StoredTensor"),
        ({"state_dict": Path(), "ema": EMA}, "'ema': dict, 'state_dict': "),
    ],
)
def test_weights_that_may_not_be_the_ones_are_not_guessed(tmp_path: Path, value: dict[str, Any], found: str) -> None:
    torch.save(value, tmp_path / "w.pt")
    with refused(found, "Save the model.state_dict() alone"):
        read_pickled(tmp_path / "w.pt")


@pytest.mark.parametrize("protocol", [2, 4])
def test_numbers_of_numpy_are_settings(tmp_path: Path, protocol: int) -> None:
    """A scalar that is no number, and a tensor of one, come as text that no reader takes for a setting."""
    kinds = "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 ?"
    numbers = {kind: value for kind in kinds.split() for value in np.array([0, 101], kind)[1:]}
    others = {"text": np.str_("relu"), "complex": np.complex64(1), "tensor": torch.tensor(4), "tensors": torch.ones(2)}
    torch.save({"model": OURS, "cfg": {**numbers, **others}}, tmp_path / "w.pt", pickle_protocol=protocol)
    read = read_pickled(tmp_path / "w.pt")[1]["cfg"]
    assert {kind: read.pop(kind) for kind in numbers} == {kind: value.item() for kind, value in numbers.items()}
    assert read.keys() == {"text", "complex", "tensor"} and all(text.startswith("<") for text in read.values())
    negative, exact = np.int64(-3), np.float64(0.1)
    torch.save({"model": OURS, "cfg": {"negative": negative, "exact": exact}}, tmp_path / "w.pt")
    assert read_pickled(tmp_path / "w.pt")[1]["cfg"] == {"negative": -3, "exact": 0.1}


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_tensor_whose_sign_is_not_in_its_bytes(tmp_path: Path, as_zip: bool) -> None:
    state = {"w": torch.complex(torch.ones(3), torch.arange(1.0, 4.0)).conj().imag}
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=as_zip)
    with refused("{'neg': True}", "tensor.resolve_neg()"):
        read_pickled(tmp_path / "w.pt")
    torch.save({"w": state["w"].resolve_neg()}, tmp_path / "w.pt", _use_new_zipfile_serialization=as_zip)
    assert read_pickled(tmp_path / "w.pt")[0]["w"].tolist() == [-1, -2, -3]


def test_a_call_in_a_file_is_named(tmp_path: Path) -> None:
    torch.save(Calls(os.system, "true"), tmp_path / "c.pt")
    with refused("posix.system", error=ValueError):
        read_pickled(tmp_path / "c.pt")


def test_the_child_imports_nothing_of_ours_and_no_torch() -> None:
    """So it begins at once, whatever the package imports."""
    code = archive._CODE.replace("child.main()", "print(sorted(sys.modules))")
    folder = str(Path(archive.__file__).parent)
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", "-c", code, folder, "torch"], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert "'pickles.child'" in loaded and "torch" not in loaded and "'aotlens" not in loaded and "numpy" not in loaded
