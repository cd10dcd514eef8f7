"""Estimates against finite differences of the metric along the way, and against patching itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import PromptPairs
from aotlens.models import hook_names
from aotlens.patching import HEADS, STREAMS, attribution, patch
from tests.heads.hand_built import induction
from tests.patching.test_sweep import CLEAN, CORRUPTED, KINDS, difference, pairs_of
from tests.small_models import MakeModel


@torch.no_grad()
def by_finite_differences(model: Any, what: str, layer: int, head: int | None, at: int, epsilon: float = 1e-5) -> float:
    """The change of the metric, by steps of ±ε towards the clean activation, ÷ 2ε; mean over pairs."""
    name = hook_names.attn(layer, f"hook_{what}") if what in HEADS else hook_names.block(layer, f"hook_{what}")
    changes = []
    for row in range(3):
        _, cache = model.run_with_cache(CLEAN[row : row + 1], return_cache_object=False)
        ends = []
        for share in (epsilon, -epsilon):

            def put(x: Tensor, hook: Any, share: float = share, there: Tensor = cache[name]) -> Tensor:
                place: Any = (0, at) if head is None else (0, head, at) if what == "pattern" else (0, at, head)
                x = x.clone()
                x[place] += share * (there[place] - x[place])
                return x

            ends.append(difference(model.run_with_hooks(CORRUPTED[row : row + 1], fwd_hooks=[(name, put)]), row))
        changes.append((ends[0] - ends[1]) / (2 * epsilon))
    return float(np.mean(changes))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mhsa", "mssa", "with MLPs", "seeing later keys", "fixed"])
def test_estimates_are_the_derivative_towards_the_other_prompt(make: MakeModel, kind: str) -> None:
    model = make(**KINDS[kind])
    for what in (*STREAMS, *HEADS):
        if (what in ("q", "k") and not model.cfg.has_query_key) or (what in ("resid_mid", "mlp_out") and model.cfg.attn_only):  # noqa: E501  # fmt: skip
            continue
        found = attribution(model, pairs_of(model), what, by_position=True, check=1, batch_size=2)
        for cell in ((0, 1), (1, 4), (1, 1)):
            layer, at = cell
            place = (layer, 1, at) if what in HEADS else cell
            expected = by_finite_differences(model, what, layer, 1 if what in HEADS else None, at)
            assert found.estimate[place] == pytest.approx(expected, abs=1e-6), (what, cell)


@pytest.mark.parametrize("what", ["z", "resid_pre", "k"])
def test_the_largest_are_patched_exactly(make: MakeModel, what: str) -> None:
    model = make(bias=True)
    exact = patch(model, pairs_of(model), what)
    found = attribution(model, pairs_of(model), what, check=4, batch_size=2)
    assert len(found.exact) == 4
    order = np.argsort(-np.abs(found.estimate).ravel())[:4]
    np.testing.assert_array_equal(found.checked, np.stack(np.unravel_index(order, found.estimate.shape), 1))
    change = (exact.each - exact.corrupted.reshape(-1, 1, 1)).mean(0)
    np.testing.assert_allclose(found.exact, change[tuple(found.checked.T)], atol=1e-9)
    frame = found.to_frame()
    assert frame["exact"].notna().sum() == 4
    assert frame["exact"].notna().iloc[:4].all()
    cell, miss = found.worst
    assert miss == pytest.approx(found.estimate[cell] - change[cell])


def test_without_a_norm_and_softmax_the_estimate_is_exact(make: MakeModel) -> None:
    model = make(norm=None, phi="fixed", fixed_pattern="random")
    found = attribution(model, pairs_of(model), "z", check=100)
    np.testing.assert_allclose(found.estimated, found.exact, atol=1e-9)
    assert found.rank_correlation == pytest.approx(1)
    assert len(found.exact) == found.estimate.size


def test_integrated_gradients_of_the_inputs_add_up_to_the_change(make: MakeModel) -> None:
    """Completeness: over all positions before layer 0 the integral is the whole change (Sundararajan et al. 2017)."""
    model = make(bias=True)
    found = attribution(model, pairs_of(model), "resid_pre", steps=200, check=1)
    whole = patch(model, pairs_of(model), "resid_pre")
    assert found.estimate[0].sum() == pytest.approx((whole.clean - whole.corrupted).mean(), abs=1e-3)


def test_gradients_stay_off_the_weights_and_no_hook_stays(make: MakeModel) -> None:
    model = make()
    attribution(model, pairs_of(model), "q")
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(point.has_hooks() for point in model.hook_dict.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"check": 0}, "check=0"),
        ({"batch_size": 10**12}, "batch_size=10"),
        ({"metric": lambda logits, pairs: logits[:, 0].detach()}, "no gradient"),
        ({"metric": "kl", "direction": "noising"}, "gradient is 0 at the clean prompt"),
    ],
)
def test_what_cannot_be_is_refused(make: MakeModel, given: dict[str, Any], message: str) -> None:
    model = make()
    with pytest.raises(ValueError, match=message):
        attribution(model, pairs_of(model), **given)


#: Token 3 came after 5, and is asked for after another 5; corrupted, 6 came after it.
ASKED, ASKED_OTHER = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 5, 6, 1, 5]])


@pytest.fixture(scope="module")
def made():
    model = induction(8, 12.0, copies=1, decoys=1)
    return model, PromptPairs.of_inputs(model, ASKED, ASKED_OTHER, [3], [6])


def test_the_induction_heads_output_restores_the_answer_and_no_other_does(made):
    model, pairs = made
    found = patch(model, pairs, "z", by_position=True)
    assert found.clean[0] == pytest.approx(12, abs=0.2) and found.corrupted[0] == pytest.approx(-12, abs=0.2)
    assert found.restored[1, 1, 5] == pytest.approx(1, abs=0.02)  # head 1.1 at the end
    others = np.delete(found.restored.ravel(), np.ravel_multi_index((1, 1, 5), found.restored.shape))
    assert np.abs(others).max() < 0.05


def test_it_moves_the_value_of_the_token_that_came_after_its_own(made):
    model, pairs = made
    values = patch(model, pairs, "v", by_position=True).restored
    assert values[1, 1, 3] == pytest.approx(1, abs=0.02) and np.abs(np.delete(values[1, 1], 3)).max() < 0.05
    patterns = patch(model, pairs, "pattern").restored
    assert np.abs(patterns).max() < 0.05  # it looks at the same place in both


def test_where_it_looks_is_found_where_prompts_differ_in_that():
    """Here the answer is there in both prompts and only the token before it differs: keys through the previous-token
    head, and nothing of values, bring it back."""
    model = induction(8, 12.0, copies=1, decoys=1)
    clean, corrupted = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 4, 3, 1, 5]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [3], [6])
    keys = patch(model, pairs, "k").restored
    assert keys[1, 1] == pytest.approx(1, abs=0.02) and abs(keys[1, 0]) < 0.05
    earlier = patch(model, pairs, "z", by_position=True).restored
    assert earlier[0, 1, 3] == pytest.approx(1, abs=0.02)  # head 0.1 writes 5 where 3 stands
    assert np.abs(patch(model, pairs, "v").restored[1]).max() < 0.05


def test_a_saturated_softmax_makes_the_gradient_lie_and_the_check_shows_it():
    model = induction(8, 12.0, copies=1, decoys=1)
    clean, corrupted = torch.tensor([[0, 2, 5, 3, 1, 5]]), torch.tensor([[0, 2, 4, 3, 1, 5]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [3], [6])
    found = attribution(model, pairs, "k", check=4)
    cell, miss = found.worst
    assert cell == (1, 1) and abs(miss) > 5  # the exact change is some 12 logits, the estimate next to nothing
