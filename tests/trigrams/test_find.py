"""The exact search against enumeration of all triples in float64, written from the formulas and the weights."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

import aotlens
from aotlens.circuits import qk_circuit
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import (
    background_distribution,
    distance_scores,
    distance_shares,
    log_background,
    score_triples,
    skip_trigrams,
)
from aotlens.trigrams.background import log_background_bound
from tests.messages import refused


def norm(model: AttentionOnlyTransformer, rows: torch.Tensor, layer_norm: Any) -> torch.Tensor:
    return layer_norm(rows) if model.cfg.norm else rows


def every_triple(model: AttentionOnlyTransformer, head: int, distance: Any = None) -> dict[str, np.ndarray]:
    """qk, attention, ov of all triples `[source, destination, out]`, by the plain formulas."""
    cfg = model.cfg
    with torch.no_grad():
        model = model.double()
        x = norm(model, model.W_E, model.blocks[0].ln1)
        q = x @ model.W_Q[0, head] + model.b_Q[0, head]
        k = x @ model.W_K[0, head] + model.b_K[0, head]
        scores = (cfg.score_scale * q @ k.T).numpy()  # [destination, source]
        counts = model.unigram_counts.double().numpy()
        u = counts / counts.sum()
        top = scores.max(1, keepdims=True)
        z = scores - top - np.log(np.exp(scores - top) @ u)[:, None]
        gain = model.ln_final.w[:, None] if cfg.norm else 1.0
        w_u = gain * model.W_U
        w_u = w_u - w_u.mean(0) if cfg.norm else w_u
        # The norm's bias is a constant of the head, whatever it attends to.
        bias = model.blocks[0].ln1.b if cfg.norm else 0.0
        ov = ((x - bias) @ model.W_V[0, head] @ model.W_O[0, head] @ w_u).numpy()
        ov = ov - ov.mean(1, keepdims=True)
    n = cfg.n_ctx // 2
    if distance is None:
        attention = 1 / (1 + n * np.exp(np.minimum(-z, 700)))
    else:
        p = position_scores(model, head)
        shares = []
        for d in range(1, n + 1) if distance == "mean" else [distance]:
            c = sum(np.exp(p[other] - p[d]) for other in range(n + 1) if other != d)
            shares.append(1 / (1 + c * np.exp(-z)))
        attention = np.mean(shares, axis=0)
    shape = (cfg.d_vocab, cfg.d_vocab, cfg.d_vocab)
    return {
        "qk": np.broadcast_to(z.T[:, :, None], shape),
        "attention": np.broadcast_to(attention.T[:, :, None], shape),
        "ov": np.broadcast_to(ov[:, None, :], shape),
    }


def position_scores(model: AttentionOnlyTransformer, head: int) -> list[float]:
    cfg = model.cfg
    with torch.no_grad():
        p = model.W_pos
        if cfg.norm and cfg.positions == "learned":
            # Each position's own scale with every token, one by one, averaged by how frequent they are.
            u = model.unigram_counts / model.unigram_counts.sum(dtype=torch.float64)
            together = model.W_E[:, None] + model.W_pos[None]
            squares = together.var(-1, unbiased=False)  # [token, pos]
            scale = ((u[:, None] * squares).sum(0) + cfg.norm_eps).sqrt()
            p = (p - p.mean(-1, keepdim=True)) / scale[:, None] * model.blocks[0].ln1.w
        bias = model.b_Q[0, head]
        if cfg.norm:
            bias = bias + model.blocks[0].ln1.b @ model.W_Q[0, head]
        q, k = p @ model.W_Q[0, head] + bias, p @ model.W_K[0, head]
        scores = (cfg.score_scale * q @ k.T).numpy()
    return [float(np.mean([scores[i, i - d] for i in range(d, cfg.n_ctx)])) for d in range(cfg.n_ctx)]


def score_of(every: dict[str, np.ndarray], score: str) -> np.ndarray:
    if score == "effect":
        return every["attention"] * every["ov"]
    if score == "sum":
        return every["qk"] + every["ov"]
    return np.where(every["qk"] > 0, every["qk"] * every["ov"], np.nan)


def ranked(values: np.ndarray, largest: bool, filters: list[list[int] | None]) -> list[tuple[int, int, int]]:
    allowed = [range(values.shape[axis]) if ids is None else sorted(set(ids)) for axis, ids in enumerate(filters)]
    triples = [t for t in itertools.product(*allowed) if not np.isnan(values[t])]
    return sorted(triples, key=lambda t: (-values[t] if largest else values[t], t))


def compare(table: Any, every: dict[str, np.ndarray], values: np.ndarray, expected: list, k: int) -> None:
    got = list(zip(table.source.tolist(), table.destination.tolist(), table.out.tolist(), strict=True))
    assert len(got) == min(k, len(expected))
    if not got:
        return
    at = tuple(np.array(got).T)
    np.testing.assert_allclose(values[at], values[tuple(np.array(expected[: len(got)]).T)], rtol=1e-9, atol=1e-12)
    assert got == expected[: len(got)]
    for column in ("qk", "attention", "ov"):
        np.testing.assert_allclose(getattr(table, column), every[column][at], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(table.effect, (every["attention"] * every["ov"])[at], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("score", ["effect", "sum", "product"])
@pytest.mark.parametrize("kind", [{"norm": None, "positions": "qk"}, {"attention": "mssa"}, {"tied_embeddings": False}])
def test_the_best_of_all_triples(make, kind: dict, score: str, largest: bool) -> None:
    model = make(**kind)
    every = every_triple(model, 1)
    values = score_of(every, score)
    table = skip_trigrams(model, (0, 1), k=300, score=score, largest=largest)
    compare(table, every, values, ranked(values, largest, [None] * 3), 300)
    assert table.to_frame().columns.tolist()[:4] == ["rank", "source", "destination", "out"]
    assert table.rank.tolist() == list(range(1, 301))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("score", ["effect", "sum", "product"])
@pytest.mark.parametrize(
    "filters",
    [
        [[4], None, [7]],
        [[0, 1, 2, 9], [5, 3, 5], [2, 11]],
        [None, [6], None],
        [[2, 20], [1, 2], None],
    ],
)
def test_filters_down_to_the_last_triple(make, filters: list, score: str, largest: bool) -> None:
    """k above the number of triples: positive and negative ov in one ranking, destinations reversed in the latter."""
    model = make(norm=None)
    every = every_triple(model, 0)
    values = score_of(every, score)
    sources, destinations, outs = filters
    for k in (1, 5, 20_000):
        table = skip_trigrams(
            model, (0, 0), k=k, score=score, largest=largest, sources=sources, destinations=destinations, outs=outs
        )
        compare(table, every, values, ranked(values, largest, filters), k)


@pytest.mark.parametrize("score", ["effect", "sum", "product"])
@pytest.mark.parametrize("largest", [True, False])
def test_ties_go_by_source_destination_out(make, score: str, largest: bool) -> None:
    """Equal and zero rows of W_E: whole blocks of equal scores, and of scores that are 0."""
    model = make(norm=None, bias=False, positions=None, d_vocab=9)
    with torch.no_grad():
        model.embed.W_E[4] = model.embed.W_E[2]
        model.embed.W_E[7] = model.embed.W_E[2]
        model.embed.W_E[5] = 0.0
        model.unembed.W_U[:, 3] = model.unembed.W_U[:, 6]
    every = every_triple(model, 0)
    values = score_of(every, score).round(10)  # BLAS may round equal rows differently
    for k in (13, 100, 9**3):
        table = skip_trigrams(model, (0, 0), k=k, score=score, largest=largest)
        got = np.stack([table.source, table.destination, table.out], 1)
        expected = ranked(values, largest, [None] * 3)[:k]
        np.testing.assert_allclose(values[tuple(got.T)], values[tuple(np.array(expected).T)], atol=1e-9)
        if score == "effect" and k == 9**3:
            zero = [tuple(row) for row in got.tolist() if every["ov"][tuple(row)] == 0]
            assert zero == sorted(zero)


@pytest.mark.parametrize("distance", [1, 3, "mean"])
@pytest.mark.parametrize("kind", [{"norm": None, "positions": "qk"}, {"positions": "learned"}])
def test_distances(make, kind: dict, distance: Any) -> None:
    model = make(**kind)
    every = every_triple(model, 1, distance)
    values = score_of(every, "effect")
    for largest in (True, False):
        table = skip_trigrams(model, (0, 1), k=100, distance=distance, largest=largest)
        compare(table, every, values, ranked(values, largest, [None] * 3), 100)


@pytest.mark.parametrize("kind", [
    {"norm": None}, {"norm": "rms", "n_kv_heads": 1}, {"norm": None, "attention": "mssa", "bias": True},
], ids=str)  # fmt: skip
def test_at_a_distance_a_rotary_head_attends_as_it_does_in_text(kind: dict[str, Any]) -> None:
    """Attention is the model's own: e^score of the source δ back, against each background token at other distances, by
    the scores of prompts that hold these tokens there."""
    cfg = ModelConfig(n_layers=1, d_model=10, n_heads=2, d_head=4, n_ctx=9, d_vocab=5, positions="rotary",
                      rotary={"base": 20.0}, **kind)  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter += torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    model.unigram_counts = torch.tensor([5, 1, 9, 0, 3])
    u, last, n = model.unigram_counts.double().numpy() / 18, 8, 4
    scores = np.empty((n + 1, 5, 5))  # [distance, destination, source]
    own = qk_circuit(model, (0, 1), biases=True, distance=0)
    scores[0] = (own.A @ own.B).numpy()
    for distance, destination, source in itertools.product(range(1, n + 1), range(5), range(5)):
        ids = torch.zeros(1, 9, dtype=torch.long)
        ids[0, last], ids[0, last - distance] = destination, source
        scores[distance, destination, source] = model.run_with_cache(ids)[1]["attn_scores", 0][
            0, 1, last, last - distance
        ]
    np.testing.assert_allclose(np.diagonal(scores[0]), [
        float(model.run_with_cache(torch.tensor([[d]]))[1]["attn_scores", 0][0, 1, 0, 0]) for d in range(5)
    ])  # fmt: skip
    for distance in (1, 3):
        others = np.delete(np.exp(scores), distance, axis=0) @ u
        own = np.exp(scores[distance])
        expected = own / (own + others.sum(0)[:, None])
        table = skip_trigrams(model, (0, 1), k=125, distance=distance)
        np.testing.assert_allclose(table.attention, expected[table.destination, table.source], rtol=1e-9)
        assert (np.diff(table.effect) <= 1e-12).all() and table.distance == distance
        again = score_triples(model, (0, 1), table.source[:9], table.destination[:9], table.out[:9], distance=distance)
        np.testing.assert_allclose(again.qk, table.qk[:9], rtol=1e-9)
    for wrong in ("mean", 0, 5, True):
        with refused(f"distance={wrong!r}", "expected 1 to 4 (half the context), or None"):
            skip_trigrams(model, (0, 1), distance=wrong)


@pytest.mark.parametrize("kind", [{"norm": None, "positions": "qk"}, {"positions": "learned"}])
def test_shares_of_distances_are_a_softmax_of_mean_position_scores(make, kind: dict) -> None:
    model = make(**kind)
    scores = np.exp(position_scores(model.double(), 1)[: model.cfg.n_ctx // 2 + 1])
    np.testing.assert_allclose(distance_shares(model, (0, 1)), scores / scores.sum(), rtol=1e-9)


def test_positions_alone_in_the_stream_score_as_in_the_model(make) -> None:
    """W_E = 0: what the norm reads is the position, so scores by distance are the model's own."""
    model = make(positions="learned", bias=False)
    with torch.no_grad():
        model.embed.W_E.zero_()
        model.blocks[0].ln1.b.zero_()
        _, cache = model.run_with_cache(torch.arange(10)[None])
    scores = cache["blocks.0.attn.hook_attn_scores"][0, 1].numpy()
    expected = [np.diagonal(scores, -delta).mean() for delta in range(10)]
    np.testing.assert_allclose(distance_scores(model, (0, 1)), expected, rtol=1e-9)


def test_positions_of_later_layers_are_relative(make) -> None:
    model = make(n_layers=2, positions="learned")
    assert "positions: layer 1's norm" in skip_trigrams(model, (1, 0), k=1, distance=2).relative
    assert "its mean over tokens" in skip_trigrams(model, (0, 0), k=1, distance="mean").relative
    assert "positions:" not in skip_trigrams(model, (0, 0), k=1).relative
    with pytest.raises(ValueError, match="layer 1's norm"):
        distance_shares(model, (1, 0))
    exact = skip_trigrams(make(norm=None, positions="qk"), (0, 0), k=1, distance=np.int64(2))
    assert exact.exact


@pytest.mark.usefixtures("real_bundled_folder")
def test_a_trained_head_of_the_previous_token_is_seen_from_its_weights() -> None:
    """novels-2l-mhsa has a norm and learned positions; README: 0.3 attends to the previous token, score 0.94."""
    shares = distance_shares(aotlens.load("novels-2l-mhsa", "cpu"), (0, 3))
    assert shares.argmax() == 1 and shares[1] > 0.5


def test_a_mask_is_not_known_to_attention_and_said_so(make) -> None:
    window = torch.ones(10, 10).tril().triu(-1).bool().tolist()
    model = make(norm=None, attn_mask=(tuple(tuple(row) for row in window),))
    assert "attn_mask" in skip_trigrams(model, (0, 0), k=1).relative


@pytest.mark.parametrize("scale", [1e-46, 1e-300, 1e40])
def test_scales_that_float32_has_no_room_for(make, scale: float) -> None:
    model = make(norm=None)
    with torch.no_grad():
        model.blocks[0].attn.W_O *= scale
    every = every_triple(model, 0)
    values = np.sort(score_of(every, "effect").ravel())
    for largest in (True, False):
        table = skip_trigrams(model, (0, 0), k=50, largest=largest)
        np.testing.assert_allclose(table.effect, values[::-1][:50] if largest else values[:50], rtol=1e-9, atol=0)


def test_a_source_that_writes_nothing_takes_no_more_memory_than_its_rows(make) -> None:
    model = make(dtype=torch.float32, norm=None, positions=None, bias=False, d_vocab=20_000)
    with torch.no_grad():
        model.embed.W_E[0] = 0.0
    tracemalloc.start()
    table = skip_trigrams(model, (0, 0), k=10, sources=[0], normaliser=np.zeros(20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.destination.tolist() == [0] * 10 and table.out.tolist() == list(range(10))
    assert peak < 50e6  # V² numbers are 3.2 GB


def test_a_saturated_head_in_float32(make) -> None:
    """Scores of hundreds of nats: the normaliser neither overflows nor vanishes, and attention is 1 for many."""
    model = make(dtype=torch.float32, norm=None)
    with torch.no_grad():
        model.embed.W_E *= 12.0
    table = skip_trigrams(model, (0, 0), k=200)
    every = every_triple(model, 0)
    values = score_of(every, "effect")
    best = np.sort(values.ravel())[::-1][:200]
    np.testing.assert_allclose(table.effect, best, rtol=1e-3)
    assert np.abs(every["qk"]).max() > 200


def test_more_sources_than_a_batch(make) -> None:
    """Bounds spare work only where they may: 1,500 sources in two batches, against numpy on the whole cube's rows."""
    model = make(dtype=torch.float32, norm=None, d_vocab=1500, n_ctx=64)
    table = skip_trigrams(model, (0, 1), k=50, outs=[3, 77, 512])
    every = every_triple(model, 1)
    values = every["attention"][:, :, 0][:, :, None] * every["ov"][:, 0, [3, 77, 512]][:, None, :]
    best = np.sort(values.ravel())[::-1][:50]
    np.testing.assert_allclose(table.effect, best, rtol=1e-5)
    assert len(set(zip(table.source.tolist(), table.destination.tolist(), table.out.tolist(), strict=True))) == 50


def test_a_given_background_and_normaliser(make) -> None:
    model = make()
    uniform = skip_trigrams(model, (0, 0), k=20, background=np.ones(23))
    model.unigram_counts = torch.ones(23)
    own = skip_trigrams(model, (0, 0), k=20)
    np.testing.assert_array_equal(uniform.out, own.out)
    np.testing.assert_allclose(uniform.qk, own.qk)
    q = skip_trigrams(model, (0, 0), k=20, normaliser=np.zeros(23))
    with torch.no_grad():
        x = model.blocks[0].ln1(model.W_E)
        scores = (x @ model.W_Q[0, 0] + model.b_Q[0, 0]) @ (x @ model.W_K[0, 0] + model.b_K[0, 0]).T / 5**0.5
    np.testing.assert_allclose(q.qk, scores[q.destination, q.source], rtol=1e-9)


@pytest.mark.parametrize("score", ["effect", "sum"])
def test_a_least_count_admits_frequent_tokens_only(make, score: str) -> None:
    model = make(norm=None)
    counts = model.unigram_counts.numpy()
    least = int(np.sort(counts)[-6])
    common = np.flatnonzero(counts >= least).tolist()
    assert 6 <= len(common) < 23
    every = every_triple(model, 0)
    values = score_of(every, score)
    table = skip_trigrams(model, (0, 0), k=100, score=score, min_count=least)
    compare(table, every, values, ranked(values, True, [common] * 3), 100)
    rare = int(np.argmin(counts))  # asked for by name
    table = skip_trigrams(model, (0, 0), k=100, score=score, min_count=least, outs=[rare])
    compare(table, every, values, ranked(values, True, [common, common, [rare]]), 100)
    given = skip_trigrams(model, (0, 0), k=9, min_count=0.5, background=np.eye(23)[11])
    assert {*given.source.tolist(), *given.destination.tolist(), *given.out.tolist()} == {11}


def test_given_triples_get_the_same_numbers(make) -> None:
    model = make()
    table = skip_trigrams(model, (0, 1), k=40)
    again = score_triples(model, (0, 1), table.source, table.destination, table.out)
    for column in ("qk", "attention", "ov", "effect"):
        np.testing.assert_allclose(getattr(again, column), getattr(table, column))
    assert again.score is None


def test_what_is_exact_says_so(make) -> None:
    assert skip_trigrams(make(norm=None, positions="qk"), (0, 0), k=1).exact
    learned = skip_trigrams(make(), (0, 0), k=1)
    assert not learned.exact and "token and position" in learned.relative
    assert "final norm" in skip_trigrams(make(positions="qk"), (0, 0), k=1).relative


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("score", ["effect", "sum", "product"])
def test_bounded_normalisers_change_nothing(make, score: str, largest: bool) -> None:
    """1,500 tokens, float32: what is found by bounds, and with every normaliser worked out beforehand."""
    model = make(dtype=torch.float32, norm=None, d_vocab=1500, n_ctx=64)
    circuits = qk_circuit(model, (0, 0), biases=True)
    distribution = background_distribution(model, None)
    normaliser = log_background(circuits, distribution)
    bound = log_background_bound(circuits, distribution)
    assert (bound <= normaliser).all() and np.median(normaliser - bound) < 0.5
    lazy = skip_trigrams(model, (0, 0), k=400, score=score, largest=largest)
    known = skip_trigrams(model, (0, 0), k=400, score=score, largest=largest, normaliser=normaliser)
    np.testing.assert_allclose(lazy.effect, known.effect, rtol=1e-5)
    same = (lazy.source == known.source) & (lazy.destination == known.destination) & (lazy.out == known.out)
    assert same.mean() > 0.98  # the normaliser's last bit may exchange two
