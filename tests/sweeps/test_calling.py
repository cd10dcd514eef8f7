"""Analyses by name, their inputs and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, load, save_checkpoint
from aotlens.data import RegressionTask
from aotlens.data.images import ImageProcessor, open_images
from aotlens.evaluate import evaluate_images, regression_errors
from aotlens.heads import ablate_each, semantic_consistency
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.sweeps import Sweep
from aotlens.sweeps.calling import Inputs, as_table, call, check, function, names, reads
from aotlens.sweeps.running import analyses
from aotlens.sweeps.store import Job, Store, fingerprint, packed, unpacked
from tests.messages import refused
from tests.small_models import randomise
from tests.sweeps.conftest import RECIPE, of


def test_functions_that_take_a_model_are_analyses():
    known = names()
    assert {"metrics", "heads.motif_scores", "circuits.composition", "denoise.audit"} <= set(known)
    assert "heads.Atlas" not in known and "circuits.jacobi" not in known
    assert function("heads.motif_scores") is aotlens.heads.motif_scores


@pytest.mark.parametrize(
    ("name", "settings", "seed", "has_text", "said"),
    [
        ("heads.motif_score", {}, None, False, "no analysis 'heads.motif_score'.*heads.motif_scores"),
        ("os.system", {}, None, False, "no analysis 'os.system'"),
        ("heads.motif_scores", {"half": 3}, None, False, "unknown settings half; it takes tokens, motifs"),
        ("evaluate.validation_loss", {}, None, False, "reads windows. Give the sweep a section"),
        ("circuits.copying_rate", {}, None, False, "missing settings heads"),
        ("evaluate.validation_loss", {}, 1, True, "it takes no seed: it draws nothing"),
        ("metrics", {"a": 1}, None, False, "takes no settings and no seeds"),
    ],
)
def test_what_an_analysis_cannot_take_is_said(
    name: str, settings: dict[str, Any], seed: int | None, has_text: bool, said: str
):
    with pytest.raises(ValueError, match=said):
        check(name, settings, seed, has_text)


def test_data_fill_what_no_setting_does():
    assert reads("evaluate.validation_loss", {}) == ("windows",)
    assert reads("heads.attention_by_place", {}) == ("tokens",)
    assert reads("heads.attention_by_place", {"tokens": "the cat"}) == ()
    assert reads("heads.atlas", {}) == ("corpus",)
    assert reads("heads.motif_scores", {}) == ()  # has text of its own
    assert reads("heads.motif_scores", {"tokens": "data"}) == ("tokens",)
    assert reads("circuits.composition", {}) == () and reads("metrics", {}) == ()
    assert reads("evaluate.evaluate_images", {}) == ("images",)
    assert reads("heads.semantic_consistency", {}) == ("images", "labels")
    assert reads("heads.ablate_each", {}) == ("inputs", "targets")


@dataclass
class Losses:
    loss: float
    unit: str
    each: np.ndarray


def test_results_become_tables():
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="head"))
    table = as_table(SimpleNamespace(to_frame=lambda: frame))
    assert list(table.columns) == ["head", "a"] and list(table["head"]) == ["x", "y"]
    assert as_table(0.5).to_dict("list") == {"value": [0.5]}
    assert as_table({"p": 1, "q": 2.5}).to_dict("list") == {"p": [1], "q": [2.5]}
    named = as_table({mode: SimpleNamespace(to_frame=lambda: frame) for mode in ("q", "k")})
    assert list(named["of"]) == ["q", "q", "k", "k"] and len(named) == 4
    assert as_table(Losses(1.5, "nats", np.zeros(3))).to_dict("records") == [{"loss": 1.5, "unit": "nats"}]
    for nothing in (None, "text", object()):
        with refused(type(nothing).__name__, "no table"):
            as_table(nothing)


def test_a_card_without_figures_is_refused():
    with pytest.raises(ValueError, match="no card with figures"):
        call("metrics", SimpleNamespace(card=None), {}, None, None)
    card = SimpleNamespace(metrics={"validation_loss": 2.5, "note": "text"})
    assert call("metrics", SimpleNamespace(card=card), {}, None, None).to_dict("list") == {"validation_loss": [2.5]}


def test_a_table_keeps_every_bit():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "float64": [*generator.normal(size=4), np.nan, np.inf, -np.inf],
            "float32": np.array([*generator.normal(size=4), np.nan, np.inf, 1e-45], dtype=np.float32),
            "int": np.arange(7, dtype=np.int32),
            "bool": [True, False] * 3 + [True],
            "text": pd.Series(["a", "", None, "</script>", "é", "1.0", "nan"], dtype=object),
        }
    )
    again = unpacked(packed(frame))
    for name in ("float64", "float32", "int", "bool"):
        assert again[name].dtype == frame[name].dtype
        assert again[name].to_numpy().tobytes() == frame[name].to_numpy().tobytes()
    assert [None if pd.isna(each) else each for each in again["text"]] == [
        "a",
        "",
        None,
        "</script>",
        "é",
        "1.0",
        "nan",
    ]


SIZES = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4}


@pytest.fixture
def checkpoints(home: Path) -> Path:
    """At home beside `small`: `digits`, of images, and `line`, of in-context regression in two dimensions."""
    import tomllib

    data = open_images("digits")
    cfg = ModelConfig(**SIZES, n_ctx=16, read_in="patches", image_size=8, patch_size=2, n_channels=1, pooling="mean",
                      read_out="classes", d_out=10, causal=False)  # fmt: skip
    digits = randomise(AttentionOnlyTransformer(cfg)).eval()
    digits.image_processor = ImageProcessor.of(data.train, "digits")
    _save(home, "digits", digits, {})
    recipe = tomllib.loads(RECIPE)
    line = ModelConfig.from_dict({**recipe["model"], "d_vocab": None})
    _save(home, "line", randomise(AttentionOnlyTransformer(line)).eval(), recipe)
    return home


def _save(home: Path, name: str, model: AttentionOnlyTransformer, recipe: dict[str, Any]) -> None:
    info = CheckpointInfo(name=name, description="Small.", seed=1, metrics={"loss": 1.5}, recipe=recipe)
    save_checkpoint(home / "home" / "checkpoints" / name, model, info, history=[])


def _jobs(home: Path, name: str, *calls: dict[str, Any], **more: Any) -> list[Job]:
    sweep = Sweep.from_dict(of(*calls, **more) | {"models": [{"checkpoints": [name]}]})
    return list(analyses(sweep, Store(home / "out"), [], lambda said: None).jobs)


def _table(job: Job, model: Any, folder: Path) -> Any:
    """What the process of a cell would make of it, its inputs having been on the disk."""
    assert job.inputs is not None or not job.identity["inputs"]
    if job.inputs is not None:
        job.inputs.save(folder / "inputs.npz")
    inputs = None if job.inputs is None else Inputs.load(folder / "inputs.npz")
    return call(str(job.analysis), model, job.settings, job.seed, inputs)


def test_images_reach_the_analyses_with_their_classes(checkpoints: Path) -> None:
    model, folder = load("digits", "cpu"), checkpoints
    evaluated, consistency, ablated = _jobs(
        checkpoints, "digits", {"name": "evaluate.evaluate_images"},
        {"name": "heads.semantic_consistency", "settings": {"n_permutations": 200}}, {"name": "heads.ablate_each"},
        data={"images": "digits", "n_images": 30},
    )  # fmt: skip
    test = open_images("digits").test
    images = test.take(test.by_turns()[:30])
    assert np.bincount(images.labels).tolist() == [3] * 10
    expected = evaluate_images(model, images).to_frame()
    assert _table(evaluated, model, folder).equals(expected)
    pixels = model.to_images(images.images)
    expected = semantic_consistency(model, pixels, images.labels, n_permutations=200).to_frame()
    assert _table(consistency, model, folder).equals(expected.reset_index(drop=True))
    expected = ablate_each(model, pixels, targets=images.labels).to_frame()
    assert _table(ablated, model, folder).equals(expected)


def test_prompts_and_task_are_of_the_models_card(checkpoints: Path) -> None:
    model, task = load("line", "cpu"), RegressionTask(d=2)
    errors, ablated, other = _jobs(
        checkpoints, "line", {"name": "evaluate.regression_errors", "settings": {"n_prompts": 32}},
        {"name": "heads.ablate_each"},
        {"name": "evaluate.regression_errors", "settings": {"n_prompts": 32, "task": {"d": 2, "noise_std": 0.5}}},
        data={"n_prompts": 6},
    )  # fmt: skip
    expected = regression_errors(model, task, n_prompts=32).to_frame()
    assert _table(errors, model, checkpoints).equals(expected)
    prompts = task.sample(6, 5)
    expected = ablate_each(model, prompts.tokens, targets=prompts.targets).to_frame()
    assert _table(ablated, model, checkpoints).equals(expected)
    expected = regression_errors(model, RegressionTask(d=2, noise_std=0.5), n_prompts=32).to_frame()
    assert _table(other, model, checkpoints).equals(expected)
    assert errors.key != other.key


@pytest.mark.parametrize(
    ("name", "analysis", "data", "said"),
    [
        ("digits", "heads.ablate_each", {"corpus": "stdlib"}, "digits reads images. Give images = 'npz:PATH'"),
        ("small", "heads.ablate_each", {"images": "digits"}, "small reads text. Give corpus = 'stdlib'"),
        ("small", "heads.atlas", {"images": "digits"}, "an analysis reads a corpus. Give corpus"),
        ("small", "evaluate.regression_errors", {}, "small: its card says no task of in-context regression"),
        ("digits", "evaluate.evaluate_images", {"images": "digit"}, "expected images 'digits'"),
    ],
)
def test_data_that_are_missing_are_said_before_any_work(
    checkpoints: Path, name: str, analysis: str, data: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        _jobs(checkpoints, name, {"name": analysis}, data=data)


def test_what_else_decides_a_result_is_in_a_cells_name(checkpoints: Path, small: AttentionOnlyTransformer) -> None:
    """Beside the weights: the tokenizer, the counts of tokens, the processor; of `metrics`, the card's figures."""
    before = fingerprint(small)
    assert before == fingerprint(load("small", "cpu")), "here and where it is loaded again"
    small.unigram_counts = torch.ones(265, dtype=torch.long)
    counted = fingerprint(small)
    small.tokenizer = small.tokenizer.with_mask()
    assert len({before, counted, fingerprint(small)}) == 3
    (job,) = _jobs(checkpoints, "digits", {"name": "metrics"})
    _save(checkpoints, "again", load("digits", "cpu"), {})
    (again,) = _jobs(checkpoints, "again", {"name": "metrics"})
    assert job.key == again.key, "the same model by another name is the same cell"
    info = CheckpointInfo(name="other", description="Small.", seed=1, metrics={"loss": 1.25})
    save_checkpoint(checkpoints / "home" / "checkpoints" / "other", load("digits", "cpu"), info, history=[])
    (other,) = _jobs(checkpoints, "other", {"name": "metrics"})
    assert job.key != other.key
