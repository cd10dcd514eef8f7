"""Which rows text confirms: planted trigrams, and texts in which nothing is true."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import evidence, score_triples, skip_trigrams
from aotlens.trigrams.counting import Counts, TrigramCounter
from aotlens.trigrams.verdict import associate


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
    table = skip_trigrams(model, 0, 0, k=3)
    best = np.stack([table.source, table.destination, table.out], axis=1)[:2]
    assert sorted(map(tuple, best.tolist())) == [(1, 2, 3), (4, 5, 6)]
    assert table.effect[2] < 0.2 * table.effect[1]
    table = skip_trigrams(model, 0, 0, k=2)
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


def test_text_that_repeats_itself_confirms_nothing(rng) -> None:
    """Sources at random, and one out a window, after all its eight destinations: no row is true, yet positions taken
    one by one would find many."""
    rows = np.array([(s, 50, o) for s in range(40) for o in (51, 52, 53)])
    counter = TrigramCounter(*rows.T, 60)
    tokens = np.full((500, 24), 50)
    tokens[:, :8] = rng.integers(0, 40, (500, 8))
    tokens[:, 9::2] = rng.integers(51, 54, (500, 1))
    counter.add(tokens)
    counts = counter.counts()
    found = associate(counts)
    alone = stats.hypergeom.sf(counts.pair_out - 1, counts.destination, counts.destination_out, counts.pair)
    assert (alone < 0.05).mean() > 0.2
    assert (found.p_value < 0.05).mean() < 0.1
    assert found.verdicts.count("confirmed") <= 1
    assert (associate(counts, upwards=False).p_value < 0.05).mean() < 0.1


def test_a_source_that_always_comes_first_leaves_nothing_to_compare(rng) -> None:
    """Every 2 has its 1 before it, so lift is 1 whatever follows; the same 2s with nine others alone, then with ten."""
    tokens = rng.integers(5, 9, (300, 6))
    tokens[:, 3] = 2
    tokens[:, 4] = 3
    verdicts = []
    for alone in (0, 9, 10):
        tokens[:, 1] = 1
        tokens[:alone, 1] = 5
        tokens[:alone, 4] = 4
        counter = TrigramCounter(np.array([1]), np.array([2]), np.array([3]), 9)
        counter.add(tokens)
        verdicts += associate(counter.counts()).verdicts
    assert verdicts == ["too rare", "too rare", "confirmed"]


def test_suppression_is_tested_downwards(rng) -> None:
    """After 1 … 2 the out 3 never comes, and otherwise half of the time."""
    tokens = rng.integers(5, 9, (300, 6))
    tokens[:, 3] = 2
    tokens[:150, 1] = 1
    tokens[150:, 4] = np.where(rng.random(150) < 0.5, 3, 5)
    counter = TrigramCounter(np.array([1, 7]), np.array([2, 2]), np.array([3, 3]), 9)
    counter.add(tokens)
    assert associate(counter.counts(), upwards=False).verdicts == ("confirmed", "not confirmed")
    assert associate(counter.counts()).verdicts == ("not confirmed", "not confirmed")
    assert associate(counter.counts()).high[0] < 0.2


def in_windows(rng: np.random.Generator, n_rows: int, n_windows: int, share: float, p_out: np.ndarray) -> Counts:
    """Counts of rows that are not true: a source in a share of the windows, and outs by window, both at random."""
    m = rng.poisson(5, (n_rows, n_windows))
    x = np.where(rng.random(m.shape) < share, rng.binomial(m, rng.random(m.shape)), 0)
    a = rng.binomial(x, p_out)
    y = a + rng.binomial(m - x, p_out)
    cells = np.stack([a, x, y, m], axis=1).astype(float)
    return Counts(
        pair=x.sum(1),
        pair_out=a.sum(1),
        destination=m.sum(1),
        destination_out=y.sum(1),
        windows=(x > 0).sum(1),
        windows_out=(a > 0).sum(1),
        moments=np.einsum("riw,rjw->rij", cells, cells),
        fourth=np.stack([(cells[:, 2] ** (4 - j) * cells[:, 3] ** j).sum(1) for j in range(5)], axis=1),
    )


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize(("share", "p_out"), [(0.3, 0.05), (0.9, 0.02), (0.9, 0.1)])
def test_outs_in_bursts_confirm_nothing(rng, upwards: bool, share: float, p_out: float) -> None:
    """Windows without the out, and a few full of it, wherever the source is: 500 rows, of which none is true."""
    confirmed, small = [], []
    for _ in range(4):
        bursts = np.where(rng.random((500, 500)) < p_out, 0.7, 0.0)
        found = associate(in_windows(rng, 500, 500, share, bursts), upwards=upwards)
        confirmed.append(found.verdicts.count("confirmed"))
        small.append((found.p_value[~found.too_rare] < 0.01).mean())
    assert sum(confirmed) == 0 and np.mean(small) < 0.01


def test_a_row_is_asked_what_it_says(rng) -> None:
    """The planted table with its values turned round says that 3 comes less often, which text may bear out or not."""
    model = planted()
    with torch.no_grad():
        model.blocks[0].attn.W_O.neg_()
    table = score_triples(model, 0, 0, [1, 4], [2, 5], [3, 6])
    assert (table.effect < 0).all() and table.upwards.tolist() == [False, False]
    assert evidence(model, table, planted_text(rng, contains=True)).verdict == ("not confirmed", "not confirmed")
    text = planted_text(rng, contains=False).reshape(-1, 23)
    text[:, 7] = np.where(text[:, 2] == 1, 9, 3)  # out 3 after destination 2, except where 1 came first
    assert evidence(model, table, text.ravel()).verdict[0] == "confirmed"
