"""The name of a new distillation: one for what is the same order, and others for others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aotlens.checkpoints import CheckpointInfo
from aotlens.distill import Distillation
from aotlens.views.distillation import FAMILY

INFO = CheckpointInfo(name="model", weights_sha256="0" * 64, model={"n_layers": 2, "n_heads": 2})


def name(**given: Any) -> str:
    return FAMILY.parse(INFO, **given).new


def test_orders_that_are_the_same_have_one_name():
    assert name() == name(hidden="16-0-4") == name(hidden=[0, 4, 16, 4])
    assert name(heads="0.1, 1.0") == name(heads="1.0 0.1 0.1") != name()
    assert name(tokens=2000) == name(tokens=2000, replaced=2000) != name(tokens=2000, replaced=1000)


@pytest.mark.parametrize("spec", ["file:{}/text.txt", "dir:{}"])
def test_a_file_that_was_written_anew_is_distilled_anew(tmp_path: Path, spec: str):
    file, corpus = tmp_path / "text.txt", spec.format(tmp_path)
    file.write_text("The captain bowed.")
    before = name(corpus=corpus)
    assert name(corpus=corpus) == before
    file.write_text("The captain danced, and bowed.")
    assert name(corpus=corpus) != before


def test_one_head_has_one_error():
    one = SimpleNamespace(hidden=(16,), mean_error=lambda width: np.array([0.004]))
    assert Distillation.headline.fget(one) == "error 0.004 with 16 hidden units"
