"""Zero-shot protocols compared with loops over one token at a time, and continuations with one row at a time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.data import Tokenizer, open_corpus
from aotlens.data.zero_shot import Cloze, Passage, RunningText
from aotlens.evaluate import BigramModel, evaluate_zero_shot, score_continuations
from aotlens.evaluate.zero_shot import BigramScorer, ModelScorer, Scorer, UnigramScorer, aot, fit_baselines, usual
from aotlens.models import AttentionOnlyTransformer
from tests.data.test_zero_shot import WIKITEXT, cbt_text
from tests.messages import refused
from tests.small_models import maker, small_tokenizer

TEXT = RunningText(
    name="WikiText",
    documents=(
        (" \n", " = The cat = \n", " the cat sat on the mat , the rat sat \n"),
        (" = A rat = \n", " that sat \n"),
    ),
)
PASSAGES = (
    Passage(context="the cat sat on the mat, the rat sat on the cat, and that was that on the", last_word=" mat"),
    Passage(context="the rat sat on", last_word=" that"),
    Passage(context="that was the", last_word=" rat"),
)
QUESTIONS = tuple(
    Cloze(context=context, rest=" sat on the mat", options=("cat", "rat", "mat", "thing"), answer=answer)
    for context, answer in (("the cat sat on the mat and the", 0), ("that was that, and the", 3))
)
N_CTX = 16


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> AttentionOnlyTransformer:
    return maker()(torch.float64, tokenizer=tokenizer, d_vocab=tokenizer.d_vocab, n_ctx=N_CTX)


def _loss(model: AttentionOnlyTransformer, before: list[int], token: int) -> float:
    """−log p of one token, from all logits of one row of at most n_ctx."""
    assert 1 <= len(before) <= N_CTX
    return -model(torch.tensor([before]))[0, -1].log_softmax(-1)[token].item()


def _cut(model: AttentionOnlyTransformer, context: list[int], after: int) -> list[int]:
    """The start token and as much of the context as leaves room for `after` tokens, of which the last is not read."""
    return [model.tokenizer.eot_id, *context[max(0, len(context) - (N_CTX - after)) :]]


def test_running_text_counts_every_token_once_with_half_a_context_before_it(
    model: AttentionOnlyTransformer, tokenizer: Tokenizer
):
    losses, alone = usual.running_text(ModelScorer(model), TEXT)
    documents = [tokenizer.encode("".join(rows)) for rows in TEXT.documents]
    ids = tokenizer.encode(TEXT.text)
    assert ids == [index for document in documents for index in document] and len(ids) > 2 * N_CTX
    expected = []
    for place, token in enumerate(ids):
        begin = 0
        if place >= N_CTX:  # the window that brings it begins n_ctx tokens before its own end
            end = min(N_CTX + ((place - N_CTX) // (N_CTX // 2) + 1) * (N_CTX // 2), len(ids))
            begin = end - N_CTX
            assert place - begin + 1 >= N_CTX / 2
        expected.append(_loss(model, [tokenizer.eot_id, *ids[begin:place]], token))
    parts = np.split(np.array(expected), [len(documents[0])])
    np.testing.assert_allclose(losses.nats, [part.sum() for part in parts], atol=1e-9)
    assert losses.counts["token"].tolist() == [len(document) for document in documents]
    assert losses.counts["byte"].sum() == TEXT.n_bytes
    assert [each.measure for each in (losses, alone)] == ["loss", "loss, articles alone"]
    for place, document in enumerate(documents):  # what the article alone has, whatever stands before it
        (only, _) = usual.running_text(ModelScorer(model), replace(TEXT, documents=(TEXT.documents[place],)))
        assert alone.nats[place] == pytest.approx(only.nats[0]) and len(document) == only.counts["token"][0]
    assert alone.nats[1] != pytest.approx(losses.nats[1], abs=1e-3)


def test_lambada_by_the_usual_protocol(model: AttentionOnlyTransformer, tokenizer: Tokenizer):
    of_word, of_all, hits = usual.lambada(ModelScorer(model, batch_size=2), PASSAGES)
    for number, passage in enumerate(PASSAGES):
        context, word = tokenizer.encode(passage.context), tokenizer.encode(passage.last_word)
        before = _cut(model, context, len(word))
        losses, right = [], True
        for i, token in enumerate(word):
            losses.append(_loss(model, [*before, *word[:i]], token))
            right &= int(model(torch.tensor([[*before, *word[:i]]]))[0, -1].argmax()) == token
        assert of_word.nats[number] == pytest.approx(sum(losses), abs=1e-9)
        assert hits.hits[number] == right
        assert of_all.counts["token"][number] == len(context) + len(word)
        if len(context) + len(word) <= N_CTX:
            ids = [*context, *word]
            every = [_loss(model, [tokenizer.eot_id, *ids[:i]], token) for i, token in enumerate(ids)]
            assert of_all.nats[number] == pytest.approx(sum(every), abs=1e-9)
    assert len(tokenizer.encode(PASSAGES[0].context)) > N_CTX, "or nothing is cut"


def test_lambada_is_right_where_greedy_decoding_writes_the_word(model: AttentionOnlyTransformer, tokenizer: Tokenizer):
    """Of words made from what the model writes, one is right by the usual protocol, and all by that of the paper."""
    context = "that was the"
    prompt = model.to_tokens(context)
    first = tokenizer.decode(model.generate(prompt, 2, temperature=0)[0, prompt.shape[1] :])
    room = N_CTX - aot.N_GENERATED - 1
    start = torch.tensor([[tokenizer.eot_id, *tokenizer.encode(context)[-room:]]])
    written = tokenizer.decode(model.generate(start, aot.N_GENERATED, temperature=0)[0, start.shape[1] :])
    words = [first, written[3:6].upper(), "certainly not"]
    passages = [Passage(context=context, last_word=word) for word in words]
    scorer = ModelScorer(model)
    *_, generous = aot.lambada(scorer, passages, (0, 1, 2), 2)
    assert generous.hits.tolist() == [word.strip().lower() in written.lower() for word in words]
    assert generous.hits[1] and not generous.hits[2]
    if tokenizer.encode(first) == model.generate(prompt, 2, temperature=0)[0, prompt.shape[1] :].tolist():
        assert usual.lambada(scorer, passages)[-1].hits.tolist() == [True, False, False]


@pytest.mark.parametrize("whole", [False, True])
def test_cbt_chooses_the_likeliest_candidate(model: AttentionOnlyTransformer, tokenizer: Tokenizer, whole: bool):
    outcome = (aot if whole else usual).cbt(ModelScorer(model), "CBT-CN", QUESTIONS)[0]
    for question, hit in zip(QUESTIONS, outcome.hits, strict=True):
        context = tokenizer.encode(question.context)
        candidates = [tokenizer.encode(f" {option}{question.rest}") for option in question.options]
        longest = max(map(len, candidates))
        scores = []
        for option, candidate in zip(question.options, candidates, strict=True):
            if whole:
                passages = [tokenizer.encode(f"{question.context} {o}{question.rest}") for o in question.options]
                ids = tokenizer.encode(f"{question.context} {option}{question.rest}")
                ids = ids[max(0, max(map(len, passages)) - N_CTX) :]
                before = [tokenizer.eot_id]
            else:
                ids, before = candidate, _cut(model, context, longest)
            scores.append(sum(_loss(model, [*before, *ids[:i]], token) for i, token in enumerate(ids)))
        assert hit == (int(np.argmin(scores)) == question.answer)


def test_random_windows_are_of_rows_with_end_tokens(model: AttentionOnlyTransformer, tokenizer: Tokenizer):
    (losses,) = aot.random_windows(ModelScorer(model), "WikiText", "loss", TEXT.rows, (3, 4, 5), 2)
    ids = [index for row in TEXT.rows for index in (*tokenizer.encode(row), tokenizer.eot_id)]
    for seed, mean in zip((3, 4, 5), losses.nats_per_token, strict=True):
        begins = np.random.default_rng(seed).integers(len(ids) - N_CTX, size=2)
        each = [_loss(model, ids[b : b + i + 1], ids[b + i + 1]) for b in begins for i in range(N_CTX)]
        assert mean == pytest.approx(np.mean(each), abs=1e-9)
    assert losses.tokens_per_byte == len(ids) / TEXT.n_bytes
    with pytest.raises(ValueError, match="at least 3 different seeds"):
        aot.random_windows(ModelScorer(model), "WikiText", "loss", TEXT.rows, (0, 0, 1), 4)


def test_bigrams_and_unigrams_answer_as_their_definitions_say(tokenizer: Tokenizer):
    generator = np.random.default_rng(1)
    ids = generator.integers(0, 6, 60)
    bigrams = BigramModel.fit(ids, 8)
    scorer: Scorer = BigramScorer(bigrams, tokenizer, N_CTX)
    row = [1, 5, 2, 7, 0, 0]
    (losses,), (greedy,) = scorer.losses([row], [2])
    pairs = list(itertools.pairwise(row))[1:]
    np.testing.assert_allclose(losses, [bigrams.loss(np.array(pair)) for pair in pairs])

    def best(v: int) -> int:
        return int(np.argmin([bigrams.loss(np.array([v, w])) for w in range(8)]))

    assert greedy.tolist() == [best(v) == w for v, w in pairs]
    assert scorer.continue_greedily([row], 3) == [[best(0), best(best(0)), best(best(best(0)))]]
    counts = np.bincount(ids, minlength=8)
    single = UnigramScorer(counts, tokenizer, N_CTX)
    (losses,), (greedy,) = single.losses([row], [1])
    np.testing.assert_allclose(np.exp(-losses), bigrams.unigram[row[1:]])
    assert greedy.tolist() == [w == counts.argmax() for w in row[1:]]
    assert single.continue_greedily([row], 2) == [[int(counts.argmax())] * 2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("suites")
    texts = "\n".join(passage.context.replace("\n", " ") + passage.last_word for passage in PASSAGES * 4)
    contents = {
        "lambada": ("lambada.txt", texts),
        "wikitext": ("wiki.test.raw", WIKITEXT),
        "ptb": ("ptb.test.txt", " no it was n't black monday \n but the mat \n"),
        "cbt_cn": ("cbtest_CN_test_2500ex.txt", cbt_text()),
    }
    for name, content in contents.values():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "cbtest_CN_valid_2000ex.txt").write_text(cbt_text(("dog",)))
    paths = {kind: str(folder / name) for kind, (name, _) in contents.items()}
    return paths | {"cbt_cn": str(folder)}


@pytest.mark.parametrize("protocol", ["usual", "aot"])
def test_the_suite_holds_models_side_by_side(
    tokenizer: Tokenizer, sources: dict[str, str], protocol: str, tmp_path: Path
):
    (tmp_path / "a.txt").write_text("the cat sat on the mat, the rat sat on the cat. " * 20)
    models: dict[str, AttentionOnlyTransformer | Scorer] = {
        name: maker(seed=seed)(tokenizer=tokenizer, d_vocab=tokenizer.d_vocab, n_ctx=32)
        for seed, name in enumerate(("left", "right"))
    }
    models |= fit_baselines(models["left"], open_corpus(f"dir:{tmp_path}"))  # type: ignore[arg-type]
    result = evaluate_zero_shot(models, **sources, protocol=protocol, n_windows=2)  # type: ignore[arg-type]
    frame, differences = result.to_frame(), result.differences_frame()
    assert list(frame.model.unique()) == ["left", "right", "unigram", "bigram"]
    assert set(frame.data) == {"LAMBADA", "WikiText", "PTB", "CBT-CN"}
    shares = frame[frame.unit == "share"]
    assert ((shares.low <= shares.value) & (shares.value <= shares.high)).all() and (shares.high < 1).any()
    assert list(shares[shares.data == "CBT-CN"].over.unique()) == [
        "2 questions" if protocol == "usual" else "1 questions"
    ]
    compared = differences[(differences.left == "left") & (differences.right == "right")]
    for row in compared.to_dict("records"):
        of_both = frame[(frame.data == row["data"]) & (frame.measure == row["measure"]) & (frame.unit == row["unit"])]
        values = of_both.set_index("model").value
        assert row["difference"] == pytest.approx(values["left"] - values["right"], abs=1e-9)
        if row["unit"] == "share":
            assert 0 < row["p"] <= 1 and row["only_left"] >= 0
        elif row["data"] == "LAMBADA":
            assert row["low"] <= row["difference"] <= row["high"]
    assert ("nats a byte" in set(compared.unit)) == (protocol == "usual")
    losses = frame[frame.unit == "nats a token"]
    assert losses.standard_error.notna().all() == (protocol == "aot")
    trained_on_it = frame[(frame.unit == "nats a token") & (frame.data == "LAMBADA")].groupby("model").value.mean()
    assert trained_on_it["bigram"] < trained_on_it["unigram"]
    assert any("words between spaces" in note for note in result.notes)


def test_what_the_suite_cannot_do_is_refused(model: AttentionOnlyTransformer, sources: dict[str, str]):
    with refused("model", "lambada, wikitext"):
        evaluate_zero_shot({"model": model})
    with pytest.raises(ValueError, match="limit=0"):
        evaluate_zero_shot({"model": model}, **sources, limit=0)
    for changes in ({"read_out": "classes", "d_out": 3}, {"causal": False}):
        other = AttentionOnlyTransformer(replace(model.cfg, **changes), model.tokenizer)
        with refused("causal", "tokens"):
            evaluate_zero_shot({"other": other}, **sources)
    blind = AttentionOnlyTransformer(model.cfg)
    with pytest.raises(ValueError, match="needs a model with a tokenizer"):
        evaluate_zero_shot({"model": blind}, **sources)


CONTEXTS = ["the cat", "", "the rat sat on the cat, and that was", "on the mat, the", "the cat", " that that that that"]
CONTINUATIONS = [" sat", "the mat", " that was that on the mat", " rat", " rat and the cat", " that"]


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
