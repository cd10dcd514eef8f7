"""The process that reads pickles: what takes long or much memory is refused in little of either; nothing is lost."""

from __future__ import annotations

import math
import os
import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

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


def nested(levels: int, begin: bytes, end: bytes) -> bytes:
    """A value that is twice what it was at each level."""
    return begin + b"q\x01" + b"".join(b"h\x01h\x01\x86q\x01" for _ in range(levels)) + end


#: What fills memory or takes long, as programs; by what its refusal says.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "lists in a key": (b"\x80\x02}](" + b"](" * 30 + b"e" * 30 + b"eK\x01s.", "a key that is a list"),
    "nested tuples, added to a set": (b"\x80\x04\x8f(" + nested(40, b")", b"\x90."), "a key of more than plain values"),
    "a tensor as a key, of a size that doubles": (
        stored(nested(40, b")", b""), b")")[:-2].replace(b"}X\x01\x00\x00\x00t", b"}") + b"K\x01s.",
        "it makes a tensor of sizes",
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
    "more stand-ins than whoever asked has room for": (
        b"\x80\x02cabc\nX\nq\x010](" + b"h\x01)\x81" * 150_000 + b"e.", "more than 300,000 objects",
    ),
    "millions of empty sets": (b"\x80\x04](" + b"\x8f" * 3_000_000 + b"e.", "MB of memory"),
    "millions of empty dictionaries": (b"\x80\x02(" + b"}" * 1_400_000 + b"l.", "more than 300,000 objects"),
    "a number of a million digits": (
        b"\x80\x02\x8b" + struct.pack("<i", 400_000) + b"\x7f" * 400_000 + b".", "256 bits",
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


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    """Plain values of every kind, shared and in rings; tensors that share their numbers, in tuples as well."""
    shared: list[Any] = [1]
    shared.append(shared)
    numbers = torch.arange(6.0)
    value = {
        "plain": [None, True, -(2**70), 2**62, 0.1, math.inf, "é\ud800", b"\x00\xff", {}], 3: (1, ("a", shared)),
        (1, "a"): {1, "b"}, "z": frozenset({2}), "ring": shared, "n": OrderedDict(a=numbers[:4], b=numbers[2:]),
        "t": (numbers, numbers.view(2, 3).T),
    }  # fmt: skip
    torch.save(value, tmp_path / "w.pt")
    found = read_pickled(tmp_path / "w.pt")
    assert found[(1, "a")] == {1, "b"} and found["z"] == frozenset({2}) and type(found["z"]) is frozenset
    assert repr((found["plain"], found[3])) == repr((value["plain"], value[3]))  # types as well: 1 is not True
    assert found["ring"][1] is found["ring"] is found[3][1][1]
    torch.testing.assert_close(found["t"][1], numbers.view(2, 3).T)
    assert found["n"]["a"].untyped_storage().data_ptr() == found["t"][0].untyped_storage().data_ptr()
    not_a_number = read_pickled(_saved(tmp_path / "n.pt", [math.nan]))
    assert math.isnan(not_a_number[0])


def test_tuples_that_share_and_tuples_in_tuples(tmp_path: Path) -> None:
    """Each is made once, after what it holds; made anew at each level, the deep one would take hours."""
    inner = (1, 2)
    found = read_pickled(_saved(tmp_path / "w.pt", (inner, (inner,), {"a": (inner, inner)})))
    assert found == (inner, (inner,), {"a": (inner, inner)}) and found[0] is found[1][0] is found[2]["a"][1]
    pairs = [(str(i), str(i + 1)) for i in range(50_000)]
    assert read_pickled(_saved(tmp_path / "p.pt", pairs)) == pairs
    levels, deep = 0, read_pickled(zipped(tmp_path / "d.pt", b"\x80\x02)" + b"\x85" * 100_000 + b"."))
    while deep:
        levels, (deep,) = levels + 1, deep
    assert levels == 100_000


def test_a_stand_in_keeps_its_class_and_its_state(tmp_path: Path) -> None:
    import argparse

    found = read_pickled(_saved(tmp_path / "w.pt", {"args": argparse.Namespace(a=1), "kinds": [torch.nn.Linear]}))
    assert found["args"].state == {"a": 1} and type(found["args"]).__qualname__ == "Namespace"
    assert found["kinds"][0].__module__ == "torch.nn.modules.linear"
    both = read_pickled(_saved(tmp_path / "b.pt", [argparse.Namespace(a=1), argparse.Namespace(a=2)]))
    assert type(both[0]) is type(both[1])
    with refused("posix.system", error=ValueError):
        read_pickled(_saved(tmp_path / "c.pt", Calls(os.system, "true")))


def test_the_child_imports_nothing_of_ours_and_no_torch() -> None:
    """So it begins at once, whatever the package imports."""
    code = archive._CODE.replace("child.main()", "print(sorted(sys.modules))")
    folder = str(Path(archive.__file__).parent)
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", "-c", code, folder, "torch"], capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert "'pickles.child'" in loaded and "torch" not in loaded and "'aotlens" not in loaded and "numpy" not in loaded


def _saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path
