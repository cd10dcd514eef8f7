"""Heads of several models as views: the library's own result, its captions and figures, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import Tokenizer, repeated_random_tokens
from aotlens.heads import Universality, universality
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views.universality import FAMILY, GROUPS, LENGTH, N_WINDOWS, PAIRS, UniversalityParameters
from tests.app.conftest import save_tiny
from tests.messages import refused, says
from tests.views.executed import same_by_python


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    for seed in range(3):
        save_tiny(folder, f"seed{seed}", seed=seed, n_layers=1)
    return [str(folder / f"seed{seed}") for seed in range(3)]


@pytest.fixture(scope="module")
def found(names: list[str]) -> tuple[UniversalityParameters, Universality]:
    params = FAMILY.parse(*names, text="repeats", evidence="qk, ov", seed=3)
    return params, GROUPS.result(params)


def test_its_groups_and_pairs_are_the_librarys(
    names: list[str], found: tuple[UniversalityParameters, Universality]
) -> None:
    params, result = found
    models = {name: aotlens.load(name) for name in names}
    half = min(LENGTH // 2, (models[names[0]].cfg.n_ctx - 1) // 2)
    tokens = repeated_random_tokens(300, N_WINDOWS, half, 3, eot_id=models[names[0]].card.start_token)
    expected = universality(models, tokens, grouped_by=("qk", "ov"), seed=3)
    pd.testing.assert_frame_equal(GROUPS.frame(result), expected.to_frame())
    pd.testing.assert_frame_equal(PAIRS.frame(PAIRS.result(params)), expected.pairs_frame())
    says(
        GROUPS.caption(params, result), result.headline[1:], "3 models", f"{result.closed:.0%}", result.beyond_distance
    )
    test = result.tests.index(("qk", "ov"))
    means = [f"{result.pair_means[test, left, right]:.3f}" for left, right in ((0, 1), (0, 2), (1, 2))]
    says(PAIRS.caption(params, result), "9 pairs", *means)


def test_its_python_gives_its_table_and_its_matrix_block_by_block(
    found: tuple[UniversalityParameters, Universality],
) -> None:
    params, result = found
    same_by_python(PAIRS, params)
    table, figure = PAIRS.frame(result), PAIRS.figure(params, result)
    heat, squares = figure.data
    np.testing.assert_allclose(heat.z, result.of("qk"), atol=1e-6)
    assert list(heat.x) == [f"{result.models[place]} 0.{head}" for place in range(3) for head in range(3)]
    marked = {*zip(squares.x, squares.y, strict=True)}
    pairs = [(f"{row.left_model} {row.left}", f"{row.right_model} {row.right}") for row in table.itertuples()]
    assert marked == {*pairs, *((right, left) for left, right in pairs)}
    assert len(figure.layout.shapes) == 4  # two edges between three models, across and down


def test_what_cannot_be_compared_is_refused(names: list[str], tmp_path: Path) -> None:
    with refused("Only", "Select two to eight"):
        GROUPS.result(FAMILY.parse(names[0]))
    with refused("different checkpoints", "seed0 twice"):
        FAMILY.parse(names[0], names[0])
    with refused("1 to 8 checkpoints", "got 9"):
        FAMILY.parse(*3 * names)
    cfg = ModelConfig(n_layers=1, d_model=24, n_heads=3, d_head=8, d_vocab=262, n_ctx=48)
    other = AttentionOnlyTransformer(cfg, Tokenizer.train(["another text than that of the others " * 9], 262))
    save_checkpoint(tmp_path / "other", other, CheckpointInfo(name="other"))
    with refused("different vocabularies", "one tokenizer"):
        GROUPS.result(FAMILY.parse(names[0], str(tmp_path / "other")))
