"""`Result.save` and `aotlens.results.load`: every result comes back, to the bit; anything else is refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import aotlens
from aotlens.denoise import Scale, stored_audit
from aotlens.denoise.subspaces import Mixture
from aotlens.files import read_record, write_record, write_tensors
from aotlens.heads import MotifScores
from aotlens.results import Result, load
from aotlens.results.exports import storable
from tests.every_result import every_result
from tests.messages import refused

#: Those that hold models or are of a folder, which no file can.
NOT_SAVED = {
    "CompiledFFN", "DistinguishedMasks", "MaskedLanguageModel", "PathExpansion", "ScoreExpansion", "SweepStatus",
}  # fmt: skip
BASES = {"Estimates", "Expanded", "OfCheckpoint", "OfLogit", "OverPairs", "Ranked"}


def same(before: Any, after: Any, place: str) -> None:
    """Asserts that two values are equal in every number, type and shape; NaN is NaN."""
    if isinstance(before, np.generic):
        before = before.item()
    assert type(before) is type(after), place
    if isinstance(before, torch.Tensor | np.ndarray):
        assert before.dtype == after.dtype, place
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after), err_msg=place)
    elif dataclasses.is_dataclass(before):
        for field in dataclasses.fields(before):  # type: ignore[arg-type]
            same(getattr(before, field.name), getattr(after, field.name), f"{place}.{field.name}")
    elif isinstance(before, dict):
        assert list(before) == list(after), place
        for name, value in before.items():
            same(value, after[name], f"{place}[{name}]")
    elif isinstance(before, tuple | list):
        assert len(before) == len(after), place
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            same(one, other, f"{place}[{index}]")
    elif isinstance(before, float) and math.isnan(before):
        assert math.isnan(after), place
    else:
        assert before == after, place


@pytest.mark.slow
def test_every_result_comes_back_to_the_bit(tmp_path: Path):
    kept = 0
    for number, result in enumerate(every_result()):
        if not isinstance(result, Result):
            continue
        path = tmp_path / f"{number}.safetensors"
        if type(result).__name__ in NOT_SAVED:
            with refused(type(result).__name__, "cannot be saved"):
                result.save(path)
            continue
        result.save(path)
        same(result, load(path, type(result)), type(result).__name__)
        kept += 1
    assert kept > 90


def classes(base: type) -> Iterator[type]:
    for one in base.__subclasses__():
        yield one
        yield from classes(one)


def test_a_file_may_hold_every_result():
    for module in pkgutil.walk_packages(aotlens.__path__, "aotlens."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {kind.__qualname__: kind for kind in classes(Result) if kind.__module__.startswith("aotlens.")}
    assert {name for name, kind in ours.items() if storable(name) is not kind} == NOT_SAVED | BASES


@pytest.fixture
def scores() -> MotifScores:
    values = np.random.default_rng(0).random((2, 3, 4))
    return MotifScores(
        motifs=("one", "two"), values=values, n_queries=np.arange(2), reasons={"two": "none"}, chance=None,
        uniform=None,
    )  # fmt: skip


def test_what_is_not_finite_and_small_types_come_back(tmp_path: Path, scores: MotifScores):
    path = tmp_path / "a.safetensors"
    Scale(alpha=math.inf, beta=-math.inf, loss=math.nan, method="scan").save(path)
    again = load(path)
    assert (again.alpha, again.beta) == (math.inf, -math.inf) and math.isnan(again.loss)
    whole, small = tmp_path / "whole.safetensors", tmp_path / "small.safetensors"
    scores.save(whole)
    scores.save(small, compact=True)
    assert read_record(small, "result", "", 1, "")[0]["n_queries"].dtype == torch.int8
    read = load(small, MotifScores)
    assert read.values.dtype == np.float64 and read.n_queries.dtype == scores.n_queries.dtype
    np.testing.assert_array_equal(read.values, scores.values.astype(np.float32))
    np.testing.assert_array_equal(load(whole).values, scores.values)


def test_only_its_own_kind_is_replaced(tmp_path: Path, scores: MotifScores):
    path = tmp_path / "a.safetensors"
    scores.save(path)
    scores.save(path)
    before = path.read_bytes()
    with refused("expected a result of type Scale, found one of type MotifScores"):
        Scale(alpha=1.0, beta=2.0, loss=3.0, method="scan").save(path)
    with refused("expected a result of type Scale"):
        load(path, Scale)
    assert path.read_bytes() == before
    write_tensors(path, {"a": torch.zeros(3)}, {})
    with refused("expected a result of type MotifScores of schema version 1"):
        scores.save(path)
    with refused("ends in .safetensors"):
        scores.save(tmp_path / "a.npz")
    with refused("cannot be read"):
        load(tmp_path / "none.safetensors")


def test_a_save_that_fails_leaves_the_old_one(tmp_path: Path, scores: MotifScores, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.safetensors"
    scores.save(path)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("aotlens.files.os.replace", full)
    with refused("No space left", error=OSError):
        dataclasses.replace(scores, values=scores.values + 1).save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_damage_is_refused(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    stored_audit("novels-1l-mhsa").save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", b"not a file of ours", whole + b"x"):
        path.write_bytes(damaged)
        with refused("cannot be read"):
            load(path)
    for at in (len(whole) - 100, whole.index(b"novels-1l"), whole.index(b"AuditRecord")):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        path.write_bytes(flipped)
        with refused("damaged"):
            load(path)


def test_a_file_that_is_refused_is_not_copied_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its kind is in the header, and its hash is over the file as it is mapped."""
    path, copies = tmp_path / "a.safetensors", []
    monkeypatch.setattr(torch.Tensor, "clone", lambda *args, **rest: copies.append(args))
    for metadata in ({}, {"result": {"schema_version": 1, "value": None}, "sha256": "x"}):
        save_file({"x": torch.zeros(9)}, path, {name: json.dumps(value) for name, value in metadata.items()})
        with refused("a.safetensors", "damaged" if metadata else "schema version 1"):
            load(path)
    assert not copies


def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    many = f"[{'[],' * 600_000}0]"
    save_file({"x": torch.zeros(9)}, path, {"result": f'{{"schema_version": 1, "value": {many}}}'})
    with refused("a.safetensors", "values"):
        load(path)
    with refused("values"):
        write_record(path, "result", {}, {"schema_version": 1, "value": json.loads(many)})


SCALE = {"alpha": 1.0, "beta": 2.0, "loss": 3.0, "method": "scan"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"type": "system", "fields": {}}, "'system', which is no result"),
        ({"type": ["Scale"], "fields": {}}, "['Scale'], which is no result"),
        ({"type": "Scale", "fields": {**SCALE, "gamma": 1.0}}, "gamma"),
        ({"type": "Scale", "fields": {"alpha": 1.0}}, "missing"),
        ({"type": "Scale", "version": 7, "fields": SCALE}, "Scale of version 7, not None"),
        ({"type": "AuditRecord", "version": 2, "fields": {}}, "AuditRecord of version 2, not 3"),
        ({"type": "Scale", "fields": {**SCALE, "loss": {"tensor": "nowhere"}}}, "nowhere"),
        ({"type": "Scale", "fields": {**SCALE, "loss": {}}}, "float"),
        ({"array": "x", "complex": True, "dtype": "float64"}, "x"), ({"array": "i", "complex": True}, "complex"),
        ({"array": "x", "dtype": "qint8"}, "qint8"), ({"array": "x", "dtype": "save"}, "save"),
        ([{"array": "x", "dtype": "float64"}] * 2, "'x'"),  # ten megabytes named 40 times were three gigabytes
        ({"range": [0, 3, 0]}, "range"), ({"dict": [[["list"], 1, 2]]}, "too many values"), (None, "NoneType"),
    ],
)  # fmt: skip
def test_what_a_stranger_writes_with_a_right_hash_is_refused(tmp_path: Path, value: Any, said: str):
    path = tmp_path / "a.safetensors"
    tensors = {"x": torch.zeros(2), "i": torch.zeros(2, dtype=torch.int32)}
    write_record(path, "result", tensors, {"schema_version": 1, "value": value})
    with refused("a.safetensors", said):
        load(path, Result)


def test_arrays_have_the_shapes_that_are_declared(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    mixture = aotlens.denoise.sample_mixture(2, 2, 3, 8, 0.1, 0)
    mixture.save(path)
    assert isinstance(load(path), Mixture)
    tensors, about = read_record(path, "result", "", 1, "")
    for name, shorter in (("bases", tensors["bases"][:, :-1]), ("labels", tensors["labels"][:-1])):
        for other in (shorter, tensors[name] != 0, tensors[name][None]):
            write_record(path, "result", {**tensors, name: other}, about)
            with refused("a.safetensors", "is not"):
                load(path)
