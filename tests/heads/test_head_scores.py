"""Declared scores of heads: hand-built heads that have each, interventions that say the same, and nulls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.heads import HEAD_SCORES, HeadScore, attention_to, head_scores
from aotlens.heads.inputs import Inputs, MeasuredScore
from aotlens.heads.motifs import MOTIFS
from aotlens.heads.reader import HeadReader
from aotlens.heads.scores import random_repeats
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction
from tests.messages import refused
from tests.small_models import SMALL, maker

make = maker({**SMALL, "d_vocab": 40, "n_ctx": 24, "norm": "layernorm"}, dtype=torch.float64)


def score(model: AttentionOnlyTransformer, name: str, tokens: Tensor | None = None, **given: object) -> np.ndarray:
    result = head_scores(model, tokens, name, **given)  # type: ignore[arg-type]
    assert not result.reasons, result.reasons
    return result[name]


@torch.no_grad()
def lowered_by(model: AttentionOnlyTransformer, tokens: Tensor, head: tuple[int, int], keys: Tensor) -> Tensor:
    """Cut the attention from each query to `keys` out of one head, and return by how much that raises the logit of the
    first key's token, less the mean logit, with the final norm as it was: `[query]`."""
    layer, number = head

    def cut(pattern: Tensor, hook: object) -> Tensor:
        pattern[:, number] = pattern[:, number].masked_fill(keys, 0.0)
        return pattern

    hooks = [(f"blocks.{layer}.attn.hook_pattern", cut)]
    if model.cfg.norm is not None:
        _, cache = model.run_with_cache(tokens[None])
        hooks.append(("ln_final.hook_scale", lambda value, hook: cache["ln_final.hook_scale"]))
    changed = model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0] - model(tokens[None])[0]
    changed = changed - changed.mean(-1, keepdim=True)
    own = tokens[keys.int().argmax(-1)]
    return changed[torch.arange(len(tokens)), own] * keys.any(-1)


@pytest.mark.parametrize(("gamma", "has"), [(-3.0, True), (3.0, False)])
def test_an_induction_head_that_lowers_what_it_finds_does_anti_induction(gamma: float, has: bool) -> None:
    """The induction circuit of known weights: what followed has −γ less than the mean logit of its 25 outputs."""
    model = induction(24, gamma)
    result = head_scores(model, scores="anti_induction")
    assert result["anti_induction"][1, 0] == pytest.approx(-gamma * (1 - 1 / 25), abs=1e-6)
    assert result["anti_induction"][0, 0] == pytest.approx(0, abs=1e-6)
    assert (
        abs(result.chance[0, 1, 0]) < 0.6
        and bool(result.describe_head("1.0")) == has
        and not result.describe_head("0.0")
    )
    assert ("and lowers its logit (2.88 logits" in " ".join(result.describe_head("1.0"))) == has


def test_anti_induction_is_what_cutting_the_attention_takes_away() -> None:
    """The last layer's heads write to logits directly only; chance is of the other tokens of a sequence."""
    model = make()
    found = score(model, "anti_induction")
    tokens = random_repeats(HeadReader.of(model)).tokens
    targets = MOTIFS["induction"].targets(Inputs(tokens=tokens))
    assert targets is not None
    for head in range(3):
        total = 0.0
        for row, ids in enumerate(tokens):
            left = targets.keys[row] & targets.queries[row][:, None]
            while left.any():  # one key of each query at a time
                only = left & (left.int().cumsum(-1) == 1)
                total += float(lowered_by(model, ids, (1, head), only).sum())
                left &= ~only
        assert found[1, head] == pytest.approx(total / int(targets.queries.sum()), abs=1e-9)


def test_heads_of_an_untrained_model_are_at_chance() -> None:
    """The null simulated: over 40 heads of models with random weights the mean excess is within 3 standard errors."""
    excess = np.concatenate(
        [head_scores(maker({**SMALL, "d_vocab": 40, "n_ctx": 24, "n_heads": 5}, seed=seed)(), scores="anti_induction")
         .excess.ravel() for seed in range(4)]
    )  # fmt: skip
    assert abs(excess.mean()) < 3 * excess.std() / np.sqrt(len(excess))


def test_a_needle_is_retrieved_by_the_head_that_looks_where_it_stood() -> None:
    """A needle in a context of other tokens, asked for at the end: of the induction circuit the second head finds it,
    whatever its depth, and the first does not. Nothing tells where the needle's first token is to be found."""
    model = induction(40, 8.0)
    tokens = torch.arange(41).repeat(3, 1)
    for row, depth in enumerate((4, 11, 25)):  # the end says again what stood at this depth
        tokens[row, 35:40] = tokens[row, depth : depth + 5]
    tokens = tokens[:, :40]
    scores = attention_to(model, tokens, "retrieval")
    assert scores["retrieval"][1, 0] == pytest.approx(4 / 5, abs=0.01) and scores["retrieval"][0, 0] < 0.01
    assert scores.n_queries.tolist() == [3 * 5] and scores.labels() == [["mixed"], ["retrieval"]]


def test_a_score_of_ones_own_is_measured_and_what_is_missing_is_said() -> None:
    own = HeadScore(
        name="seven", sentence="It is seven.", source="here", null="none", unit="sevens", threshold=6.0,
        measure=lambda inputs: MeasuredScore(np.full(inputs.shape, 7.0), np.zeros(inputs.shape), 1),
    )  # fmt: skip
    result = head_scores(make(), scores=[own, "anti_induction"])
    assert (result["seven"] == 7).all() and result.counts[0] == 1 and len(result.to_frame()) == 12
    with refused("'fuzzy'", "anti_induction"):
        head_scores(make(), scores="fuzzy")
    with refused("'eight'", "seven", error=KeyError):
        result["eight"]
    with refused("lower-case", "Two words"):
        HeadScore(**{**own.__dict__, "name": "Two words"})
    for declared in HEAD_SCORES.values():
        assert declared.sentence.endswith(".") and declared.source and declared.null and declared.unit
