"""A score's expansion against the model's own scores and against brute force over all pairs of paths."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import Path, PathExpansion, ScoreExpansion, expand
from tests.paths.conftest import KINDS, MASK
from tests.small_models import MakeModel

FAMILY: dict[str, dict[str, Any]] = {
    "mhsa": {"bias": True},
    "mhsa, positions in queries and keys": {"bias": True, "positions": "qk"},
    "mhsa, no norm": {"bias": True, "norm": None},
    "mssa": {"attention": "mssa", "bias": True, "positions": "qk"},
    "mssa, no norm": {"attention": "mssa", "norm": None, "positions": None, "bias": True},
    "no biases": {"bias": False, "norm": None},
    "thresholded": KINDS["thresholded"] | {"bias": True},
    "linear": KINDS["linear"] | {"bias": True},
    "masked": {"attn_mask": MASK, "positions": "qk"},
    "three layers": {"n_layers": 3, "bias": True, "positions": "qk"},
    "mlps": {"d_mlp": 5, "bias": True},
    "three layers, mlps": {"n_layers": 3, "d_mlp": 5, "bias": True, "positions": "qk", "attention": "mssa"},
    "mlps, no norm": {"d_mlp": 5, "bias": True, "norm": None},
    "linear, mlps": KINDS["linear"] | {"d_mlp": 5, "bias": True},
}


def own_scores(model: AttentionOnlyTransformer, tokens: Tensor, head: tuple[int, int]) -> Tensor:
    """The model's own scores of a head, from its hook."""
    _, cache = model.run_with_cache(tokens[None])
    return cache["attn_scores", head[0]][0, head[1]]


def naive_parts(
    model: AttentionOnlyTransformer, expansion: PathExpansion, layer: int, split: bool
) -> dict[Path, Tensor]:
    """Every path of the layers below, as a part of the stream `[pos, d_model]`, by loops over the model's weights."""
    _, cache = model.run_with_cache(expansion.inputs)
    x = {"token": cache["hook_embed"][0]}
    if model.cfg.positions == "learned":
        x["position"] = cache["hook_pos_embed"][0].expand_as(x["token"])
    n, d = x["token"].shape
    paths: dict[Path, Tensor] = {}

    def centred(part: Tensor, below: int) -> Tensor:
        if not model.cfg.norm:
            return part
        gain = model.blocks[below].ln1.w
        scale = cache["scale", below, "ln1"][0]
        return (part - part.mean(-1, keepdim=True)) / scale * gain

    def spread(part: Tensor) -> list[tuple[int | None, Tensor]]:
        if not split:
            return [(None, part)]
        return [(at, part * (torch.arange(n) == at)[:, None]) for at in range(n)]

    for choice in itertools.product(range(-1, model.cfg.n_heads), repeat=layer):
        heads = tuple((below, head) for below, head in enumerate(choice) if head >= 0)
        starts = [(name, at, part) for name, value in x.items() for at, part in spread(value)]
        first = heads[0][0] if heads else layer
        before = model.b_O[:first].sum(0).expand(n, d)
        starts += [("bias", at, part) for at, part in spread(before.clone())]
        for below in range(0 if model.cfg.attn_only else first):  # what an MLP wrote before the first head reads
            starts += [(f"mlp_{below}", at, part) for at, part in spread(cache["mlp_out", below][0])]
        for name, at, part in starts:
            for index, (below, head) in enumerate(heads):
                v = centred(part, below) @ model.W_V[below, head]
                if name == "bias" and index == 0:
                    own = model.b_V[below, head]
                    if model.cfg.norm:
                        own = own + model.blocks[below].ln1.b @ model.W_V[below, head]
                    own = own.expand(n, -1)
                    v = v + (own if at is None else own * (torch.arange(n) == at)[:, None])
                part = cache["pattern", below][0, head] @ v @ model.W_O[below, head]
            paths[Path(name, heads, at)] = part
    return paths


def naive_sides(
    model: AttentionOnlyTransformer, expansion: PathExpansion, head: tuple[int, int], split: bool
) -> tuple[dict[Path, Tensor], dict[Path, Tensor]]:
    """Of every path, what it adds to all queries and to all keys of a head, `[pos, d_head]`."""
    layer = head[0]
    _, cache = model.run_with_cache(expansion.inputs)
    n = expansion.n_pos
    sides: tuple[dict[Path, Tensor], dict[Path, Tensor]] = ({}, {})
    for side, W, b in zip(sides, (model.W_Q[head], model.W_K[head]), (model.b_Q[head], model.b_K[head]), strict=True):
        for path, part in naive_parts(model, expansion, layer, split).items():
            own = b
            if model.cfg.norm:
                norm, scale = model.blocks[layer].ln1, cache["scale", layer, "ln1"][0]
                part = (part - part.mean(-1, keepdim=True)) / scale * norm.w
                own = own + norm.b @ W
            value = part @ W
            if path.source == "bias" and not path.heads:
                at = torch.ones(n) if path.source_position is None else torch.arange(n) == path.source_position
                value = value + at[:, None] * own
            side[path] = value
        if model.cfg.positions == "qk":
            for at in range(n) if split else [None]:
                here = torch.ones(n) if at is None else torch.arange(n) == at
                side[Path("position", (), at)] = here[:, None] * (model.W_pos[:n] @ W)
    return sides


def coefficients(model: AttentionOnlyTransformer, row: Tensor, key: int, against: Any) -> Tensor:
    """δ − w, written out."""
    c = torch.zeros_like(row)
    c[key] = 1
    if against == "mean":
        visible = row.isfinite()
        normalises = model.cfg.phi in ("softmax", "thresholded_softmax")
        c = c - (row.softmax(-1) if normalises else visible.to(row) / visible.sum())
    elif against is not None:
        c[against] -= 1
    return c


@pytest.mark.parametrize("against", ["mean", 0, None])
@pytest.mark.parametrize("kind", FAMILY)
@torch.no_grad()
def test_all_pairs_of_paths_add_up_to_the_score(make: MakeModel, tokens: Tensor, kind: str, against: Any) -> None:
    model = make(**FAMILY[kind])
    if kind == "masked":
        tokens = torch.tensor([3, 1, 4, 1, 8, 0])
    expansion = expand(model, tokens)
    last, query, key = model.cfg.n_layers - 1, 4, 2
    head = (last, 1 if kind != "masked" else 0)
    row = own_scores(model, tokens, head)[query]
    c = coefficients(model, row, key, against)
    score = expansion.score(head, query, key, against)
    total = float((c * row.where(row.isfinite(), 0.0)).sum())
    assert score.score == pytest.approx(float(row[key]), abs=1e-9) and score.value == pytest.approx(total, abs=1e-9)
    queries, keys = naive_sides(model, expansion, head, split=False)
    queries = {path: part[query] * model.cfg.score_scale for path, part in queries.items()}
    keys = {path: c @ part for path, part in keys.items()}
    paths = list(score.paths())
    assert set(paths) == {path for path in queries if path.start in score.source_names}
    assert len(paths) == score.n_paths and score.n_pairs == len(paths) ** 2
    terms = {(a, b): float(queries[a] @ keys[b]) for a in queries for b in keys}
    assert sum(terms.values()) == pytest.approx(total, abs=1e-9)
    for a, b in list(terms)[:: max(1, len(terms) // 300)]:
        if a.start in score.source_names and b.start in score.source_names:
            assert score.term(a, b) == pytest.approx(terms[a, b], abs=1e-9)
    check_sums(score, terms, last)
    residual = score.residual()
    assert residual.within_tolerance and residual.largest < 1e-9 and "nats" in str(residual)


def check_sums(score: ScoreExpansion, terms: dict[tuple[Path, Path], float], layer: int) -> None:
    orders = torch.zeros(layer + 1, layer + 1, dtype=torch.float64)
    sources: dict[tuple[str, str], float] = {}
    heads: dict[tuple[str, str], float] = {}
    for (a, b), value in terms.items():
        orders[a.order, b.order] += value
        at = a.start, b.start
        sources[at] = sources.get(at, 0.0) + value
        last = tuple("{}.{}".format(*path.heads[-1]) if path.heads else path.start for path in (a, b))
        heads[last] = heads.get(last, 0.0) + value  # type: ignore[index, arg-type]
    torch.testing.assert_close(score.by_pair_of_orders().values, orders, rtol=0, atol=1e-9)
    for sums, expected in ((score.by_source_pair(), sources), (score.by_head_pair(), heads)):
        for i, query in enumerate(sums.names):
            for j, key in enumerate(sums.names):
                assert float(sums.values[i, j]) == pytest.approx(expected[query, key], abs=1e-9)
        assert float(sums.values.sum()) == pytest.approx(score.value, abs=1e-9)
        assert sums.to_frame().nats.sum() == pytest.approx(score.value, abs=1e-9)


@pytest.mark.parametrize("kind", ["mhsa, positions in queries and keys", "mssa", "linear", "masked", "mlps"])
def test_positions_of_the_sources_are_told_apart(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**FAMILY[kind])
    if kind == "masked":
        tokens = torch.tensor([3, 1, 4, 1, 8, 0])
    head, query, key = (1, 0), 4, 2
    expansion = expand(model, tokens, split_sources=True)
    score = expansion.score(head, query, key, "mean")
    queries, keys = naive_sides(model, expansion, head, split=True)
    c = coefficients(model, own_scores(model, tokens, head)[query], key, "mean")
    whole_query, whole_key = sum(queries.values()), sum(keys.values())
    assert isinstance(whole_query, Tensor) and isinstance(whole_key, Tensor)
    scale = model.cfg.score_scale
    query_by, key_by = score.by_source_position("query"), score.by_source_position("key")
    for row, name in enumerate(score.source_names):
        for at in range(expansion.n_pos):
            mine = [path for path in queries if (path.start, path.source_position) == (name, at)]
            q = sum(float(scale * queries[path][query] @ (c @ whole_key)) for path in mine)
            k = sum(float(scale * whole_query[query] @ (c @ keys[path])) for path in mine)
            assert float(query_by[row, at]) == pytest.approx(q, abs=1e-9)
            assert float(key_by[row, at]) == pytest.approx(k, abs=1e-9)
    paths = [path for path in score.paths()]
    assert len(paths) == score.n_paths and set(paths) <= set(queries)
    for a, b in itertools.islice(itertools.product(paths, paths), 0, None, 97):
        assert score.term(a, b) == pytest.approx(float(scale * queries[a][query] @ (c @ keys[b])), abs=1e-9)
    with pytest.raises(ValueError, match="side='value'"):
        score.by_source_position("value")


@pytest.mark.parametrize("kind", ["mhsa", "mssa", "thresholded"])
def test_against_the_mean_the_terms_are_log_p_and_its_entropy(make: MakeModel, tokens: Tensor, kind: str) -> None:
    """And each is the derivative of log P by its scale, here by a finite difference of the naive keys."""
    model, head, query, key = make(**FAMILY[kind]), (1, 1), 4, 3
    expansion = expand(model, tokens)
    row = own_scores(model, tokens, head)[query]
    log_p = row.log_softmax(-1)
    seen = log_p[: query + 1]
    score = expansion.score(head, query, key)
    assert score.against == "mean" and score.contrast.before_threshold == (kind == "thresholded")
    assert ("before the threshold" in repr(score)) == (kind == "thresholded")
    entropy = -float((seen.exp() * seen).sum())
    assert score.log_probability == pytest.approx(float(log_p[key]), abs=1e-9)
    assert score.entropy == pytest.approx(entropy, abs=1e-9)
    assert score.value == pytest.approx(float(log_p[key]) + entropy, abs=1e-9)
    assert expansion.score(head, query, key, 1).value == pytest.approx(float(log_p[key] - log_p[1]), abs=1e-9)
    queries, keys = naive_sides(model, expansion, head, split=False)
    paths, step = list(score.paths()), 1e-5
    for a, b in ((paths[0], paths[0]), (paths[2], paths[5]), (paths[4], paths[1]), (paths[-1], paths[-2])):
        term = model.cfg.score_scale * keys[b] @ queries[a][query]
        more, less = ((row + sign * step * term).log_softmax(-1)[key] for sign in (1, -1))
        assert score.term(a, b) == pytest.approx(float(more - less) / (2 * step), abs=1e-7)


def test_biases_that_all_keys_share_vanish(make: MakeModel, tokens: Tensor) -> None:
    """Without a norm every bias path of a softmax pattern; with one, the reading head's own key bias alone."""
    bare = expand(make(bias=True, norm=None), tokens).score((1, 0), 3, 1)
    keys = [path for path in bare.paths() if path.source == "bias"]
    assert len(keys) == 3 and all(abs(bare.term(Path("token"), path)) < 1e-12 for path in keys)
    assert all(abs(bare.term(path, Path("token"))) > 1e-6 for path in keys)
    first = expand(make(bias=True), tokens).score((0, 0), 3, 1)
    assert abs(first.term(Path("token"), Path("bias"))) < 1e-12
    second = expand(make(bias=True), tokens).score((1, 0), 3, 1)
    assert all(abs(second.term(Path("token"), path)) > 1e-6 for path in keys)


def test_the_default_contrast_is_the_one_of_phi(make: MakeModel, tokens: Tensor) -> None:
    linear = expand(make(**KINDS["linear"]), tokens)
    score = linear.score("1.0", -1, 2)
    assert score.against is None and score.value == score.score and score.log_probability is score.entropy is None
    row = own_scores(linear.model, tokens, (1, 0))[4]
    assert linear.score((1, 0), 4, 2, "mean").value == pytest.approx(float(row[2] - row.mean()), abs=1e-9)
    bidirectional = expand(make(causal=False), tokens)
    assert bidirectional.score((1, 0), 1, 4).residual().within_tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_are_within_their_tolerance(make: MakeModel, tokens: Tensor, dtype: torch.dtype) -> None:
    expansion = expand(make(dtype, n_layers=4, bias=True), tokens)
    score = expansion.score((3, 1), 4, 2)
    assert score.residual().within_tolerance and score.by_pair_of_orders().values.dtype == torch.float32


def test_cells_that_there_are_not_are_refused(make: MakeModel, tokens: Tensor) -> None:
    with pytest.raises(ValueError, match="phi='fixed' has no scores"):
        expand(make(**KINDS["fixed"]), tokens).score((1, 0), 3, 1)
    expansion = expand(make(positions="qk"), tokens)
    for arguments, message in (
        (((1, 0), 2, 3), "key=3: expected a key that query 2 sees"),
        (((1, 0), 2, 1, 4), "against=4: expected a key that query 2 sees"),
        (((1, 0), 2, 1, 1), "another key than 1"),
        (((1, 0), 2, 1, "max"), "against='max'"),
        (((1, 0), 5, 1), "query=5: expected a whole number from -5 to 4"),
        (((1, 0), 2, True), "key=True: expected a whole number"),
        (((2, 0), 2, 1), r"head 2\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            expansion.score(*arguments)
    score = expansion.score((1, 0), 4, 2)
    with pytest.raises(ValueError, match="behind every head"):
        score.term(Path("position", ((0, 1),)), Path("token"))
    with pytest.raises(ValueError, match="source position 0 to 4"):
        score.term(Path("token"), Path("position", (), 7))
    with pytest.raises(ValueError, match="among token"):
        score.term(Path("input"), Path("token"))


def test_a_pair_is_named_by_its_two_paths(make: MakeModel, tokens: Tensor) -> None:
    score = expand(make(bias=True), tokens).score((1, 0), 4, 2)
    assert score.describe((Path("token"), Path("token", ((0, 1),)))) == "token 8@4 × token → 0.1"
    assert score.describe((Path("bias"), Path("position"))) == "bias × position"
    plain = expand(make(), tokens).score((1, 0), 4, 2, None)
    assert plain.describe((Path("position"), Path("token"))) == "position@4 × token 4@2"


@torch.no_grad()
def test_where_a_path_comes_in(make: MakeModel, tokens: Tensor) -> None:
    """A path through a head from one position brings its one vector wherever the head attends to that position."""
    model = make(bias=True)
    _, cache = model.run_with_cache(tokens[None])
    scale = cache["scale", 1, "ln1"][0].flatten()
    for against, weights in ((0, {3: 1.0, 0: -1.0}), (None, {3: 1.0})):
        side = expand(model, tokens, split_sources=True).score((1, 1), 4, 3, against=against).sides[1]
        arrivals = side.arrivals(Path("token", ((0, 1),), 0))
        pattern = cache["pattern", 0][0, 1, :, 0]
        expected = torch.tensor([abs(weights.get(at, 0.0)) for at in range(len(tokens))]) * pattern / scale
        torch.testing.assert_close(arrivals / arrivals.sum(), expected / expected.sum(), rtol=0, atol=1e-12)
