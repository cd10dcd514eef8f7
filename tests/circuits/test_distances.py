"""QK circuits over distances: dense tables, autograd, and a brute-force analysis of variance."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens import plot
from aotlens.circuits import distance_profile, over_distances, qk_circuit, reach
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.positions import rotation
from tests.messages import refused
from tests.small_models import SMALL, maker

SIZES = {**SMALL, "d_head": 8, "n_ctx": 12, "norm": "rms", "positions": "rotary"}
KINDS: dict[str, dict[str, Any]] = {
    "half": {"rotary": {"base": 20.0}, "bias": True},
    "interleaved, a share": {"rotary": {"base": 20.0, "dim": 4, "pairs": "interleaved"}, "n_heads": 4, "n_kv_heads": 2},
    "MSSA": {"rotary": {"base": 20.0, "dim": 6}, "attention": "mssa"},
    "alibi": {"positions": "alibi", "bias": True},
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> AttentionOnlyTransformer:
    return maker(SIZES, dtype=torch.float64)(**KINDS[request.param]).requires_grad_(False)


def dense(model: AttentionOnlyTransformer, head: tuple[int, int], distances: range) -> Tensor:
    """Every score, `[distance, destination, source]`, by running two tokens that are so far apart."""
    n = model.cfg.d_vocab or 0
    u, v = (
        torch.arange(n)[places].flatten() for places in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    )
    out = []
    for distance in distances:
        ids = torch.zeros(n * n, distance + 1, dtype=torch.long)
        ids[:, 0], ids[:, -1] = v, u
        _, cache = model.run_with_cache(ids, names_filter=["blocks.0.attn.hook_attn_scores"])
        out.append(cache["attn_scores", 0][:, head[1], -1, 0].view(n, n))
    return torch.stack(out)


def test_the_largest_entries_over_distances_are_those_of_all(model: AttentionOnlyTransformer) -> None:
    distances = range(1, 10)
    table = dense(model, (0, 1), distances)
    family = qk_circuit(model, "0.1", biases=True, distance=distances)
    for largest in (True, False):
        found = family.top(25, largest=largest)
        expected = table.flatten().sort(descending=largest).values[:25]
        torch.testing.assert_close(torch.from_numpy(found.values), expected, rtol=1e-9, atol=1e-9)
        own = table[found.distances - 1, found.rows, found.columns]
        torch.testing.assert_close(torch.from_numpy(found.values), own, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(family.at(4).AB, table[3])
    assert len(family.top(10**6).values) == table.numel()
    assert len(set(zip(found.rows, found.columns, found.distances, strict=True))) == 25
    with refused("expected one of the family's, 1 to 9"):
        family.at(10)


@pytest.mark.parametrize("rows", ["lengths vary", "of one length", "means are long"])
def test_the_search_is_exact_in_tiles_and_blocks(monkeypatch: pytest.MonkeyPatch, rows: str) -> None:
    """Rows of one length leave most pairs above the bound, so that blocks of distances decide; long means, as of heads
    that attend by distance, are bounded by themselves (without that all pairs are left)."""
    monkeypatch.setattr(over_distances, "TILE", (16, 32))
    monkeypatch.setattr(over_distances, "BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(60, 8, generator=generator), torch.randn(90, 8, generator=generator)
    cfg = maker(SIZES)(rotary={"base": 50.0, "dim": 6}, n_ctx=64).cfg
    if rows == "means are long":
        q, k = (x + 9 * torch.randn(1, 8, generator=generator) for x in (q, k))
    elif rows == "of one length":
        q, k = (x / x.norm(dim=1, keepdim=True) for x in (q, k))
    else:
        q = q * torch.rand(60, 1, generator=generator) ** 4
    distances = [*range(7 if rows == "means are long" else 0, 20), 40, 63]
    turns = rotation(cfg, torch.tensor(distances)[:, None])
    every = turns(q.double().expand(len(distances), -1, -1)) @ k.double().T
    found = over_distances.best_scores(cfg, q, k, distances, 30)
    torch.testing.assert_close(found.values, every.flatten().sort(descending=True).values[:30], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.values, every[found.places, found.rows, found.columns], rtol=1e-12, atol=1e-12)
    assert found.share_computed < 0.1
    assert rows != "means are long" or found.share_of_pairs < 0.5


@pytest.mark.parametrize("case", ["zeros", "one row for all", "many of one row", "tiny", "huge", "tiny and huge"])
def test_ties_and_sizes_do_not_matter_to_the_search(case: str) -> None:
    """Against all scores, sorted: values, and of equal ones the first by row, column, distance."""
    cfg = maker(SIZES)().cfg
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randn(n, 8, generator=generator) for n in (300, 280))
    distances, n = [0, 1, 2, 5, 9], 40
    if case == "zeros":
        q = torch.zeros_like(q)
    elif case == "one row for all":
        q, k = q[:1].repeat(300, 1), k[:1].repeat(280, 1)
    elif case == "many of one row":
        q[50:] = q[3]
        k[20:270] = k[5]
    else:
        q = q * {"tiny": 1e-23, "huge": 1e23, "tiny and huge": 1e-30}[case]
        k = k * {"tiny": 1e-23, "huge": 1e15, "tiny and huge": 1e30}[case]
    found = over_distances.best_scores(cfg, q, k, distances, n)
    turns = rotation(cfg, torch.tensor(distances)[:, None])
    scores = (turns(q.double().expand(len(distances), -1, -1)) @ k.double().T).movedim(0, -1)
    size = float(q.double().norm(dim=1).max() * k.double().norm(dim=1).max())
    order = scores.flatten().sort(descending=True, stable=True)
    torch.testing.assert_close(found.values, order.values[:n], rtol=1e-12, atol=1e-13 * size)
    at = scores[found.rows, found.columns, found.places]
    torch.testing.assert_close(at, found.values, rtol=1e-12, atol=1e-13 * size)
    keys = (found.rows * 280 + found.columns) * len(distances) + found.places
    assert len(keys.unique()) == n
    if case == "zeros":
        assert keys.tolist() == list(range(n))


def test_a_profile_is_the_curve_of_its_entry_and_its_frequencies_add_up(model: AttentionOnlyTransformer) -> None:
    profile = distance_profile(model, "0.1", 3, 7)
    each = [float(qk_circuit(model, "0.1", biases=True, distance=d).entries(*map(torch.tensor, ([3], [7]))))
            for d in range(12)]  # fmt: skip
    np.testing.assert_allclose(profile.scores, each, atol=1e-9)
    assert profile.to_frame().shape == (12, 2 + len(profile.theta))
    assert "distance" in profile.headline and plot(profile).data
    if len(profile.theta):  # a rotation by δ has the derivative θ b at δ = 0
        delta = torch.zeros((), dtype=torch.float64, requires_grad=True)
        circuit = qk_circuit(model, "0.1", biases=True, distance=range(12)).content
        score = rotation(model.cfg, delta)(circuit.A[3]) @ circuit.B[:, 7]
        (slope,) = torch.autograd.grad(score, delta)
        assert float(slope) == pytest.approx(float((profile.theta * profile.b).sum()))


def test_reach_is_the_analysis_of_variance_of_all_scores(model: AttentionOnlyTransformer) -> None:
    if model.cfg.positions == "alibi":
        with refused("expected a model with rotary positions"):
            reach(model, "0.0")
        return
    counts = torch.arange(1, 12)
    model.unigram_counts = counts
    found = reach(model, "0.2")
    p, w = counts.double() / counts.sum(), torch.arange(12, 0, -1).double()
    w = w / w.sum()
    scores = torch.stack([qk_circuit(model, "0.2", biases=True, distance=d).AB for d in range(12)])  # [δ, u, v]
    weights = {0: w, 1: p, 2: p}

    def mean(kept: tuple[int, ...]) -> Tensor:
        out = scores
        for axis in range(3):
            if axis not in kept:
                shape = [-1 if each == axis else 1 for each in range(3)]
                out = (out * weights[axis].reshape(shape)).sum(axis, keepdim=True)
        return out

    def effect(kept: tuple[int, ...]) -> Tensor:
        """By inclusion and exclusion."""
        out = torch.zeros(1, 1, 1, dtype=torch.float64)
        for part in product((False, True), repeat=len(kept)):
            inside = tuple(axis for axis, is_in in zip(kept, part, strict=True) if is_in)
            out = out + (-1) ** (len(kept) - len(inside)) * mean(inside)
        return out

    everywhere = w[:, None, None] * p[:, None] * p
    axes = {"δ": (0,), "v": (2,), "uv": (1, 2), "uδ": (0, 1), "vδ": (0, 2), "uvδ": (0, 1, 2)}
    expected = [float((everywhere * effect(kept).square().expand_as(scores)).sum()) for kept in axes.values()]
    np.testing.assert_allclose(found.variances, expected, rtol=1e-8, atol=1e-10)
    assert found.terms == tuple(axes) and sum(found.shares.values()) == pytest.approx(1)
    np.testing.assert_allclose(found.mean_scores, mean((0,)).flatten(), atol=1e-9)
    triples = p[:, None, None] * p[:, None] * p  # a destination, a source one back, and one at another distance
    margins = []
    for other in [0, *range(2, 12)]:
        difference = scores[1][:, :, None] - scores[other][:, None, :]
        centre = (triples * difference).sum()
        margins.append(float(centre / (triples * (difference - centre) ** 2).sum().sqrt()))
    assert found.previous_token == pytest.approx(min(margins))
    assert plot(found).data


def test_distances_are_checked(model: AttentionOnlyTransformer) -> None:
    with refused("at least one distance"):
        qk_circuit(model, "0.0", distance=[])
    with refused("distance", "0 to 11"):
        qk_circuit(model, "0.0", distance=[3, 12])
    plain = maker(SIZES)(positions=None)
    for call in (lambda: qk_circuit(plain, "0.0", distance=range(3)), lambda: distance_profile(plain, "0.0", 1, 2)):
        with refused("the same at every distance"):
            call()
