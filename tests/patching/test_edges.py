"""Edges against a model written out by hand, where every receiver adds up what every sender gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from aotlens.data import PromptPairs
from aotlens.models import hook_names
from aotlens.models.phi import apply_phi
from aotlens.patching import attribute_edges, circuit_faithfulness, path_patch
from aotlens.paths import Edge, Wires, patch_edge
from aotlens.paths.runs import Run
from aotlens.paths.wiring import Wired
from tests.cases import mostly_long
from tests.patching.test_sweep import CLEAN, CORRUPTED, KINDS, difference, pairs_of
from tests.small_models import MakeModel

#: source, destination, position → how much of the edge is this run's: 1, or 0 for the other's.
Share = Callable[[str, str], Tensor | float]


def written(model: Any, x: Tensor) -> dict[str, Tensor]:
    """What every sender writes on a prompt `[pos]`: `[pos, d_model]`."""
    _, cache = model.run_with_cache(x[None])
    found = {"embed": cache[hook_names.resid_pre(0)][0]}
    for layer, block in enumerate(model.blocks):
        for head in range(model.cfg.n_heads):
            found[f"{layer}.{head}"] = cache["z", layer][0, :, head] @ block.attn.W_O[head]
        if block.mlp is not None:
            found[f"mlp {layer}"] = cache[hook_names.mlp_out(layer)][0]
    return found


@torch.no_grad()
def by_hand(model: Any, x: Tensor, other: Tensor, share: Share) -> Tensor:
    """Logits `[pos, out]` where every receiver's stream is Σ share · own + (1 − share) · other, sender by sender."""
    theirs, own, cfg = written(model, other), {"embed": written(model, x)["embed"]}, model.cfg
    constant: Any = 0.0  # the biases that heads write with, of layers so far

    def read(receiver: str) -> Tensor:
        total = torch.zeros_like(own["embed"]) + constant
        for sender, value in own.items():
            kept = share(sender, receiver)
            kept = kept if isinstance(kept, float) else kept[:, None]
            total = total + kept * value + (1 - kept) * theirs[sender]
        return total

    for layer, block in enumerate(model.blocks):
        parts: dict[str, Tensor] = {}  # [head, pos, d_head]
        for side in "qkv" if cfg.has_query_key else "v":
            streams = block.ln1(torch.stack([read(f"{layer}.{head}.{side}") for head in range(cfg.n_heads)]))
            if cfg.positions == "qk" and side != "v":
                streams = streams + model.W_pos[: len(x)]
            bias = getattr(block.attn, f"b_{side.upper()}")
            parts[side] = streams @ getattr(block.attn, f"W_{side.upper()}")
            parts[side] = parts[side] if bias is None else parts[side] + bias[:, None]
            if cfg.qk_norm == "layer" and side != "v":
                scale = (parts[side].pow(2).mean((0, 2), keepdim=True) + cfg.norm_eps).sqrt()
                parts[side] = parts[side] / scale * getattr(block.attn, f"{side}_norm").w[:, None]
        visible = torch.ones(1, len(x), len(x), dtype=torch.bool)
        visible = visible.tril() if cfg.causal else visible
        visible = visible if cfg.attn_mask is None else torch.tensor(cfg.attn_mask)[:, : len(x), : len(x)]
        if cfg.has_query_key:
            scores = (parts["q"] @ parts["k"].mT * cfg.score_scale).masked_fill(~visible, float("-inf"))
            pattern = apply_phi(cfg, scores[None], visible[None])[0]
        else:
            pattern = block.attn.fixed_pattern[:, : len(x), : len(x)] * visible
        written_by = pattern @ parts["v"] @ block.attn.W_O
        new = {f"{layer}.{head}": written_by[head] for head in range(cfg.n_heads)}
        own |= new
        constant = constant + (0.0 if block.attn.b_O is None else block.attn.b_O)
        if block.mlp is not None:
            own[f"mlp {layer}"] = block.mlp(block.ln2(read(f"mlp {layer}"))[None])[0]
    last = model.ln_final(read("logits"))
    last = last.mean(0, keepdim=True) if cfg.read_out == "classes" and cfg.pooling == "mean" else last
    return model.unembed(last[None], tied=model.embed.W_E if cfg.tied_embeddings else None)[0]


def run_by_hand(model: Any, row: int, direction: str, share: Share) -> float:
    ends = (CORRUPTED, CLEAN) if direction == "denoising" else (CLEAN, CORRUPTED)
    return difference(by_hand(model, ends[0][row], ends[1][row], share)[None], row)


def taken(edges: Iterable[tuple[str, str]]) -> Share:
    gone = {*edges}
    return lambda sender, receiver: float((sender, receiver) not in gone)


@pytest.mark.parametrize("kind", mostly_long(KINDS, ("mssa", "with MLPs", "one norm of all heads' queries")))
@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_every_edge_by_itself(make: MakeModel, kind: str, direction: str) -> None:
    model = make(**KINDS[kind])
    found = path_patch(model, pairs_of(model), direction=direction, batch_size=2)
    assert found.edges == Wires.of(model).edges and len(found.edges) == len({*found.edges})
    for place, edge in enumerate(found.edges):
        if place % 13 == 0 or edge.destination == "logits" or "mlp" in edge.source:
            expected = [run_by_hand(model, row, direction, taken([edge])) for row in range(3)]
            np.testing.assert_allclose(found.each[:, place], expected, rtol=0, atol=1e-9, err_msg=str(edge))


@pytest.mark.parametrize("kind", ["mhsa", "with MLPs", "seeing later keys", "positions of queries and keys"])
def test_many_edges_at_once_and_at_some_positions(make: MakeModel, kind: str) -> None:
    model = make(**KINDS[kind])
    edges = [edge for place, edge in enumerate(Wires.of(model).edges) if place % 3]
    both = path_patch(model, pairs_of(model), edges, direction="noising", together=True)
    expected = [run_by_hand(model, row, "noising", taken(edges)) for row in range(3)]
    np.testing.assert_allclose(both.each[:, 0], expected, rtol=0, atol=1e-9)
    some = path_patch(model, pairs_of(model), edges, direction="noising", together=True, positions=[3, 1])
    assert some.positions == (1, 3)
    at = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    elsewhere = [run_by_hand(model, row, "noising", lambda s, r: at if (s, r) in edges else 1.0) for row in range(3)]
    np.testing.assert_allclose(some.each[:, 0], elsewhere, rtol=0, atol=1e-9)
    assert np.abs(some.each - both.each).max() > 1e-3


def test_edges_of_a_head_that_nobody_reads_count_where_its_queries_are_normalised_with_others(make: MakeModel) -> None:
    """No way leads from `embed → 0.1.q` to the logits, but the norm of the layer's queries does."""
    model, faithful = make(**KINDS["one norm of all heads' queries"]), {}
    useless = [Edge("embed", "0.1.q"), Edge("embed", "0.1.k"), Edge("0.2", "1.1.q")]
    set_of = [edge for edge in Wires.of(model).edges if edge.destination[:3] in ("0.0", "1.0", "log")]
    set_of = [edge for edge in set_of if edge.source in ("embed", "0.0", "1.0")]
    for edges in (set_of, [*set_of, *useless]):
        found = circuit_faithfulness(model, pairs_of(model), edges)
        gone = [edge for edge in Wires.of(model).edges if edge not in edges]
        expected = np.mean([run_by_hand(model, row, "noising", taken(gone)) for row in range(3)])
        assert len(found.edges) == len(edges)
        faithful[len(edges)] = found.value
        np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-9)
    assert np.ptp([*faithful.values()]) > 1e-4


def test_the_edges_of_a_head_are_those_from_it_and_to_it(make: MakeModel) -> None:
    model = make(**KINDS["mhsa"])
    found = path_patch(model, pairs_of(model), head="1.2")
    assert path_patch(model, pairs_of(model), "1.2 → logits").edges == (("1.2", "logits"),)
    assert {edge for edge in Wires.of(model).edges if "1.2" in f"{edge.source} {edge.destination}"} == {*found.edges}
    whole = path_patch(model, pairs_of(model))
    at = [whole.edges.index(edge) for edge in found.edges]
    np.testing.assert_allclose(found.each, whole.each[:, at], rtol=0, atol=1e-12)


def test_all_edges_are_the_other_prompt_and_none_is_the_own(make: MakeModel) -> None:
    model = make(**KINDS["with MLPs"])
    every = path_patch(model, pairs_of(model), together=True)
    np.testing.assert_allclose(every.each[:, 0], every.clean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(every.restored, 1, rtol=0, atol=1e-9)
    runs = [Run.of(model, x, [hook_names.Z]) for x in (CLEAN, CORRUPTED)]
    wired = Wired(*runs)
    assert wired.start == 1
    torch.testing.assert_close(wired.final(wired.wires.exists[None])[0], runs[0].final[:, 1:], rtol=0, atol=1e-9)


@pytest.mark.parametrize("side", ["q", "k", "v"])
def test_an_edge_between_heads_is_the_one_that_paths_take_out(make: MakeModel, side: str) -> None:
    model = make(**KINDS["mhsa"])
    found = path_patch(model, pairs_of(model), [("0.1", f"2.0.{side}"), ("1.2", f"2.1.{side}")], direction="noising")
    for place, (source, destination) in enumerate([("0.1", "2.0"), ("1.2", "2.1")]):
        for row in range(3):
            one = patch_edge(model, CLEAN[row], source, destination, side, "resample", reference=CORRUPTED[row])
            assert found.each[row, place] == pytest.approx(difference(one.patched[None], row), abs=1e-9)


@pytest.mark.parametrize("kind", ["mhsa", "tied mssa", "with MLPs", "fixed", "positions of queries and keys"])
def test_an_estimate_is_the_derivative_towards_the_other_prompt(make: MakeModel, kind: str) -> None:
    model, step = make(**KINDS[kind]), 1e-5
    found = attribute_edges(model, pairs_of(model), steps=1, check=1, batch_size=2)
    for place, edge in enumerate(found.edges):
        if place % 17 == 0 or edge.destination == "logits" or "mlp" in edge.source:
            ends = [
                np.mean([
                    run_by_hand(model, row, "denoising", lambda s, r, e=e: 1 - e if (s, r) == edge else 1.0)  # noqa: B023
                    for row in range(3)
                ])
                for e in (step, -step)
            ]  # fmt: skip
            assert found.estimate[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6), edge


def test_the_largest_are_patched_and_steps_lead_from_one_prompt_to_the_other(make: MakeModel) -> None:
    model = make(**KINDS["mhsa"])
    exact = path_patch(model, pairs_of(model))
    change = exact.each.mean(0) - exact.corrupted.mean()
    found = attribute_edges(model, pairs_of(model), check=6, batch_size=2)
    np.testing.assert_allclose(found.exact, change[found.checked], rtol=0, atol=1e-9)
    assert list(found.checked) == sorted(range(len(found.edges)), key=lambda at: -abs(found.estimate[at]))[:6]
    assert found.to_frame().exact.notna().sum() == 6
    # Of a linear model what goes into the read-out is exact, by however many steps.
    linear = make(norm=None, phi="fixed", fixed_pattern="random")
    for steps in (1, 3):
        one = attribute_edges(linear, pairs_of(linear), steps=steps, check=len(Wires.of(linear).edges))
        np.testing.assert_allclose(one.exact, one.estimate[one.checked], rtol=0, atol=1e-9)


@pytest.mark.unchecked
def test_edges_are_read_as_they_are_written(make: MakeModel) -> None:
    wires = Wires.of(make(d_mlp=9))
    assert wires.edge("0.1 -> 1.0.k") == wires.edge("0.1→1.0.k") == wires.edge(("0.1", "1.0.k")) == ("0.1", "1.0.k")
    assert str(wires.edge(("mlp 0", "logits"))) == "mlp 0 → logits"
    for wrong, words in (
        ("1.0 → 0.1.k", "writes after"), ("0.1 → 1.0", "expected"), ("0.1", "expected"), ("mlp 1 → mlp 1", "after"),
        (("0.1", "1.0.k", "x"), "expected"), (3, "expected"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            wires.edge(wrong)  # type: ignore[arg-type]
    loose = wires.mask([("embed", "0.0.q"), ("0.1", "1.0.k"), ("embed", "0.1.v"), ("1.0", "logits")])
    assert {str(edge) for edge in wires.named(wires.connected(loose))} == {
        "embed → 0.1.v", "0.1 → 1.0.k", "1.0 → logits",
    }  # fmt: skip
    assert not wires.connected(wires.mask([("0.1", "1.0.k"), ("1.0", "logits")])).any()


def test_what_cannot_be_patched_is_refused(make: MakeModel) -> None:
    model = make()
    pairs = pairs_of(model)
    uneven = PromptPairs.of_inputs(model, CLEAN, CORRUPTED, [3, 1, 8], [5, 4, 0]).pairs
    other = PromptPairs(pairs=(uneven[0], _shorter(uneven[1])))
    for work, words in (
        (lambda: path_patch(model, other), "pair 2: expected two prompts of one length"),
        (lambda: path_patch(model, pairs, []), "at least one edge"),
        (lambda: path_patch(model, pairs, positions=[5]), r"positions: expected some of 0 to 4, got \[5\]"),
        (lambda: path_patch(model, pairs, direction="both"), "direction='both'"),
        (lambda: path_patch(model, pairs, metric="accuracy"), "metric='accuracy'"),
        (lambda: attribute_edges(model, pairs, steps=0), "steps"),
        (lambda: attribute_edges(model, pairs, lambda logits, pairs: logits[:, 0].detach()), "no gradient"),
    ):
        with pytest.raises(ValueError, match=words):
            work()


def _shorter(pair: Any) -> Any:
    from dataclasses import replace

    return replace(pair, corrupted=pair.corrupted[:-1])
