"""Distillations with their origin: what is kept light, what comes back, what is refused; the bundled ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo
from aotlens.data import open_corpus
from aotlens.distill import (
    Distillation,
    Record,
    bundled_distillations,
    compress,
    distill_heads,
    held_out_windows,
    load_record,
    named_record,
    record_distillation,
    substitute,
    substitution_costs,
    text_errors,
    token_errors,
)
from tests.messages import refused

from .conftest import FAST, random_windows


@pytest.fixture
def found(model, windows) -> Distillation:
    return distill_heads(model, windows, [0, 4], seeds=3, **FAST)


def test_a_light_one_keeps_the_best_ffn_of_each_head(found, model):
    light = compress(found, 4)
    x = torch.randn(6, 8, dtype=torch.float64)
    for head in found.heads:
        best = found.best_seed(head, 4)
        torch.testing.assert_close(
            light.predict_z(head, x, width=4), found.predict_z(head, x, width=4, seed=best), rtol=0, atol=2e-2
        )
        with refused(f"seed {best}"):
            light.predict_z(head, x, width=4, seed=(best + 1) % 3)
    with refused("errors", "FFNs are of 4"):
        light.predict_z((0, 0), x, width=0)
    with refused("errors"):
        substitute(model, light, width=0)
    assert light.to_frame().equals(found.to_frame())
    tokens = random_windows(3, seed=5)
    whole, other = (substitute(model, one, width=4)(tokens) for one in (found, light))
    torch.testing.assert_close(whole, other, rtol=0, atol=5e-2)
    assert compress(light, 4).to_frame().equals(light.to_frame())


def test_a_record_comes_back(found, model, tmp_path: Path):
    costs = substitution_costs(model, found, random_windows(4, seed=3), width=4, n_random=2)
    path = tmp_path / "one.safetensors"
    record = Record(
        distillation=compress(found, 4), checkpoint="a", weights_sha256="f" * 64, corpus="b", command="c", costs=costs
    )
    record.save(path)
    again = load_record(path)
    assert (again.checkpoint, again.corpus, again.command) == ("a", "b", "c")
    assert again.costs is not None and again.costs.curve_frame().equals(costs.curve_frame())
    assert again.costs.to_frame().equals(costs.to_frame())
    np.testing.assert_array_equal(again.distillation.only_seed, record.distillation.only_seed)
    assert again.distillation.weights.keys() == {4}
    assert again.belongs_to(CheckpointInfo(name="renamed", weights_sha256="f" * 64))
    assert not again.belongs_to(CheckpointInfo(name="a", weights_sha256="0" * 64))
    found.save(tmp_path / "bare.safetensors")
    bare = load_record(tmp_path / "bare.safetensors")
    assert bare.costs is None and bare.checkpoint == found.model_name
    assert not bare.belongs_to(CheckpointInfo(name="a")) or found.model_name == "a"
    costs.save(tmp_path / "costs.safetensors")
    with refused("expected a distillation", "SubstitutionCosts"):
        load_record(tmp_path / "costs.safetensors")


def test_a_recorded_distillation_is_kept_by_its_name_and_is_of_its_weights(
    found, model, windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    made = record_distillation(model, windows, [0, 4], seeds=3, name="mine", model_name="tiny", text="words", **FAST)
    kept = named_record("mine")
    assert (kept.checkpoint, kept.corpus, kept.costs) == ("tiny", "words", None)
    for each in (made, kept):
        np.testing.assert_array_equal(each.distillation.squared_error, found.squared_error)
    assert kept.distillation_of(model) is kept.distillation, "a model without a card may be the one"
    monkeypatch.setattr(model, "card", CheckpointInfo(name="other", weights_sha256="0" * 64), raising=False)
    with refused("other weights"):
        kept.distillation_of(model)
    with refused("name='../mine'"):
        record_distillation(model, windows, name="../mine")


def test_errors_on_a_text_are_the_tokens(found, model):
    tokens = random_windows(1, seed=9)[0]
    errors = text_errors(model, found, tokens, (1, 0), width=4)
    error, scale = token_errors(model, found, tokens, (1, 0), width=4)
    assert errors.error == pytest.approx(float(error.sum() / scale.sum()))
    place = found.place((1, 0))
    typical = found.baseline[place].sum() / found.held_out_tokens
    np.testing.assert_allclose(errors.relative * typical, error[0].numpy(), rtol=1e-12)
    # A head that moves as it does on average has a mean movement of 1.
    many = [text_errors(model, found, window, (1, 0), width=4) for window in random_windows(40, seed=2)]
    assert np.mean([one.movement for one in many]) == pytest.approx(1, rel=1e-6)  # mean_z is kept in float32
    assert np.mean([one.relative for one in many]) == pytest.approx(
        found.error[place, 1, found.best_seed((1, 0), 4)], rel=1e-6
    )


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_bundled_one_is_of_its_checkpoint_and_its_errors_hold_on_other_text(tmp_path: Path):
    bundled = bundled_distillations()
    assert {"novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt"} <= bundled.keys()
    book = tmp_path / "book.txt"
    book.write_text("The captain bowed, and Mrs. Pendlebury smiled at him. How well he danced, she said! " * 600)
    for name, record in bundled.items():
        info = aotlens.checkpoints.find_checkpoint(name)
        assert record.checkpoint == name and record.belongs_to(info), name
        found = record.distillation
        assert found.hidden == (0, 4, 16, 64) and found.n_seeds >= 3 and found.weights.keys() == {16}
        assert record.corpus and record.command and record.costs is not None and record.costs.heads == found.heads
        assert found.floor.min() >= 0 and found.mean_error(16).max() < 1.5
    model = aotlens.load("novels-2l-gpt")
    windows = held_out_windows(model, open_corpus(f"file:{book}"), 512)
    found = bundled["novels-2l-gpt"].distillation
    head = found.order(16)[0]
    error, scale = token_errors(model, found, windows, head, width=16)
    # Other text than it was measured on, so of the same order only.
    assert 0 < float(error.sum() / scale.sum()) < 3 * found.mean_error(16)[found.place(head)] + 0.5
