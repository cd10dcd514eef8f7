"""Every input of a task: a circuit whose margin is known by hand, and one forward pass at a time in NumPy."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import make_task
from aotlens.evaluate import exhaustive
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views.exhaustive import EXHAUSTIVE, FAMILY
from tests.heads.hand_built import induction
from tests.messages import refused, says
from tests.small_models import randomise
from tests.views.executed import same_by_python

SIZES: dict[str, Any] = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 6, "d_vocab": 7}


def small(**changes: Any) -> AttentionOnlyTransformer:
    return randomise(AttentionOnlyTransformer(ModelConfig(**{**SIZES, **changes})))


def test_a_circuit_built_by_hand_is_right_by_the_margin_it_was_built_with() -> None:
    model, task = induction(4, 3.5), make_task("induction", "1-4", "0 x x x x x")
    result = exhaustive(model, task)
    assert result.n_inputs == result.n_right == task.n_inputs == 4 * (3**3 * 3)
    assert result.margin == pytest.approx(3.5) and len(result.failures) == 0
    with torch.no_grad():  # the second head now attends to an earlier occurrence of 2 less than to nothing
        model.embed.W_E[2] *= -1
    broken = exhaustive(model, task)
    assert 0 < broken.n_right < broken.n_inputs and broken.margin < 0
    says(broken.headline, f"{broken.n_right:,} of {task.n_inputs:,}", "induction")


def test_margins_are_those_of_one_pass_at_a_time() -> None:
    model = small(bias=True)
    task = make_task("sort", "0-3", "5 x x 6 y y")
    counted: list[tuple[int, int]] = []
    result = exhaustive(model, task, keep=5, batch_size=3, progress=lambda done, of: counted.append((done, of)))
    rows = []
    for a, b in product(range(4), repeat=2):
        tokens, answers = [5, a, b, 6, min(a, b)], [min(a, b), max(a, b)]
        logits = model(torch.tensor([tokens]))[0, 3:].detach().double().numpy()
        each = [logits[i][y] - np.delete(logits[i], y).max() for i, y in enumerate(answers)]
        rows.append((min(each), tokens, answers, logits.argmax(1).tolist(), [m > 0 for m in each]))
    rows.sort(key=lambda row: row[0])
    np.testing.assert_allclose(result.margins, [row[0] for row in rows[:5]], rtol=1e-5)
    assert result.inputs.tolist() == [row[1] for row in rows[:5]]
    assert result.answers.tolist() == [row[2] for row in rows[:5]]
    assert result.predictions.tolist() == [row[3] for row in rows[:5]]
    assert result.right_at.tolist() == np.sum([row[4] for row in rows], axis=0).tolist()
    assert result.n_right == sum(all(row[4]) for row in rows) and counted[-1] == (16, 16)


def test_classes_and_competing_outputs() -> None:
    model = small(read_out="classes", d_out=3, pooling="first", causal=False)
    task = make_task("bracket-balance", "3 4", "0 x x x x 2")
    result = exhaustive(model, task, keep=16)
    logits = model(torch.from_numpy(result.inputs)).detach()
    other = logits.scatter(1, torch.from_numpy(result.answers), -torch.inf).amax(1)
    margins = logits.gather(1, torch.from_numpy(result.answers))[:, 0] - other
    np.testing.assert_allclose(result.margins, margins.numpy(), rtol=1e-4, atol=1e-6)
    two = exhaustive(model, make_task("bracket-balance", "3 4", "0 x x x x 2", outputs="0 1"), keep=16)
    assert set(two.predictions.ravel()) <= {0, 1} and two.margin >= result.margin


def test_what_does_not_fit_is_refused() -> None:
    model = small()
    for arguments, words in (
        (("sort", "0-6", "x " * 5 + "x x"), ("7 tokens", "at most 6")),
        (("sort", "0-7", 2), ("token 7", "ids 0 to 6")),
        (("sort", "0-9", 8), ("100,000,000", "10,000,000")),
    ):
        with refused(*words):
            exhaustive(model, make_task(*arguments))
    with refused("answer 1 is not among", "outputs="):
        exhaustive(model, make_task("sort", "0-3", 2, outputs="0 2 3"))
    with refused("at least two outputs"):
        exhaustive(model, make_task("sort", "0-3", 2, outputs="9 2"))
    with refused("from vectors"):
        exhaustive(small(read_in="vectors", d_in=3), make_task("sort", "0-3", 2))
    with refused("2 answers"):
        exhaustive(small(read_out="classes", d_out=5, pooling="last"), make_task("sort", "0-3", 2))


def test_the_view_prints_the_same_and_its_python_runs(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "built", induction(4, 3.5), CheckpointInfo(name="built"))
    params = FAMILY.parse(str(tmp_path / "built"), task="induction", values="1-4", layout="0 x x x x")
    result = same_by_python(EXHAUSTIVE, params)
    says(EXHAUSTIVE.caption(params, result), "all 72 inputs", "3.5 logits")
    result.save(tmp_path / "check.safetensors")
    assert aotlens.results.load(tmp_path / "check.safetensors").headline == result.headline
