"""Every motif's label on a pattern written by hand, its chance against loops, and TransformerLens's detectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from transformer_lens.head_detector import detect_head

from aotlens.data import Tokenizer
from aotlens.heads import MOTIFS, Inputs, Motif, MotifScores, attention_to, motif_scores, motifs_of
from aotlens.heads.motifs import offset
from aotlens.heads.reader import HeadReader
from aotlens.heads.source_code import last_same_word, open_bracket, punctuation, same_indentation
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.heads.hand_built import induction, repeated

CODE = "def f(a, b):\n    x = g(a,\n b) + a\n    y = x[a]\n    return (x, The, the)\nz = (f, y)\n    x = b, x\n"
TOKENIZER = Tokenizer.train([CODE * 3], 280)
N = 40


def small(**changes: object) -> AttentionOnlyTransformer:
    fields = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": N, "d_vocab": 280}
    tokenizer = changes.pop("tokenizer", TOKENIZER)
    return AttentionOnlyTransformer(ModelConfig(**(fields | changes)), tokenizer).double()


def text_tokens(n_sequences: int = 4) -> Tensor:
    """Windows of the code, each from another place, a separator inside."""
    ids = TOKENIZER.encode(CODE * 4)
    rows = [[TOKENIZER.eot_id, *ids[7 * i : 7 * i + N - 1]] for i in range(n_sequences)]
    tokens = torch.tensor(rows)
    for row in range(n_sequences):
        tokens[row, 11 + 2 * row] = TOKENIZER.eot_id
    return tokens


def with_pattern(*patterns_of: Callable[[Tensor], Tensor], causal: bool = True) -> AttentionOnlyTransformer:
    """A model whose heads have the patterns `pattern_of(tokens)` `[batch, query, key]` of the tokens of each run."""
    model = small(n_layers=1, n_heads=len(patterns_of), causal=causal)
    read: list[Tensor] = []
    model.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    model.add_hook(
        "blocks.0.attn.hook_pattern",
        lambda pattern, hook: torch.stack([of(read[-1]) for of in patterns_of], 1).to(pattern),
    )
    return model


def one_head(pattern_of: Callable[[Tensor], Tensor], tokens: Tensor, **options: object):
    """The scores of a head whose pattern is `pattern_of(tokens)` `[batch, query, key]`, through a hook."""
    return attention_to(with_pattern(pattern_of), tokens, batch_size=3, **options)


def to_targets(name: str) -> Callable[[Tensor], Tensor]:
    """All attention of a query on the motif's keys, else on its own token and key 0."""

    def pattern(tokens: Tensor) -> Tensor:
        inputs = Inputs.of(HeadReader.of(small()), tokens)
        targets = MOTIFS[name].targets(inputs)
        assert targets is not None
        keys = targets.keys.double()
        rest = (torch.eye(N) / 2 + torch.nn.functional.one_hot(torch.zeros(N, dtype=torch.long), N) / 2).double()
        rows = torch.where(keys.sum(-1, keepdim=True) > 0, keys, rest)
        return rows / rows.sum(-1, keepdim=True)

    return pattern


def distance(by: int) -> Callable[[Tensor], Tensor]:
    def pattern(tokens: Tensor) -> Tensor:
        key = (torch.arange(N) - by).clamp(min=0)
        return torch.nn.functional.one_hot(key, N).double().expand(len(tokens), -1, -1)

    return pattern


def even(tokens: Tensor) -> Tensor:
    return (torch.ones(N, N).tril() / torch.arange(1, N + 1)[:, None]).double().expand(len(tokens), -1, -1)


WRITTEN = {
    "previous_token": distance(1),
    "current_token": distance(0),
    "first_token": distance(N),
    "fixed_offset": distance(7),
    "uniform_attention": even,
    **{
        name: to_targets(name)
        for name in ("induction", "duplicate_token", "separator", "punctuation", "open_bracket", "same_indentation",
                     "same_word", "retrieval")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_pattern_written_by_hand_has_its_label(name: str) -> None:
    scores = one_head(WRITTEN[name], text_tokens(12))
    assert scores[name][0, 0] == pytest.approx(1, abs=1e-6)
    assert scores.labels() == [[name]] and scores.margins()[0, 0] > 0.02
    if name == "fixed_offset":
        assert scores.best_offsets is not None and scores.best_offsets.tolist() == [[-7]]
    if MOTIFS[name].by_position:  # and none of content is above its chance
        content = [place for place, motif in enumerate(scores.motifs) if not MOTIFS[motif].by_position]
        measured = [place for place in content if scores.motifs[place] not in scores.reasons]
        assert len(measured) == 8 and scores.intervals is not None
        np.testing.assert_allclose(scores.excess[measured], 0, atol=1e-6)
        low, high = scores.intervals[measured, 0, 0].T
        assert (low <= 1e-6).all() and (high >= -1e-6).all()


def test_chance_is_what_the_mean_pattern_of_the_others_scores() -> None:
    model, tokens = small(), text_tokens(5)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q *= 40
    scores = attention_to(model, tokens, others=True, intervals=True, batch_size=2)
    _, cache = model.run_with_cache(tokens)
    inputs = Inputs.of(HeadReader.of(model), tokens)
    assert scores.chance is not None and scores.uniform is not None and scores.intervals is not None
    flat = even(tokens)
    for place, name in enumerate(scores.motifs):
        motif = MOTIFS[name]
        targets = motif.targets(inputs)
        if targets is None or name in scores.reasons or motif.classes is not None:
            continue
        keys, queries = targets
        T, n = keys & queries[..., None], int(queries.sum())
        assert scores.uniform[place] == pytest.approx(float((flat * T).sum() / n), abs=1e-6)
        for layer, head in np.ndindex(2, 3):
            A = cache["pattern", layer][:, head].detach()
            others = torch.stack([torch.cat([A[:s], A[s + 1 :]]).mean(0) for s in range(5)])
            expected = float((others * T).sum() / n) if not motif.by_position else scores.uniform[place, layer, head]
            assert scores.chance[place, layer, head] == pytest.approx(expected, abs=1e-6), name
            low, high = scores.intervals[place, layer, head]
            assert low - 1e-9 <= scores.excess[place, layer, head] <= high + 1e-9
    frame = scores.chance_frame()
    assert len(frame) == 6 * len(scores.motifs) and list(frame)[:5] == ["layer", "head", "motif", "score", "chance"]
    offset = scores.motifs.index("fixed_offset")
    for layer, head in np.ndindex(2, 3):  # chosen on sequences 0, 2, 4 and scored on 1, 3, by diagonals
        A = cache["pattern", layer][:, head].detach()
        A = A[..., 1:, 1:]  # key 0 is no target, nor does query 0 see one
        shares = {-by: float(A[::2].mean(0).diagonal(-by).mean()) for by in range(2, N - 1 - N // 4 + 1)}
        best = int(scores.best_offsets[layer, head])  # type: ignore[index]
        assert shares[best] == pytest.approx(max(shares.values()), abs=1e-6)
        other_half = float(A[1::2].mean(0).diagonal(best).mean())
        assert scores.values[offset, layer, head] == pytest.approx(other_half, abs=1e-6)
        assert scores.uniform[offset, layer, head] == pytest.approx(
            float(flat[0][1:, 1:].diagonal(best).mean()), abs=1e-6
        )
    broad = scores.motifs.index("uniform_attention")
    entropy = torch.special.entr(cache["pattern", 1][:, 2])[:, 2:].sum(-1) / torch.arange(3, N + 1).log()
    assert scores.values[broad, 1, 2] == pytest.approx(float(entropy.mean()), abs=1e-6)
    assert scores.uniform[broad] == pytest.approx(1.0)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("name", ["induction", "duplicate_token"])
def test_chance_of_copies_is_what_other_classes_of_as_many_get(name: str, others: bool) -> None:
    """By loops over queries and classes; with `others`, less the same difference in the others' mean pattern."""
    model, tokens = small(), text_tokens(4)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q *= 40
    scores = attention_to(model, tokens, name, others=others)
    _, cache = model.run_with_cache(tokens)
    assert scores.chance is not None and scores.compared is not None and scores.n_compared is not None
    before = 1 if name == "induction" else 0  # a key's class is its own token, or the one before it
    for layer, head in np.ndindex(2, 3):
        patterns = cache["pattern", layer][:, head].detach().numpy()
        target, chance, n = 0.0, 0.0, 0
        for s, row in enumerate(tokens.tolist()):
            elsewhere = np.delete(patterns, s, axis=0).mean(0)
            for q in range(2, N):
                classes: dict[int, list[int]] = {}
                for k in range(1 + before, q + before):
                    classes.setdefault(row[k - before], []).append(k)
                own = classes.pop(row[q], [])
                n_alike = len(own) + (name == "duplicate_token")  # the query's own key is a copy, and no target
                alike = [keys for keys in classes.values() if len(keys) == n_alike]
                if not own or not alike:
                    continue
                of_all = len(own) / n_alike
                share = lambda A, keys, q=q: sum(A[q, k] for k in keys)  # noqa: E731
                means = [of_all * np.mean([share(A, keys) for keys in alike]) for A in (patterns[s], elsewhere)]
                target, n = target + share(patterns[s], own), n + 1
                chance += means[0] + (share(elsewhere, own) - means[1] if others else 0.0)
        assert scores.n_compared.tolist() == [n] and 0 < n < scores.n_queries[0]
        assert scores.compared[0, layer, head] == pytest.approx(target / n, abs=1e-6)
        assert scores.chance[0, layer, head] == pytest.approx(chance / n, abs=1e-6)


def test_untrained_heads_do_neither_more_nor_less_than_chance() -> None:
    """48 heads on tokens as frequent as words are; beside uniform attention most would seem to avoid copies."""
    torch.manual_seed(0)
    cfg = ModelConfig(n_layers=1, d_model=256, n_heads=48, d_head=16, n_ctx=96, d_vocab=150)
    model = AttentionOnlyTransformer(cfg)
    with torch.no_grad():
        model.blocks[0].attn.W_Q *= 30
    tokens = torch.multinomial(1 / torch.arange(1.0, 151.0), 20 * 96, replacement=True).view(20, 96)
    scores = attention_to(model, tokens, ["induction", "duplicate_token"], others=True, intervals=True)
    assert scores.intervals is not None and scores.uniform is not None
    low, high = np.moveaxis(scores.intervals[:, 0], -1, 0)
    assert (np.mean(high < 0, axis=1) <= 0.1).all() and (np.mean(low > 0, axis=1) <= 0.1).all()
    assert np.mean(scores["duplicate_token"] < scores.uniform[1]) > 0.7


def test_with_later_keys_an_offset_may_lie_ahead() -> None:
    model, tokens = small(causal=False), text_tokens()
    scores = attention_to(model, tokens, ["fixed_offset", "uniform_attention"])
    _, cache = model.run_with_cache(tokens)
    A = cache["pattern", 0][:, 1, :, 1:].detach()  # without key 0, so that keys are one further ahead
    most = N - 1 - N // 4
    shares = {by: float(A[::2].mean(0).diagonal(by - 1).mean()) for by in range(-most, most + 1) if abs(by) > 1}
    best = max(shares, key=lambda by: shares[by])
    assert scores.best_offsets is not None and scores.best_offsets[0, 1] == best
    assert scores["fixed_offset"][0, 1] == pytest.approx(float(A[1::2].mean(0).diagonal(best - 1).mean()), abs=1e-6)
    entropy = torch.special.entr(cache["pattern", 0][:, 1])[:, 2:].sum(-1) / np.log(N)
    assert scores["uniform_attention"][0, 1] == pytest.approx(float(entropy.mean()), abs=1e-6)


def test_random_tokens_have_the_chance_of_even_attention_and_no_words() -> None:
    scores = motif_scores(small(), n_sequences=3, half_length=10)
    assert set(scores.motifs) == {name for name, motif in motifs_of("tokens").items() if not motif.on_text}
    even_is_chance = [motif not in ("induction", "duplicate_token") for motif in scores.motifs]
    np.testing.assert_array_equal(scores.chance[even_is_chance], scores.uniform[even_is_chance])
    named = motif_scores(small(), motifs="punctuation", n_sequences=3, half_length=10)
    assert named.motifs == ("punctuation",)
    given = motif_scores(small(), text_tokens())
    assert given.chance is not None and (given["same_word"] != 0).all() and given.intervals is not None


def test_a_circuit_built_by_hand_scores_one() -> None:
    model = induction(12, 5.0, decoys=1)
    tokens, _ = repeated(12, 6)
    scores = attention_to(model, tokens[:, :-1])
    assert scores["previous_token"][0, 1] >= 0.99 and scores.labels()[0][1] == "previous_token"
    assert scores["induction"][1, 1] >= 0.99 and scores.labels()[1][1] == "induction"


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("previous_token", "previous_token_head"),
        ("duplicate_token", "duplicate_token_head"),
        ("induction", "induction_head"),
    ],
)
def test_transformer_lens_finds_the_same(name: str, theirs: str) -> None:
    """Its score divides by all attention off the first position, ours by the queries that see such a key."""
    model = small().float()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q *= 30
    text, bridge = CODE[30:70], to_transformer_lens(model)
    tokens = bridge.to_tokens(text)
    assert torch.equal(tokens, model.to_tokens(text))
    _, cache = bridge.run_with_cache(tokens)
    found = detect_head(bridge, text, theirs, exclude_bos=True, error_measure="mul")
    scores = attention_to(model, tokens, name)
    off_first = torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"][0, :, :, 1:].sum((1, 2)) for layer in range(2)])
    ours = scores[name] * scores.n_queries[0] / off_first.detach().numpy()
    np.testing.assert_allclose(found.detach().numpy(), ours, atol=1e-5)


def test_keys_that_words_decide() -> None:
    tokens = ["", "The", " cat", "(", "the", " THE", ",", "\n", "  ", "if", " x", "\n  ", "y", "\n", "z", ")."]

    def pairs(of: Callable[[list[str]], Tensor]) -> set[tuple[int, int]]:
        return {(int(q), int(k)) for q, k in of(tokens).nonzero()}

    assert pairs(last_same_word) == {(4, 1), (5, 4)}
    assert pairs(same_indentation) == {(11, 8)}  # the line of "y" after that of "if"; "z" begins further out
    assert {key for _, key in pairs(punctuation)} == {3, 6, 15}
    assert {(q, k) for q, k in pairs(open_bracket) if q > 3} == {(q, 3) for q in range(4, 16)}


def test_classes_after_kovaleva() -> None:
    first, previous = distance(N), distance(1)
    for pattern, expected in (
        (first, "vertical"),
        (previous, "diagonal"),
        (lambda tokens: (first(tokens) + previous(tokens)) / 2, "vertical + diagonal"),
        (even, "heterogeneous"),
    ):
        assert one_head(pattern, text_tokens()).kovaleva() == [[expected]]


def test_a_separator_at_the_end_counts_once() -> None:
    names = ("first_token", "last_token", "separator", "previous_token", "current_token", "next_token")
    at = {"last_token": 0.21, "separator": 0.21}  # the same key
    for first, expected in ((0.0, "heterogeneous"), (0.2, "vertical")):
        values = np.array([{**at, "first_token": first}.get(name, 0.05) for name in names])[:, None, None]
        assert MotifScores(motifs=names, values=values, n_queries=np.full(6, 9)).kovaleva() == [[expected]]


def test_a_motif_of_ones_own_keeps_its_threshold_and_its_kind() -> None:
    sharp = Motif(
        name="sharp", badge="shp", sentence="Its rows have one key.", by_position=True, threshold=0.9,
        score=lambda pattern: pattern.amax(-1)[..., 2:].mean(-1),
    )  # fmt: skip
    halves = lambda tokens: (distance(1)(tokens) + distance(2)(tokens)) / 2  # noqa: E731
    for pattern, label in ((distance(3), "sharp"), (halves, "mixed")):
        found = one_head(pattern, text_tokens(), motifs=[sharp])
        assert found.labels() == [[label]]
    assert one_head(distance(3), text_tokens(), motifs=[sharp]).margins()[0, 0] == pytest.approx(0.1)
    rare = Motif(name="three_back", badge="3", sentence="x.", by_position=True, threshold=0.05, mask=offset(-3))
    little = lambda tokens: 0.8 * distance(1)(tokens) + 0.2 * distance(3)(tokens)  # noqa: E731
    assert one_head(little, text_tokens(), motifs=[rare]).labels() == [["three_back"]]
    # Another of a listed name is judged by its own.
    strict = dataclasses.replace(MOTIFS["previous_token"], threshold=0.95)
    assert one_head(little, text_tokens(), motifs=[strict]).labels() == [["mixed"]]
