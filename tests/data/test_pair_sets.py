"""Pairs of known tasks: what they hold, and that the bundled model of each task tells clean from corrupted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import aotlens
from aotlens.data import (
    PromptPairs,
    RegressionTask,
    deeper_indentation,
    image_pairs,
    matching_brackets,
    negated_labels,
    repeated_names,
)
from aotlens.patching import patch
from tests.image_models import make as make_image_model
from tests.image_models import random_images

pytestmark = pytest.mark.usefixtures("real_bundled_folder")


@pytest.mark.parametrize(
    ("made", "checkpoint", "text"),
    [
        (repeated_names, "novels-2l-mhsa", "Mr. "),
        (matching_brackets, "code-2l-mhsa", " = "),
        (deeper_indentation, "code-2l-mhsa", "\n        if "),
    ],
)
def test_a_bundled_model_gives_the_answer_and_not_the_wrong_one(made, checkpoint, text):
    model = aotlens.load(checkpoint, device="cpu")
    pairs = made(model, n=16)
    assert len(pairs) == 16 and len({tuple(pair.clean.tolist()) for pair in pairs}) == 16
    assert all(len(pair.clean) == len(pair.corrupted) and pairs.differences(row) for row, pair in enumerate(pairs))
    assert all(text in "".join(clean) for clean, _ in pairs.str_tokens)
    whole = patch(model, pairs, "z")
    assert whole.clean.mean() > 1 > whole.corrupted.mean()
    assert made(model, n=3, seed=5).to_frame().clean.tolist() == made(model, n=3, seed=5).to_frame().clean.tolist()
    with pytest.raises(ValueError, match="expected"):
        made(model, n=10**5)
    # Pairs that share the word which matters most are clusters; names of 32 pairs are 64 different ones.
    pairs = made(model, n=32)
    if made is repeated_names:
        assert pairs.clusters is None and len({word for both in pairs.answer_words for word in both}) == 64
    else:
        words = [clean[5 if made is matching_brackets else 6].strip() for clean, _ in pairs.str_tokens]
        assert list(pairs.clusters) == words


def test_an_induction_pair_differs_in_what_is_moved_or_in_what_stands_before_it():
    model = aotlens.load("novels-2l-mhsa", device="cpu")
    for differs in ("value", "key"):
        pairs = PromptPairs.induction(model, differs=differs, n=20, length=9)
        for row, pair in enumerate(pairs):
            ((at, same),) = pairs.differences(row)
            last = int(pair.clean[-1])
            first = pair.clean.tolist().index(last)
            assert at == same == first + (differs == "value")
            assert pair.answer == int(pair.clean[first + 1]) and pair.wrong == int(pair.corrupted[at]) != pair.answer
            assert (last in pair.corrupted[:-1].tolist()) == (differs == "value")
    with pytest.raises(ValueError, match="differs='query'"):
        PromptPairs.induction(model, differs="query")


def test_an_image_stands_beside_one_of_the_other_class():
    model, images = make_image_model(), random_images(8)
    labels = np.array([0, 1, 2, 1, 0, 2, 1, 0])
    pairs = image_pairs(model, images, labels, (1, 0), n=3)
    kinds = [[next(i for i in range(8) if torch.equal(images[i], x)) for x in (p.clean, p.corrupted)] for p in pairs]
    assert all(labels[a] == 1 and labels[b] == 0 for a, b in kinds) and len({a for a, _ in kinds}) == 3
    assert {(pair.answer, pair.wrong) for pair in pairs} == {(1, 0)}
    with pytest.raises(ValueError, match="expected 3 images of class 2 or more, got 2"):
        image_pairs(model, images, labels, (1, 2), n=3)


def test_negated_labels_turn_the_sign_of_what_is_estimated():
    task, model = RegressionTask(d=5), aotlens.load("regression-5d-mhsa", device="cpu")
    prompts = task.sample(12, 10, seed=3)
    pairs = negated_labels(model, prompts)
    for row, pair in enumerate(pairs):
        assert torch.equal(pair.clean[::2], prompts.inputs[row]) and torch.equal(pair.clean[::2], pair.corrupted[::2])
        assert torch.equal(pair.clean[1::2], -pair.corrupted[1::2])
        sign = 1 if prompts.labels[row, -1] > 0 else -1
        torch.testing.assert_close(pair.clean[1::2, 0], sign * prompts.labels[row, :-1])
    found = patch(model, pairs, "z", "output")
    assert found.clean.mean() > 0.5 and found.corrupted.mean() < -0.5
    with torch.no_grad():
        np.testing.assert_allclose(found.clean, model(pairs.pairs[0].clean[None].new_tensor(
            np.stack([pair.clean.numpy() for pair in pairs])))[:, -1, 0].numpy(), atol=1e-5)  # fmt: skip
    with pytest.raises(ValueError, match="writes vectors"):
        patch(model, pairs, "z")
    with pytest.raises(ValueError, match="reads and writes vectors"):
        negated_labels(aotlens.load("novels-2l-mhsa", device="cpu"), prompts)
