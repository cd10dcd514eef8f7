"""Damage of any kind gives a CheckpointError that names the file, and never another exception."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlens.checkpoints import CheckpointError, list_checkpoints, load_folder, read_info, verify
from aotlens.checkpoints.header import read_header
from aotlens.data.tokenizer import Tokenizer

FILES = ("config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "card.md")
BOUND = ("model.safetensors", "tokenizer.json")  # their hashes stand in config.json

Edit = Callable[..., None]


@contextmanager
def fresh(saved: Path) -> Iterator[Path]:
    """A copy for one example (Hypothesis doesn't renew tmp_path)."""
    with tempfile.TemporaryDirectory() as parent:
        yield Path(shutil.copytree(saved, Path(parent) / "small"))


def load_or_refuse(folder: Path) -> str | None:
    """The CheckpointError's message, or None if all is well; other exceptions pass. Listing never raises."""
    listed = list_checkpoints([folder])
    assert [info.path for info in listed if info.path == folder] == [folder]
    problems = verify(folder)
    return problems[0] if problems else None


@given(data=st.data(), file=st.sampled_from(FILES))
@settings(max_examples=15)
def test_truncated_at_any_byte(saved: Path, data: st.DataObject, file: str) -> None:
    with fresh(saved) as folder:
        whole = (folder / file).read_bytes()
        cut = data.draw(st.integers(0, len(whole) - 1))
        (folder / file).write_bytes(whole[:cut])
        message = load_or_refuse(folder)
        if file in BOUND or (file == "config.json" and cut < len(whole) - 1):
            assert message is not None and file in message
        if file == "model.safetensors":  # a listing sees it without reading the weights
            assert any(info.problem for info in list_checkpoints([folder]))


@given(data=st.data(), file=st.sampled_from(FILES))
@settings(max_examples=20)
def test_any_byte_changed(saved: Path, data: st.DataObject, file: str) -> None:
    with fresh(saved) as folder:
        content = bytearray((folder / file).read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
        (folder / file).write_bytes(content)
        message = load_or_refuse(folder)
        if file in BOUND:
            assert message is not None and file in message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), value=json_values)
@settings(max_examples=20)
def test_any_value_in_the_config(saved: Path, data: st.DataObject, value: Any) -> None:
    with fresh(saved) as folder:
        config = json.loads((folder / "config.json").read_text())
        part = config["model"] if data.draw(st.booleans()) else config
        key = data.draw(st.sampled_from(sorted(part)))
        different = type(part[key]) is not type(value) or part[key] != value
        part[key] = value
        (folder / "config.json").write_text(json.dumps(config))
        message = load_or_refuse(folder)
        if part is config["model"] and different:  # the weights say what they were saved with
            assert message is not None and "config.json" in message


@given(value=json_values)
@settings(max_examples=15)
def test_any_json_as_the_whole_config(saved: Path, value: Any) -> None:
    with fresh(saved) as folder:
        (folder / "config.json").write_text(json.dumps(value))
        message = load_or_refuse(folder)
        assert message is not None and "config.json" in message


entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "I64", "F8_E4M3", "x"]) | json_values,
        "shape": st.lists(st.integers(-2, 3), max_size=3) | json_values,
        "data_offsets": st.tuples(st.integers(-8, 40), st.integers(-8, 40)).map(list) | json_values,
    },
)


@given(
    header=st.dictionaries(st.text(max_size=3), entries | json_values, max_size=3) | json_values,
    size=st.integers(0, 40),
)
@settings(max_examples=100)
def test_any_json_as_the_header(header: Any, size: int) -> None:
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent) / "model.safetensors"
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
        try:
            found = read_header(path)
        except CheckpointError as error:
            assert str(path) in str(error)
        else:
            assert all(math.prod(entry.shape) * 2 <= size * 8 for entry in found.tensors.values())


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "card.md"])
def test_a_missing_file(copy: Path, file: str) -> None:
    (copy / file).unlink()
    (message,) = verify(copy)
    assert f"{copy / file}: expected" in message and "found no such file" in message


def test_a_missing_training_curve_is_an_empty_one(copy: Path) -> None:
    (copy / "metrics.jsonl").unlink()
    assert verify(copy) == [] and read_info(copy).history() == []


def test_a_broken_line_of_the_training_curve(copy: Path) -> None:
    with open(copy / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 3, "lo')
    assert "metrics.jsonl, line 3" in verify(copy)[0]


def refused(folder: Path) -> str:
    message = load_or_refuse(folder)
    assert message is not None
    return message


def test_unknown_and_missing_keys_are_named(copy: Path, edit_config: Edit) -> None:
    config = json.loads((copy / "config.json").read_text())
    edit_config(copy, n_hedas=3)
    assert "config.json: unknown keys 'n_hedas'" in refused(copy)
    (copy / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "seed"}))
    assert "config.json: missing keys 'seed'" in refused(copy)
    (copy / "config.json").write_text(json.dumps(config | {"model": config["model"] | {"n_hedas": 3}}))
    assert "config.json: model: " in refused(copy) and "n_hedas" in refused(copy)


def test_a_newer_schema_asks_for_an_upgrade(copy: Path, edit_config: Edit) -> None:
    edit_config(copy, schema_version=2, something_new=True)
    message = refused(copy)
    assert "schema_version 1 or older, found 2" in message and "upgrade aotlens" in message


def test_a_key_given_twice_and_nan_are_not_json(copy: Path) -> None:
    text = (copy / "config.json").read_text()
    (copy / "config.json").write_text(text.replace('"seed": 3', '"seed": 3, "seed": 4'))
    assert "a key is given twice" in refused(copy)
    (copy / "config.json").write_text(text.replace("4.25", "NaN"))
    assert "NaN is not a JSON number" in refused(copy)
    (copy / "config.json").write_text("[" * 100_000)
    assert "config.json: expected JSON" in refused(copy)


def drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["blocks.1.attn.W_V"]


def add(tensors: dict[str, torch.Tensor]) -> None:
    tensors["blocks.2.attn.W_V"] = torch.zeros(2)


def transpose(tensors: dict[str, torch.Tensor]) -> None:
    tensors["embed.W_E"] = tensors["embed.W_E"].T.contiguous()


def halve(tensors: dict[str, torch.Tensor]) -> None:
    tensors["embed.W_E"] = tensors["embed.W_E"].half()


def poison(tensors: dict[str, torch.Tensor]) -> None:
    tensors["unembed.W_U"][3, 3] = math.nan


def explode(tensors: dict[str, torch.Tensor]) -> None:
    tensors["blocks.0.attn.b_O"][1] = -math.inf


def fewer_counts(tensors: dict[str, torch.Tensor]) -> None:
    tensors["unigram_counts"] = tensors["unigram_counts"][:-1]


def float_counts(tensors: dict[str, torch.Tensor]) -> None:
    tensors["unigram_counts"] = tensors["unigram_counts"].float()


def negative_counts(tensors: dict[str, torch.Tensor]) -> None:
    tensors["unigram_counts"][7] = -7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, "missing blocks.1.attn.W_V"),
        (add, "unexpected blocks.2.attn.W_V"),
        (transpose, "embed.W_E of shape [8, 270], not [270, 8]"),
        (halve, "embed.W_E of dtype F16, not F32"),
        (poison, "NaN or infinity in unembed.W_U"),
        (explode, "NaN or infinity in blocks.0.attn.b_O"),
        (fewer_counts, "unigram_counts I64 [269], not I64 [270]"),
        (float_counts, "unigram_counts F32 [270], not I64 [270]"),
        (negative_counts, "unigram_counts: expected counts of at least 0, found -7"),
    ],
)
def test_other_weights(copy: Path, rewrite_weights: Edit, change: Callable[..., None], message: str) -> None:
    rewrite_weights(copy, change)
    found = refused(copy)
    assert message in found and str(copy / "model.safetensors") in found


def test_weights_of_another_run(copy: Path, rewrite_weights: Edit) -> None:
    config = (copy / "config.json").read_bytes()
    rewrite_weights(copy, lambda tensors: tensors["embed.W_E"].mul_(2))
    assert verify(copy) == []
    (copy / "config.json").write_bytes(config)
    assert "model.safetensors: expected SHA-256" in refused(copy)


def test_a_setting_changed_behind_the_weights(copy: Path, edit_config: Edit) -> None:
    """The same shapes, another function."""
    config = json.loads((copy / "config.json").read_text())
    edit_config(copy, model=config["model"] | {"causal": False})
    assert "causal=False, not True" in refused(copy)


@pytest.mark.parametrize("metadata", ["", "[1]", "{", '{"n_layers": 2}', "null", "[" * 100_000])
def test_nonsense_in_the_metadata(copy: Path, rewrite_weights: Edit, metadata: str) -> None:
    rewrite_weights(copy, lambda tensors: None, metadata={"model": metadata})
    assert "model.safetensors: metadata" in refused(copy)


def test_weights_from_elsewhere_need_no_metadata(copy: Path, rewrite_weights: Edit) -> None:
    rewrite_weights(copy, lambda tensors: None)
    assert verify(copy) == []


def test_a_number_of_layers_that_would_never_end(copy: Path, edit_config: Edit) -> None:
    config = json.loads((copy / "config.json").read_text())
    edit_config(copy, model=config["model"] | {"n_layers": 10**9})
    assert "n_layers=1000000000" in refused(copy)
    edit_config(copy, model=config["model"] | {"d_model": 10**30})
    assert "config.json" in (message := refused(copy)) and "model.d_model" in message


def test_a_tokenizer_that_fits_another_model(copy: Path, edit_config: Edit) -> None:
    text = Tokenizer.train(["abc abc abc def def def"], 259).to_json()
    (copy / "tokenizer.json").write_text(text)
    assert "tokenizer.json: expected SHA-256" in refused(copy)
    edit_config(copy, tokenizer_sha256=hashlib.sha256(text.encode()).hexdigest())
    assert "d_vocab=270, found 259" in refused(copy)


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"model": {"type": "BPE"}}', "\ud800"])
def test_a_tokenizer_that_is_none(copy: Path, edit_config: Edit, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    (copy / "tokenizer.json").write_bytes(data)
    edit_config(copy, tokenizer_sha256=hashlib.sha256(data).hexdigest())
    assert "tokenizer.json: expected a tokenizer" in refused(copy)


def test_pickles_are_never_opened(copy: Path, edit_config: Edit) -> None:
    data = b"\x80\x04cos\nsystem\n."
    (copy / "model.safetensors").write_bytes(data)
    edit_config(copy, weights_sha256=hashlib.sha256(data).hexdigest())
    assert "expected a whole safetensors file" in refused(copy)


def test_a_device_that_is_not_there(saved: Path) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        load_folder(saved, device="nonsense")


def test_a_broken_checkpoint_is_listed_with_its_problem(copy: Path) -> None:
    (copy / "config.json").write_bytes(b"\xff\xfe")
    (info,) = (info for info in list_checkpoints([copy]) if info.path == copy)
    assert info.name == "small" and info.problem is not None and "UTF-8" in info.problem
    assert dataclasses.replace(info, problem=None).history() != []


def test_the_start_token_is_the_one_that_was_saved(copy: Path, edit_config: Edit) -> None:
    assert json.loads((copy / "config.json").read_text())["start_token"] == 0
    edit_config(copy, start_token=5)
    assert "expected texts to begin with token 5 (from config.json), found 0" in refused(copy)
    edit_config(copy, start_token=None)
    assert "expected texts to begin with token None" in refused(copy)


def test_an_older_checkpoint_does_not_say_its_start_token(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config["start_token"]
    (copy / "config.json").write_text(json.dumps(config))
    assert verify(copy) == [] and load_folder(copy).tokenizer.eot_id == 0
    assert "does not say which token texts begin with" in str(read_info(copy).note)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": {"strategy": {"Fixed": 10**9}, "direction": "Right"}}, "padding: expected null"),
        ({"truncation": {"max_length": 1, "stride": 0}}, "truncation: expected null"),
    ],
)
def test_a_valid_hash_over_a_hostile_tokenizer(
    copy: Path, edit_config: Edit, changes: dict[str, Any], message: str
) -> None:
    text = json.dumps(json.loads((copy / "tokenizer.json").read_text()) | changes)
    (copy / "tokenizer.json").write_text(text)
    edit_config(copy, tokenizer_sha256=hashlib.sha256(text.encode()).hexdigest())
    assert f"tokenizer.json: expected a tokenizer, found: {message}" in refused(copy)
