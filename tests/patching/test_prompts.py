"""Two texts as a pair: the model's own answers, or those that tell the texts apart; and what patching it costs."""

from __future__ import annotations

import pytest
import torch

import aotlens
from aotlens.patching import pair_of, patch
from aotlens.views.patching import FAMILY

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture
def model():
    return aotlens.load("novels-2l-mhsa", device="cpu")


@torch.no_grad()
def test_answers_are_what_the_model_says_or_what_tells_the_prompts_apart(model):
    def end(text: str) -> torch.Tensor:
        return model(model.to_tokens(text))[0, -1]

    clean, corrupted = "Mr. Darcy met Elizabeth. Then Mr.", "Mr. Collins met Elizabeth. Then Mr."
    (pair,) = pair_of(model, clean, corrupted)
    assert (pair.answer, pair.wrong) == (int(end(clean).argmax()), int(end(corrupted).argmax()))
    clean, corrupted = "She spoke of the house.", "She spoke of the sea."
    assert end(clean).argmax() == end(corrupted).argmax()
    change = end(clean) - end(corrupted)
    pairs = pair_of(model, clean, corrupted)
    assert (pairs.pairs[0].answer, pairs.pairs[0].wrong) == (int(change.argmax()), int(change.argmin()))
    found = patch(model, pairs, "z")
    assert found.clean[0] > found.corrupted[0]
    assert found.outputs == (model.to_string([int(change.argmax())]), model.to_string([int(change.argmin())]))
    (given,) = pair_of(model, clean, corrupted, answer=" I", wrong=" he")
    assert (given.answer, given.wrong) == (model.to_single_token(" I"), model.to_single_token(" he"))


def test_what_a_view_costs_grows_with_prompts_pairs_and_layers():
    def cost(name: str, checkpoint: str = "novels-2l-mhsa", **given: object) -> float:
        return FAMILY.view(name).cost(FAMILY.parse(checkpoint, **given))

    long = {"clean": "She spoke. " * 50, "corrupted": "He spoke. " * 50}
    for name in ("positions", "by-head", "estimate", "edges"):
        assert cost(name) < cost(name, "novels-12l-mssa") < cost(name, "novels-12l-mssa", **long)
        assert cost(name) < cost(name, pairs="key")
    assert cost("edges") < cost("edges", "novels-12l-mssa", head="1.0")
    assert cost("positions", **long) > 50 * cost("positions")
