"""Measures of declared scores: hand-built heads that have each, and interventions."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import PromptPairs
from aotlens.heads import ablate, head_scores, inactive_heads
from aotlens.heads.score_measures import most_similar, successor_pairs
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.heads.hand_built import induction
from tests.heads.test_head_scores import lowered_by, make, score
from tests.messages import refused
from tests.small_models import small_tokenizer

GAMMA, V = 3.0, 30


def copying(signs: tuple[float, ...], d_vocab: int = V, sharp: float = 50.0, **changes: object):
    """One layer whose heads attend to equal tokens and write them, with a sign each; a token predicts itself."""
    cfg = ModelConfig(n_layers=1, d_model=d_vocab, n_heads=len(signs), d_head=d_vocab, n_ctx=16, d_vocab=d_vocab,
                      norm=None, attn_scale=1.0, **({"positions": None} | changes))  # fmt: skip
    model = AttentionOnlyTransformer(cfg, small_tokenizer() if d_vocab == 270 else None).double()
    identity = torch.eye(d_vocab, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(identity)
        model.unembed.W_U.copy_(GAMMA * identity)
        attention = model.blocks[0].attn
        for head, sign in enumerate(signs):
            attention.W_Q[head], attention.W_K[head] = sharp * identity, identity
            attention.W_V[head], attention.W_O[head] = identity, sign * identity
    return model.eval().requires_grad_(False)


def attending(model: AttentionOnlyTransformer, *keys: int) -> AttentionOnlyTransformer:
    """The model of one layer, whose heads attend to one position each."""

    def put(pattern: Tensor, hook: object) -> Tensor:
        key = torch.tensor(keys).clamp(max=pattern.shape[-1] - 1)
        return torch.nn.functional.one_hot(key, pattern.shape[-1]).to(pattern)[None, :, None].expand_as(pattern)

    model.add_hook("blocks.0.attn.hook_pattern", put)
    return model


def draw(n: int, length: int, d_vocab: int = V, *, start: bool = True) -> Tensor:
    """Random tokens from 1 on, after token 0 at the start."""
    tokens = torch.randint(1, d_vocab, (n, length), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = 0 if start else tokens[:, 0]
    return tokens


def test_a_head_that_lowers_what_is_predicted_does_copy_suppression() -> None:
    model = copying((-1.0, 1.0, 0.0))
    result = head_scores(model, draw(4, 12), ["copy_suppression", "copy_suppression_ov"])
    expected = GAMMA * (1 - 1 / V)
    np.testing.assert_allclose(result["copy_suppression"][0], [expected, -expected, 0], atol=1e-6)
    assert result["copy_suppression_ov"][0, :2].tolist() == [1, 0]
    assert result.chance[1, 0, 0] == pytest.approx(10 / V) and result.counts.tolist() == [4 * 10, V]
    assert len(result.describe_head("0.0")) == 2 and not result.describe_head("0.1") and not result.describe_head("0.2")


def test_copy_suppression_is_what_cutting_the_attention_takes_away() -> None:
    """On a random model, with the keys found by loops: the likeliest token of the context by the logit lens."""
    model, tokens = make().requires_grad_(False), draw(3, 20, 40)
    found, total, n = score(model, "copy_suppression", tokens), torch.zeros(3), 0
    for ids in tokens:
        _, cache = model.run_with_cache(ids[None])
        lens = model.unembed(model.ln_final(cache["resid_pre", 1]))[0]
        keys = torch.zeros(20, 20, dtype=torch.bool)
        for query in range(2, 20):
            best = max(ids[1 : query + 1].tolist(), key=lambda token: float(lens[query, token]))
            if best in lens[query].topk(10).indices.tolist():
                keys[query, 1 : query + 1] = ids[1 : query + 1] == best
        n += int(keys.any(-1).sum())
        for head in range(3):
            total[head] += float(lowered_by(model, ids, (1, head), keys).sum())
    np.testing.assert_allclose(found[1], total / n, atol=1e-6)


def test_a_head_is_inactive_by_what_it_writes_not_by_where_it_looks() -> None:
    """Heads 0 and 2 attend to the first token, whose value is 0 or long; 1 attends evenly and writes nothing."""
    model, tokens = make(n_layers=1, n_heads=4).requires_grad_(False), draw(6, 20, 40)
    first = torch.nn.functional.one_hot(torch.zeros(20, dtype=torch.long), 20).double()
    even = torch.ones(20, 20).double().tril() / torch.arange(1, 21)[:, None]

    def put(pattern: Tensor, hook: object) -> Tensor:
        return torch.stack([first, even, first, even]).expand_as(pattern)

    def value(v: Tensor, hook: object) -> Tensor:
        v[:, 0, 0], v[:, 0, 2] = 0.0, 3 * v[:, 0, 2]
        return v

    model.blocks[0].attn.W_O[1] *= 1e-3
    model.add_hook("blocks.0.attn.hook_pattern", put)
    model.add_hook("blocks.0.attn.hook_v", value)
    result = inactive_heads(model, tokens)
    assert result.verdict.tolist() == [["inactive", "missed", "resting but active", "active"]]
    assert "2 of 4" in result.headline and "misses 0.1 and takes 0.2" in result.headline
    _, cache = model.run_with_cache(tokens)
    written = torch.einsum("bkhd,hdm->bkhm", cache["z", 0], model.blocks[0].attn.W_O)[:, 1:].norm(dim=-1).mean((0, 1))
    np.testing.assert_allclose(result.output_norm[0], (written / written.mean()).numpy(), atol=1e-9)
    norms = cache["v", 0].norm(dim=-1)
    first_value_norm = (norms[:, 0].mean(0) / norms[:, 1:].mean((0, 1))).numpy()
    np.testing.assert_allclose(head_scores(model, tokens, "first_value_norm")["first_value_norm"][0], first_value_norm,
                               atol=1e-6)  # fmt: skip
    changes = [abs(ablate(model, tokens, f"0.{head}", "zero").change) for head in range(4)]
    assert max(changes[:2]) < 0.2 * min(changes[2:])
    with refused("threshold", "-1"):
        inactive_heads(model, tokens, threshold=-1.0)


def test_a_first_token_like_any_other_has_a_value_like_any_other() -> None:
    """The null simulated: without positions, on drawn tokens, the ratio is 1."""
    found = score(make(positions=None), "first_value_norm", draw(300, 12, 40, start=False))
    np.testing.assert_allclose(found[0], 1, atol=0.06)


def _pairs(model: AttentionOnlyTransformer, n: int = 6) -> PromptPairs:
    """Prompts 0 a w 0: the answer stands at position 1, the wrong one at 2, and all words are different."""
    words = [(1 + 2 * place, 2 + 2 * place) for place in range(n)]
    clean, corrupted = (torch.tensor([[0, *pair[::step], 0] for pair in words]) for step in (1, -1))
    return PromptPairs.of_inputs(model, clean, corrupted, *torch.tensor(words).T)


def test_a_name_mover_attends_to_the_answer_and_raises_it() -> None:
    model = attending(copying((1.0, -1.0, 1.0)), 1, 1, 2)
    result = head_scores(model, scores="name_mover", pairs=_pairs(model))
    np.testing.assert_allclose(result["name_mover"][0], [GAMMA, -GAMMA, 0], atol=1e-9)
    np.testing.assert_allclose(result.chance[0, 0], 0, atol=1e-9)
    said = [" ".join(result.describe_head((0, head))) for head in range(3)]
    assert "raises it" in said[0] and "negative name mover" in said[1] and not said[2]


def test_a_direct_contribution_is_what_the_head_takes_with_it() -> None:
    """On a random model: attention to the answer cut out of the last layer's head, with the final norm as it was;
    chance by loops over pairs."""
    model = make().requires_grad_(False)
    pairs = _pairs(model)
    result = head_scores(model, scores="name_mover", pairs=pairs)
    for head in range(3):
        own, chance = [], []
        for pair in pairs:
            _, cache = model.run_with_cache(pair.clean[None])

            def out(pattern: Tensor, hook: object, head: int = head) -> Tensor:
                pattern[:, head, -1, 1] = 0.0
                return pattern

            frozen = ("ln_final.hook_scale", lambda value, hook, kept=cache["ln_final.hook_scale"]: kept)
            hooks = [("blocks.1.attn.hook_pattern", out), frozen]
            change = (model(pair.clean[None]) - model.run_with_hooks(pair.clean[None], fwd_hooks=hooks))[0, -1]
            direct = [float(change[other.answer] - change[other.wrong]) for other in pairs]
            place = [other is pair for other in pairs].index(True)
            own.append(direct.pop(place))
            chance.append(np.mean(direct))
        assert result["name_mover"][1, head] == pytest.approx(np.mean(own), abs=1e-9)
        assert result.chance[0, 1, head] == pytest.approx(np.mean(chance), abs=1e-9)


def test_name_movers_need_prompts_that_hold_their_answers() -> None:
    model = copying((1.0,))
    assert "pairs of prompts" in head_scores(model, scores="name_mover").reasons["name_mover"]
    one = head_scores(model, scores="name_mover", pairs=_pairs(model, 1))
    assert "different answers" in one.reasons["name_mover"] and np.isnan(one["name_mover"]).all()
    prompts = torch.tensor([[0, 1, 2, 0], [0, 3, 4, 0]])
    other = PromptPairs.of_inputs(model, prompts, prompts.flip(1) + 1, [7, 3], [2, 4])
    assert "pair 1" in head_scores(model, scores="name_mover", pairs=other).reasons["name_mover"]


def test_a_successor_head_raises_what_comes_next_in_order() -> None:
    model = copying((1.0, 1.0), 270)
    encode = small_tokenizer().encode
    spelled = [*itertools.pairwise("0123456789"), *itertools.pairwise("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
               *itertools.pairwise("abcdefghijklmnopqrstuvwxyz")]  # fmt: skip
    expected = {(encode(a)[0], encode(b)[0]) for a, b in spelled}
    pairs = successor_pairs(model)
    assert expected <= set(pairs) and len(pairs) < 70
    model.blocks[0].attn.W_O[0] = 0.0
    for token, following in pairs:
        model.blocks[0].attn.W_O[0, token, following] = 1.0
    result = head_scores(model, scores="successor")
    assert result["successor"].tolist() == [[1, 0]] and result.chance[0, 0, 0] == pytest.approx(1 / 270)
    assert result.describe_head("0.0") and not result.describe_head("0.1") and result.counts[0] == len(pairs)
    assert "the tokenizer has 0" in head_scores(make(), scores="successor").reasons["successor"]


def test_positions_explain_what_is_the_same_on_every_text() -> None:
    """Head 0 reads positions, head 1 tokens, head 2 both; against a loop over pairs of sequences."""
    model = copying((0.0, 0.0, 0.0), 40, 1.0, positions="learned")
    generator = torch.Generator().manual_seed(1)
    maps = torch.randn(2, 16, 40, generator=generator, dtype=torch.float64)
    attention = model.blocks[0].attn
    model.embed.W_E[:, 16:] = 0.0
    model.embed.W_E[:, :16] = maps[1].T
    model.pos_embed.W_pos[:, 16:32] = maps[0, :, :16]
    for head, slots in enumerate((slice(16, 32), slice(0, 16), slice(0, 32))):
        attention.W_Q[head], attention.W_K[head] = 0.0, 0.0
        attention.W_K[head, slots, slots] = torch.eye(slots.stop - slots.start).double()
        size = slots.stop - slots.start  # a drawn map: of a token with itself the score would depend on where it stands
        attention.W_Q[head, slots, slots] = torch.randn(size, size, generator=generator, dtype=torch.float64)
    tokens = draw(60, 12, 40)
    found = score(model, "positional_share", tokens)[0]
    assert found[0] == pytest.approx(1, abs=1e-6) and abs(found[1]) < 0.05 and 0.2 < found[2] < 0.8
    _, cache = model.run_with_cache(tokens)
    rows = torch.zeros(60, 12, 12).double()
    for query in range(2, 12):
        part = cache["attn_scores", 0][:, 2, query, 1 : query + 1]
        rows[:, query, 1 : query + 1] = part - part.mean(-1, keepdim=True)
    products = torch.einsum("sik,tik->st", rows, rows)
    between = (products.sum() - products.trace()) / (60 * 59)
    assert found[2] == pytest.approx(float(between / (products.trace() / 60)), abs=1e-5)
    assert "two sequences" in head_scores(model, tokens[:1], "positional_share").reasons["positional_share"]


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
    model = attending(copying((1.0, 0.0)), 1, 1)
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
    model = attending(copying((1.0, 0.0)), 1, 1)
    clean, corrupted = torch.tensor([[0, 1, 9, 0], [0, 3, 9, 0]]), torch.tensor([[0, 2, 9, 0], [0, 4, 9, 0]])
    pairs = PromptPairs.of_inputs(model, clean, corrupted, [1, 3], [2, 4])
    assert abs(score(model, "function_vector", pairs=pairs)[0, 0]) < 1e-9
    assert "two pairs" in head_scores(model, scores="function_vector", pairs=pairs[:1]).reasons["function_vector"]
