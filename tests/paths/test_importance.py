"""Term importance against runs of the model with frozen patterns and some heads silenced."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths import expand, term_importance
from tests.messages import refused
from tests.small_models import MakeModel

TOKENS = torch.tensor([[3, 1, 4, 1, 8], [2, 7, 1, 8, 2]])


def elhage(model: AttentionOnlyTransformer, tokens: Tensor, order: int) -> float:
    """As they run it: with patterns and scales frozen, the heads of run k read the stream of run k−1."""
    _, cache = model.run_with_cache(tokens)
    fixed = [name for name in cache.cache_dict if name.endswith((hook_names.PATTERN, "hook_scale"))]
    hooks: list[Any] = [(name, _replace_by(cache[name].clone())) for name in fixed]
    none = torch.zeros_like(cache["attn_out", 0])
    # Order 0 has b_O and no heads.
    outputs = [none + model.b_O[layer] for layer in range(model.cfg.n_layers)]
    logits = None
    for _ in range(order + 1):
        replaced = [
            (hook_names.block(layer, "hook_attn_out"), _replace_and_keep(outputs, layer))
            for layer in range(model.cfg.n_layers)
        ]
        logits = model.run_with_hooks(tokens, fwd_hooks=[*hooks, *replaced])
    assert logits is not None
    return float(F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()))


def _replace_by(value: Tensor) -> Callable[..., Tensor]:
    return lambda _, hook: value


def _replace_and_keep(outputs: list[Tensor], layer: int) -> Callable[..., Tensor]:
    """Give the layer's output of the last run, and keep this run's for the next."""

    def swap(out: Tensor, hook: object) -> Tensor:
        previous, outputs[layer] = outputs[layer], out.clone()
        return previous

    return swap


@pytest.mark.parametrize("changes", [{"norm": None}, {"bias": True}, {"attention": "mssa", "bias": True, "norm": None}])
def test_it_is_their_algorithm(make: MakeModel, changes: dict[str, Any]) -> None:
    model = make(n_layers=3, **changes)
    found = term_importance(model, TOKENS)
    for order in range(4):
        assert found.loss_up_to[order] == pytest.approx(elhage(model, TOKENS, order), abs=1e-10)
    assert found.loss == pytest.approx(float(model(TOKENS, return_type="loss")), abs=1e-10)
    assert found.loss_up_to[-1] == pytest.approx(found.loss, abs=1e-10)
    assert found.by_order.sum() == pytest.approx(found.loss_up_to[0] - found.loss)


def test_heads_and_layers_are_sums_over_the_paths_that_are_left(make: MakeModel) -> None:
    model = make(bias=True)
    found = term_importance(model, TOKENS)

    def loss(keep: Callable[[tuple[tuple[int, int], ...]], bool]) -> float:
        total = 0.0
        for row in TOKENS:
            expansion = expand(model, row)
            logits = sum(expansion.logits(path) for path in expansion.paths() if keep(path.heads))
            total += float(F.cross_entropy(logits[:-1], row[1:]))  # type: ignore[index]
        return total / len(TOKENS)

    for layer in range(2):
        assert found.layers_alone[layer] == pytest.approx(loss(lambda heads, at=layer: all(h[0] == at for h in heads)))
        without = loss(lambda heads, at=layer: all(h[0] != at for h in heads))
        assert found.layers_without[layer] == pytest.approx(without)
        assert found.layer_given_the_rest[layer] == pytest.approx(without - found.loss)
        for head in range(2):
            at = (layer, head)
            alone = loss(lambda heads, at=at: all(h == at for h in heads))
            assert found.heads_alone[at] == pytest.approx(alone)
            assert found.alone[at] == pytest.approx(found.loss_up_to[0] - alone)
            assert found.heads_without[at] == pytest.approx(loss(lambda heads, at=at: at not in heads))
            assert found.given_the_rest[at] == pytest.approx(found.heads_without[at] - found.loss)
    frame = found.to_frame()
    assert len(frame) == 2 + 2 + 4 and frame.groupby("kind").size().to_dict() == {"head": 4, "layer": 2, "order": 2}
    assert frame.alone.iloc[2] == pytest.approx(found.layer_alone[0])


def test_orders_only_and_progress(make: MakeModel) -> None:
    seen: list[tuple[int, int]] = []
    found = term_importance(make(), TOKENS, heads=False, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    assert np.isnan(found.heads_alone).all() and np.isnan(found.layers_without).all()
    assert np.isfinite(found.loss_up_to).all()
    assert found.to_frame()["kind"].tolist() == ["order", "order"]


def test_one_prompt_may_come_without_its_batch(make: MakeModel) -> None:
    model = make()
    alone, batch = term_importance(model, TOKENS[0]), term_importance(model, TOKENS[:1])
    assert alone.loss == batch.loss and alone.n_tokens == 4
    assert term_importance(model, TOKENS, heads=False).n_tokens == 8
    with pytest.raises(ValueError, match="no tokenizer"):
        term_importance(model, "a text")


@pytest.mark.parametrize("changes", [{}, {"causal": False}, {"read_out": "classes", "d_out": 3, "pooling": "mean"}])
def test_labels_in_place_of_next_tokens(make: MakeModel, changes: dict[str, Any]) -> None:
    """The last order is the model's own loss on the same targets, and a head alone is a model of that head."""
    model = make(bias=True, norm=None, **changes)
    targets = (
        torch.tensor([2, 0]) if "read_out" in changes else torch.tensor([[1, 2, -100, 0, 3], [-100, 1, -100, 0, 2]])
    )
    found = term_importance(model, TOKENS, targets=targets)
    own = model(TOKENS, return_type="loss", targets=targets).item()
    assert found.loss == pytest.approx(own, abs=1e-10) and found.loss_up_to[-1] == pytest.approx(own, abs=1e-10)
    assert found.n_tokens == int((targets != -100).sum())
    bare = copy.deepcopy(model)
    with torch.no_grad():
        for block in bare.blocks:
            block.attn.W_O.zero_()
    assert found.loss_up_to[0] == pytest.approx(bare(TOKENS, return_type="loss", targets=targets).item(), abs=1e-10)
    with torch.no_grad():
        bare.blocks[0].attn.W_O[1] = model.blocks[0].attn.W_O[1]  # it reads tokens alone, so its pattern is the same
    alone = bare(TOKENS, return_type="loss", targets=targets).item()
    assert found.heads_alone[0, 1] == pytest.approx(alone, abs=1e-10)
    row = term_importance(model, TOKENS[0], targets=targets[0], heads=False)
    assert row.loss == pytest.approx(model(TOKENS[:1], return_type="loss", targets=targets[:1]).item(), abs=1e-10)


def test_what_has_no_next_token_loss_is_refused(make: MakeModel) -> None:
    with pytest.raises(ValueError, match="causal"):
        term_importance(make(causal=False), TOKENS)
    with pytest.raises(ValueError, match="at least 2 positions"):
        term_importance(make(), TOKENS[:, :1])
    with refused("targets"):
        term_importance(make(), TOKENS, targets=TOKENS[:1])
    with pytest.raises(ValueError, match="nothing to average"):
        term_importance(make(), TOKENS, targets=torch.full_like(TOKENS, -100))
