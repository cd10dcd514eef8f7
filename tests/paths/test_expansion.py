"""The expansion against brute force: dense Kronecker matrices, enumeration of all paths, the model itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import Path, expand, term_importance
from aotlens.paths.target import direction
from tests.messages import refused
from tests.paths.conftest import KINDS, MLPS
from tests.small_models import MakeModel

ENDS: list[dict[str, Any]] = [
    {"norm": norm, "bias": bias, "positions": positions}
    for norm, bias, positions in itertools.product(["layernorm", None], [True, False], ["learned", "qk", None])
]


def cases() -> list[Any]:
    found = []
    for (kind, changes), end in itertools.product([*KINDS.items(), *MLPS.items()], ENDS):
        if changes.get("phi") == "fixed" and end["positions"] == "qk":
            continue
        name = f"{kind}, {end['norm'] or 'no norm'}, {'bias' if end['bias'] else 'no bias'}, {end['positions']}"
        found.append(pytest.param({**changes, **end}, id=name))
    return found


def every_fifth(cases: list[Any]) -> list[Any]:
    """`make test` takes every fifth, which has every kind and every end; `make test-long` the others."""
    return [
        case if place % 5 == 0 else pytest.param(*case.values, id=case.id, marks=pytest.mark.long)
        for place, case in enumerate(cases)
    ]


def dense_logits(model: AttentionOnlyTransformer, tokens: Tensor) -> dict[Path, Tensor]:
    """Every path by dense matrices on the flattened stream, biases as a constant coordinate of each position.

    The stream is [pos, d_model + 1]; norms are matrices built from the scales of the model's own run.
    """
    _, cache = model.run_with_cache(tokens[None])
    cfg, n, d = model.cfg, len(tokens), model.cfg.d_model
    one = torch.ones(n, 1, dtype=torch.float64)

    def norm(name: str, module: Any) -> Tensor:
        """[n·(d+1), n·(d+1)]: a norm with its scale frozen."""
        blocks = []
        for position in range(n):
            block = torch.eye(d + 1, dtype=torch.float64)
            if cfg.norm:
                centre = torch.eye(d, dtype=torch.float64) - 1 / d
                block[:d, :d] = (centre @ torch.diag(module.w)) / cache[name][0, position, 0]
                block[d, :d] = module.b
            blocks.append(block.T)  # acts on columns of the flattened stream
        return torch.block_diag(*blocks)

    def lift(pattern: Tensor, weight: Tensor) -> Tensor:
        return torch.kron(pattern, weight.T.contiguous())

    def bordered(weight: Tensor, bias: Tensor | None, keep_one: bool) -> Tensor:
        out = torch.zeros(weight.shape[0] + 1, weight.shape[1] + 1, dtype=torch.float64)
        out[:-1, :-1] = weight
        if bias is not None:
            out[-1, :-1] = bias
        out[-1, -1] = float(keep_one)
        return out

    eye = torch.eye(n, dtype=torch.float64)
    heads, skips = [], []
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        before = norm(f"blocks.{layer}.ln1.hook_scale", block.ln1)
        row = []
        for head in range(cfg.n_heads):
            bias = None if attn.b_V is None else attn.b_V[head]
            value = bordered(attn.W_V[head], bias, False)[:, :-1]  # the constant ends in the value
            write = torch.cat([attn.W_O[head], torch.zeros(cfg.d_head, 1, dtype=torch.float64)], 1)
            pattern = cache["pattern", layer][0, head]
            row.append(
                lift(eye, write) @ lift(pattern, torch.eye(cfg.d_head, dtype=torch.float64)) @ lift(eye, value) @ before
            )
        heads.append(row)
        skip = bordered(torch.eye(d, dtype=torch.float64), attn.b_O, True)
        skips.append(lift(eye, skip))
    read = lift(eye, bordered(model.W_U, model.b_U, False)[:, :-1]) @ norm("ln_final.hook_scale", model.ln_final)
    zero = torch.zeros(n, d, dtype=torch.float64)
    starts = {"token": torch.cat([model.W_E[tokens], 0 * one], 1), "bias": torch.cat([zero, one], 1)}
    written = []
    if not cfg.attn_only:
        written = [torch.cat([cache["mlp_out", layer][0], 0 * one], 1) for layer in range(cfg.n_layers)]
    if cfg.positions == "learned":
        starts["position"] = torch.cat([model.W_pos[:n], 0 * one], 1)
    found = {}
    for choice in itertools.product(range(-1, cfg.n_heads), repeat=cfg.n_layers):
        operator = read
        for layer in reversed(range(cfg.n_layers)):
            operator = operator @ (skips[layer] if choice[layer] < 0 else heads[layer][choice[layer]])
        path = tuple((layer, head) for layer, head in enumerate(choice) if head >= 0)
        # What an MLP writes stands in the stream once the heads of its layer have read.
        readable = len(choice) if not path else path[0][0]
        after = {f"mlp_{layer}": written[layer] for layer in range(len(written)) if layer < readable}
        for name, start in {**starts, **after}.items():
            logits = (operator @ start.reshape(-1)).reshape(n, -1)
            found[Path(name, path)] = logits
    return found


@pytest.mark.parametrize("changes", every_fifth(cases()))
@torch.no_grad()
def test_every_path_is_its_dense_kronecker_product(make: MakeModel, tokens: Tensor, changes: dict[str, Any]) -> None:
    if "attn_mask" in changes:
        tokens = torch.tensor([3, 1, 4, 1, 8, 0])  # the mask needs its whole context
    model = make(**changes)
    expected = dense_logits(model, tokens)
    expansion = expand(model, tokens)
    paths = list(expansion.paths())
    assert len(paths) == len(set(paths)) == expansion.n_paths
    orders = [len(path.heads) for path in paths]
    assert expansion.n_paths_by_order == tuple(orders.count(k) for k in range(expansion.n_layers + 1))
    assert set(paths) == {path for path in expected if path.start in expansion.source_names}
    assert ("bias" in expansion.source_names) == (changes["bias"] or changes["norm"] is not None)
    total = torch.zeros_like(expansion.frozen.logits)
    by_order = torch.zeros(model.cfg.n_layers + 1, *total.shape, dtype=total.dtype)
    for path in paths:
        logits = expansion.logits(path)
        torch.testing.assert_close(logits, expected[path], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(expansion.operator(path)(expansion.source(path.start)), logits)
        total += logits
        by_order[path.order] += logits
    torch.testing.assert_close(total, model(tokens[None])[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(expansion.by_order(), by_order, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(expansion.by_order(2), by_order[..., 2], rtol=1e-9, atol=1e-9)
    contrast = expansion.by_order((2, 5))
    torch.testing.assert_close(contrast, by_order[..., 2] - by_order[..., 5], rtol=1e-9, atol=1e-9)
    residual = expansion.residual()
    assert residual.within_tolerance and residual.largest < 1e-9
    every = expansion.all_paths(-1, 3)
    assert int(every.exists.sum()) == expansion.n_paths == len(every.to_frame())
    for source, name in enumerate(every.names):
        for sequence in range(every.values.shape[1]):
            if not bool(every.exists[source, sequence]):
                assert float(every.values[source, sequence]) == 0
                continue
            path = every.path(source, sequence)
            assert path.start == name and every.index(path.heads) == sequence
            assert float(every.values[source, sequence]) == pytest.approx(float(expected[path][-1, 3]), abs=1e-9)


@pytest.mark.parametrize("kind", ["mhsa", "thresholded mssa", "linear", "mssa, mlps", "three layers, mlps"])
def test_split_sources_add_up_to_the_whole_source(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**(KINDS | MLPS)[kind], bias=True)
    whole, split = expand(model, tokens), expand(model, tokens, split_sources=True)
    paths = list(split.paths())
    assert len(paths) == split.n_paths == whole.n_paths * len(tokens)
    sums: dict[Path, Tensor] = {}
    for path in paths:
        merged = Path(path.start, path.heads)
        sums[merged] = sums.get(merged, torch.zeros(())) + split.logits(path)
        operator = split.operator(path)
        torch.testing.assert_close(operator(split.source(path.start, path.source_position)), split.logits(path))
    for path, total in sums.items():
        torch.testing.assert_close(total, whole.logits(path))


def test_paths_come_shortest_first_and_one_at_a_time(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(n_layers=30, d_model=4, n_heads=4, d_head=2), tokens)  # 5³⁰ paths
    assert expansion.n_paths == 3 * 5**30
    first = list(itertools.islice(expansion.paths(), 5))
    names = ["token → logits", "position → logits", "bias → logits", "token → 0.0 → logits", "position → 0.0 → logits"]
    assert [str(path) for path in first] == names
    assert {path.order for path in expansion.paths(max_order=1)} == {0, 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_single_precision_is_within_its_tolerance(make: MakeModel, tokens: Tensor, dtype: torch.dtype) -> None:
    expansion = expand(make(dtype, n_layers=4, bias=True), tokens)
    assert expansion.by_order().dtype == torch.float32
    residual = expansion.residual()
    assert residual.within_tolerance
    unit = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    assert residual.tolerance == pytest.approx(unit * max(1, residual.largest_term, residual.largest_logit))
    assert "logits" in str(residual)


@pytest.mark.parametrize(
    "changes",
    [
        {"read_in": "vectors", "d_in": 4, "read_out": "vectors", "d_out": 3, "d_vocab": None},
        {"read_in": "vectors", "read_out": "vectors", "d_vocab": None},
        {"read_in": "vectors", "d_in": 4, "class_token": True, "read_out": "classes", "d_out": 3, "d_vocab": None},
        {
            "read_in": "vectors", "d_in": 4, "read_out": "classes", "d_out": 3, "d_vocab": None,
            "pooling": "mean", "causal": False,
        },
    ],
)  # fmt: skip
@pytest.mark.parametrize("split", [False, True])
def test_other_ends_add_up_as_well(make: MakeModel, changes: dict[str, Any], split: bool) -> None:
    model = make(bias=True, **changes)
    x = torch.randn(5, model.cfg.d_in or model.cfg.d_model, dtype=torch.float64)
    expansion = expand(model, x, split_sources=split)
    expected = model(x[None])
    expected = expected if changes["read_out"] == "classes" else expected[0]
    assert expansion.source_names == ("input", "position", "bias")
    torch.testing.assert_close(sum(expansion.logits(path) for path in expansion.paths()), expected)
    torch.testing.assert_close(expansion.by_order().sum(0), expected)
    torch.testing.assert_close(expansion.by_head().total(), expected)
    torch.testing.assert_close(expansion.by_source().values.sum(0), expected)
    at_source = expansion.by_source_position(-1, 1)
    assert float(at_source.sum()) == pytest.approx(float(expected[-1, 1]))
    if split:
        for path in expansion.paths(max_order=0):
            assert path.source_position is not None
    with pytest.raises(ValueError, match="one input of vectors"):
        expand(model, x.expand(2, -1, -1))


def test_an_image_is_expanded_by_its_patches(make: MakeModel) -> None:
    changes = {"read_in": "patches", "image_size": 4, "patch_size": 2, "n_ctx": 5, "class_token": True, "causal": False}
    model = make(**changes, read_out="classes", d_out=3, d_vocab=None, bias=True)
    image = torch.rand(1, 4, 4, dtype=torch.float64)
    expansion = expand(model, image)
    assert expansion.n_pos == 5 and expansion.tokens == ()
    torch.testing.assert_close(expansion.by_order().sum(0), model(image[None]))
    assert expansion.residual().within_tolerance
    assert expansion.top(3, target=(0, 2), budget=100).complete
    assert "logit output 0 − output 2" in expansion.describe(Path("input"), (0, 2))


def test_what_cannot_be_expanded_is_refused(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    with pytest.raises(ValueError, match="one prompt"):
        expand(model, tokens.expand(2, -1))
    with pytest.raises(ValueError, match="no tokenizer"):
        expand(model, "text")
    expansion = expand(model, tokens)
    every = expansion.all_paths(-1, 0)
    assert len(every.to_frame(3)) == 3 and len(every.to_frame()) == every.values.numel()
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: expansion.logits(Path("token", ((1, 0), (0, 0)))), "increasing layers"),
        (lambda: expansion.operator(Path("token", ((2, 0),))), r"head 2\.0"),
        (lambda: expansion.logits(Path("input")), "among token, position, bias"),
        (lambda: expansion.logits(Path("token", (), 5)), "source position 0 to 4"),
        (lambda: expansion.logits(Path("mlp_0")), "path mlp_0 → logits: .* token, position, bias"),
        (lambda: expansion.source("input"), "'input': .* token, position, bias"),
        (lambda: expansion.by_order(9), "output 0 to 8"),
        (lambda: expansion.all_paths(5, 0), "position=5"),
        (lambda: expansion.paths(-1), "max_order=-1"),
        (lambda: expansion.all_paths(0, 0, max_paths=8), "above max_paths"),
        (lambda: every.to_frame(0), "k=0"),
    ]
    for ask, message in refusals:
        with pytest.raises(ValueError, match=message):
            ask()


def test_an_mlp_is_a_source_of_its_layer(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(n_layers=3, d_mlp=5, bias=True), tokens)
    assert expansion.source_names == ("token", "position", "mlp_0", "mlp_1", "mlp_2", "bias")
    assert Path("mlp_1", ((2, 0),)) == Path("mlp", ((2, 0),), source_layer=1) and Path("mlp_1").start == "mlp_1"
    assert expansion.n_paths == 3 * 3**3 + 3**2 + 3 + 1
    assert expand(expansion.model, tokens, split_sources=True).n_paths == 5 * expansion.n_paths
    assert expansion.describe(Path("mlp_0", ((1, 1),), 3)) == "mlp_0@3 → 1.1 → logits"
    for head in ((0, 0), (1, 0)):  # of an earlier layer, and of the MLP's own
        with refused("layer 1"):
            expansion.logits(Path("mlp_1", (head,)))
    for arguments in ({"source": "mlp"}, {"source": "token", "source_layer": 0}):
        with refused("source_layer", "'mlp'"):
            Path(**arguments)
    with refused("token, position, mlp_0, mlp_1, mlp_2, bias"):
        expansion.logits(Path("mlp_3"))


def test_b_out_is_in_the_mlp_and_not_in_the_biases(make: MakeModel, tokens: Tensor) -> None:
    model = make(d_mlp=5, norm=None, bias=True)
    expansion, (_, cache) = expand(model, tokens), model.run_with_cache(tokens[None])
    bias = model.b_O.sum(0) @ model.W_U + model.b_U
    torch.testing.assert_close(expansion.logits(Path("bias")), bias.expand(5, -1))
    post = cache["post", 1, "mlp"][0]
    torch.testing.assert_close(expansion.logits(Path("mlp_1")), (post @ model.W_out[1] + model.b_out[1]) @ model.W_U)


def test_what_is_not_finite_is_refused(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    model.W_U.fill_(torch.finfo(model.dtype).max)  # finite, and its logits are not
    with pytest.raises(ValueError, match="expected finite logits"):
        expand(model, tokens)
    with pytest.raises(ValueError, match="expected finite logits"):
        term_importance(model, tokens)


def test_the_model_is_left_as_it_was(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    before = model(tokens[None])
    expansion = expand(model, tokens)
    expansion.residual()
    expansion.score((1, 0), 3, 1).by_head_pair()
    assert torch.equal(model(tokens[None]), before)
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


def test_targets_are_whole_numbers_of_any_kind(make: MakeModel, tokens: Tensor) -> None:
    frozen = expand(make(), tokens).frozen
    for one in (5, np.int64(5), torch.tensor(5)):
        assert direction(frozen, one).target == 5
    assert direction(frozen, [np.int64(5), 2]).target == (5, 2)
    for wrong in (9, -1, 5.0, "5", True, (), (5,), (5, 2, 1), (5, 2.0), None):
        with refused("0 to 8"):
            direction(frozen, wrong)
    with pytest.raises(ValueError, match="two different outputs"):
        direction(frozen, (5, 5))


def test_an_expansion_is_one_line_and_paths_are_sentences(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(), tokens, split_sources=True)
    expected = "PathExpansion(135 paths: 2 layers × 2 heads, 5 positions, from token, position, bias at each position)"
    assert repr(expansion) == expected
    assert repr(expansion.frozen) == "Frozen(2 layers × 2 heads, 5 positions)"
    path = Path("token", ((0, 1), (1, 0)), 2)
    assert expansion.describe(path, 3, 1.84) == "token 4@2 → 0.1 → 1.0 → logit output 3 +1.84"
    assert expansion.describe(Path("bias"), (3, 4)) == "bias → logit output 3 − output 4"
