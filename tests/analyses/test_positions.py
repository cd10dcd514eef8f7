"""The table of positions says what the library says, and what it says of MSSA is so for any weights."""

from __future__ import annotations

from itertools import product
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


def test_the_parts_are_means_over_all_pairs_of_tokens() -> None:
    model = maker({**ROTARY, "n_ctx": 40})().double()
    model.unigram_counts = torch.arange(1, model.cfg.d_vocab + 1)
    p = model.unigram_counts.double().numpy() / int(model.unigram_counts.sum())
    expected: Any = 0.0
    for u, v in product(range(len(p)), repeat=2):
        curves = distance_profile(model, (0, 1), u, v).by_frequency[:, : positions.N_DISTANCES]
        others = (curves.sum(1) - curves[:, 1]) / (positions.N_DISTANCES - 1)
        expected = expected + p[u] * p[v] * (curves[:, 1] - others)
    np.testing.assert_allclose(positions.frequency_parts(model, (0, 1)), expected, rtol=1e-6, atol=1e-9)


def test_a_head_without_its_queries_attends_to_all_alike() -> None:
    """With every pair but the fastest switched off and that one empty, scores are 0."""
    model = maker({**ROTARY, "n_ctx": 128, "d_head": 2})()
    before = model.blocks[0].attn.W_Q.detach().clone()
    found = positions.with_pairs(model, (0, 0), False)  # the only pair is the fastest
    assert torch.equal(model.blocks[0].attn.W_Q, before)
    assert found == pytest.approx(np.mean([1 / (query + 1) for query in range(2, 101)]), rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_no_mssa_head_scores_another_distance_above_0_on_average(seed: int) -> None:
    model = maker({**ROTARY, "attention": "mssa"}, seed=seed)()
    for head in range(model.cfg.n_heads):
        mean = reach(model, (0, head)).mean_scores
        assert mean.argmax() == 0 and mean[0] > mean[1:].max()


@pytest.mark.long
@pytest.mark.usefixtures("real_bundled_folder")
def test_the_page_has_the_bundled_rows(capsys: Any) -> None:
    assert positions.main(["novels-2l-rotary-mssa"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("`")]
    assert f"| {line.strip()} |" in PAGE.read_text(encoding="utf-8")
