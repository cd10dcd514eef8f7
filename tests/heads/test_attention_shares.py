"""Scores that are shares of attention, and function vectors: hand-built heads that have each, and interventions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import PromptPairs
from aotlens.heads import head_scores
from aotlens.heads.score_measures import most_similar
from aotlens.models import AttentionOnlyTransformer
from tests.heads.hand_built import induction
from tests.heads.test_head_scores import make, score
from tests.heads.test_score_measures import GAMMA, V, copying
from tests.small_models import small_tokenizer


def in_pairs(*, read: bool) -> AttentionOnlyTransformer:
    """The induction circuit; tokens 1 and 2, 3 and 4, … are similar by a slot that its QK circuit reads or does not."""
    model = induction(40, 8.0)
    with torch.no_grad():
        for first in range(1, 40, 2):
            for token, other in ((first, first + 1), (first + 1, first)):
                model.embed.W_E[token, other if read else 41 + first] = 0.5  # the output's slot, which it does not read
    return model


def test_a_head_that_matches_similar_tokens_does_fuzzy_induction() -> None:
    """It finds the partner's place where the partner is similar to what it reads; otherwise it finds the same token
    alone, which no query that counts has, and attends to all keys alike."""
    result = head_scores(in_pairs(read=True), scores="fuzzy_induction")
    assert result["fuzzy_induction"][1, 0] > 0.95 and result["fuzzy_induction"][0, 0] < 0.1
    assert result.chance[0, 1, 0] < 0.1 and result.counts[0] > 100
    assert "similar to the query's" in result.describe_head("1.0")[0] and not result.describe_head("0.0")
    assert score(in_pairs(read=False), "fuzzy_induction")[1, 0] < 0.1


def test_the_most_similar_token_is_the_nearest_by_cosine_and_not_a_special_one() -> None:
    embedding = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    tokens = torch.arange(30).reshape(2, 15)
    found = most_similar(embedding, tokens, {3, 7}).flatten()
    rows = (embedding - embedding.mean(0)).numpy()
    for token in range(30):
        cosines = [
            -2.0 if other in (token, 3, 7) else rows[token] @ rows[other] / np.linalg.norm(rows[other])
            for other in range(30)
        ]  # fmt: skip
        assert found[token] == np.argmax(cosines)


def test_a_head_on_punctuation_and_line_breaks_attends_to_delimiters() -> None:
    """Head 0 attends to the delimiters that it sees, head 1 to all keys alike, head 2 to what is no delimiter."""
    model = copying((0.0, 0.0, 0.0), 270)
    tokenizer = small_tokenizer()
    text = 'f(a, "b"):\n\n  c'
    ids = torch.tensor(tokenizer.encode(text)[:16])
    strings = tokenizer.str_tokens(ids.tolist())
    is_one = torch.tensor([all(c in '(),":' for c in each.strip()) and each not in (" ", "  ") for each in strings])
    assert 5 < int(is_one.sum()) < len(strings) - 3
    tokens = torch.stack([ids.roll(by) for by in range(len(ids))])
    tokens = tokens[is_one[(-torch.arange(len(ids))) % len(ids)]]  # those that begin with one: every query sees one
    visible, read = torch.ones(len(ids), len(ids)).tril(), []
    model.register_forward_pre_hook(lambda module, given: read.append(given[0]))

    def put(pattern: Tensor, hook: object) -> Tensor:
        ones = torch.isin(read[-1], ids[is_one])[:, None]
        rows = torch.stack([visible * ones, visible.expand(len(ones), -1, -1), visible * ~ones], 1)
        return (rows / rows.sum(-1, keepdim=True).clamp(min=1)).to(pattern)

    model.add_hook("blocks.0.attn.hook_pattern", put)
    result = head_scores(model, tokens, "delimiter")
    ones = torch.isin(tokens, ids[is_one])
    keys = (visible * ones[:, None])[:, 2:, 1:]  # position 0 is no target
    seen = keys.sum(-1)
    share = (seen / torch.arange(3, len(ids) + 1))[seen > 0].mean()
    whole = (seen / (visible * ones[:, None]).sum(-1)[:, 2:])[seen > 0].mean()
    expected = float(share)
    np.testing.assert_allclose(result["delimiter"][0], [float(whole), expected, 0], atol=1e-6)
    np.testing.assert_allclose(result.chance[0, 0], expected, atol=1e-6)
    assert result.describe_head("0.0") and not result.describe_head("0.1") and not result.describe_head("0.2")
    assert "the strings of tokens" in head_scores(make(), torch.arange(20)[None], "delimiter").reasons["delimiter"]
    assert "needs a text" in head_scores(model, scores="delimiter").reasons["delimiter"]


def _task(model: AttentionOnlyTransformer) -> PromptPairs:
    """Prompts 0 a x 0 that lead to a, with 0 b x 0 as the corrupted ones: one task, six values of x."""
    clean, corrupted = (torch.tensor([[0, first, 3 + row, 0] for row in range(6)]) for first in (1, 2))
    return PromptPairs.of_inputs(model, clean, corrupted, [1] * 6, [2] * 6)


def test_a_head_that_carries_the_task_has_a_function_vector() -> None:
    """Head 0 writes what stands at position 1: its mean on clean prompts, put into a corrupted one, makes the answer as
    likely as the last token itself, of whose logit the stream has γ."""
    model = copying((1.0, 0.0))

    def put(pattern: Tensor, hook: object) -> Tensor:
        key = torch.ones(2, dtype=torch.long)
        return torch.nn.functional.one_hot(key, pattern.shape[-1]).to(pattern)[None, :, None].expand_as(pattern)

    model.add_hook("blocks.0.attn.hook_pattern", put)
    result = head_scores(model, scores="function_vector", pairs=_task(model))
    total = 2 * np.exp(GAMMA) + V - 2
    np.testing.assert_allclose(result["function_vector"][0], [(np.exp(GAMMA) - 1) / total, 0], atol=1e-9)
    np.testing.assert_allclose(result.chance[0, 0], 0, atol=1e-9)
    assert "raises the answer" in result.describe_head("0.0")[0] and not result.describe_head("0.1")
    assert not dataclasses.replace(result, chance=result.values - 0.04).describe_head("0.0")  # hardly above chance
    assert "none were given" in head_scores(model, scores="function_vector").reasons["function_vector"]


def test_a_function_vectors_effect_is_that_of_what_the_head_then_writes() -> None:
    """On a random model of two layers: the change of what the head writes added behind the attention, by hand."""
    model = make().requires_grad_(False)
    pairs = _task(model)
    result = head_scores(model, scores="function_vector", pairs=pairs)
    caches = [[model.run_with_cache(each[None])[1] for each in (pair.clean, pair.corrupted)] for pair in pairs]
    for layer, head in np.ndindex(2, 3):
        for place, values in enumerate((result.values, result.chance)):
            changes = []
            for row, (pair, (_, cache)) in enumerate(zip(pairs, caches, strict=True)):
                others = [both[place] for other, both in enumerate(caches) if other != row]
                mean = torch.stack([each["z", layer][0, -1, head] for each in others]).mean(0)
                added = (mean - cache["z", layer][0, -1, head]) @ model.W_O[layer, head]

                def add(out: Tensor, hook: object, added: Tensor = added) -> Tensor:
                    out[:, -1] += added
                    return out

                hooks = [(f"blocks.{layer}.hook_attn_out", add)]
                logits = model.run_with_hooks(pair.corrupted[None], fwd_hooks=hooks)[0, -1]
                before = model(pair.corrupted[None])[0, -1].softmax(-1)[pair.answer]
                changes.append(float(logits.softmax(-1)[pair.answer] - before))
            assert values[0, layer, head] == pytest.approx(np.mean(changes), abs=1e-9)


def test_a_head_that_copies_its_own_prompts_answer_has_no_function_vector() -> None:
    """Head 0 writes what stands at position 1, which is another answer in each of two pairs; one pair is none."""
    model = copying((1.0, 0.0))

    def put(pattern: Tensor, hook: object) -> Tensor:
        key = torch.ones(2, dtype=torch.long)
        return torch.nn.functional.one_hot(key, pattern.shape[-1]).to(pattern)[None, :, None].expand_as(pattern)

    model.add_hook("blocks.0.attn.hook_pattern", put)
    clean, corrupted = torch.tensor([[0, 1, 9, 0], [0, 3, 9, 0]]), torch.tensor([[0, 2, 9, 0], [0, 4, 9, 0]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [1, 3], [2, 4])
    assert abs(score(model, "function_vector", pairs=pairs)[0, 0]) < 1e-9
    assert "two pairs" in head_scores(model, scores="function_vector", pairs=pairs[:1]).reasons["function_vector"]
