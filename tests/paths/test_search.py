"""The search for the largest paths against enumeration of all of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.paths import Path, expand
from aotlens.paths.bounds import bound_longer, prepare, read_heads, row_norms, spectral_norm_bound
from aotlens.paths.frozen import root_gradient
from aotlens.paths.target import direction
from tests.messages import refused
from tests.small_models import MakeModel

DEEP: dict[str, Any] = {"n_layers": 4, "n_heads": 4, "bias": True}
KINDS = {
    "mhsa": DEEP,
    "mssa, no norm": {**DEEP, "attention": "mssa", "norm": None},
    "thresholded": {**DEEP, "phi": "thresholded_softmax", "threshold": 0.25},
    "linear, both ways": {**DEEP, "phi": "linear", "causal": False},
    "mlps": {**DEEP, "d_mlp": 5},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["abs", "pos", "neg"])
def test_it_finds_the_largest_of_all_paths(make: MakeModel, tokens: Tensor, kind: str, by: str) -> None:
    expansion = expand(make(**KINDS[kind]), tokens)
    every = expansion.all_paths(3, (2, 5))
    flat = every.values.flatten()
    there = every.exists.flatten()
    keys = {"abs": flat.abs(), "pos": flat, "neg": -flat}[by].masked_fill(~there, -torch.inf)
    order = keys.argsort(descending=True)
    top = expansion.top(20, 3, (2, 5), by, budget=10_000)  # type: ignore[arg-type]
    assert top.complete and top.n_proven == 20
    expected = flat[order[:20]]
    torch.testing.assert_close(torch.tensor(top.values, dtype=torch.float64), expected, rtol=1e-9, atol=1e-12)
    assert [every.path(*divmod(int(i), every.values.shape[1])) for i in order[:20]] == list(top.paths)
    assert top.logit == pytest.approx(expansion.logit(3, (2, 5)))
    assert top.remainder == pytest.approx(float(flat.sum() - expected.sum()), abs=1e-9)
    assert float(keys[order[20]]) <= top.bound * (1 + 1e-9)
    printed = float(top.sentences().split("No single one of them is more than ")[1].split()[0])
    assert top.bound <= printed < top.bound + 0.001
    assert top.n_paths == int(there.sum()) == 3 * 5**4 + ("mlp" in kind) * (5**3 + 5**2 + 5 + 1)


@pytest.mark.parametrize("budget", [1, 3, 10, 40])
@pytest.mark.parametrize("by", ["abs", "neg"])
def test_what_a_small_budget_proves_is_true(make: MakeModel, tokens: Tensor, budget: int, by: str) -> None:
    expansion = expand(make(**DEEP), tokens)
    every = expansion.all_paths(-1, 7)
    keys = every.values.abs() if by == "abs" else -every.values
    best = keys.flatten().sort(descending=True).values
    top = expansion.top(15, -1, 7, by, budget=budget)  # type: ignore[arg-type]
    assert top.n_expanded <= budget and top.n_evaluated <= top.n_paths
    found = torch.tensor(top.values, dtype=torch.float64)
    found = found.abs() if by == "abs" else -found
    torch.testing.assert_close(found[: top.n_proven], best[: top.n_proven], rtol=1e-9, atol=1e-12)
    for path in top.paths:
        keys[every.names.index(path.source), every.index(path.heads)] = -torch.inf
    assert float(keys.max()) <= top.bound * (1 + 1e-9)
    assert top.remainder == pytest.approx(top.logit - sum(top.values))
    assert top.to_frame().proven.sum() == top.n_proven


@pytest.mark.parametrize(
    "changes",
    [
        DEEP | {"n_layers": 2},
        KINDS["linear, both ways"] | {"n_layers": 3, "n_heads": 2},
        KINDS["mlps"] | {"n_layers": 3, "n_heads": 2},
    ],
)
def test_split_sources_are_searched_by_position(make: MakeModel, tokens: Tensor, changes: dict[str, Any]) -> None:
    expansion = expand(make(**changes), tokens, split_sources=True)
    contributions = {path: float(expansion.logits(path)[-1, 1]) for path in expansion.paths()}
    top = expansion.top(25, -1, 1, budget=10_000)
    assert top.complete and top.n_paths == len(contributions)
    best = sorted(contributions.values(), key=abs, reverse=True)[:25]
    assert list(top.values) == pytest.approx(best)
    for path, value in zip(top.paths, top.values, strict=True):
        assert contributions[path] == pytest.approx(value)
    cut = expansion.top(25, -1, 1, budget=2)
    rest = [value for path, value in contributions.items() if path not in set(cut.paths)]
    assert max(map(abs, rest)) <= cut.bound * (1 + 1e-9)


@pytest.mark.parametrize("split", [False, True])
def test_no_path_that_is_none_is_listed(make: MakeModel, tokens: Tensor, split: bool) -> None:
    """Through the heads of its layer and below, an MLP's output is no path, not one of 0."""
    expansion = expand(make(n_layers=3, d_mlp=5, bias=True), tokens, split_sources=split)
    for by in ("abs", "neg"):
        top = expansion.top(10_000, -1, 2, by)
        assert set(top.paths) == set(expansion.paths()) and len(top.paths) == top.n_paths == expansion.n_paths
        assert top.n_evaluated == top.n_paths and top.remainder == pytest.approx(0, abs=1e-9)
    for head in ((0, 1), (1, 0), (2, 1)):
        top = expansion.top(10_000, -1, 2, through=head)
        passing = {path for path in expansion.paths() if head in path.heads}
        assert set(top.paths) == passing and top.n_paths == len(passing) and top.complete
        assert top.remainder == pytest.approx(0, abs=1e-9)


def test_all_paths_of_a_small_model_are_returned_when_asked_for(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(n_layers=1), tokens)
    top = expansion.top(100, -1, 0)
    assert len(top.paths) == top.n_paths == 9 and top.complete and top.bound == 0
    assert top.remainder == pytest.approx(0, abs=1e-9)
    assert set(top.paths) == set(expansion.paths())
    assert top.target == 0 and expansion.top(1).target == int(expansion.frozen.logits[-1].argmax())
    negative = expansion.top(100, -1, 0, by="neg")
    assert negative.complete and list(negative.values) == sorted(negative.values)


def test_the_bounds_hold_for_every_path(make: MakeModel, tokens: Tensor) -> None:
    """Against the norm of what each single path brings to each head."""
    expansion = expand(make(n_layers=3, n_heads=3, bias=True), tokens)
    frozen = expansion.frozen
    bounds = prepare(frozen, split=False)
    root = root_gradient(frozen, 4, direction(frozen, 3).column)
    reading = read_heads(bounds, root, 9)
    for path in expansion.paths():
        if path.order < 2:
            continue
        layer, head = path.heads[-1]
        below = Path(path.source, path.heads[:-1])
        values = (expansion.stream(below) * frozen.inverse_scale[layer][:, None]) @ frozen.W_V[layer, head]
        # The norm of the values where W_V and its bias have orthonormal columns.
        joined = torch.cat([frozen.W_V[layer, head], frozen.v_bias[layer, head][None]])
        norms = torch.linalg.solve(torch.linalg.qr(joined).R.T, values.T).norm(dim=0)
        f = layer * 3 + head
        assert (norms <= bounds.reach[below.order - 1, f] * (1 + 1e-9)).all()
        contribution = float(expansion.logits(path)[4, 3])
        assert abs(contribution) <= float((reading.norms[f] * bounds.reach[below.order - 1, f]).sum()) * (1 + 1e-9)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("changes", [{}, {"phi": "linear", "causal": False, "norm": None}, {"d_mlp": 5}])
def test_no_path_is_larger_than_any_of_its_nodes_says(
    make: MakeModel, tokens: Tensor, changes: dict[str, Any], split: bool
) -> None:
    """Each upper end of a path bounds it as soon as it is reached, for sources together and apart."""
    n_layers = 3 if split else 4
    expansion = expand(make(n_layers=n_layers, bias=True, **changes), tokens, split_sources=split)
    bounds = prepare(expansion.frozen, split=split)
    root = root_gradient(expansion.frozen, 3, direction(expansion.frozen, (2, 5)).column)
    gradients, ratios = {(): root}, []
    for path in expansion.paths():
        logits = expansion.logits(path)[3]
        contribution = abs(float(logits[2] - logits[5]))
        for node in (path.heads[start:] for start in range(path.order, 1, -1)):
            if node not in gradients:
                u = bounds.head_values_gradient(node[0], gradients[node[1:]])
                gradients[node] = bounds.gradient(node[0], u)
            layer, head = path.heads[-len(node) - 1]
            reading = read_heads(bounds, gradients[node], (node[0][0] if node else n_layers) * 2)
            bound = float(bound_longer(bounds, reading)[layer * 2 + head])
            assert contribution <= bound * (1 + 1e-9), (str(path), node)
            ratios.append(contribution / bound if bound else 0)
    assert max(ratios) > 0.5  # it is not loose by mistake


def test_the_bound_on_spectral_norms_is_one_and_is_tight() -> None:
    matrices = torch.randn(50, 16, 16, dtype=torch.float64)
    matrices[0] = 0
    matrices[1] *= 1e-30
    matrices[2] *= 1e30
    exact = torch.linalg.matrix_norm(matrices, 2)
    bound = spectral_norm_bound(matrices)
    assert (bound >= exact * (1 - 1e-12)).all() and (bound <= exact * 16 ** (1 / 32)).all()
    assert bound[0] == 0
    for scale in (1e-30, 1e30):  # whose squares vanish and overflow in float32
        wide = spectral_norm_bound((matrices[3:] * scale).float()).double() / scale
        assert (wide >= exact[3:] * (1 - 1e-5)).all() and (wide <= exact[3:] * 16 ** (1 / 32) * (1 + 1e-5)).all()
    single = spectral_norm_bound(matrices.float()[:2])
    assert single.isfinite().all()


def test_a_deep_model_gives_an_honest_answer(make: MakeModel, tokens: Tensor) -> None:
    """24 layers of 16 heads: 17²⁴ sequences. What is not proven is said so, and the remainder is exact."""
    model = make(torch.float32, n_layers=24, n_heads=16, d_model=16, d_head=4)
    expansion = expand(model, tokens)
    top = expansion.top(50, budget=5)
    assert len(top.paths) == 50 and top.n_expanded == 5 and not top.complete
    assert top.bound >= abs(top.values[-1]) or top.complete
    target = int(expansion.frozen.logits[-1].argmax())
    returned = sum(float(expansion.logits(path)[-1, target]) for path in top.paths)
    assert top.remainder == pytest.approx(expansion.logit(-1, target) - returned, abs=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"k": 0}, "k=0"), ({"k": 1, "budget": 0}, "budget=0"), ({"k": 1, "by": "size"}, "by='size'"),
     ({"k": True}, "k=True: expected a whole number")],
)  # fmt: skip
def test_bad_questions_are_refused(make: MakeModel, tokens: Tensor, arguments: dict[str, Any], message: str) -> None:
    expansion = expand(make(), tokens)
    for search in (expansion.top, expansion.score((1, 0), 3, 1).top):
        with pytest.raises(ValueError, match=message):
            search(**arguments)


@pytest.mark.parametrize("kind", ["mhsa", "mlps"])
@pytest.mark.parametrize("head", [(0, 1), (2, 3), (3, 0)])
@pytest.mark.parametrize("by", ["abs", "neg"])
def test_it_finds_the_largest_paths_through_a_head(
    make: MakeModel, tokens: Tensor, head: tuple[int, int], by: str, kind: str
) -> None:
    expansion = expand(make(**KINDS[kind]), tokens)
    every = expansion.all_paths(3, (2, 5))
    passes = torch.tensor([head in every.heads(i) for i in range(every.values.shape[1])])
    there = every.values[every.exists & passes]
    keys = there.abs() if by == "abs" else -there
    best = there[keys.argsort(descending=True)]
    top = expansion.top(20, 3, (2, 5), by, through=head, budget=10_000)
    assert top.complete and top.through == head and top.n_paths == len(there)
    assert len(there) == 3 * 5**3 + (kind == "mlps") * sum(5 ** (2 - layer) for layer in range(head[0]))
    torch.testing.assert_close(torch.tensor(top.values, dtype=torch.float64), best[:20], rtol=1e-9, atol=1e-12)
    assert all(head in path.heads for path in top.paths)
    assert top.total == pytest.approx(float(there.sum())) and top.logit == pytest.approx(expansion.logit(3, (2, 5)))
    assert top.remainder == pytest.approx(float(best[20:].sum()), abs=1e-9)
    for budget in (1, 3, 10):
        cut = expansion.top(20, 3, (2, 5), by, through=head, budget=budget)
        found = torch.tensor(cut.values[: cut.n_proven], dtype=torch.float64)
        torch.testing.assert_close(found, best[: cut.n_proven], rtol=1e-9, atol=1e-12)
        lost = {round(float(x), 12) for x in best} - {round(x, 12) for x in cut.values}
        assert max((abs(x) if by == "abs" else -x) for x in lost) <= cut.bound * (1 + 1e-9)


def test_split_sources_are_searched_through_a_head(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(n_layers=3, phi="linear", causal=False, bias=True), tokens, split_sources=True)
    contributions = {p: float(expansion.logits(p)[-1, 1]) for p in expansion.paths() if (1, 1) in p.heads}
    top = expansion.top(25, -1, 1, through=(1, 1), budget=10_000)
    best = sorted(contributions.values(), key=abs, reverse=True)[:25]
    assert top.complete and top.n_paths == len(contributions) and list(top.values) == pytest.approx(best)
    everything = expansion.top(10_000, -1, 1, through=(1, 1))
    assert set(everything.paths) == set(contributions) and everything.remainder == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match=r"head 3\.0"):
        expansion.top(3, through=(3, 0))


def scaled(factors: list[float], dtype: torch.dtype, **changes: Any) -> AttentionOnlyTransformer:
    """A model whose layers' outputs are scaled, with uniform attention, so that its logits stay finite."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"n_layers": 4, "d_model": 16, "n_heads": 2, "d_head": 4, "n_ctx": 8, "d_vocab": 20}
    model = AttentionOnlyTransformer(ModelConfig(**shape, norm=None, positions=None, **changes)).to(dtype)
    with torch.no_grad():
        for block, factor in zip(model.blocks, factors, strict=True):
            block.attn.W_O *= factor
            block.attn.W_Q.zero_()
    return model.requires_grad_(False)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(
    ("factors", "dtype"),
    [
        ([1e10] * 4, torch.float32),
        ([1e-28, 1, 1e28, 1], torch.float32),
        ([1e28, 1, 1e-28, 1], torch.float32),
        ([1e-25, 1e20, 1e-20, 1e15], torch.float32),
        ([1e75] * 4, torch.float64),
        ([1e-200, 1, 1e200, 1], torch.float64),
    ],
)
@pytest.mark.parametrize("budget", [3, 1000])
def test_what_overflows_or_vanishes_proves_nothing(
    factors: list[float], dtype: torch.dtype, split: bool, budget: int
) -> None:
    """Squares of such norms are infinite or 0 in the model's precision; both once pruned what was largest."""
    expansion = expand(scaled(factors, dtype), torch.arange(8), split_sources=split)
    if split:
        contributions = {path: float(expansion.logits(path)[7, 3]) for path in expansion.paths()}
    else:
        every = expansion.all_paths(7, 3)
        cells = itertools.product(range(len(every.names)), range(every.values.shape[1]))
        contributions = {every.path(i, j): float(every.values[i, j]) for i, j in cells}
    best = sorted((abs(value) for value in contributions.values()), reverse=True)
    top = expansion.top(5, 7, 3, budget=budget)
    assert [abs(value) for value in top.values[: top.n_proven]] == pytest.approx(best[: top.n_proven], rel=1e-4)
    rest = max(abs(value) for path, value in contributions.items() if path not in set(top.paths))
    assert rest <= top.bound * (1 + 1e-4)
    head = (1, 1)
    top = expansion.top(5, 7, 3, through=head, budget=budget)
    best = sorted((abs(value) for path, value in contributions.items() if head in path.heads), reverse=True)
    assert [abs(value) for value in top.values[: top.n_proven]] == pytest.approx(best[: top.n_proven], rel=1e-4)


def test_a_path_that_is_infinite_is_refused() -> None:
    expansion = expand(scaled([1.0] * 4, torch.float32), torch.arange(8))
    object.__setattr__(expansion.frozen, "W_O", expansion.frozen.W_O * 1e38)
    with refused("contribution", "torch.float32", "model.double()"):
        expansion.top(5, 7, 3)


@pytest.mark.parametrize("value", [1e-300, 1e-40, 0.0, 1.0, 1e30])
def test_row_norms_are_never_too_small(value: float) -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.full((3, 5), value, dtype=dtype)
        x[0, 0] *= 2
        exact = torch.tensor([[float(v) for v in row] for row in x.tolist()], dtype=torch.float64)
        sizes = exact.abs().amax(1)
        reference = sizes * (exact / sizes.clamp(min=1e-320)[:, None]).norm(dim=1)
        norms = row_norms(x)
        assert (norms >= reference * (1 - 1e-6)).all() and (norms <= reference * 5**0.5 * (1 + 1e-6)).all()
