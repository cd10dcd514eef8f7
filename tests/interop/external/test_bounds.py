"""What a small file may cost: programs, names, settings and tensors are bounded before memory or time is taken.

Each of these took all memory, never ended, or ended in an error of the reader's own, before it was refused by name.
"""

from __future__ import annotations

import json
import pickle
import random
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.interop.external import archive
from aotlens.interop.external.archive import read_pickled, read_plain
from aotlens.interop.external.pickles import interpreter as pickled
from aotlens.interop.external.pickles import layout, wire
from tests.interop.external.conftest import NanoGPT, write_nanogpt
from tests.interop.external.test_threats import FLOATS, stored, zipped
from tests.interop.test_legacy import legacy_state, unsaid
from tests.messages import refused

#: Thirty tuples, each of the one before, twice: a billion parts where it is printed or hashed.
LAUGHS = b"\x80\x02)q\x00" + b"".join(
    b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60)
)


def old_file(path: Path, program: bytes, *storages: tuple[str, int, bytes]) -> Path:
    """A file as PyTorch wrote it before 1.6, of any program and any storages (key, number of elements, bytes)."""
    magic = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]
    head = b"".join(pickle.dumps(value, protocol=2) for value in magic)
    keys = pickle.dumps([key for key, _, _ in storages], protocol=2)
    path.write_bytes(head + program + keys + b"".join(struct.pack("<q", n) + data for _, n, data in storages))
    return path


def ask_here(path: Path, file: Any, kind: str) -> dict[str, Any]:
    """As the child, in this process: with limits that a test has set."""
    try:
        if kind == "torch":
            return wire.contents(*layout.read_saved(file))
        return {"value": wire.plain(layout.read_plain(file))}
    except pickled.Refused as reason:
        raise ValueError(f"{path}: {reason}") from None


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (b"Q.", r"it names a storage \(\(\("),
        (b"}h\x3cK\x01s.", "a key of more than plain values"),
        (b"}(h\x3cK\x01u.", "a key of more than plain values"),
        (b"(h\x3cK\x01d.", "a key of more than plain values"),
        (b"\x8f(h\x3c\x90.", "a key of more than plain values"),
        (b"(h\x3c\x91.", "a key of more than plain values"),
        (b"c__builtin__\nset\n]h\x3ca\x85R.", "a key of more than plain values"),
        (b"ccollections\nOrderedDict\n]]h\x3caK\x01aa\x85R.", "a key of more than plain values"),
        (b"ctorch\ndevice\nh\x3c\x85R.", "it names a device by what is no name"),
        (b"c_codecs\nencode\nh\x3cX\x06\x00\x00\x00latin1\x86R0N.", None),
    ],
)
def test_a_value_that_doubles_with_each_level(tmp_path: Path, end: bytes, message: str | None) -> None:
    path = zipped(tmp_path / "w.pt", LAUGHS + end)
    if message is None:
        with refused("found a NoneType"):
            read_pickled(path)
    else:
        with pytest.raises(ValueError, match=f"this file is a pickled program, and (it has |){message}"):
            read_pickled(path)
        with pytest.raises(ValueError, match=message):
            read_pickled(old_file(tmp_path / "old.pt", LAUGHS + end))


@pytest.mark.parametrize("is_zip", [True, False])
def test_programs_of_many_small_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_zip: bool) -> None:
    """An empty set is one byte in the file and 216 in memory; a class that is named six, and more than a thousand."""
    monkeypatch.setattr(pickled._Instructions, "left", 10_000)
    monkeypatch.setattr(archive, "_ask", ask_here)

    def file(program: bytes) -> Path:
        return zipped(tmp_path / "w.pt", program) if is_zip else old_file(tmp_path / "w.pt", program)

    with pytest.raises(ValueError, match=r"it has more than [0-9,]+ instructions"):
        read_pickled(file(b"\x80\x02](" + b"\x8f" * 20_000 + b"e."))
    monkeypatch.setattr(pickled, "_MAX_CLASSES", 50)
    named = b"".join(b"ca\n%d\n" % i for i in range(60))
    with refused("50 classes"):
        read_pickled(file(b"\x80\x02](" + named + b"e."))
    with refused("found a list"):
        read_pickled(file(b"\x80\x02](" + b"ca\nb\n" * 60 + b"e."))


def test_instructions_that_take_memory_by_a_number(tmp_path: Path) -> None:
    program = b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"."
    with pytest.raises(ValueError, match=r"it has the instruction b'\\x96'"):
        read_pickled(zipped(tmp_path / "w.pt", program))
    (tmp_path / "meta.pkl").write_bytes(program)
    with pytest.raises(ValueError, match=r"it has the instruction"):
        read_plain(tmp_path / "meta.pkl")


def test_parts_of_an_archive_that_should_be_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_PROGRAM_BYTES", 1_000)
    monkeypatch.setattr(archive, "_ask", ask_here)
    long = b"\x80\x02X" + struct.pack("<I", 2_000) + b"a" * 2_000 + b"."
    with refused("data.pkl", "2,008 bytes", "1,000"):
        read_pickled(zipped(tmp_path / "w.pt", long))
    for read in (read_pickled, read_plain):
        with refused("1,000 bytes"):
            read(old_file(tmp_path / "old.pt", long) if read is read_pickled else _written(tmp_path / "p.pkl", long))
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02}.")
        file.writestr("archive/byteorder", bytes(500))
    with refused("byteorder", "500 bytes", 16):
        read_pickled(tmp_path / "b.pt")


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_old_files_are_held_to_their_bytes(tmp_path: Path) -> None:
    program = stored(b"K\x02K\x02\x86", b"K\x02K\x01\x86")
    whole, _ = read_pickled(old_file(tmp_path / "w.pt", program, ("0", 4, FLOATS)))
    torch.testing.assert_close(whole["t"], torch.tensor([[1.0, 2], [3, 4]]))
    for storages, message in (
        ((("0", 2**40, FLOATS),), "bytes of a storage where 16 are left"),
        ((("0", -1, FLOATS),), "bytes of a storage where 16 are left"),
        ((("0", 2, FLOATS[:8]),), "it says 16 bytes of a storage that has 8"),
        ((), "damaged, or no file of torch.save: KeyError '0'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_pickled(old_file(tmp_path / "w.pt", program, *storages))
    with refused("zip", "1.6"):
        read_pickled(_written(tmp_path / "n.pt", pickle.dumps(7)))


def test_a_storage_that_begins_elsewhere(tmp_path: Path) -> None:
    """The length of a name in an entry's own header, which says where its bytes begin, is the file's to choose."""
    path = zipped(tmp_path / "w.pt", stored(b"K\x04\x85", b"K\x01\x85"), _0=FLOATS)
    data = bytearray(path.read_bytes())
    header = data.index(b"PK\x03\x04", data.index(FLOATS) - 60)
    data[header + 28 : header + 30] = b"\xff\xff"
    path.write_bytes(data)
    with refused("storage"):
        read_pickled(path)


def test_tensors_that_share_their_numbers(tmp_path: Path) -> None:
    """A thousand layers on one matrix: a file of one layer that becomes a model of a thousand."""
    one = torch.randn(4, 1_000, 1_000)
    state = {f"blocks.{i}.attn.W_Q": one for i in range(1_000)} | {"embed.W_E": one[0], "blocks.0.attn.W_O": one}
    torch.save(state, tmp_path / "w.pt")
    with refused("16,020,000,000 bytes"):
        aotlens.load(tmp_path / "w.pt")


def test_layers_that_are_only_said(tmp_path: Path) -> None:
    """Each layer would be built before its tensors are missed: a billion of them never end."""
    state = legacy_state("LN")
    torch.save(state | {"blocks.999999999.attn.W_Q": torch.zeros(1)}, tmp_path / "w.pt")
    with refused("1,000,000,000 layers"):
        aotlens.load(tmp_path / "w.pt", config=unsaid())
    torch.save(state, tmp_path / "model.pth")
    (tmp_path / "config.json").write_text(json.dumps({"n_layers": 10**9}))
    with refused("1,000,000,000 layers"):
        aotlens.load(tmp_path / "model.pth")


def test_names_that_fill_the_memory(tmp_path: Path, save_module: Any) -> None:
    from tests.interop.external.conftest import HookedTransformer
    from tests.interop.external.test_threats import _config

    module: Any = HookedTransformer(_config(), legacy_state("LN"))
    module._modules = OrderedDict({"a" * 2_000: module.blocks})
    save_module(module, tmp_path / "m.pt")
    with refused("1,000 letters"):
        aotlens.load(tmp_path / "m.pt")
    for name in ("a" * 2_000, 7):
        torch.save({name: torch.ones(2)}, tmp_path / "w.pt")
        with refused("1,000 letters"):
            aotlens.load(tmp_path / "w.pt")


def test_a_module_whose_parts_are_of_other_kinds(tmp_path: Path, save_module: Any) -> None:
    from tests.interop.external.conftest import HookedTransformer
    from tests.interop.external.test_threats import _config

    for part, value in (("_parameters", 5), ("_modules", ["x"]), ("_non_persistent_buffers_set", 3)):
        module: Any = HookedTransformer(_config(), legacy_state("LN"))
        module.__dict__[part] = value
        save_module(module, tmp_path / "m.pt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                aotlens.load(tmp_path / "m.pt", "cpu", config=unsaid())
            except ValueError as error:
                assert "m.pt" in str(error)


def test_a_name_that_is_given_twice(tmp_path: Path) -> None:
    state = legacy_state("LN")
    torch.save(state | {"module.embed.W_E": state["embed.W_E"] + 1}, tmp_path / "w.pt")
    with refused("embed.W_E", "twice", "module.embed.W_E"):
        aotlens.load(tmp_path / "w.pt")


def test_settings_larger_than_any_file(tmp_path: Path) -> None:
    sparse = tmp_path / "config.json"
    with sparse.open("wb") as file:
        file.truncate(10**8)
    torch.save(legacy_state("LN"), tmp_path / "model.pth")
    with refused("config.json", "4 MB", "100.0 MB"):
        aotlens.load(tmp_path, "cpu")


def test_a_bert_that_is_larger_than_its_files(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    for change in (
        {"vocab_size": 10**9},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "1"},
        {"hidden_size": -2},
    ):
        (tmp_path / "config.json").write_text(json.dumps(settings | change))
        with pytest.raises(
            ValueError, match=r"a model of at least [0-9,]+ numbers|=.*: expected a whole number from 1 on"
        ):
            aotlens.load(tmp_path, "cpu")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with (tmp_path / "chat_template.jinja").open("wb") as file:
        file.truncate(10**8)  # the library of tokenizers would read it whole
    with refused("chat_template.jinja", "100.0 MB"):
        aotlens.load(tmp_path, "cpu")
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    for content in (b"[" * 200_000, b'{"model": 1}', b"\xff"):
        (tmp_path / "tokenizer.json").write_bytes(content)
        with refused(tmp_path.name, "BERT"):
            aotlens.load(tmp_path, "cpu")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "model.safetensors").unlink()
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(1_000_000))
    with refused("'archive/data.pkl'", "compressed"):
        aotlens.load(tmp_path, "cpu")


SETTINGS = (None, -1, 0, 1, 2, 7, 10**9, 2**62, 10**400, 1e308, float("nan"), "x", "", [], [1], {}, True, False)
WORDS = (
    "n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab", "d_vocab_out", "d_mlp", "act_fn", "eps",
    "normalization_type", "positional_embedding_type", "attention_dir", "attn_scale", "use_attn_scale", "n_head",
    "n_embd", "n_layer", "vocab_size", "layer_norm_epsilon", "activation_function", "tie_word_embeddings",
    "shortformer_pos", "n_key_value_heads", "scale_attn_weights", "tokenizer_name", "model_type",
)  # fmt: skip


def _source(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    sizes: dict[str, Any] = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "vocab_size": 11, "bias": True}
    write_nanogpt(folder / "ckpt.pt", NanoGPT(**sizes), **sizes)
    return read_pickled(folder / "ckpt.pt")[0], {"n_head": 2, "activation_function": "gelu"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_any_settings_and_any_shapes_are_a_model_or_a_sentence(tmp_path: Path, seed: int) -> None:
    """Random settings, tensors of other shapes and kinds, left out or renamed: a model, or one `ValueError`."""
    rng = random.Random(seed)
    sources = ((legacy_state("LN"), unsaid()), _source(tmp_path))
    (tmp_path / "ckpt.pt").unlink()
    n_refused = 0
    for state, said in sources * 15:
        tensors = {name: tensor.clone() for name, tensor in state.items()}
        for name in rng.sample(sorted(tensors), 2) if rng.random() < 0.6 else ():
            tensor = tensors.pop(name)
            change = rng.randrange(7)
            if change < 6:
                other = (tensor.flatten(), tensor[None], tensor.sum(), tensor.mT if tensor.ndim > 1 else tensor,
                         tensor.int(), tensor[:0] if tensor.ndim else tensor)[change]  # fmt: skip
                tensors[rng.choice((name, name, f"model.{name}", f"{name}.x", "h.x.y", "blocks.x"))] = other
        config = said | {rng.choice(WORDS): rng.choice(SETTINGS) for _ in range(rng.randrange(3))}
        torch.save({k: v.contiguous() for k, v in tensors.items()}, tmp_path / "model.pth")
        (tmp_path / "config.json").write_text(json.dumps(config))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                aotlens.load(tmp_path, "cpu")
        except ValueError as error:
            n_refused += 1
            assert str(tmp_path) in str(error), error
    assert 5 < n_refused < 30
