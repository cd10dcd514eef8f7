"""Readers of damaged files: values of another kind in a file that is otherwise whole, and flipped or missing bytes."""

from __future__ import annotations

import json
import random
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import Document, PromptPairs, TokenFile, Tokenizer
from aotlens.denoise import Scale
from aotlens.files import contents_hash, load_progress, save_progress, write_record
from aotlens.heads.atlas_stages import Stages
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.sweeps import load_sweep
from aotlens.train import load_recipe
from tests.messages import refused

TEXT = "the cat sat on the mat. the dog sat on the cat. a cat and a dog sat on the mat again. " * 4
#: Variants of each file; a thorough attack reads 280 (some 10 minutes).
N = 40
#: What a value of JSON becomes; what begins with `!` is text that json.dumps does not write.
VALUES: tuple[Any, ...] = (
    10**400, -1, 0, 1e308, float("nan"), float("inf"), 2**63, "x", "", "\x1b[2J", "\ud800", None, True, [], {}, [[]],
    {"a": [1]}, "!1e999", "!" + "9" * 5000, "!" + "[" * 100 + "]" * 100, "!" + "[" * 100_000,
    "!" + "[" + "0," * 300_000 + "0]", '!{"a":1,"a":2}',
)  # fmt: skip
TOML_VALUES = (
    "1" + "0" * 400, "-1", "0", "1e308", "1e999", "nan", '"x"', '""', "true", "[]", "[[]]", "{}", "{a=1}",
    "[" * 100_000, "1979-05-27", '"\\u001b[2J"', "[1,'x',{}]", "1\n" + "a." * 30_000 + "a=1",
)  # fmt: skip
RECIPE = (resources.files("aotlens.train") / "recipes" / "code-2l-mhsa.toml").read_text()
SWEEP = '[data]\ncorpus = "stdlib"\ntokens = 1000\n[[models]]\nrecipe = "r"\n[[analyses]]\nname = "heads.motif_scores"'
#: A zip that says it spans seven disks.
DISKS = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 7) + b"PK\x05\x06" + bytes(18)
TOKENIZER = Tokenizer.train([TEXT], 279)
CONFIG = ModelConfig(n_layers=1, d_model=16, n_heads=2, d_head=8, n_ctx=16, d_vocab=279)
MODEL = AttentionOnlyTransformer(CONFIG, TOKENIZER).eval().requires_grad_(False)
READ = {"positional_embedding_type": "standard", "attention_dir": "causal"}
PAIR = {"clean": "the cat sat", "corrupted": "the dog sat", "answer": " on", "wrong": " cat"}
STAGE = {"a": Scale(alpha=float("inf"), beta=2.0, loss=3.0, method="scan"), "b": torch.zeros(3), "c": {(1, 0): 2.0}}


def _write_checkpoint(path: Path) -> None:
    save_checkpoint(path.parent, MODEL, CheckpointInfo(name="run"), history=[{"tokens": 1, "loss": 2.5}])


def _read_checkpoint(path: Path) -> None:
    aotlens.load(path.parent, "cpu").card.history()


#: The file's name, what writes a whole one and what reads it, by form and kind of file.
FILES: dict[str, tuple[str, Callable[[Path], Any], Callable[[Path], Any]]] = {
    "bytes: tokens": ("t.bin", lambda p: TokenFile.build([Document("a", TEXT)], TOKENIZER, p),
                      lambda p: TokenFile.open(p).counts()),
    "json: tokenizer": ("tokenizer.json", lambda p: p.write_text(TOKENIZER.to_json()), Tokenizer.from_file),
    "json: pairs": ("p.jsonl", lambda p: p.write_text(json.dumps(PAIR)), lambda p: PromptPairs.from_jsonl(MODEL, p)),
    "json: checkpoint": ("run/config.json", _write_checkpoint, _read_checkpoint),
    "json: history": ("run/metrics.jsonl", _write_checkpoint, _read_checkpoint),
    "header: weights": ("run/model.safetensors", _write_checkpoint, _read_checkpoint),
    "record: result": ("r.safetensors", lambda p: aotlens.heads.motif_scores(MODEL, MODEL.to_tokens("the cat")).save(p),
                       aotlens.results.load),
    "record: atlas": ("a.safetensors", lambda p: Stages(p).get("a", lambda: STAGE),
                      lambda p: Stages(p).get("a", lambda: {})),
    "record: progress": ("s.safetensors", lambda p: save_progress(p, {"a": torch.ones(3)}, {"step": 1}, {"seed": 0}),
                         lambda p: load_progress(p, {"seed": 0}, "a run", "")),
    "toml: recipe": ("r.toml", lambda p: p.write_text(RECIPE), load_recipe),
    "toml: sweep": ("s.toml", lambda p: p.write_text(SWEEP), load_sweep),
    "bytes: torch": ("w.pt", lambda p: torch.save({"model": MODEL.state_dict()}, p),
                   lambda p: aotlens.load(p, config=READ)),
}  # fmt: skip


def _flip(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) or 1)
    flipped = bytes([data[place] ^ 1 << draw.randrange(8)]) if data else b""
    return data[:place] if draw.random() < 0.3 else data[:place] + flipped + data[place + 1 :]


def _parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:9]) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _parts(part, (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = value.copy() if path else new
    if path:
        changed[path[0]] = _put(value[path[0]], path[1:], new)
    return changed


def _changed(text: bytes | str, draw: random.Random) -> str:
    """JSON with another value at one place: first a depth is drawn, so that what occurs once is met."""
    value = json.loads(text)
    places = list(_parts(value))
    depth = draw.choice(sorted({len(place) for place in places}))
    place = draw.choice([place for place in places if len(place) == depth])
    dumped = json.dumps(_put(value, place, draw.choice(VALUES)))
    return re.sub(r'"!((?:[^"\\]|\\.)*)"', lambda raw: raw[1].replace('\\"', '"'), dumped)


def _variant(form: str, data: bytes, draw: random.Random) -> bytes:
    if form == "json":
        return _changed(data, draw).encode("utf-8", "replace")
    if form == "toml":
        lines = data.decode().split("\n")
        number = draw.choice([number for number, line in enumerate(lines) if " = " in line])
        lines[number] = f"{lines[number].split(' = ')[0]} = {draw.choice(TOML_VALUES)}"
        return "\n".join(lines).encode()
    length = int.from_bytes(data[:8], "little")
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    if form == "record":  # with the hash that the changed values should have, so that these are read
        metadata = {name: json.loads(value) for name, value in header["__metadata__"].items() if name != "sha256"}
        texts = {name: _changed(json.dumps(value), draw) for name, value in metadata.items()}
        try:
            about = {name: json.loads(text) for name, text in texts.items()}
            about = about if "progress" in about else next(iter(about.values()))
            texts["sha256"] = json.dumps(contents_hash(load(data), about))
        except (ValueError, RecursionError):
            pass
        text = json.dumps({**header, "__metadata__": texts})
    else:
        text = _changed(json.dumps(header), draw)
    encoded = text.encode("utf-8", "replace")
    return len(encoded).to_bytes(8, "little") + encoded + rest


def _resident(name: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) * 1024


def _fault(read: Callable[[Path], Any], path: Path) -> str:
    """What is wrong with how a file is read; empty if it is read, or refused by name within the limits."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far begins anew
    before, start = _resident("VmRSS"), time.process_time()
    try:
        read(path)
        return ""
    except (ValueError, OSError) as error:
        message = str(error)
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"
    n_bytes, seconds = _resident("VmHWM") - before, time.process_time() - start
    is_cheap = n_bytes <= 200e6 and seconds <= 2
    return "" if is_cheap and path.parent.name in message else f"{n_bytes / 1e6:.0f} MB, {seconds:.1f} s: {message}"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    name, write, read = FILES[kind]
    path, form, draw = tmp_path / name, kind.split(":")[0], random.Random(0)
    path.parent.mkdir(exist_ok=True)
    write(path)
    whole = path.read_bytes()
    read(path)
    faults = []
    for number in range(N):
        path.write_bytes(_flip(whole, draw) if number % 2 or form == "bytes" else _variant(form, whole, draw))
        faults += [f"variant {number}: {fault[:300]}" for fault in [_fault(read, path)] if fault]
    assert not faults, "\n".join(faults)


def _record(path: Path, value: Any) -> None:
    from aotlens.files import write_record

    write_record(path, "result", {}, {"schema_version": 1, "value": value})


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("w.pt", DISKS, aotlens.load),
        ("r.toml", RECIPE.replace("seed = 4", 'seed = "one"'), load_recipe),
        ("r.toml", RECIPE.replace("d_vocab = ", "d_vocab = {}\n#"), load_recipe),
        ("r.toml", RECIPE.replace("batch_size = ", "batch_size = 'four'\n#"), load_recipe),
        ("r.toml", "a." * 30_000 + "a = 1", load_recipe),
        ("s.toml", SWEEP.replace("1000", "9" * 400), load_sweep),
    ],
)
def test_a_value_of_another_kind(name: str, content: str | bytes, read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(path):
        read(path)


def test_a_number_that_a_result_cannot_hold(tmp_path: Path) -> None:
    for path, number in ((tmp_path / "a.safetensors", 10**400), (tmp_path / "b.safetensors", 2.5)):
        write_record(path, "result", {}, {"schema_version": 1, "value": {"float": number}})
        with refused(path):
            aotlens.results.load(path)
