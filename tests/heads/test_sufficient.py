"""The search against trying all sets, on circuits built by hand among heads that do little."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
import torch

from aotlens.data.windows import held_out_rows
from aotlens.heads import ablate, sufficient_heads
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction, repeated
from tests.messages import refused
from tests.small_models import SMALL, maker

M = 6


def faithfulness_of(model: AttentionOnlyTransformer, tokens: torch.Tensor, targets: torch.Tensor | None, how: str):
    """m(S) from `ablate`, set by set: another path through the code."""
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    known: dict[frozenset[tuple[int, int]], float] = {}

    def measure(kept: frozenset[tuple[int, int]]) -> float:
        if kept not in known:
            rest = [head for head in heads if head not in kept]
            result = ablate(model, tokens, rest or heads, how, targets=targets)
            known[kept] = result.ablated_mean if rest else result.clean_mean
        return known[kept]

    nothing, everything = measure(frozenset()), measure(frozenset(heads))
    return heads, lambda kept: (measure(frozenset(kept)) - nothing) / (everything - nothing)


@pytest.mark.parametrize("decoys", [1, 3])
def test_exactly_the_two_heads_of_an_induction_circuit(decoys: int) -> None:
    model = induction(M, 5.0, decoys=decoys)
    tokens, targets = repeated(M, 12)
    found = sufficient_heads(model, tokens, targets, how="position_mean")
    assert found.heads == ((0, decoys), (1, decoys))
    assert found.necessary_within == found.necessary_in_model == ("necessary", "necessary")
    assert found.faithfulness > 0.95 and found.n_searched == found.n_held_out == 6
    low, high = found.interval
    assert low <= found.faithfulness <= high
    for head in found.heads:
        assert ablate(model, tokens, head, "position_mean", targets=targets).change > 0.5  # copying is gone
    frame = found.to_frame()
    assert list(frame["necessary_in_model"]) == ["necessary", "necessary"] and "keep at least 0.9" in found.headline


def test_two_circuits_that_do_the_same_are_necessary_in_the_set_alone() -> None:
    model = induction(M, 9.0, copies=2, decoys=1)
    tokens, targets = repeated(M, 12)
    found = sufficient_heads(model, tokens, targets)
    assert len(found.heads) == 2 and {head for _, head in found.heads} in ({1}, {2})
    assert found.necessary_within == ("necessary",) * 2 and "necessary" not in found.necessary_in_model
    assert (found.without > 0.9).all() and (found.within < 0.5).all()


@pytest.mark.parametrize("seed", range(2))
def test_against_all_sets_of_six_heads(seed: int) -> None:
    model = maker({**SMALL, "n_heads": 3}, dtype=torch.float64, seed=seed)()
    tokens = torch.randint(SMALL["d_vocab"], (10, 8), generator=torch.Generator().manual_seed(seed))
    own = model(tokens).argmax(-1)  # its own predictions, which it makes worse without heads
    heads, value = faithfulness_of(model, tokens, own, "zero")
    found = sufficient_heads(model, tokens, own, how="zero", keep=0.8, held_out=0.0)
    sets = chain.from_iterable(combinations(heads, size) for size in range(len(heads) + 1))
    smallest = min(len(kept) for kept in sets if value(kept) >= 0.8)
    assert value(found.heads) == pytest.approx(found.searched, abs=1e-9) and found.searched >= 0.8
    assert smallest <= len(found.heads) <= smallest + 1 and len(found.heads) == min(found.sizes)
    assert found.n_held_out == 0 and found.faithfulness == found.searched
    rest = set(heads)
    for head, within, without in zip(found.heads, found.within, found.without, strict=True):
        assert within == pytest.approx(value(set(found.heads) - {head}), abs=1e-9)
        assert without == pytest.approx(value(rest - {head}), abs=1e-9)


@pytest.mark.parametrize("how", ["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"])
def test_every_replacement_and_a_metric_of_ones_own(how: str) -> None:
    model = induction(M, 5.0, decoys=1)
    tokens, _ = repeated(M, 10)

    def right(logits: torch.Tensor, targets: torch.Tensor | None) -> torch.Tensor:
        assert targets is not None
        return logits[:, -2].gather(1, targets[:, -1:]).squeeze(1)

    # Patterns of the mean over so alike sequences change next to nothing in three of them.
    held_out = 0.0 if how == "fixed_pattern" else 0.3
    found = sufficient_heads(model, tokens, tokens, right, how=how, reference=tokens, held_out=held_out)
    assert found.unit == "right" and found.searched >= 0.9 and len(found.heads) <= 2


def test_what_cannot_be_searched_is_named() -> None:
    model = induction(M, 5.0)
    tokens, targets = repeated(M, 8)
    for fields, message in (
        ({"keep": 0.0}, "keep=0.0"),
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"held_out": 0.9}, "at least 2 sequences to search"),
        ({"metric": lambda logits, _: torch.arange(len(logits)) * 1.0}, "no set of heads keeps anything"),
        ({"how": "median"}, "how='median'"),
    ):
        with pytest.raises(ValueError, match=message):
            sufficient_heads(model, tokens, targets, **fields)  # type: ignore[arg-type]


def test_no_effect_on_the_other_sequences_is_refused_too() -> None:
    model = induction(M, 5.0)
    tokens, targets = repeated(M, 8)
    unseen = torch.randperm(8, generator=torch.Generator().manual_seed(0))[:4]  # those that check
    targets[unseen, 0] = 1  # a mark that the measure reads

    def right(logits: torch.Tensor, targets: torch.Tensor | None) -> torch.Tensor:
        assert targets is not None
        effect = logits[:, -2].gather(1, targets[:, -2:-1].clamp(min=0)).squeeze(1)
        return torch.where(targets[:, 0] == 1, 0.0, effect)

    with refused("4 held-out sequences", "no set"):
        sufficient_heads(model, tokens, targets, right)
    assert sufficient_heads(model, tokens, targets, right, held_out=0).heads


def test_progress_counts_the_sets() -> None:
    seen: list[tuple[int, int]] = []
    tokens, targets = repeated(M, 8)
    found = sufficient_heads(
        induction(M, 5.0), tokens, targets, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == found.n_runs and all(done <= total for done, total in seen)
    assert np.isfinite(found.interval).all()


@pytest.mark.parametrize("seed", range(5))
def test_whole_documents_are_held_out_where_there_are_enough(seed: int) -> None:
    clusters = np.repeat(np.arange(8), [9, 1, 4, 4, 6, 2, 3, 3])
    aside = held_out_rows(32, 0.5, clusters, seed).numpy()
    shares = [aside[clusters == one].mean() for one in range(8)]
    assert set(shares) == {0.0, 1.0} and 3 <= sum(shares) <= 5 and abs(aside.sum() - 16) <= 4
    few = held_out_rows(32, 0.5, np.repeat(np.arange(5), [12, 5, 5, 5, 5]), seed)
    assert (few == held_out_rows(32, 0.5, None, seed)).all() and few.sum() == 16
    assert not held_out_rows(32, 0.0, clusters, seed).any()
