"""Skip-trigram bugs found in weights that have one, and random triples that match."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aotlens.circuits import qk_circuit, row_statistics
from aotlens.trigrams import (
    background_distribution,
    evidence,
    log_background,
    matched_random,
    score_triples,
    skip_trigram_bugs,
    skip_trigrams,
)

KEEP, IN, AT, MIND, BAY = 1, 2, 3, 4, 5


def idioms(rng: np.random.Generator) -> np.ndarray:
    """Windows of 23: `keep … in mind`, `keep … at bay`, and `in`, `at` alone before anything."""
    rows = []
    for _ in range(200):
        row = rng.integers(7, 20, 23)
        preposition, noun = ((IN, MIND), (AT, BAY))[int(rng.integers(2))]
        if rng.random() < 0.5:
            row[2] = KEEP
            row[6:8] = preposition, noun
        else:
            row[6:8] = preposition, rng.choice([MIND, BAY, 8, 9])
        rows.append(row)
    return np.concatenate(rows)


def test_keep_in_mind_and_keep_at_bay_force_keep_in_bay(make, rng) -> None:
    model = make(n_ctx=24)
    text = idioms(rng)
    table = score_triples(model, (0, 0), [KEEP, KEEP, 9], [IN, AT, IN], [MIND, BAY, BAY])
    found = evidence(model, table, text)
    assert found.verdict[:2] == ("confirmed", "confirmed")
    bugs = skip_trigram_bugs(model, found, text)
    frame = bugs.to_frame()
    triples = {
        (int(table.source[i]), int(table.destination[i]), int(table.out[j]))
        for i, j in zip(bugs.first, bugs.second, strict=True)
    }
    assert triples == {(KEEP, IN, BAY), (KEEP, AT, MIND)}
    assert bugs.false.all() and (bugs.counts.pair_out == 0).all() and (bugs.counts.pair > 20).all()
    assert bugs.verdict == ("not confirmed", "not confirmed") and frame["forced_lift_within"].tolist() == [0.0, 0.0]
    forced = score_triples(model, (0, 0), [KEEP, KEEP], [IN, AT], [BAY, MIND])
    by_first = {int(table.destination[i]): effect for i, effect in zip(bugs.first, bugs.effect, strict=True)}
    assert by_first[IN] == pytest.approx(forced.effect[0]) and by_first[AT] == pytest.approx(forced.effect[1])
    # The claim of the module: the product of the forced effects is that of the true ones.
    assert np.prod(bugs.effect) == pytest.approx(np.prod(table.effect[:2]))
    assert frame["followed"].tolist() == [found.counts.pair_out[i] for i in bugs.first]


def test_a_few_occurrences_contradict_nothing(make, rng) -> None:
    """The same rows, held against as little text as cannot judge what they force."""
    model = make(n_ctx=24)
    found = evidence(model, score_triples(model, (0, 0), [KEEP, KEEP], [IN, AT], [MIND, BAY]), idioms(rng))
    bugs = skip_trigram_bugs(model, found, idioms(rng)[: 23 * 12])
    assert len(bugs) == 2 and (bugs.counts.pair > 0).all() and set(bugs.verdict) == {"too rare"}
    assert not bugs.false.any()


def test_of_suppressed_outs_the_forced_one_is_false_where_it_comes_more_often(make, rng) -> None:
    model = make(n_ctx=24)
    table = replace(score_triples(model, (0, 0), [KEEP, KEEP], [IN, AT], [BAY, MIND]), upwards=np.array([False, False]))
    text = idioms(rng)
    found = evidence(model, table, text)
    assert found.verdict == ("confirmed", "confirmed")
    bugs = skip_trigram_bugs(model, found, text)
    assert len(bugs) == 2 and bugs.false.all() and (bugs.association.lift_within > 1).all()


def test_no_pairs_no_bugs(make) -> None:
    model = make()
    found = evidence(model, score_triples(model, (0, 0), [1], [2], [3]), np.arange(1, 20))
    assert len(skip_trigram_bugs(model, found, np.arange(1, 20))) == 0
    assert len(skip_trigram_bugs(model, found, np.arange(1, 20), only_confirmed=False).to_frame()) == 0


def test_random_triples_match_frequencies(make) -> None:
    model = make(d_vocab=400)
    model.unigram_counts = torch.tensor([int(1e6 / (1 + i)) for i in range(400)])[torch.randperm(400)]
    table = skip_trigrams(model, (0, 0), k=100)
    random = matched_random(model, table, 600, seed=3)
    order = np.argsort(-model.unigram_counts.numpy(), kind="stable")
    rank = np.empty(400)
    rank[order] = np.arange(400)
    for name in ("source", "destination", "out"):
        own, drawn = (np.sort(rank[getattr(t, name)]) for t in (table, random))
        for share in (0.1, 0.5, 0.9):
            assert abs(np.quantile(own, share) - np.quantile(drawn, share)) <= 60
        assert set(drawn) - set(own)
    assert len(random) == 600 and random.upwards.all()
    lowest = matched_random(model, skip_trigrams(model, (0, 0), k=50, largest=False), 40)
    assert not lowest.largest and not lowest.upwards.any()  # asked what the lowest rows are asked
    again = matched_random(model, table, 600, seed=3)
    np.testing.assert_array_equal(random.out, again.out)
    for row in (0, 17):
        one = score_triples(
            model, (0, 0), *(getattr(random, n)[row : row + 1] for n in ("source", "destination", "out"))
        )
        assert one.effect[0] == pytest.approx(random.effect[row])


def test_the_commonest_tokens_are_matched_too(make) -> None:
    """Zipf's law, and rows of the commonest tokens, whose neighbours are all rarer."""
    model = make(d_vocab=400)
    model.unigram_counts = (10**7 / torch.arange(1, 401)).long()
    u = background_distribution(model, None)
    for tokens, most in (([0], 2.8), ([0, 1, 2], 1.8), ([7, 8, 9], 1.2), ([300], 1.1)):
        table = score_triples(model, (0, 0), tokens, tokens, tokens)
        random = matched_random(model, table, 4000)
        for name in ("source", "destination", "out"):
            own, drawn = (np.log(u[getattr(rows, name)]).mean() for rows in (table, random))
            assert abs(own - drawn) < np.log(most), (tokens, name, np.exp(own - drawn))
    never = make(d_vocab=400)
    never.unigram_counts = torch.cat([torch.ones(300), torch.zeros(100)])
    random = matched_random(never, score_triples(never, (0, 0), [350], [2], [3]), 500)
    assert (random.source >= 300).all() and len(set(random.source.tolist())) == 20


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_normaliser_is_the_rows_log_mean_exp(make, dtype: torch.dtype, scale: float) -> None:
    """Against the float64 statistics of `aotlens.circuits`; scale 30 makes scores of hundreds of nats."""
    model = make(dtype=dtype, d_vocab=1300, norm=None)
    with torch.no_grad():
        model.embed.W_E *= scale
        model.unigram_counts = torch.randint(0, 3, (1300,))
        model.unigram_counts[:20] = 0
    u = background_distribution(model, None)
    qk = qk_circuit(model, (0, 0), biases=True)
    expected = row_statistics(qk, weights=torch.from_numpy(u)).log_mean_exp.numpy()
    tolerance = 1e-10 if dtype == torch.float64 else 3e-6 * float(np.abs(expected).max())
    np.testing.assert_allclose(log_background(qk, u), expected, atol=tolerance, rtol=0)


def test_a_rare_token_that_outweighs_all_frequent_ones(make) -> None:
    """The shift is taken from the frequent tokens; where one rare token scores 200 nats more, the sum overflows it."""
    model = make(dtype=torch.float32, d_vocab=1300, norm=None, bias=False)
    with torch.no_grad():
        model.embed.W_E *= 0.1
        model.embed.W_E[1299] *= 2e4
    counts = np.arange(1300, 0, -1)
    u = background_distribution(model, counts)
    qk = qk_circuit(model, (0, 0), biases=True)
    expected = row_statistics(qk, weights=torch.from_numpy(u)).log_mean_exp.numpy()
    assert expected.max() > 150
    np.testing.assert_allclose(log_background(qk, u), expected, atol=1e-5 * expected.max(), rtol=1e-4)
