"""Attention to motifs against loops over every query, and heads whose motif is built in."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import Tokenizer, repeated_random_tokens
from aotlens.data.windows import start_id
from aotlens.heads import PLACES, Inputs, Motif, attention_to, motif_scores
from aotlens.heads.inputs import special_ids, vocabulary
from aotlens.heads.motifs import MOTIFS, offset
from aotlens.heads.reader import HeadReader
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.messages import refused

#: Those whose keys tokens and positions decide.
WITH_KEYS = (*PLACES, "induction", "duplicate_token", "separator", "retrieval")
OF_WORDS = ("punctuation", "open_bracket", "same_indentation", "same_word")
SEEN = ("previous_token", "current_token", "first_token", "induction")  # by a causal model, without a tokenizer


def _model(**changes: object) -> AttentionOnlyTransformer:
    cfg = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 24, "d_vocab": 9} | changes
    pattern, tokenizer = cfg.pop("pattern", None), cfg.pop("tokenizer", None)
    return AttentionOnlyTransformer(ModelConfig(**cfg), tokenizer, pattern=pattern).double()


def _naive(pattern: Tensor, tokens: Tensor, special: int | None, causal: bool) -> dict[str, list[float]]:
    """Every motif's attention, a list over queries, for one head's pattern `[batch, query, key]`."""
    found: dict[str, list[float]] = {motif: [] for motif in WITH_KEYS}
    for b, row in enumerate(tokens.tolist()):
        n = len(row)
        for i in range(2, n if causal else n - 2):
            targets = {
                "previous_token": [i - 1],
                "current_token": [i],
                "next_token": [] if causal else [i + 1],
                "first_token": [0],
                "last_token": [] if causal else [n - 1],
                "induction": [j + 1 for j in range(1, i) if row[j] == row[i]],
                "duplicate_token": [j for j in range(1, i) if row[j] == row[i]],
                "retrieval": [j for j in range(1, i + 1) if i + 1 < n and row[j] == row[i + 1]],
                "separator": [j for j in range(1, i + 1 if causal else n) if row[j] == special],
            }
            for motif, keys in targets.items():
                if keys:
                    found[motif].append(sum(pattern[b, i, key].item() for key in keys))
    return found


@pytest.mark.parametrize(
    "changes", [{"attention": "mhsa"}, {"attention": "mssa"}, {"causal": False}], ids=["mhsa", "mssa", "both sides"]
)
def test_scores_equal_a_loop_over_queries(changes: dict[str, object]) -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"], 257)
    model = _model(d_vocab=257, tokenizer=tokenizer, **changes)
    tokens = torch.randint(1, 9, (5, 20), generator=torch.Generator().manual_seed(1))
    tokens[:, [0, 7, 12]] = tokenizer.eot_id
    _, cache = model.run_with_cache(tokens)
    causal = not model.sees_later_keys
    scores = attention_to(model, tokens, WITH_KEYS, batch_size=2)
    for layer in range(2):
        for head in range(3):
            naive = _naive(cache["pattern", layer][:, head], tokens, tokenizer.eot_id, causal)
            for motif, values in naive.items():
                assert scores.n_queries[scores.motifs.index(motif)] == len(values), motif
                if values:
                    assert scores[motif][layer, head] == pytest.approx(np.mean(values), abs=1e-12), motif
                else:
                    assert np.isnan(scores[motif]).all() and "no query" in scores.reasons[motif]
    assert ("next_token" in scores.reasons) == ("last_token" in scores.reasons) == causal


def test_heads_that_are_motifs_score_one() -> None:
    n = 21
    previous, current, first = torch.zeros(n, n), torch.eye(n), torch.zeros(n, n)
    previous[torch.arange(1, n), torch.arange(n - 1)] = 1.0
    first[:, 0] = 1.0
    induction = torch.zeros(n, n)  # on eot + twice ten tokens: position i ≥ 11 repeats i − 10, so look at i − 9
    induction[torch.arange(11, n), torch.arange(2, n - 9)] = 1.0
    pattern = torch.stack([previous, current, first, induction])[None]
    model = _model(n_layers=1, n_heads=4, n_ctx=n, d_vocab=5000, phi="fixed", fixed_pattern="given", pattern=pattern)
    scores = motif_scores(model, repeated_random_tokens(5000, 3, 10, 0), SEEN)
    np.testing.assert_allclose(scores.values[:, 0], np.eye(4), atol=0.02)
    assert scores.best("induction") == ((0, 3), pytest.approx(1))
    frame = scores.to_frame()
    assert list(frame.columns) == ["layer", "head", *SEEN] and len(frame) == 4
    drawn = motif_scores(model, motifs=SEEN, n_sequences=9, half_length=10)  # at nine distances, of which one is 10
    assert 0.05 < drawn["induction"][0, 3] < 0.2 and drawn.labels() == [[*SEEN[:3], "mixed"]]


def test_the_start_token_is_what_was_asked_for_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Tensor] = []
    real = HeadReader.listen_to_patterns
    monkeypatch.setattr(
        HeadReader, "listen_to_patterns", lambda self, tokens, add: (read.append(tokens), real(self, tokens, add))[1]
    )
    for start, expected in (("own", 0), (5, 5), (None, None)):
        scores = motif_scores(_model(), n_sequences=4, half_length=7, start=start)
        tokens = read[0]
        assert scores.start == expected and len(tokens) == 4 and all(len(other) <= 4 for other in read)
        read.clear()  # the control reads them, too
        half = tokens[:, 1:] if expected is not None else tokens
        for row, distance, again in zip(half, (3, 5, 8, 11), (3, 5, 6, 3), strict=True):
            assert torch.equal(row[:again], row[distance : distance + again]) and len(row) == 14
        if expected is None:
            assert "without a start token" in scores.about
        else:
            assert (tokens[:, 0] == expected).all() and (half != expected).all()
            assert f"start token {expected}" in scores.about
    with pytest.raises(ValueError, match="beside tokens"):
        motif_scores(_model(), torch.zeros(1, 5, dtype=torch.long), start=3)
    with pytest.raises(ValueError, match="eot_id=9"):
        motif_scores(_model(), start=9)


def test_a_bridge_scores_as_the_model_that_it_was_made_from() -> None:
    model = _model(d_vocab=50).float()
    ours, theirs = motif_scores(model, n_sequences=3), motif_scores(to_transformer_lens(model), n_sequences=3)
    assert theirs.start == ours.start == 0 and theirs.reasons.keys() == ours.reasons.keys()
    np.testing.assert_allclose(theirs.values, ours.values, atol=1e-5)


def test_threads_take_turns_on_a_bridge_which_keeps_its_hooks_itself() -> None:
    """A run that begins inside another thread's waits for it, and calls none of its listeners."""
    reader = HeadReader.of(to_transformer_lens(_model(d_vocab=50).float()))
    ids, threads = torch.zeros(1, 5, dtype=torch.long), set()
    others: list[Future[None]] = []

    def listen(layer: int, z: Tensor) -> None:
        if not others:
            others.append(pool.submit(reader.listen, ids, reader.z_name, lambda layer, z: None))
            wait(others, 0.3)
        threads.add(threading.get_ident())

    with ThreadPoolExecutor(1) as pool:
        reader.listen(ids, reader.z_name, listen)
        others[0].result(20)
    assert threads == {threading.get_ident()}


def test_what_the_inputs_lack_is_nan_with_the_reason() -> None:
    scores = motif_scores(_model(), torch.tensor([[0, 1, 2, 3, 4]]))
    assert np.isnan(scores["induction"]).all() and np.isfinite(scores["previous_token"]).all()
    unseen = ("next_token", "last_token", "induction", "duplicate_token", "retrieval", "fixed_offset", "mirror")
    of_words = ("separator", *OF_WORDS)
    assert scores.reasons.keys() == {*unseen, *of_words}
    assert all("strings" in scores.reasons[name] for name in OF_WORDS)
    assert "ids of special tokens" in scores.reasons["separator"] and "tokenizer" in scores.reasons["separator"]
    assert "no query" in scores.reasons["induction"] and scores.best("induction") is None
    counted = {"previous_token": 3, "current_token": 3, "first_token": 3, "uniform_attention": 1}
    assert scores.n_queries.tolist() == [counted.get(name, 0) for name in scores.motifs]


def test_other_motifs_are_given_as_values() -> None:
    """One of offset two with a mask, one of strings, and two scores of the pattern alone."""
    tokenizer = Tokenizer.train(["the cat sat on the mat"], 257)
    model = _model(d_vocab=257, tokenizer=tokenizer)
    tokens = model.to_tokens("no. yes. oh. no.")
    size = tokens.shape[1]

    def points(inputs: Inputs) -> object:
        strings = inputs.need(inputs.vocabulary, "the strings of tokens")
        ends = torch.tensor([[strings[index] == "." for index in row] for row in inputs.tokens.tolist()])
        return inputs.targets(ends[:, None, :].expand(-1, size, -1))

    wanted = (
        Motif(name="before_last", badge="two", sentence="It attends two back.", mask=offset(-2)),
        Motif(name="points", badge="pt", sentence="It attends to full stops.", mask=points),
        Motif(name="peak", badge="peak", sentence="It attends to one key.", score=lambda A: A.amax(-1).mean(-1)),
    )
    scores = attention_to(model, tokens, wanted)
    _, cache = model.run_with_cache(tokens)
    A = torch.stack([cache["pattern", layer][0] for layer in range(2)]).detach()
    np.testing.assert_allclose(scores["before_last"], A.diagonal(-2, -2, -1).mean(-1).numpy(), atol=1e-12)
    np.testing.assert_allclose(scores["peak"], A.amax(-1).mean(-1).numpy(), atol=1e-12)
    stops = [i for i, text in enumerate(model.to_str_tokens(tokens[0])) if text == "."]
    rows = A[:, :, [i for i in range(size) if i >= stops[0]]]
    np.testing.assert_allclose(scores["points"], rows[..., stops].sum(-1).mean(-1).numpy(), atol=1e-12)
    assert scores.n_queries.tolist() == [size - 2, size - stops[0], 1]
    assert "strings" in attention_to(_model(), torch.zeros(1, 6, dtype=torch.long), wanted[1]).reasons["points"]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="at least 3 tokens, got 2"):
        motif_scores(_model(), torch.tensor([[0, 1]]))
    with refused("previous_token", error=KeyError):
        motif_scores(_model())["copying"]
    with refused("'copying'", "previous_token"):
        motif_scores(_model(), motifs="copying")
    with pytest.raises(ValueError, match="expected at least one motif"):
        attention_to(_model(), torch.zeros(1, 5, dtype=torch.long), [])
    with refused("0 to 8", "0 to 9"):
        attention_to(_model(), torch.tensor([[0, 9, 1]]))
    with pytest.raises(ValueError, match="expected 1 to 24 positions"):
        attention_to(_model(), torch.zeros(1, 25, dtype=torch.long))
    vectors = _model(d_vocab=None, read_in="vectors", read_out="vectors")
    with pytest.raises(ValueError, match="reads vectors"):
        motif_scores(vectors)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Two words", "badge": "two", "mask": offset(1)}, "name='Two words'"),
        ({"name": "long", "badge": "longer", "mask": offset(1)}, "one to four letters"),
        ({"name": "neither", "badge": "no"}, "got none of them"),
        (
            {"name": "both", "badge": "both", "mask": offset(1), "score": lambda A: A.sum((-1, -2))},
            "got mask and score",
        ),
    ],
)
def test_a_motif_says_what_it_is(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Motif(sentence="It does.", **fields)  # type: ignore[arg-type]


def test_tokenizers_of_others_say_their_special_tokens() -> None:
    """GPT-2's end of text is its unknown word too; [MASK] and [UNK] of BERT stand for words."""

    class Fake:
        bos_token_id = eos_token_id = cls_token_id = sep_token_id = pad_token_id = mask_token_id = unk_token_id = None

        def __init__(self, **ids: object) -> None:
            self.__dict__ |= ids

        def __len__(self) -> int:
            return 3

        def convert_ids_to_tokens(self, ids: range) -> list[str]:
            return ["Ġthe", "Ċ", "##s"][: len(ids)]

    gpt2 = Fake(bos_token_id=7, eos_token_id=7, unk_token_id=7, all_special_ids=[7])
    bert = Fake(cls_token_id=1, sep_token_id=2, mask_token_id=3, unk_token_id=4, all_special_ids=[1, 2, 3, 4])
    assert special_ids(gpt2) == {7} and start_id(gpt2) == 7
    assert special_ids(bert) == {1, 2} and start_id(bert) == 1
    assert vocabulary(bert, 5) == (" the", "\n", "##s", "", "")


def test_what_depends_on_positions_alone_says_so() -> None:
    """The keys of such a motif are the same whatever the tokens are, and of the others they are not."""
    tokenizer = Tokenizer.train(["(the cat sat.)\n  it sat; the cat"], 262)
    words = vocabulary(tokenizer, 262)
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(0, 262, (4, 12), generator=generator) for _ in range(2)]
    texts = [text.index_fill(1, torch.tensor([3]), tokenizer.eot_id) for text in texts]
    texts[1][:, 5] = tokenizer.eot_id
    for name, motif in MOTIFS.items():
        if motif.mask is not None and "tokens" in motif.reads:
            said = {"later_keys": True, "special_ids": special_ids(tokenizer), "vocabulary": words}
            keys = [motif.mask(Inputs(tokens=text, **said)).keys for text in texts]
            assert (torch.equal(*keys) and bool(keys[0].any())) == motif.by_position, name


def test_a_separator_is_no_word_that_comes_again() -> None:
    tokenizer = Tokenizer.train(["the cat sat on the mat"], 262)
    assert tokenizer.eot_id is not None
    tokens = torch.tensor(
        [[tokenizer.eot_id, *tokenizer.encode("the cat"), tokenizer.eot_id, *tokenizer.encode(" the")]]
    )
    tokens = torch.cat([tokens, torch.tensor([[tokenizer.eot_id]])], 1)
    scores = attention_to(_model(d_vocab=262, tokenizer=tokenizer), tokens, "same_word")
    assert scores.n_queries.tolist() == [1]  # the second "the"


def test_sequences_of_three_tokens_are_long_enough() -> None:
    assert motif_scores(_model(), torch.tensor([[0, 1, 1]]), motifs=["previous_token"])["previous_token"].shape == (
        2,
        3,
    )
    with refused("3 tokens", "got 2"):
        motif_scores(_model(), torch.tensor([[0, 1]]), motifs=["previous_token"])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [True, False])
def test_scores_of_padded_sequences_are_means_over_all_their_queries(causal: bool, side: str) -> None:
    model, lengths = _model(causal=causal), (12, 8, 12, 9)
    rows = [torch.randint(0, 9, (length,), generator=torch.Generator().manual_seed(length)) for length in lengths]
    tokens, mask = torch.full((4, 14), 3), torch.zeros(4, 14, dtype=torch.long)
    for row, ids in enumerate(rows):
        where = slice(14 - len(ids), None) if side == "left" else slice(0, len(ids))
        tokens[row, where], mask[row, where] = ids, 1
    motifs = [name for name in WITH_KEYS if name in MOTIFS and name != "separator"]
    found = motif_scores(model, tokens, motifs, attention_mask=mask)
    for layer, head in np.ndindex(2, 3):
        pooled: dict[str, list[float]] = {motif: [] for motif in WITH_KEYS}
        for ids in rows:
            pattern = model.run_with_cache(ids[None])[1][f"blocks.{layer}.attn.hook_pattern"][:, head].detach()
            for motif, values in _naive(pattern, ids[None], None, causal).items():
                pooled[motif] += values
        for motif in motifs:
            assert found.n_queries[motifs.index(motif)] == len(pooled[motif])
            expected = np.mean(pooled[motif]) if pooled[motif] else np.nan
            np.testing.assert_allclose(found[motif][layer, head], expected, atol=1e-6)
    alone = [motif_scores(model, ids, motifs) for ids in rows]
    for name, counts in (("uniform", "n_queries"), ("chance", "n_compared")):
        n = np.array([getattr(each, counts) for each in alone])[..., None, None]
        sums = np.nansum([getattr(each, name) * k for each, k in zip(alone, n, strict=True)], 0)
        np.testing.assert_allclose(
            getattr(found, name), np.where(n.sum(0) > 0, sums / n.sum(0).clip(1), np.nan), atol=1e-6
        )
    assert found.about == "4 sequences of 8 to 12 tokens that were given" and found.intervals is None
    assert {"fixed_offset", "mirror"} <= motif_scores(model, tokens, attention_mask=mask).reasons.keys()


def test_padding_of_one_length_leaves_intervals_and_bad_masks_are_named() -> None:
    model = _model()
    tokens = torch.randint(0, 9, (3, 12), generator=torch.Generator().manual_seed(1))
    padded, mask = torch.nn.functional.pad(tokens, (2, 3)), torch.nn.functional.pad(torch.ones(3, 12), (2, 3))
    found, alone = (
        motif_scores(model, padded, "induction", attention_mask=mask),
        motif_scores(model, tokens, "induction"),
    )
    np.testing.assert_allclose(found.values, alone.values)
    np.testing.assert_allclose(found.intervals, alone.intervals)
    with refused("attention_mask", "[3, 17]", "[3, 12]"):
        motif_scores(model, padded, attention_mask=torch.ones(3, 12))
    with refused("3 tokens", "got 2"):
        motif_scores(model, padded, attention_mask=mask * (torch.arange(17) < 4))
    with refused("attention_mask", "ids"):
        motif_scores(model, attention_mask=mask)
