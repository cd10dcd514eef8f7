"""Families of views: their parameters checked, a command, a sweep and Python from one declaration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import repeated_random_tokens, repeated_targets
from aotlens.heads import sufficient_heads
from aotlens.sweeps.calling import call, function, names
from aotlens.views import FAMILIES, family
from aotlens.views.kinds import NumberParameter
from aotlens.views.sufficient import FAMILY, SUFFICIENT, TASKS
from tests.heads.hand_built import induction
from tests.messages import refused, says
from tests.views.executed import same_by_python


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in which an induction pair is built by hand, whose other heads write next to nothing."""
    folder = tmp_path_factory.mktemp("models")
    save_checkpoint(folder / "built", induction(8, 12.0), CheckpointInfo(name="built"))
    return folder


@pytest.fixture(scope="module")
def built(folder):
    return str(folder / "built")


@pytest.fixture(scope="module")
def found(built):
    params = FAMILY.parse(built, how="zero", keep=0.8, seed=3)
    return params, SUFFICIENT.result(params)


def test_its_set_is_the_librarys(built, found):
    result, model = found[1], aotlens.load(built)
    half = (model.cfg.n_ctx - 1) // 2
    tokens = repeated_random_tokens(model.cfg.d_vocab, 64, min(half, 32), 3, eot_id=0)
    targets = repeated_targets(tokens, min(half, 32))
    expected = sufficient_heads(model, tokens, targets, keep=0.8, how="zero", seed=3)
    pd.testing.assert_frame_equal(SUFFICIENT.frame(result), expected.to_frame())
    # The loss of known tokens without the library's: every head or none, by hand.
    logits = model(tokens).log_softmax(-1)
    counted = targets != -100
    losses = -logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    means = (losses * counted).sum(1) / counted.sum(1)
    torch.testing.assert_close(
        means.double().mean().item(), aotlens.heads.ablate(model, tokens, (0, 0), targets=targets).clean_mean
    )


def test_its_caption_says_every_heads_verdict(found):
    params, result = found
    said = SUFFICIENT.caption(params, result)
    says(said, f"{result.faithfulness:.3f}", f"{len(result.heads)} of", TASKS["repeats"])
    for (layer, head), verdict in zip(result.heads, result.necessary_within, strict=True):
        part = said.partition("In the set: ")[2].partition(". In the whole")[0]
        of_verdict = next(one for one in part.split("; ") if one.startswith(f"{verdict} "))
        assert f"{layer}.{head}" in of_verdict


def test_its_python_gives_its_table_and_figure(found):
    same_by_python(SUFFICIENT, found[0])


def test_its_figure_shows_each_head_twice_and_the_set(found):
    params, result = found
    whole, within, without = SUFFICIENT.figure(params, result).data
    assert list(whole.y) == [result.faithfulness]
    np.testing.assert_array_equal(within.y, result.within)
    np.testing.assert_array_equal(without.y, result.without)
    np.testing.assert_allclose(np.add(within.y, within.error_y.array), result.within_intervals[:, 1])
    assert len(set(zip(within.marker.symbol, result.necessary_within, strict=True))) == len(
        set(result.necessary_within)
    )


def test_a_task_that_the_model_does_not_do_is_missing(built):
    with refused("does not read prompts", "Choose repeated random tokens"):
        SUFFICIENT.result(FAMILY.parse(built, task="prompts"))


@pytest.mark.parametrize(
    ("params", "said"),
    [({"keep": 0.2}, "keep: expected a number from 0.5 to 0.99, got 0.2"), ({"seed": 1.5}, "a whole number"),
     ({"seed": True}, "seed"), ({"task": ["repeats"]}, "task: expected one of"),
     ({"task": "text"}, "task: expected one of repeats, prompts, got 'text'"),
     ({"kepe": 0.8}, "no parameter kepe; there are task, keep")],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused(built, params, said):
    with refused(said):
        FAMILY.parse(built, **params)


def test_as_many_checkpoints_as_it_is_of(built):
    with refused("expected a checkpoint, got 0"):
        FAMILY.parse()
    with refused("expected a checkpoint, got 2"):
        FAMILY.parse(built, built)
    with refused("expected no checkpoint, got 1"):
        family("denoising").parse(built)
    with refused("another kind"):
        family("regression").parse(built)
    with refused("'nothing': expected one of"):
        family("nothing")
    with refused("'none': expected a view of sufficient, one of heads"):
        FAMILY.view("none")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_first_can_be_chosen(name):
    of = family(name)
    assert of.name == name and len({view.name for view in of.views}) == len(of.views)
    for each in of.fields.values():
        assert each.parse("it", each.first) == each.first == each.parse("it", each.written(each.first))
        if isinstance(each, NumberParameter):
            assert each.within(each.most + 1) == each.most and each.within(None) == each.first


def test_a_sweep_takes_a_view_by_its_name(built, found):
    assert {"views.sufficient.heads", "views.regression.support"} <= set(names())
    assert not [name for name in names() if name.startswith("views.denoising")], "it is of no model"
    frame = call("views.sufficient.heads", aotlens.load(built), {"how": "zero", "keep": 0.8}, 3)
    pd.testing.assert_frame_equal(frame, found[1].to_frame())
    with refused("no analysis 'views.sufficient.head'", "views.sufficient.heads"):
        function("views.sufficient.head")
    with refused("takes no model"):
        family("denoising").analysis(family("denoising").views[0])
