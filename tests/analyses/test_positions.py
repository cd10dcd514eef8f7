"""The table of positions says what the library says, and what it says of MSSA is so for any weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import positions
from aotlens.circuits import distance_profile, reach
from tests.small_models import SMALL, maker

PAGE = Path(positions.__file__).parents[1] / "docs" / "positions.md"
ROTARY = {**SMALL, "positions": "rotary", "norm": "rms", "d_head": 8}


def test_the_wavelengths_are_those_that_raise_the_score_one_token_back(capsys: Any, monkeypatch: Any) -> None:
    model = maker(ROTARY)()
    model.unigram_counts = torch.ones(model.cfg.d_vocab, dtype=torch.int64)
    said, waves = positions.by_weights(model)
    cfg = model.cfg
    heads = [(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
    found = max((reach(model, head) for head in heads), key=lambda each: each.previous_token)
    assert said.endswith(f"{found.previous_token:+.2f}")
    pairs = np.random.default_rng(0).choice(
        model.cfg.d_vocab, size=(positions.N_PAIRS, 2), p=np.full(cfg.d_vocab, 1 / cfg.d_vocab)
    )
    raised = np.zeros(len(found.theta))
    for u, v in pairs:
        curves = distance_profile(model, found.head, int(u), int(v)).by_frequency[:, : positions.N_DISTANCES]
        for place, curve in enumerate(curves):
            raised[place] += (curve[1] - (curve.sum() - curve[1]) / (len(curve) - 1)) / positions.N_PAIRS
    best = int(raised.argmax())
    assert waves.startswith(f"{2 * np.pi / found.theta[best]:.1f} tokens ({raised[best]:+.2f} nats)")


@pytest.mark.parametrize("seed", range(5))
def test_no_mssa_head_scores_another_distance_above_0_on_average(seed: int) -> None:
    model = maker({**ROTARY, "attention": "mssa"}, seed=seed)()
    for head in range(model.cfg.n_heads):
        mean = reach(model, (0, head)).mean_scores
        assert mean.argmax() == 0 and mean[0] > mean[1:].max()


@pytest.mark.usefixtures("real_bundled_folder")
def test_the_page_has_the_bundled_rows(capsys: Any) -> None:
    assert positions.main(["novels-2l-rotary-mssa"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("`")]
    assert f"| {line.strip()} |" in PAGE.read_text(encoding="utf-8")
