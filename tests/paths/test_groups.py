"""Groups of paths against enumeration, autograd and interventions on the model itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths import Path, PathExpansion, expand
from tests.small_models import MakeModel

Hooks = list[tuple[str, Callable[..., Tensor]]]

FAMILY: dict[str, dict[str, Any]] = {
    "mhsa": {"n_layers": 3, "bias": True},
    "mssa, no norm": {"n_layers": 3, "attention": "mssa", "norm": None, "bias": True},
    "linear, qk": {"n_layers": 3, "phi": "linear", "positions": "qk"},
    "mlps": {"n_layers": 3, "bias": True, "d_mlp": 5},
}


@pytest.fixture(params=FAMILY.values(), ids=FAMILY)
def model(make: MakeModel, request: pytest.FixtureRequest) -> AttentionOnlyTransformer:
    return make(**request.param)


@pytest.fixture
def expansion(model: AttentionOnlyTransformer, tokens: Tensor) -> PathExpansion:
    return expand(model, tokens)


def frozen_hooks(model: AttentionOnlyTransformer, tokens: Tensor) -> Hooks:
    """Hooks that hold patterns, scales and outputs of MLPs at their values on the prompt."""
    _, cache = model.run_with_cache(tokens[None])
    names = [name for name in cache.cache_dict if name.endswith((hook_names.PATTERN, "hook_scale", "hook_mlp_out"))]
    assert names

    def fix(name: str) -> Callable[..., Tensor]:
        value = cache[name].clone()
        return lambda _, hook: value

    return [(name, fix(name)) for name in names]


def sum_of(expansion: PathExpansion, chosen: Callable[[Path], bool]) -> Tensor:
    parts = [expansion.logits(path) for path in expansion.paths() if chosen(path)]
    return torch.stack(parts).sum(0) if parts else torch.zeros_like(expansion.frozen.logits)


def test_by_head_is_a_partition_by_the_last_head(expansion: PathExpansion) -> None:
    grouped = expansion.by_head()
    torch.testing.assert_close(grouped.total(), expansion.frozen.logits)
    one = expansion.by_head((3, 1))
    for layer, head in itertools.product(range(3), range(2)):
        expected = sum_of(expansion, lambda path, last=(layer, head): path.heads[-1:] == (last,))
        torch.testing.assert_close(grouped.heads[layer, head], expected)
        torch.testing.assert_close(one.heads[layer, head], expected[:, 3] - expected[:, 1])
    for name, value in grouped.direct.items():
        torch.testing.assert_close(value, expansion.logits(Path(name)))
    assert set(grouped.direct) == set(expansion.source_names)
    frame = one.to_frame(2)
    assert frame.logits.sum() == pytest.approx(expansion.logit(2, (3, 1)))
    with pytest.raises(ValueError, match="one target"):
        grouped.to_frame()


def test_through_is_what_the_frozen_model_loses_without_the_head(
    model: AttentionOnlyTransformer, expansion: PathExpansion, tokens: Tensor
) -> None:
    each = expansion.through_each(3, 2)
    for layer, head in itertools.product(range(3), range(2)):
        through = expansion.through((layer, head))
        torch.testing.assert_close(through, sum_of(expansion, lambda path, at=(layer, head): at in path.heads))

        def remove(z: Tensor, hook: object, head: int = head) -> Tensor:
            z = z.clone()
            z[:, :, head] = 0.0
            return z

        hooks = [*frozen_hooks(model, tokens), (hook_names.attn(layer, hook_names.Z), remove)]
        without = model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0]
        torch.testing.assert_close(expansion.frozen.logits - through, without)
        torch.testing.assert_close(expansion.through((layer, head), 2), through[:, 2])
        assert float(each[layer, head]) == pytest.approx(float(through[3, 2]))


def test_by_source_is_a_partition_by_source(expansion: PathExpansion, tokens: Tensor) -> None:
    grouped = expansion.by_source()
    split = expand(expansion.model, tokens, split_sources=True)
    by_position = expansion.by_source_position(-1, 4)
    assert grouped.names == expansion.source_names
    assert by_position.shape == (len(grouped.names), len(tokens))
    for row, name in enumerate(grouped.names):
        torch.testing.assert_close(grouped.values[row], sum_of(expansion, lambda path, name=name: path.start == name))
        for position in range(len(tokens)):
            expected = sum_of(split, lambda p, name=name, at=position: (p.start, p.source_position) == (name, at))
            assert float(by_position[row, position]) == pytest.approx(float(expected[-1, 4]))


def test_by_virtual_head_groups_by_the_last_two_heads(expansion: PathExpansion) -> None:
    grouped = expansion.by_virtual_head((0, 6))
    pairs = list(itertools.product(range(3), range(2)))
    for earlier, later in itertools.product(pairs, pairs):
        last = (earlier, later)
        expected = sum_of(expansion, lambda path, last=last: path.heads[-2:] == last)  # type: ignore[misc]
        torch.testing.assert_close(grouped[(*earlier, *later)], expected[:, 0] - expected[:, 6])
    everything = expansion.by_virtual_head()
    torch.testing.assert_close(everything[..., 0] - everything[..., 6], grouped)
    order_two_on = expansion.by_order((0, 6))[2:].sum(0)
    torch.testing.assert_close(grouped.sum((0, 1, 2, 3)), order_two_on)


def test_the_jacobian_of_the_frozen_model_is_the_sum_of_the_operators(
    model: AttentionOnlyTransformer, expansion: PathExpansion, tokens: Tensor
) -> None:
    hooks = frozen_hooks(model, tokens)

    def frozen_model(embedded: Tensor) -> Tensor:
        replace: Hooks = [(hook_names.EMBED, lambda _, hook: embedded[None])]
        return model.run_with_hooks(tokens[None], fwd_hooks=[*hooks, *replace])[0]

    n, d = len(tokens), model.cfg.d_model
    jacobian = torch.autograd.functional.jacobian(frozen_model, model.W_E[tokens])
    dense = [expansion.operator(path).dense() for path in expansion.paths() if path.source == "token"]
    torch.testing.assert_close(torch.stack(dense).sum(0), jacobian.reshape(-1, n * d))


def test_each_path_is_what_remains_when_only_it_is_kept(make: MakeModel, tokens: Tensor) -> None:
    """On the model itself: the stream is replaced by the one head's output, layer by layer."""
    model = make(n_layers=3, bias=False, positions="qk")
    for block in model.blocks:
        block.ln1.b.zero_()  # biases are sources of their own
    model.ln_final.b.zero_()
    expansion = expand(model, tokens)
    assert expansion.source_names == ("token",)
    frozen = frozen_hooks(model, tokens)
    for path in expansion.paths():
        used = dict(path.heads)

        def keep(result: Tensor, hook: Any, used: dict[int, int] = used) -> Tensor:
            layer = int(hook.name.split(".")[1])
            kept = torch.zeros_like(result)
            if layer in used:
                kept[:, :, used[layer]] = result[:, :, used[layer]]
            return kept

        streams: dict[int, Tensor] = {}

        def remember(x: Tensor, hook: Any, streams: dict[int, Tensor] = streams) -> None:
            streams[int(hook.name.split(".")[1])] = x

        def drop_skip(
            x: Tensor, hook: Any, used: dict[int, int] = used, streams: dict[int, Tensor] = streams
        ) -> Tensor:
            layer = int(hook.name.split(".")[1])
            return x - streams[layer] if layer in used else x

        hooks: Hooks = [*frozen]
        for layer in range(3):
            hooks.append((hook_names.attn(layer, hook_names.RESULT), keep))
            hooks.append((hook_names.resid_pre(layer), remember))  # type: ignore[arg-type]
            hooks.append((hook_names.resid_post(layer), drop_skip))
        only = model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0]
        torch.testing.assert_close(expansion.logits(path), only)


def test_the_sankey_conserves_flow(expansion: PathExpansion) -> None:
    sankey = expansion.sankey(-1, 5, max_links=10_000)
    n = len(sankey.nodes)
    flow = torch.zeros(n, n, dtype=torch.float64)
    flow[torch.tensor(sankey.sources), torch.tensor(sankey.targets)] = torch.tensor(sankey.values)
    assert sankey.shown == pytest.approx(1) and sankey.n_links == len(sankey.values)
    through = expansion.through_each(-1 % expansion.n_pos, 5)
    for index, node in enumerate(sankey.nodes):
        if node.kind == "head":
            assert node.head is not None
            expected = float(through[node.head])
            assert float(flow[:, index].sum()) == pytest.approx(expected, abs=1e-12)
            assert float(flow[index].sum()) == pytest.approx(expected, abs=1e-12)
            assert sankey.through[index] == pytest.approx(expected, abs=1e-12)
        elif node.kind == "logit":
            assert float(flow[:, index].sum()) == pytest.approx(expansion.logit(-1, 5))
            assert sankey.through[index] == pytest.approx(expansion.logit(-1, 5))
    by_position = expansion.by_source_position(-1, 5)
    rows = len(expansion.frozen.sources)
    torch.testing.assert_close(flow[: expansion.n_pos].sum(1), by_position[:rows].sum(0))
    for index, node in enumerate(sankey.nodes):
        if node.kind == "mlp":
            row = expansion.source_names.index(str(node))
            assert float(flow[index].sum()) == pytest.approx(float(by_position[row].sum()))
            into = sum_of(expansion, lambda p, name=str(node): p.start == name and p.heads[:1] == ((2, 0),))
            to = [str(other) for other in sankey.nodes].index("2.0")
            assert float(flow[index, to]) == pytest.approx(float(into[-1, 5]), abs=1e-12)
    assert sum(node.kind == "mlp" for node in sankey.nodes) == expansion.frozen.n_mlps
    drawn = aotlens.plot(sankey).data[0].node
    places = dict(zip(drawn.label, drawn.x, strict=True))
    for layer in range(expansion.frozen.n_mlps):  # an MLP stands with the heads of its layer, whose output it follows
        assert places[f"MLP {layer}"] == pytest.approx(places[f"{layer}.0"]) and places["0.0"] < places[sankey.end]
    # An edge between heads is all the paths that use both, one right after the other.
    edge = sum_of(expansion, lambda p: ((0, 1), (2, 0)) in list(itertools.pairwise(p.heads)))
    nodes = {str(node): index for index, node in enumerate(sankey.nodes)}
    assert float(flow[nodes["0.1"], nodes["2.0"]]) == pytest.approx(float(edge[-1, 5]))
    few = expansion.sankey(-1, 5, max_links=4)
    assert len(few.to_frame()) == 4 and 0 < few.shown < 1 and few.n_links == sankey.n_links
    with pytest.raises(ValueError, match="max_links"):
        expansion.sankey(-1, 5, max_links=0)


def test_whole_vocabularies_that_do_not_fit_are_refused(
    expansion: PathExpansion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One target is never refused, and neither is the residual, which holds one order at a time."""
    expected, orders = expansion.residual(), expansion.by_order()
    monkeypatch.setattr("aotlens.paths.groups._MAX_BYTES", expansion.frozen.logits.numel() * 8 * 4 - 1)
    for ask in (expansion.by_order, expansion.by_head, expansion.by_virtual_head):
        with pytest.raises(ValueError, match="give one target"):
            ask()
    assert expansion.by_order(3).shape == (4, 5) and expansion.by_head(3).heads.shape == (3, 2, 5)
    assert expansion.residual() == expected
    assert expected.largest_term == pytest.approx(float(orders.abs().max()))
    assert expected.largest == pytest.approx(float((orders.sum(0) - expansion.frozen.logits).abs().max()))
