"""Files that would run code, fill the memory, or lie about what they hold: refused by name, and nothing happens."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.interop.external.archive import read_pickled
from aotlens.interop.external.pickles import interpreter
from tests.interop.external.conftest import HookedTransformer, HookedTransformerConfig
from tests.interop.test_legacy import legacy_state, unsaid
from tests.messages import refused


class Calls:
    """An object whose pickle calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def zipped(path: Path, program: bytes, **storages: bytes) -> Path:
    """A file as torch.save lays it out, of any program and any storages."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key[1:]}", data)
        archive.writestr("archive/version", "3\n")
    return path


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Calls(os.system, "touch {}"), "(posix|nt).system"),
        (Calls(eval, "open('{}', 'w')"), "builtins.eval"),
        (Calls(exec, "open('{}', 'w')"), "builtins.exec"),
        (Calls(getattr, os, "system"), "builtins.getattr"),
        (Calls(__import__, "antigravity"), "builtins.__import__"),
        (Calls(open, "{}", "w"), "(io|_io).open"),
        (Calls(bytearray, 10**15), "builtins.bytearray"),
        (Calls(torch.load, "{}"), "torch.serialization.load"),
        (Calls(torch.zeros, 10**15), "builtins.getattr"),
        (Calls(pickle.loads, b"cos\nsystem\n(S'true'\ntR."), "_?pickle.loads"),
    ],
)
def test_a_call_is_refused_by_name(tmp_path, value, name):
    function, arguments = value.call
    made = tmp_path / "made"
    arguments = tuple(a.replace("{}", str(made)) if isinstance(a, str) else a for a in arguments)
    if function is getattr:
        program = b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\nX\x05\x00\x00\x00write\x86R."
        path = zipped(tmp_path / "w.pt", program)
    else:
        path = saved(tmp_path / "w.pt", {"embed.W_E": torch.ones(2, 2), "more": Calls(function, *arguments)})
    with pytest.raises(ValueError, match=f"pickled program, and it calls {name}, .*nothing of it was run"):
        aotlens.load(path)
    assert not made.exists()


def test_a_hidden_call_behind_a_modules_state(tmp_path, save_module):
    module: Any = HookedTransformer(_config(), legacy_state("LN"))
    module.later = Calls(os.system, "true")
    save_module(module, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"it calls (posix|nt).system"):
        aotlens.load(tmp_path / "m.pt")


def test_what_we_give_cannot_be_changed(tmp_path):
    """BUILD sets attributes: of our functions, of a stand-in's class, of a stand-in."""
    builder = b"\x80\x02ccollections\nOrderedDict\n}X\x04\x00\x00\x00makeK\x01sb."
    with pytest.raises(ValueError, match=r"it changes a function"):
        read_pickled(zipped(tmp_path / "a.pt", builder))
    of_class = b"\x80\x02cos\nsystem\n}X\x08\x00\x00\x00__call__K\x01sb."
    with refused("damaged"):
        read_pickled(zipped(tmp_path / "b.pt", of_class))
    instance = interpreter.Unpickler(io.BytesIO(b"\x80\x02cos\nsystem\n)\x81}X\x01\x00\x00\x00xK\x01sb.")).load()
    assert instance.state == {"x": 1}
    with refused("os.system", error=Exception):
        instance.state = {}


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    whole = saved(tmp_path / "w.pt", legacy_state("LN"))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        for entry in source.infolist():
            data = source.read(entry)
            bomb.writestr(entry.filename, bytes(10_000_000) if entry.filename.endswith("data/0") else data)
    assert (tmp_path / "b.pt").stat().st_size < 100_000
    with refused("compressed", "Nothing was read"):
        aotlens.load(tmp_path / "b.pt")


def test_parts_that_overlap(tmp_path):
    """One stored entry that the directory lists many times."""
    with zipfile.ZipFile(tmp_path / "o.pt", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", bytes(4000))
        archive.filelist += [_renamed(archive.filelist[1], f"archive/data/{i}") for i in range(1, 50)]
    with pytest.raises(ValueError, match="its parts overlap"):
        aotlens.load(tmp_path / "o.pt")


def _renamed(entry: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    import copy

    twin = copy.copy(entry)
    twin.filename = twin.orig_filename = name
    return twin


def stored(size: bytes, stride: bytes, offset: bytes = b"K\x00", numel: bytes = b"K\x04") -> bytes:
    """A pickle of {"t": a tensor of a storage of 4 floats}, its sizes and strides given as opcodes."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + numel + b"tQ"
    arguments = b"(" + storage + offset + size + stride + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"\x80\x02}X\x01\x00\x00\x00tctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs."


FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def test_a_tensor_is_made_within_its_storage(tmp_path):
    whole, _ = read_pickled(zipped(tmp_path / "w.pt", stored(b"K\x02K\x02\x86", b"K\x02K\x01\x86"), _0=FLOATS))
    torch.testing.assert_close(whole["t"], torch.tensor([[1.0, 2], [3, 4]]))
    assert isinstance(whole["t"], Tensor)
    huge = b"J\xff\xff\xff\x7f"
    for program, message in (
        (stored(huge + huge + b"\x86", b"K\x00K\x00\x86"), "of a storage of 4 numbers"),  # strides of 0: 4 exabytes
        (stored(b"K\x02K\x02\x86", b"K\x02K\x02\x86"), "of a storage of 4 numbers"),
        (stored(b"K\x04\x85", b"K\x01\x85", offset=b"K\x01"), "of a storage of 4 numbers"),
        (stored(b"K\x04\x85", b"K\x01\x85", offset=b"J\xff\xff\xff\xff"), "of sizes"),
        (stored(b"K\x04\x85", b"J\xff\xff\xff\xff\x85"), "of sizes"),
        (stored(b"K\x04\x85", b"K\x01K\x01\x86"), "1 sizes and 2 strides"),
        (stored(b"K\x04\x85", b"K\x01\x85", numel=b"K\x09"), "36 bytes of a storage that has 16"),
    ):
        with pytest.raises(ValueError, match=f"it (makes a tensor.*|says ){message}"):
            read_pickled(zipped(tmp_path / "w.pt", program, _0=FLOATS))


def test_files_of_before_zips_are_held_to_the_same(tmp_path):
    """A tensor that repeats one number is small in the file and large in memory."""
    repeated = {"embed.W_E": torch.ones(1).expand(10**6, 10**6), "x": torch.ones(2)}
    for is_zip in (True, False):
        torch.save(repeated, tmp_path / "w.pt", _use_new_zipfile_serialization=is_zip)
        with refused("[1000000, 1000000]", "1 numbers"):
            aotlens.load(tmp_path / "w.pt")
        torch.save({"W_E": torch.eye(3).to_sparse()}, tmp_path / "s.pt", _use_new_zipfile_serialization=is_zip)
        with pytest.raises(
            ValueError, match=r"it calls torch\.(_utils._rebuild_sparse_tensor|serialization._get_layout)"
        ):
            aotlens.load(tmp_path / "s.pt")


@pytest.mark.filterwarnings("ignore:.*the file does not state")
@torch.no_grad()
def test_files_of_before_zips_are_read(tmp_path):
    torch.save(legacy_state("LN"), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save(legacy_state("LN"), tmp_path / "new.pth")
    old, new = (aotlens.load(tmp_path / f"{name}.pth", "cpu", config=unsaid()) for name in ("old", "new"))
    for name, tensor in old.state_dict().items():
        torch.testing.assert_close(tensor, new.state_dict()[name], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*the file does not state")
def test_what_training_scripts_keep_beside_weights(tmp_path):
    """NumPy's scalars, paths and settings do not stand in the way; they become nothing."""
    import argparse

    import numpy as np

    beside = {"loss": np.float64(1.5), "out": tmp_path, "args": argparse.Namespace(n_ctx=7), "rng": torch.Size([3])}
    saved(tmp_path / "w.pt", {"model": legacy_state("LN"), **beside})
    assert aotlens.load(tmp_path / "w.pt", config=unsaid()).cfg.n_ctx == 7


def test_memory_that_a_pickle_asks_for(tmp_path):
    """The memo of the interpreter in C has room for the largest number that is put: here 2³¹ places."""
    program = b"\x80\x02}r\xff\xff\xff\x7f."
    with refused("found nothing"):
        read_pickled(zipped(tmp_path / "w.pt", program))
    with refused("damaged"):
        read_pickled(zipped(tmp_path / "s.pt", b"\x80\x02X\xff\xff\xff\x7fa."))  # one letter of a text of 2 GB


def test_modules_that_contain_themselves(tmp_path, save_module):
    module: Any = HookedTransformer(_config(), legacy_state("LN"))
    module.blocks._modules["2"] = module
    save_module(module, tmp_path / "m.pt")
    with refused("50,000 modules", 30):
        read_pickled(tmp_path / "m.pt")


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_files_cut_short(tmp_path, keep):
    whole = saved(tmp_path / "w.pt", legacy_state("LN"))
    data = whole.read_bytes()
    whole.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ValueError, match=r"w.pt: "):
        aotlens.load(whole)


def test_other_objects_are_named(tmp_path):
    from fractions import Fraction

    saved(tmp_path / "w.pt", io.BytesIO)
    with pytest.raises(ValueError, match=r"found a _?Inert"):
        aotlens.load(tmp_path / "w.pt")
    saved(tmp_path / "f.pt", {"a": Fraction(1, 2)})
    with pytest.raises(ValueError, match=r"it calls fractions.Fraction"):
        aotlens.load(tmp_path / "f.pt")
    for call in (Calls(os.system, "true"), Calls(bytearray, 10**17)):
        (tmp_path / "old.pkl").write_bytes(pickle.dumps(call, protocol=2))
        with pytest.raises(ValueError, match=r"pickled program, and it calls (posix.system|builtins.bytearray), .*not"):
            aotlens.load(tmp_path / "old.pkl")


def _config() -> HookedTransformerConfig:
    return HookedTransformerConfig(
        n_layers=2, d_model=6, n_ctx=7, d_head=4, d_vocab=9, d_vocab_out=9, n_heads=2, attn_only=True
    )
