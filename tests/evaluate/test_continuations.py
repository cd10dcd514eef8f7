"""Scores of continuations against a loop over one row at a time with all logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.evaluate import score_continuations
from aotlens.models import AttentionOnlyTransformer
from tests.messages import refused
from tests.small_models import maker, small_tokenizer

CONTEXTS = ["the cat", "", "the rat sat on the cat, and that was", "on the mat, the", "the cat", " that that that that"]
CONTINUATIONS = [" sat", "the mat", " that was that on the mat", " rat", " rat and the cat", " that"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


def _model(tokenizer: Tokenizer, n_ctx: int = 64, dtype: torch.dtype = torch.float64, **changes: object):
    return maker()(dtype, tokenizer=tokenizer, d_vocab=tokenizer.d_vocab, n_ctx=n_ctx, **changes)


def _naive(model: AttentionOnlyTransformer, context: list[int], continuation: list[int]) -> tuple[list[float], bool]:
    """One row, token by token, from all logits of each prefix, cut on the left behind the start token."""
    start, n_ctx = model.tokenizer.eot_id, model.cfg.n_ctx
    context = context[max(0, len(context) - (n_ctx - len(continuation))) :]
    losses, greedy = [], True
    for i, token in enumerate(continuation):
        logits = model(torch.tensor([[start, *context, *continuation[:i]]]))[0, -1]
        losses.append(-logits.log_softmax(-1)[token].item())
        greedy &= int(logits.argmax()) == token
    return losses, greedy


@pytest.mark.parametrize("changes", [{}, {"positions": "qk", "attention": "mssa"}, {"phi": "linear"}])
@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_scores_are_those_of_one_row_at_a_time(tokenizer: Tokenizer, changes: dict[str, object], batch_size: int):
    model = _model(tokenizer, **changes)
    seen: list[tuple[int, int]] = []
    scores = score_continuations(
        model, CONTEXTS, CONTINUATIONS, batch_size=batch_size, progress=lambda *at: seen.append(at)
    )
    expected = [
        _naive(model, tokenizer.encode(a), tokenizer.encode(b)) for a, b in zip(CONTEXTS, CONTINUATIONS, strict=True)
    ]
    np.testing.assert_allclose(scores.token_losses, np.concatenate([losses for losses, _ in expected]), atol=1e-10)
    np.testing.assert_allclose(scores.log_probabilities, [-sum(losses) for losses, _ in expected], atol=1e-10)
    assert scores.n_tokens.tolist() == [len(losses) for losses, _ in expected]
    assert scores.greedy.tolist() == [greedy for _, greedy in expected]
    assert seen[-1] == (6, 6) and len(seen) == -(-6 // batch_size)


def test_float32_is_the_same_to_1e_5(tokenizer: Tokenizer):
    scores = [
        score_continuations(_model(tokenizer, dtype=torch.float32), CONTEXTS, CONTINUATIONS, batch_size=n)
        for n in (1, 16)
    ]
    np.testing.assert_allclose(scores[0].token_losses, scores[1].token_losses, rtol=1e-5, atol=1e-5)


def test_a_greedy_continuation_is_what_the_model_writes(tokenizer: Tokenizer):
    model = _model(tokenizer)
    prompt = model.to_tokens("the cat sat on")
    written = model.generate(prompt, 4, temperature=0)[0, prompt.shape[1] :]
    other = written.clone()
    other[-1] = (other[-1] + 1) % tokenizer.d_vocab
    scores = score_continuations(model, ["the cat sat on"] * 2, [written, other])
    assert scores.greedy.tolist() == [True, False]


def test_what_exceeds_the_context_is_cut_behind_the_start_token(tokenizer: Tokenizer):
    model = _model(tokenizer, n_ctx=8)
    long = "the rat sat on the cat, and that was that on the mat"
    scores = score_continuations(model, [long], [" the cat"])
    losses, _ = _naive(model, tokenizer.encode(long), tokenizer.encode(" the cat"))
    np.testing.assert_allclose(scores.token_losses, losses, atol=1e-10)
    with refused("continuation 0", "20 tokens", "n_ctx of 8"):
        score_continuations(model, [[1]], [[2] * 20])


def test_ids_are_taken_as_they_are(tokenizer: Tokenizer):
    model = _model(tokenizer)
    ids = [tokenizer.eot_id, *tokenizer.encode("the cat")]
    of_ids = score_continuations(model, [ids, torch.tensor(ids)], [tokenizer.encode(" sat")] * 2)
    of_text = score_continuations(model, ["the cat"], [" sat"])
    assert of_ids.log_probabilities.tolist() == pytest.approx([of_text.log_probabilities[0]] * 2)


def test_what_cannot_be_scored_is_refused(tokenizer: Tokenizer):
    model = _model(tokenizer)
    for contexts, continuations, message in (
        (["a"], [], "as many contexts as continuations, at least one, got 1 and 0; repeat a context"),
        ([], [], "got 0 and 0"),
        (["a"], [""], "continuation 0: expected at least one token, got none"),
        ([[]], [[3]], "continuation 0: expected a start token or a context before it"),
    ):
        with pytest.raises(ValueError, match=message):
            score_continuations(model, contexts, continuations)
    with pytest.raises(ValueError, match="causal model"):
        score_continuations(_model(tokenizer, causal=False), ["a"], ["b"])
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        score_continuations(model, ["a"], ["b"])


def test_logits_are_computed_where_they_are_asked_for(tokenizer: Tokenizer):
    model = _model(tokenizer)
    tokens = torch.randint(tokenizer.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))
    wanted = torch.zeros(3, 7, dtype=torch.bool)
    wanted[0, 2] = wanted[2, 5] = wanted[2, 6] = True
    torch.testing.assert_close(model(tokens, logits_at=wanted), model(tokens)[wanted], rtol=0, atol=1e-12)
    for bad in (wanted[:, 1:], wanted.long()):
        with pytest.raises(ValueError, match=r"logits_at: expected bool \[3, 7\]"):
            model(tokens, logits_at=bad)
    with pytest.raises(ValueError, match="return_type='loss'"):
        model(tokens, return_type="loss", logits_at=wanted)
