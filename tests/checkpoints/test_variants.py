"""Hundreds of damaged and hostile variants of the bundled checkpoints: refused by name, or the original's results.

    make test-long ARGS="tests/checkpoints/test_variants.py -s"

prints how many were refused, the slowest, and how much memory all of them took.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from aotlens.checkpoints import bundled_folder, list_checkpoints, load_folder, verify
from aotlens.checkpoints.layout import CONFIG, FILES, TOKENIZER, WEIGHTS

TEXT = "It was the best of times, it was the worst of times.\n\tdef f(x): return x — é 😀"
Damage = Callable[[Path], Any]
NUMBERS: tuple[Any, ...] = (10**400, -1, 0, 1e308, "x", None, True, [[]], {"a": [1]}, "\x1b[2J")

pytestmark = [
    pytest.mark.usefixtures("real_bundled_folder"),
    pytest.mark.skipif(sys.platform == "win32", reason="pipes and links; run it on Linux or macOS"),
]


def cut(file: str, part: float) -> Damage:
    return lambda folder: os.truncate(folder / file, int((folder / file).stat().st_size * part))


def flip(file: str, part: float, bit: int) -> Damage:
    def change(folder: Path) -> None:
        data = bytearray((folder / file).read_bytes())
        data[int(len(data) * part)] ^= 1 << bit
        (folder / file).write_bytes(data)

    return change


def instead(file: str, make: Callable[[Path], Any]) -> Damage:
    def change(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return change


def config(*keys: str, value: Any) -> Damage:
    """One value of config.json, at these keys."""

    def change(folder: Path) -> None:
        saved = json.loads((folder / CONFIG).read_text())
        inner = saved
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        (folder / CONFIG).write_text(json.dumps(saved))

    return change


def rewritten(file: str, data: bytes, folder: Path) -> None:
    """New contents with the hash that config.json should have for them."""
    (folder / file).write_bytes(data)
    key = {WEIGHTS: "weights_sha256", TOKENIZER: "tokenizer_sha256"}[file]
    config(key, value=hashlib.sha256(data).hexdigest())(folder)


def tokenizer(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        saved = json.loads((folder / TOKENIZER).read_text())
        change(saved)
        rewritten(TOKENIZER, json.dumps(saved).encode(), folder)

    return damage


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        tensors = safetensors.torch.load((folder / WEIGHTS).read_bytes())
        change(tensors)
        rewritten(WEIGHTS, safetensors.torch.save(tensors), folder)

    return damage


def every(name: str, value: float) -> Damage:
    return weights(lambda tensors: [t.fill_(value) for key, t in tensors.items() if key.endswith(name)])


def swapped_ids(saved: dict[str, Any]) -> None:
    vocabulary = saved["model"]["vocab"]
    vocabulary["<|endoftext|>"], vocabulary["!"] = vocabulary["!"], vocabulary["<|endoftext|>"]
    saved["added_tokens"][0]["id"] = vocabulary["<|endoftext|>"]


#: With a hash that fits. Other merges are another tokenizer, which cannot be told from the one that was meant.
TOKENIZERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "padding": lambda s: s.update(padding={"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0}),
    "truncation": lambda s: s.update(truncation={"max_length": 1, "stride": 0, "strategy": "LongestFirst"}),
    "dropout": lambda s: s["model"].update(dropout=0.5),
    "prefix": lambda s: s["model"].update(continuing_subword_prefix="##"),
    "regex": lambda s: s.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a|aa)+$"}}),
    "moved separator": swapped_ids,
}
MADE: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda path: None,
    "empty": lambda path: path.touch(),
    "zeros": lambda path: path.write_bytes(bytes(1000)),
    "sparse": lambda path: (path.touch(), os.truncate(path, 6 * 10**9)),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "long header": lambda path: path.write_bytes((90_000_000).to_bytes(8, "little") + b"[]," * 30_000_000),
}  # fmt: skip


def variants() -> Iterator[tuple[str, str, Damage]]:
    """(checkpoint, what is wrong, how it is made so), over 600."""
    draw = random.Random(0)
    names = sorted(path.name for path in bundled_folder().iterdir() if (path / TOKENIZER).is_file())
    for name in names:
        for file in FILES:
            for _ in range(2):
                part, bit = draw.random(), draw.randrange(8)
                yield name, f"{file} cut at {part:.3f}", cut(file, part)
                yield name, f"{file} with a bit changed at {part:.3f}", flip(file, part, bit)
            for kind, make in MADE.items():
                yield name, f"{file}: {kind}", instead(file, make)
        for keys in (("metrics", "heads"), ("metrics", "validation_loss"), ("model", "n_layers"), ("seconds",)):
            for value in NUMBERS:
                yield name, f"{'.'.join(keys)}={str(value)[:20]}", config(*keys, value=value)
        for kind, change in TOKENIZERS.items():
            yield name, f"tokenizer: {kind}", tokenizer(change)
        for ending, value in (("W_E", 3e38), ("W_O", 3e38), ("W_E", float("nan")), ("W_U", float("inf"))):
            yield name, f"{ending} all {value}", every(ending, value)


def results(folder: Path) -> tuple[list[int], torch.Tensor]:
    """The token ids of a text, and the logits of the model in `folder`."""
    model = load_folder(folder, device="cpu")
    tokens = model.to_tokens(TEXT)
    return tokens[0].tolist(), model(tokens)


def judge(chosen: list[tuple[str, str, Damage]], parent: Path) -> list[tuple[float, str, bool]]:
    """(seconds, label, refused) of each; fails for one that is neither refused by name nor the original."""
    originals: dict[str, tuple[list[int], torch.Tensor]] = {}
    outcomes = []
    for name, label, damage in chosen:
        folder = parent / name
        if name not in originals:
            originals[name] = results(bundled_folder() / name)
        shutil.copytree(bundled_folder() / name, folder)
        damage(folder)
        start = time.perf_counter()
        (info,) = (info for info in list_checkpoints([folder]) if info.path == folder)
        problems = verify(folder)
        seconds = time.perf_counter() - start
        assert not info.problem or problems, f"{name}: {label}: the listing refuses what loads"
        if problems:
            assert any(file in problems[0] for file in FILES) and str(parent) in problems[0], (name, label, problems)
        else:
            ids, logits = results(folder)
            assert ids == originals[name][0] and torch.equal(logits, originals[name][1]), (name, label)
        outcomes.append((seconds, f"{name}: {label}", bool(problems)))
        shutil.rmtree(folder)
    return outcomes


@pytest.mark.long
def test_some_variants(tmp_path: Path) -> None:
    chosen = list(variants())
    assert len(chosen) >= 600 and len({label for _, label, _ in chosen}) > 200
    outcomes = judge(chosen[::29], tmp_path)
    assert {refused for _, _, refused in outcomes} == {True, False}


@pytest.mark.minutes
def test_every_variant(tmp_path: Path) -> None:
    import resource

    results(bundled_folder() / "novels-1l-mhsa")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = judge(list(variants()), tmp_path)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seconds, slowest, _ = max(outcomes)
    n_refused = sum(refused for _, _, refused in outcomes)
    print(
        f"\n{len(outcomes)} variants: {n_refused} refused, {len(outcomes) - n_refused} with the original's results; "
        f"the slowest, {slowest}, took {seconds:.2f} s; the process grew by {grown:.0f} MB over all of them"
    )
    assert n_refused > 500
