"""An untrusted checkpoint: what hung, filled the memory, showed a file of this machine or ended every listing."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aotlens.checkpoints import (
    CheckpointError,
    CheckpointInfo,
    catalog,
    list_checkpoints,
    load_folder,
    read_info,
    save_checkpoint,
    verify,
)
from aotlens.checkpoints.layout import FILES
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.untrusted import MOST_BYTES, check_plain, open_regular, strict_json
from tests.messages import refused

Edit = Callable[..., None]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and links; run it on Linux or macOS")


def problem(folder: Path) -> str:
    """What a listing says, or else what loading says: it must be refused."""
    (info,) = (info for info in list_checkpoints([folder]) if info.path == folder)
    found = info.problem or "".join(verify(folder))
    assert found
    return found


@pytest.mark.parametrize("name", FILES)
def test_pipes_and_sockets_and_folders_are_not_opened(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    assert f"{name}: expected a regular file, found a pipe" in problem(copy)
    (copy / name).unlink()
    (copy / name).mkdir()
    assert f"{name}: expected a regular file, found a folder" in problem(copy)
    (copy / name).rmdir()
    here = Path.cwd()
    os.chdir(copy)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(name)
            assert f"{name}: expected a regular file, found a socket" in problem(copy)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "../other", "nowhere"])
def test_links_out_of_the_folder_are_not_followed(copy: Path, name: str, target: str) -> None:
    (copy.parent / "other").write_bytes((copy / name).read_bytes())
    (copy / name).unlink()
    (copy / name).symlink_to(target)
    assert name in problem(copy) and "root:" not in problem(copy)


def test_links_within_the_folder_and_to_the_folder_are(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "card.md").rename(copy / "notes.md")
    (copy / "card.md").symlink_to("notes.md")
    (copy.parent / "link").symlink_to(copy)
    assert verify(copy.parent / "link") == []
    cache = copy.parent / "hub"
    cache.mkdir()
    (copy / "notes.md").rename(cache / "blob")
    (copy / "card.md").unlink()
    (copy / "card.md").symlink_to(cache / "blob")
    assert "a link that leads out" in problem(copy)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    assert verify(copy) == []


@pytest.mark.parametrize("name", FILES)
def test_sparse_giants_are_refused_before_they_are_read(copy: Path, name: str) -> None:
    os.truncate(copy / name, 6 * 10**9)
    message = problem(copy)
    assert name in message and ("expected at most" in message or "that is all there" in message)


def header(folder: Path, text: bytes, n_bytes: int = 0) -> str:
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(n_bytes))
    return problem(folder)


def test_headers_are_bounded(copy: Path) -> None:
    assert "a header of 90.0 MB, more than 4" in header(copy, b"[" + b"[]," * 30_000_000 + b"]")
    assert "a header that isn't JSON (expected at most 64 lists" in header(
        copy, b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"
    )
    shape = ",".join(["9223372036854775807"] * 100_000)
    many = f'{{"a": {{"dtype": "F32", "shape": [{shape}], "data_offsets": [0, 4]}}}}'
    assert "with the shape" in header(copy, many.encode(), 4)
    same = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}
    assert "tensors that overlap or leave a gap" in header(copy, json.dumps(same).encode(), 4)
    gap = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}
    assert "tensors that overlap or leave a gap" in header(copy, json.dumps(gap).encode(), 8)
    escape = {"a\x1b[2J": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    assert "without control characters" in header(copy, json.dumps(escape).encode(), 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": {"validation_loss": 10**400}}, "metrics.validation_loss: expected a number within 64 bits"),
        ({"metrics": {"validation_loss": "low"}}, "metrics: validation_loss: expected a number or null, found 'low'"),
        ({"metrics": {"validation_loss": [1.0]}}, "metrics: validation_loss: expected a number or null"),
        ({"metrics": {"bigram_loss": True}}, "metrics: bigram_loss: expected a number or null, found True"),
        ({"metrics": {"a\x1b[2J": 1.0}}, "without control characters"),
        ({"recipe": {"learning_rate": [10**400]}}, "recipe.learning_rate: expected a number within 64 bits"),
        ({"tokens_seen": 10**30}, "tokens_seen: expected a number within 64 bits"),
        ({"name": "a\x1b]0;title\x07"}, "a name: expected text without control characters"),
        ({"name": "a\nb"}, "a name: expected text without control characters, found 'a\\nb'"),
        ({"name": "abc\u202ecba"}, "without control characters"),
        ({"name": "\ud800"}, "name: expected text, found half a character"),
        ({"description": "\ud800"}, "description: expected text, found half a character"),
        ({"device": [[[[]]]]}, "device: expected str"),
        ({"recipe": {"objective": [1]}}, "recipe: objective: expected a name, found [1]"),
        ({"corpus": {"validation": 3}}, "corpus: validation: expected a list of names, found 3"),
        ({"corpus": {"validation": [["a"]]}}, "expected a name, found ['a']"),
        ({"versions": {"torch": "2\n"}}, "without control characters"),
    ],
)  # fmt: skip
def test_facts_are_typed_and_finite(copy: Path, edit_config: Edit, changes: dict[str, Any], message: str) -> None:
    edit_config(copy, **changes)
    found = problem(copy)
    assert message in found and "config.json" in found


@pytest.mark.parametrize(
    ("key", "value"),
    [("n_layers", [1]), ("n_layers", 0), ("n_heads", "2"), ("n_heads", 10**9), ("d_model", 1.5), ("attention", {})],
)
def test_the_models_sizes_can_be_shown(copy: Path, edit_config: Edit, key: str, value: Any) -> None:
    edit_config(copy, model=json.loads((copy / "config.json").read_text())["model"] | {key: value})
    (info,) = (info for info in list_checkpoints([copy]) if info.path == copy)
    assert info.problem is not None and f"model: {key}={value!r}" in info.problem


@pytest.mark.parametrize("line", ['{"loss": 1e999}', '{"loss": "x"}', '{"loss": [1]}', f'{{"loss": {10**400}}}', "[1]"])
def test_the_training_curve_is_typed_and_finite(copy: Path, line: str) -> None:
    (copy / "metrics.jsonl").write_text(f'{{"step": 1, "loss": 2.5}}\n{line}\n')
    assert "metrics.jsonl, line 2: " in problem(copy)


def test_a_folders_name_with_control_characters(copy: Path) -> None:
    odd = copy.rename(copy.parent / "a\x1b[2Jb")
    (info,) = (info for info in list_checkpoints([odd]) if info.path == odd)
    assert info.name == "a\\x1b[2Jb" and "Rename the folder" in str(info.problem)


@pytest.mark.parametrize("scale", [1e25, 1e36])
def test_finite_weights_that_give_nan(copy: Path, rewrite_weights: Edit, scale: float) -> None:
    def explode(tensors: dict[str, torch.Tensor]) -> None:
        tensors["blocks.0.attn.W_Q"].mul_(scale)
        tensors["blocks.0.attn.W_K"].mul_(scale)

    rewrite_weights(copy, explode)
    assert "NaN among the" in problem(copy) and "model.safetensors" in problem(copy)


def test_finite_weights_whose_norm_is_infinite(info: CheckpointInfo, rewrite_weights: Edit, tmp_path: Path) -> None:
    """Their outputs are numbers: everything divided by infinity is 0."""
    cfg = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=6, norm="rms", positions="rotary")
    folder = tmp_path / "large"
    save_checkpoint(folder, AttentionOnlyTransformer(cfg), info)
    rewrite_weights(folder, lambda tensors: tensors["embed.W_E"].fill_(3e38))
    assert "an infinite blocks.0.ln1.hook_scale" in problem(folder)


def test_a_scale_that_gives_nan(copy: Path, edit_config: Edit, rewrite_weights: Edit) -> None:
    config = json.loads((copy / "config.json").read_text())
    rewrite_weights(copy, lambda tensors: None)  # without the configuration that they were saved with
    edit_config(copy, model=config["model"] | {"attn_scale": 1e308})
    assert "NaN among the" in problem(copy)


def test_weights_larger_than_the_memory(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}[name])
    with refused("model.safetensors", "a third", error=CheckpointError):
        load_folder(copy)


def test_each_file_is_opened_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    plain = os.open

    def counted(path: Any, *options: Any, **more: Any) -> int:
        opened.append(Path(os.fsdecode(path)).name)
        return plain(path, *options, **more)

    monkeypatch.setattr(os, "open", counted)
    assert verify(copy) == []
    assert sorted(opened) == sorted(FILES)
    opened.clear()
    load_folder(copy)
    assert sorted(opened) == sorted({*FILES} - {"metrics.jsonl"})


def test_a_place_that_does_not_answer(saved: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drive that is gone: whoever asks it waits for ever, and everything else is listed all the same."""
    gone, asked = threading.Event(), []
    drive = copy.parent / "drive"
    for name in ("first", "second", "third"):
        (drive / name).mkdir(parents=True)
        for file in FILES:
            (drive / name / file).write_bytes((saved / file).read_bytes())

    def read(folder: Path) -> Any:
        if folder.name == "second":
            asked.append(folder)
            assert gone.wait(60)
        return read_info(folder)

    monkeypatch.setattr(catalog, "read_info", read)
    monkeypatch.setattr(catalog, "SECONDS_TO_ANSWER", 0.5)
    try:
        for _ in range(2):
            infos = {info.name: info for info in list_checkpoints([drive, copy])}
            assert infos["small"].problem is None
            silent = [name for name, info in infos.items() if info.problem and "did not answer" in info.problem]
            assert silent in (["second", "third"], ["drive"]), "the second time it is not asked again"
        assert len(asked) == 1
    finally:
        gone.set()
        for thread in catalog._asked.values():
            thread.join()
    monkeypatch.setattr(catalog, "SECONDS_TO_ANSWER", 60.0)
    assert {"first", "second", "third"} <= {info.name for info in list_checkpoints([drive]) if info.problem is None}


def test_a_folder_that_vanished(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(CheckpointError, match="found no folder"):
        list_checkpoints([tmp_path / "gone", copy])
    infos = {info.name: info for info in list_checkpoints([tmp_path / "gone", copy], vanished=True)}
    assert "found no folder" in str(infos["gone"].problem) and infos["small"].problem is None


def test_json_without_surprises() -> None:
    assert strict_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert strict_json("[" * 64 + "]" * 64) is not None
    for text, message in (
        ("[" * 65 + "]" * 65, "at most 64"),
        ("[" * 100_000, "at most 64|Expecting"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[NaN]", "NaN is not"),
        ("[1", "Expecting|delimiter"),
    ):
        with pytest.raises(ValueError, match=message):
            strict_json(text)
    check_plain({"a": [1, "x\ny", {"b": 2**64, "c": 1e300}]}, "")
    for value in (float("inf"), 2**65, "\ud800", {"\n": 1}):
        with pytest.raises(ValueError, match="expected"):
            check_plain({"a": [value]}, "")


def test_limits_are_those_of_the_files(tmp_path: Path) -> None:
    assert {*FILES} - {"model.safetensors"} < {*MOST_BYTES}
    with refused("regular file", "device"), open_regular(Path("/dev/null")):
        raise AssertionError("nothing is opened")
