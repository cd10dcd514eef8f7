"""One edge between two heads: against hooks on the model, the terms that it is, and TransformerLens's own patch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformer_lens import patching
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import aotlens
from aotlens.heads import ablate
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths import expand, patch_edge, patch_edges
from tests.messages import refused
from tests.paths.conftest import KINDS
from tests.small_models import MakeModel

FAMILY: dict[str, dict[str, Any]] = {
    "mhsa": {"n_layers": 3, "bias": True},
    "mssa, positions in queries and keys": {"n_layers": 3, "attention": "mssa", "bias": True, "positions": "qk"},
    "no norm": {"n_layers": 3, "norm": None},
    "linear": KINDS["linear"] | {"n_layers": 3, "bias": True},
    "thresholded": KINDS["thresholded"] | {"n_layers": 3},
}
SOURCE, DESTINATION = (0, 1), (2, 0)


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("side", ["q", "k"])
def test_with_a_frozen_norm_a_score_loses_what_the_source_brought(
    make: MakeModel, tokens: Tensor, kind: str, side: str
) -> None:
    model = make(**FAMILY[kind])
    expansion = expand(model, tokens)
    patch = patch_edge(model, tokens, SOURCE, DESTINATION, side, norm="frozen")
    assert patch.clean_scores is not None and patch.patched_scores is not None
    for query in range(len(tokens)):
        for key in range(query + 1):
            pairs = expansion.score(DESTINATION, query, key, None).by_head_pair()
            row = pairs.names.index("0.1")
            term = pairs.values[row].sum() if side == "q" else pairs.values[:, row].sum()
            lost = patch.clean_scores[query, key] - patch.patched_scores[query, key]
            assert float(lost) == pytest.approx(float(term), abs=1e-9)
    assert not torch.allclose(patch.clean, patch.patched)


@pytest.mark.parametrize("kind", FAMILY)
def test_with_a_frozen_norm_a_result_loses_the_virtual_head(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**FAMILY[kind])
    expansion = expand(model, tokens)
    patch = patch_edge(model, tokens, SOURCE, DESTINATION, "v", norm="frozen")
    lost = expansion.frozen.read_out(patch.clean_result - patch.patched_result)
    virtual = expansion.by_virtual_head()[(*SOURCE, *DESTINATION)]
    torch.testing.assert_close(lost, virtual, rtol=0, atol=1e-9)
    torch.testing.assert_close(patch.clean_pattern, patch.patched_pattern)


def by_hooks(
    model: AttentionOnlyTransformer, tokens: Tensor, side: str, new_z: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The same with a whole pass and the receiver's side computed by hand from the stream less the source's result."""
    (layer, head), (later, receiver) = SOURCE, DESTINATION
    _, cache = model.run_with_cache(tokens[None])
    z = cache["z", layer][0, :, head]
    lost = (z - (0 if new_z is None else new_z)) @ model.W_O[layer, head]
    x = cache[hook_names.resid_pre(later)][0] - lost
    if model.cfg.norm:
        norm = model.blocks[later].ln1
        centred = x - x.mean(-1, keepdim=True)
        x = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w + norm.b
    if model.cfg.positions == "qk" and side != "v":
        x = x + model.W_pos[: len(tokens)]
    W, b = getattr(model, f"W_{side.upper()}")[DESTINATION], getattr(model, f"b_{side.upper()}")[DESTINATION]
    value, seen = x @ W + b, {}

    def put(activation: Tensor, hook: Any) -> Tensor:
        activation = activation.clone()
        activation[0, :, receiver] = value
        return activation

    def keep(activation: Tensor, hook: Any) -> None:
        seen["pattern"] = activation[0, receiver]

    name = {"q": hook_names.Q, "k": hook_names.K, "v": hook_names.V}[side]
    hooks = [(hook_names.attn(later, name), put), (hook_names.attn(later, hook_names.PATTERN), keep)]
    return model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0], seen  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [*FAMILY.values(), {"n_layers": 3, "d_mlp": 10, "bias": True}])
@pytest.mark.parametrize("side", ["q", "k", "v"])
@torch.no_grad()
def test_with_the_norm_computed_again_it_is_a_pass_with_hooks(
    make: MakeModel, tokens: Tensor, changes: dict[str, Any], side: str
) -> None:
    model = make(**changes)
    patch = patch_edge(model, tokens, SOURCE, DESTINATION, side)
    logits, seen = by_hooks(model, tokens, side, None)
    torch.testing.assert_close(patch.patched, logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(patch.patched_pattern, seen["pattern"], rtol=0, atol=1e-9)
    torch.testing.assert_close(patch.clean, model(tokens[None])[0], rtol=0, atol=1e-9)
    other = torch.tensor([2, 7, 1, 8, 2])
    _, cache = model.run_with_cache(other[None])
    swapped = patch_edge(model, tokens, SOURCE, DESTINATION, side, "resample", reference=other)
    logits, _ = by_hooks(model, tokens, side, cache["z", 0][0, :, 1])
    torch.testing.assert_close(swapped.patched, logits, rtol=0, atol=1e-9)
    mean = patch_edge(model, tokens, SOURCE, DESTINATION, side, "mean", reference=other)
    logits, _ = by_hooks(model, tokens, side, cache["z", 0][0, :, 1].mean(0))
    torch.testing.assert_close(mean.patched, logits, rtol=0, atol=1e-9)
    assert not any(hook.has_hooks() for hook in model.hook_dict.values())


def test_a_pattern_is_replaced_with_its_values_kept(make: MakeModel, tokens: Tensor) -> None:
    model = make(n_layers=3)
    _, cache = model.run_with_cache(tokens[None])
    even = torch.ones(5, 5, dtype=torch.float64).tril()
    z = even / even.sum(-1, keepdim=True) @ cache["v", 0][0, :, 1]
    patch = patch_edge(model, tokens, SOURCE, DESTINATION, "k", "uniform")
    logits, _ = by_hooks(model, tokens, "k", z)
    torch.testing.assert_close(patch.patched, logits, rtol=0, atol=1e-9)


def test_all_pairs_in_batches_are_each_by_itself(make: MakeModel, tokens: Tensor) -> None:
    model = make(n_layers=3, bias=True)
    seen: list[tuple[int, int]] = []
    patches = patch_edges(
        model, tokens, side="k", batch_size=3, progress=lambda done, total: seen.append((done, total))
    )
    assert len(patches) == 12 and seen[-1] == (12, 12)
    assert len({(patch.source, patch.destination) for patch in patches}) == 12
    for patch in patches:
        alone = patch_edge(model, tokens, patch.source, patch.destination, "k")
        torch.testing.assert_close(patch.patched, alone.patched, rtol=0, atol=1e-9)
        torch.testing.assert_close(patch.patched_scores, alone.patched_scores, rtol=0, atol=1e-9)


def test_an_edge_into_the_last_layers_values_is_less_than_the_head(make: MakeModel, tokens: Tensor) -> None:
    """Of a model where the source is read by nothing else, the edges into all heads and the skip are its ablation."""
    model = make(n_layers=2, n_heads=1, norm=None, phi="fixed", fixed_pattern="given")
    patch = patch_edge(model, tokens, (0, 0), (1, 0), "v")
    ablated = ablate(model, tokens[None], (0, 0), metric=lambda logits, _: logits[:, -1, 3])
    direct = expand(model, tokens).by_head(3).heads[0, 0, -1]
    lost = float(patch.clean[-1, 3] - patch.patched[-1, 3])
    assert ablated.clean_mean - ablated.ablated_mean == pytest.approx(lost + float(direct), abs=1e-9)
    assert patch.clean_scores is None


@pytest.mark.parametrize("side", ["q", "k", "v"])
def test_transformer_lens_patches_the_same_edges(tmp_path: Path, side: str) -> None:
    """Its direct path takes the source's write on another prompt; the bridge is of a tiny random GPT-2, with MLPs."""
    config = transformers.GPT2Config(n_layer=3, n_head=2, n_embd=8, n_positions=8, vocab_size=11, attn_pdrop=0.0)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)
    for parameter in theirs.parameters():
        parameter += 0.3 * torch.randn(parameter.shape)
    theirs.save_pretrained(tmp_path)
    model = aotlens.load(tmp_path, "cpu")
    bridge = build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=config)
    ours, other = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2, 7, 1, 8, 2])
    (_, cache), (_, other_cache) = (bridge.run_with_cache(ids[None]) for ids in (ours, other))
    found = patching.get_act_patch_direct_path(
        bridge, ours[None], other_cache, cache, lambda logits: logits[0, -1, 3], 0, 1, side, verbose=False
    )
    edges = [((0, 1), (layer, head)) for layer in (1, 2) for head in range(2)]
    for patch in patch_edges(model, ours, edges, side, "resample", reference=other):
        expected = float(found[patch.destination])
        assert float(patch.patched[-1, 3]) == pytest.approx(expected, abs=2e-5)
        assert float(patch.patched[-1, 3]) != pytest.approx(float(patch.clean[-1, 3]), abs=1e-4)


def test_bad_edges_are_refused(make: MakeModel, tokens: Tensor) -> None:
    model = make()
    for arguments, message in (
        (((1, 0), (1, 1)), "earlier layer"),
        (((0, 0), (2, 1)), r"head 2\.1"),
        (((0, 0), (1, 1), "o"), "side='o'"),
        (((0, 0), (1, 1), "q", "none"), "how='none'"),
        (((0, 0), (1, 1), "q", "mean"), "a single sequence"),
    ):
        with pytest.raises(ValueError, match=message):
            patch_edge(model, tokens, *arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="norm='half'"):
        patch_edge(model, tokens, (0, 0), (1, 1), norm="half")
    with refused("queries or keys"):
        patch_edge(make(**KINDS["fixed"]), tokens, (0, 0), (1, 1), "k")
    with pytest.raises(ValueError, match="one prompt"):
        patch_edge(model, tokens.expand(2, -1), (0, 0), (1, 1))
