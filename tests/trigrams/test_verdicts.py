"""The exact test's tail against rational arithmetic.

Which rows text confirms: planted trigrams, and texts in which nothing is true.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import torch
from scipy import stats

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import evidence, score_triples, skip_trigrams
from aotlens.trigrams.counting import Counts, StrataCounter, TrigramCounter, window_sums
from aotlens.trigrams.text import Windows
from aotlens.trigrams.verdict import associate, upper_tail
from tests.messages import says


def tail_by_fractions(m: list[int], x: list[int], y: list[int], a: int) -> Fraction:
    ways, everything = [1], 1
    for places, drawn, marked in zip(m, x, y, strict=True):
        one = [comb(marked, k) * comb(places - marked, drawn - k) for k in range(min(drawn, marked) + 1)]
        both = [0] * (len(ways) + len(one) - 1)
        for i, first in enumerate(ways):
            for j, second in enumerate(one):
                both[i + j] += first * second
        ways, everything = both, everything * comb(places, drawn)
    return Fraction(sum(ways[max(a, 0) :]), everything)


def test_tails_of_every_size_to_rounding(rng) -> None:
    smallest = 1.0
    for _ in range(150):
        n = int(rng.integers(1, 15))
        m = rng.integers(1, 40, n)
        x = rng.binomial(m, rng.choice([0.02, 0.3, 0.95]))
        y = rng.binomial(m, rng.choice([0.05, 0.3, 0.9]))
        low, high = int(np.maximum(0, x + y - m).sum()), int(np.minimum(x, y).sum())
        for a in {low - 1, low, high, high + 1, int(rng.integers(low, high + 1))}:
            expected = float(tail_by_fractions(m.tolist(), x.tolist(), y.tolist(), a))
            assert upper_tail(m, x, y, a) == pytest.approx(expected, rel=1e-11)
            smallest = min(smallest, expected or 1.0)
            below = 1 - tail_by_fractions(m.tolist(), x.tolist(), y.tolist(), a + 1)
            assert upper_tail(m, x, m - y, int(x.sum()) - a) == pytest.approx(float(below), rel=1e-11)
    assert smallest < 1e-30  # a Fourier transform alone would give 1e-17


def test_one_stratum_is_fishers(rng) -> None:
    for _ in range(50):
        m = int(rng.integers(50, 5000))
        x, y = int(rng.integers(1, m)), int(rng.integers(1, m))
        a = int(np.clip(x * y / m + rng.normal() * 8, max(0, x + y - m), min(x, y)))
        expected = stats.hypergeom.sf(a - 1, m, y, x)
        assert upper_tail(*(np.array([part]) for part in (m, x, y)), a) == pytest.approx(expected, rel=1e-8)


def test_many_strata_far_from_the_mean(rng) -> None:
    """400 strata of one kind: S is a sum of equal terms, whose probabilities can be multiplied out by squaring."""
    m, x, y = 30, 9, 7
    one = stats.hypergeom.pmf(np.arange(8), m, y, x)
    ways = np.array([1.0])
    for bit in f"{400:b}":
        ways = np.convolve(ways, ways)
        ways = np.convolve(ways, one) if bit == "1" else ways
    parts = [np.full(400, part) for part in (m, x, y)]
    for a in (700, 840, 900, 1000, 1300):
        assert upper_tail(*parts, a) == pytest.approx(ways[a:].sum(), rel=1e-9)


def test_wide_strata_that_lie_far_apart() -> None:
    """Strata of thousands of values, most of them negligible, at different places."""
    m, x, y = np.array([6000, 5000]), np.array([3100, 400]), np.array([2900, 4800])
    first, second = (
        stats.hypergeom.pmf(np.arange(drawn + 1), places, marked, drawn)
        for places, drawn, marked in zip(m.tolist(), x.tolist(), y.tolist(), strict=True)
    )
    sums = np.convolve(first, second)
    mean = int((x * y / m).sum())
    for a in (mean - 40, mean, mean + 60, mean + 250):
        assert upper_tail(m, x, y, a) == pytest.approx(sums[a:].sum(), rel=1e-8)


def planted() -> AttentionOnlyTransformer:
    """`[s] … [d] → [o]` for (1, 2, 3) and (4, 5, 6), written into the weights of head 0.

    A destination asks in a direction of its own, its source answers there, and the source's value is the out's logit.
    """
    cfg = ModelConfig(
        n_layers=1, d_model=12, n_heads=1, d_head=4, n_ctx=24, d_vocab=12, norm=None, positions=None, attn_scale=1.0
    )
    model = AttentionOnlyTransformer(cfg).eval()
    attention = model.blocks[0].attn
    with torch.no_grad():
        for weight in (model.embed.W_E, model.unembed.W_U, attention.W_Q, attention.W_K, attention.W_V, attention.W_O):
            weight.zero_()
        model.embed.W_E.copy_(torch.eye(12))
        model.unembed.W_U.copy_(torch.eye(12))
        for i, (s, d, o) in enumerate([(1, 2, 3), (4, 5, 6)]):
            attention.W_Q[0, d, i] = 8.0
            attention.W_K[0, s, i] = 1.0
            attention.W_V[0, s, 2 + i] = 1.0
            attention.W_O[0, 2 + i, o] = 5.0
    model.unigram_counts = torch.ones(12, dtype=torch.long)
    return model


def planted_text(rng: np.random.Generator, *, contains: bool) -> np.ndarray:
    """Windows of 23 tokens; 2 and 5 are followed at random, and by 3 and 6 where 1 and 4 came before, if `contains`."""
    rows = []
    for _ in range(200):
        row = rng.integers(7, 12, 23)
        first = bool(rng.integers(2))
        for source, destination, out in ((1, 2, 3), (4, 5, 6)):
            has_source = first == (source == 1)
            at = 2 if source == 1 else 13
            if has_source:
                row[at] = source
            row[at + 4] = destination
            truth = has_source if contains else bool(rng.integers(2))
            row[at + 5] = out if truth and rng.random() < 0.8 else rng.integers(7, 12)
        rows.append(row)
    return np.concatenate(rows)


def test_planted_trigrams_are_on_top_and_judged_by_the_text(rng) -> None:
    model = planted()
    table = skip_trigrams(model, (0, 0), k=3)
    best = np.stack([table.source, table.destination, table.out], axis=1)[:2]
    assert sorted(map(tuple, best.tolist())) == [(1, 2, 3), (4, 5, 6)]
    assert table.effect[2] < 0.2 * table.effect[1]
    table = skip_trigrams(model, (0, 0), k=2)
    true = evidence(model, table, planted_text(rng, contains=True))
    assert true.verdict == ("confirmed", "confirmed")
    assert (true.attention > 0.9).all() and (true.direct_effect > 3).all() and (true.ablation_change < -1).all()
    assert (true.association.low > 1).all()
    false = evidence(model, table, planted_text(rng, contains=False))
    assert false.verdict == ("not confirmed", "not confirmed")
    assert (false.association.low < 1).all() and (false.association.high > 1).all()
    rare = evidence(model, table, planted_text(rng, contains=True)[: 23 * 4])
    assert rare.verdict == ("too rare", "too rare")
    assert true.summary() == {"confirmed": 2, "not confirmed": 0, "too rare": 0}
    assert (true.n_testable, rare.n_testable) == (2, 0)
    assert true.share_confirmed == 1.0
    assert len(true.to_frame()) == 2


def counted(tokens: np.ndarray, *rows: np.ndarray | list[int], d_vocab: int = 60) -> Counts:
    """Windows `[windows, pos]` of one document, cut into strata of 8 (and the rest)."""
    n = len(tokens)
    counter = TrigramCounter(*(np.asarray(part) for part in rows), d_vocab)
    length, document = np.full(n, tokens.shape[1]), np.zeros(n, dtype=np.int64)
    counter.add(Windows(tokens, length, np.minimum(np.arange(n) // 8, max(n // 8 - 1, 0)), document))
    return counter.counts()


def test_text_that_repeats_itself_confirms_nothing(rng) -> None:
    """Sources at random, and one out a window, after all its eight destinations: no row is true, yet positions taken
    one by one would find many."""
    rows = np.array([(s, 50, o) for s in range(40) for o in (51, 52, 53)])
    tokens = np.full((500, 24), 50)
    tokens[:, :8] = rng.integers(0, 40, (500, 8))
    tokens[:, 9::2] = rng.integers(51, 54, (500, 1))
    counts = counted(tokens, *rows.T)
    found = associate(counts.strata)
    alone = stats.hypergeom.sf(counts.pair_out - 1, counts.destination, counts.destination_out, counts.pair)
    assert (alone < 0.05).mean() > 0.2
    assert (found.p_exact < 0.05).mean() > 0.15  # places within strata alone would find them too
    assert (found.p_value < 0.05).mean() < 0.1
    assert found.verdicts.count("confirmed") <= 1
    assert (associate(counts.strata, upwards=False).p_value < 0.05).mean() < 0.1


def test_a_source_that_always_comes_first_leaves_nothing_to_compare(rng) -> None:
    """Every 2 has its 1 before it, so lift is 1 whatever follows; the same 2s with nine others alone, then with ten."""
    tokens = rng.integers(5, 9, (320, 6))
    tokens[:, 3] = 2
    tokens[:, 4] = 3
    verdicts = []
    for alone in (0, 9, 10):
        tokens[:, 1] = 1
        without = np.arange(alone) * 32  # each in a stratum of its own
        tokens[without, 1] = 5
        tokens[without, 4] = 4
        found = associate(counted(tokens, [1], [2], [3]).strata)
        verdicts += found.verdicts
    assert verdicts == ["too rare", "too rare", "confirmed"]


def test_strata_that_are_all_of_one_side_do_not_count(rng) -> None:
    """A source in every window of 20 strata and in none of 20 others, where the out never comes: pooled it is certain,
    within strata there is nothing to compare. With 4 strata that hold both it is too rare, with 5 it is tested."""
    tokens = rng.integers(5, 9, (320, 6))
    tokens[:, 3] = 2
    tokens[:160, 1] = 1
    tokens[:160, 4] = 3
    for n_mixed, word in ((0, "too rare"), (4, "too rare"), (5, "not confirmed")):
        mixed = tokens.copy()
        mixed[: 8 * n_mixed : 2, 1] = 5  # the out comes there all the same
        found = associate(counted(mixed, [1], [2], [3]).strata)
        assert found.verdicts == (word,) and found.lift[0] > 1.5
        assert found.lift_within[0] == 1.0 and found.p_value[0] == 1.0


def test_which_book_it_is_confirms_nothing(rng) -> None:
    """Five documents, two of them nearly without the source and with a quarter of the outs; within each, the source
    makes the out a little rarer. Pooled it is likelier."""
    parts = []
    for has_source in (True, False, True, True, False):
        tokens = rng.integers(5, 9, (80, 8))
        tokens[:, 3] = 2
        seen = rng.random(80) < (0.8 if has_source else 0.05)
        tokens[seen, 1] = 1
        share = (0.8 if has_source else 0.2) - 0.15 * seen
        tokens[:, 4] = np.where(rng.random(80) < share, 3, 5)
        parts.append(tokens)
    counter = TrigramCounter(np.array([1]), np.array([2]), np.array([3]), 9)
    for number, tokens in enumerate(parts):
        stratum = 10 * number + np.arange(80) // 8
        counter.add(Windows(tokens, np.full(80, 8), stratum, np.full(80, number)))
    counts = counter.counts()
    pooled = stats.hypergeom.sf(counts.pair_out - 1, counts.destination, counts.destination_out, counts.pair)
    assert pooled[0] < 1e-6
    for strata in (counts.strata, counts.documents):
        found = associate(strata)
        assert found.verdicts == ("not confirmed",) and found.lift[0] > 1.2 and found.lift_within[0] < 1
        assert found.lifts_disagree.tolist() == [True]


def test_suppression_is_tested_downwards(rng) -> None:
    """After 1 … 2 the out 3 never comes, and otherwise half of the time."""
    tokens = rng.integers(5, 9, (300, 6))
    tokens[:, 3] = 2
    seen = np.arange(300) % 2 == 0
    tokens[seen, 1] = 1
    tokens[~seen, 4] = np.where(rng.random(150) < 0.5, 3, 5)
    counts = counted(tokens, [1, 7], [2, 2], [3, 3])
    found = associate(counts.strata, upwards=False)
    assert found.verdicts == ("confirmed", "not confirmed")
    assert associate(counts.strata).verdicts == ("not confirmed", "not confirmed")
    # The out never follows: an exact bound of a proportion of 0 in 150, over what is expected.
    expected = counts.strata.with_source * counts.strata.followed / counts.strata.places
    assert (found.lift_within[0], found.low[0]) == (0.0, 0.0)
    assert found.high[0] == pytest.approx((1 - 0.025 ** (1 / 150)) * 150 / expected[counts.strata.row == 0].sum())


def test_intervals_cover(rng) -> None:
    """Of 400 rows whose out is 1.5 times as likely after the source, about 95% of the intervals hold that."""
    places = rng.poisson(4, (400, 320))
    with_source = np.where(rng.random(places.shape) < 0.4, places, 0)
    both = rng.binomial(with_source, 0.3)
    followed = both + rng.binomial(places - with_source, 0.2)
    counter = StrataCounter(400)
    counter.add(window_sums(both, with_source, followed, places), np.arange(320) // 8)
    strata = counter.strata()
    found = associate(strata)
    share = strata.with_source / strata.places
    expected = strata.total(strata.with_source * (0.3 * share + 0.2 * (1 - share)))  # of E, given where the source is
    true = 0.3 * strata.total(strata.with_source) / expected
    assert 0.92 < ((found.low < true) & (true < found.high)).mean() < 0.985


def test_a_row_is_asked_what_it_says(rng) -> None:
    """The planted table with its values turned round says that 3 comes less often, which text may bear out or not."""
    model = planted()
    with torch.no_grad():
        model.blocks[0].attn.W_O.neg_()
    table = score_triples(model, (0, 0), [1, 4], [2, 5], [3, 6])
    assert (table.effect < 0).all() and table.upwards.tolist() == [False, False]
    assert evidence(model, table, planted_text(rng, contains=True)).verdict == ("not confirmed", "not confirmed")
    text = planted_text(rng, contains=False).reshape(-1, 23)
    text[:, 7] = np.where(text[:, 2] == 1, 9, 3)  # out 3 after destination 2, except where 1 came first
    found = evidence(model, table, text.ravel())
    assert found.verdict[0] == "confirmed"
    assert "What was read is one document" in found.assumption and found.by_document.verdicts[0] == "too rare"
    several = replace(found, n_documents=2)
    says(several.assumption, "whole documents", "none of the 2 rows")
    says(replace(several, by_document=found.association).assumption, f"{found.n_confirmed} of the 2 rows")


def test_an_out_in_one_stratum_alone_leaves_the_lift_open() -> None:
    """One degree less than one stratum is none: nothing is known of how strata differ, whatever their spread."""
    counter = StrataCounter(2)
    both, followed = np.array([[3, 0], [3, 0]]), np.array([[4, 0], [4, 2]])  # the second row's out is in two strata
    counter.add(window_sums(both, np.full((2, 2), 10), followed, np.full((2, 2), 20)), np.arange(2))
    association = associate(counter.strata())
    np.testing.assert_allclose(association.lift_within, [1.5, 1.0])
    assert association.low.tolist() == [0.0, 0.0] and association.high.tolist() == [np.inf, np.inf]
