"""Two runs side by side as views: their Python, their tables, their sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.commands.view import command_of
from aotlens.data import Tokenizer
from aotlens.heads import match_heads
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.views import Workshop
from aotlens.views.compare import DIFFERENCE, FAMILY, LOSSES, PAIRS, RIGHT, SIMILARITY, each_pair
from tests.messages import refused, says
from tests.views.executed import same_by_python

TEXT = "The captain bowed to the captain, and danced."
MODELS = {
    "one": {"n_layers": 2},
    "other": {"n_layers": 3, "n_heads": 2, "attention": "mssa"},
    "short": {},
    "few": {"d_vocab": 270},
    "elsewhere": {},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    for name, rest in MODELS.items():
        sizes: dict[str, Any] = {"n_layers": 1, "n_heads": 3, "d_vocab": 275, **rest}
        cfg = ModelConfig(d_model=24, d_head=8, n_ctx=48, seed=1, **sizes)
        text = "def words(of): return other" if name == "elsewhere" else TEXT
        model = AttentionOnlyTransformer(cfg, Tokenizer.train([text * 9], sizes["d_vocab"]))
        save_checkpoint(folder / name, model, CheckpointInfo(name=name))
    return {name: str(folder / name) for name in MODELS}


@pytest.mark.parametrize("view", FAMILY.views, ids=lambda view: view.name)
def test_their_python_gives_the_table(paths: dict[str, str], view: Any):
    params = FAMILY.parse(
        paths["one"], paths["other"], text=TEXT, right="0.1", head="1.2", quantity="weighted", first="hide"
    )
    same_by_python(view, params)


def test_the_right_head_is_the_one_that_the_left_is_matched_with(paths: dict[str, str]):
    params = FAMILY.parse(paths["one"], paths["other"], text=TEXT, head="1.2")
    workshop = Workshop()
    matched = PAIRS.result(params)
    models = [workshop.load(paths[name]) for name in ("one", "other")]
    expected = match_heads(*models, TEXT)
    assert matched.pairs == expected.pairs and "pattern" in SIMILARITY.frame(matched)
    assert DIFFERENCE.result(params).right.head == dict(expected.pairs)[1, 2] == RIGHT.result(params).head
    alike = {tuple(pair["left"]): pair for pair in each_pair(matched)}
    says(alike[1, 2]["says"], "Head 1.2 is matched with head", f"{alike[1, 2]['similarity']:.2f}")
    # On another text at the right, patterns have nothing to say.
    apart = FAMILY.parse(paths["one"], paths["other"], text=TEXT, other="And danced.")
    assert PAIRS.result(apart).pattern is None


def test_a_head_left_over_stands_beside_the_one_most_like_it(paths: dict[str, str]):
    result = PAIRS.result(FAMILY.parse(paths["one"], paths["short"], text=TEXT))
    left = next(head for head in result.left if result.partner(head) is None)
    right = result.right[int(np.argmax(result.similarity[result.left.index(left)]))]
    assert result.beside(left) == right
    says(next(pair["says"] for pair in each_pair(result) if tuple(pair["left"]) == left), "no partner")


def test_models_of_other_tokens_are_shown_and_not_matched(paths: dict[str, str]):
    params = FAMILY.parse(paths["one"], paths["few"], text=TEXT, head="1.1")
    assert not params.one_tokenizer and params.beside == "0.0"
    with refused("vocabularies", "275", "270"):
        PAIRS.result(params)
    said = LOSSES.caption(params, LOSSES.result(params))
    says(said, "different tokens", "Over all its tokens")


def test_heads_of_vocabularies_of_one_size_with_other_words_are_shown_and_not_matched(paths: dict[str, str]):
    """The file of the right map is that of the head that a page draws there."""
    params = FAMILY.parse(paths["one"], paths["elsewhere"], text=TEXT, head="0.2")
    assert RIGHT.result(params).head == (0, 2)
    with refused("tokenizers are not the same"):
        PAIRS.result(params)


def test_a_command_prints_the_table(paths: dict[str, str]):
    command = command_of("compare")
    result = CliRunner().invoke(
        command, [paths["one"], paths["other"], "--text", TEXT, "--right", "0.1", "--view", "pairs"]
    )
    says(result.output, "6 pairs, mean similarity", "margin")


def test_one_model_stands_beside_itself(paths: dict[str, str]):
    params = FAMILY.parse(paths["one"], text=TEXT, right="0.1", how="uniform")
    with refused("each of its 6 heads"):
        PAIRS.result(params)
    says(LOSSES.caption(params, LOSSES.result(params)), "without 0.1 (replaced with uniform attention)")
    assert not np.nan_to_num(DIFFERENCE.result(params).difference).any()
    says(DIFFERENCE.caption(params, DIFFERENCE.result(params)), "no entry differs")
    with refused("1 to 2 checkpoints, got 3"):
        FAMILY.parse(*[paths["one"]] * 3)
