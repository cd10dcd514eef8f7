"""A search for a circuit: circuits known by construction, all subsets of a small model, and pairs kept out of it."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import torch

from aotlens.data import PromptPairs
from aotlens.distill import compile_ffn
from aotlens.patching import circuit_faithfulness, find_circuit, path_patch
from aotlens.paths import Wires
from aotlens.plots import plot
from tests.heads.hand_built import induction
from tests.patching.test_edges import run_by_hand, taken
from tests.patching.test_sweep import KINDS, pairs_of
from tests.small_models import MakeModel


def built(clean: list[int], corrupted: list[int]):
    model = induction(8, 12.0, copies=1, decoys=1)
    return model, PromptPairs.of_inputs(model, torch.tensor([clean]), torch.tensor([corrupted]), [3], [6])


def test_the_circuit_by_hand_is_found_and_nothing_else():
    model, pairs = built([0, 2, 5, 3, 1, 5], [0, 2, 5, 6, 1, 5])  # another token came after it
    found = find_circuit(model, pairs, held_out=0)
    assert [str(edge) for edge in found.edges] == ["embed → 1.1.v", "1.1 → logits"]
    assert found.faithfulness == pytest.approx(1, abs=0.02) and found.completeness == pytest.approx(0, abs=0.02)
    np.testing.assert_allclose(found.without, 0, atol=0.02)
    assert np.isnan(found.without_intervals).all() and set(found.necessary) == {"undecided"}  # of one pair


def test_k_composition_is_found_where_attribution_says_nothing():
    """Only the token before the answer differs: keys through the previous-token head, whose gradient is 0."""
    model, pairs = built([0, 2, 5, 3, 1, 5], [0, 2, 4, 3, 1, 5])
    found = find_circuit(model, pairs, held_out=0)
    assert [str(edge) for edge in found.edges] == ["embed → 0.1.v", "0.1 → 1.1.k", "1.1 → logits"]
    assert abs(found.estimate[1]) < 1e-3 < found.faithfulness


def test_no_edge_can_be_spared_and_no_smaller_set_is_enough_in_a_small_model(make: MakeModel):
    model = make(n_layers=1, n_heads=2)
    pairs, wires = pairs_of(model)[:1], Wires.of(model)
    found = find_circuit(model, pairs, keep=0.8, held_out=0)
    assert found.edges
    assert found.faithfulness == found.searched >= 0.8 and (found.without < 0.8).all()
    shares = {
        edges: circuit_faithfulness(model, pairs, edges).faithfulness
        for n in range(len(found.edges)) for edges in combinations(wires.edges, n)
    }  # fmt: skip
    assert all(share < 0.8 for share in shares.values())


def test_faithfulness_is_by_hand_what_the_definition_says(make: MakeModel):
    model = make(**KINDS["with MLPs"])
    pairs, wires = pairs_of(model), Wires.of(model)
    some = [edge for place, edge in enumerate(wires.edges) if place % 4]
    found = circuit_faithfulness(model, pairs, some)

    def mean(gone):
        return np.mean([run_by_hand(model, row, "noising", taken(gone)) for row in range(3)])

    whole, empty = mean([]), mean(wires.edges)
    assert (found.whole, found.empty) == (pytest.approx(whole, abs=1e-9), pytest.approx(empty, abs=1e-9))
    rest = {*wires.edges} - {*found.edges}
    assert found.value == pytest.approx(mean({*wires.edges} - {*some}), abs=1e-9)
    assert found.faithfulness == pytest.approx((found.value - empty) / (whole - empty), abs=1e-9)
    assert found.completeness == pytest.approx((mean(found.edges) - empty) / (whole - empty), abs=1e-9)
    first = found.edges[0]
    assert found.without[0] == pytest.approx((mean(rest | {first}) - empty) / (whole - empty), abs=1e-9)
    assert np.isnan(found.estimate).all() and found.search == "given" and found.n_edges == len(wires.edges)


def test_pairs_kept_out_check_what_was_found(make: MakeModel):
    model = make(n_ctx=8)
    generator = torch.Generator().manual_seed(1)
    clean, corrupted = torch.randint(11, (2, 24, 6), generator=generator)
    corrupted[:, 3:] = clean[:, 3:]
    margins = model(clean)[:, -1] - model(corrupted)[:, -1]
    answers, wrong = margins.argmax(-1), margins.argmin(-1)
    clusters = [f"text {row // 3}" for row in range(24)]
    pairs = PromptPairs.of_inputs(model, clean, corrupted, answers, wrong, clusters=clusters)
    seen = []
    found = find_circuit(model, pairs, keep=0.7, progress=lambda done, total: seen.append((done, total)))
    assert (found.n_searched, found.n_held_out) == (12, 12) and found.searched >= 0.7
    assert all(done <= total for done, total in seen) and seen[-1][0] == found.n_runs
    aside = find_circuit(model, pairs, keep=0.7, held_out=0)
    assert aside.n_held_out == 0 and aside.faithfulness == aside.searched
    low, high = found.interval
    assert low < found.faithfulness < high and found.completeness_interval[0] < found.completeness
    assert set(found.necessary) <= {"necessary", "not necessary", "undecided"}
    # Measured on the same pairs, a set that is given is the same; which pairs those are is drawn from the seed.
    again = circuit_faithfulness(model, pairs, aside.edges)
    assert again.faithfulness == pytest.approx(aside.faithfulness) and again.edges == aside.edges
    np.testing.assert_allclose(again.without_intervals, aside.without_intervals)
    assert find_circuit(model, pairs, keep=0.7, seed=1).faithfulness != found.faithfulness


@pytest.mark.unchecked
def test_what_is_nothing_to_search_is_refused(make: MakeModel):
    model = make()
    pairs = pairs_of(model)
    for work, words in (
        (lambda: find_circuit(model, pairs, keep=0), "keep=0"),
        (lambda: find_circuit(model, pairs, keep=1.5), "keep=1.5"),
        (lambda: find_circuit(model, pairs, keep="most"), "keep='most'"),
        (lambda: find_circuit(model, pairs, held_out=1), "held_out=1"),
        (lambda: find_circuit(model, pairs), "at least 2 pairs to search"),
        (lambda: find_circuit(model, pairs, lambda logits, pairs: logits[:, 0] * 0.0, held_out=0), "alike"),
        (lambda: find_circuit(model, pairs, held_out=0), "nothing to be faithful to"),
        (lambda: circuit_faithfulness(model, pairs, ["0.1"]), "edge '0.1'"),
        (lambda: circuit_faithfulness(model, pairs, ["embed → logits"], without=["0.1 → logits"]), "which it has not"),
    ):
        with pytest.raises(ValueError, match=words):
            work()


def test_edges_are_taken_out_of_a_circuit_and_it_is_a_graph_for_other_tools():
    model, pairs = built([0, 2, 5, 3, 1, 5], [0, 2, 4, 3, 1, 5])
    found = find_circuit(model, pairs, held_out=0)
    less = circuit_faithfulness(model, pairs, found, without=["0.1 → 1.1.k"])
    assert not less.edges and less.faithfulness == pytest.approx(0, abs=0.02) and less.search == "given"
    assert [str(edge) for edge in less.removed] == ["0.1 → 1.1.k"]
    (link,) = [line for line in plot(less).data if line.mode == "lines"]
    assert link.line.dash == "dot" and {*link.customdata} == {"0.1 → 1.1.k"}
    graph = json.loads(json.dumps(found.to_graph("built")))
    names = {node["node_id"]: node["clerp"] for node in graph["nodes"]}
    assert [(names[link["source"]], names[link["target"]], link["side"]) for link in graph["links"]] == [
        ("embed", "0.1", "v"), ("0.1", "1.1", "k"), ("1.1", "logits", ""),
    ]  # fmt: skip
    assert [link["weight"] for link in graph["links"]] == pytest.approx(found.faithfulness - found.without)
    assert {node["layer"] for node in graph["nodes"]} == {"E", "0", "1", "3"}  # logits: layers + 1
    # What circuit-tracer's own model of a node, a link and the whole asks for.
    assert {*graph} == {"metadata", "qParams", "nodes", "links"}
    for node in graph["nodes"]:
        assert {"node_id", "feature", "layer", "ctx_idx", "feature_type", "jsNodeId"} <= {*node}


def test_in_a_compiled_network_the_unit_that_reads_the_input_is_the_circuit_with_what_cancels_the_skip():
    """SiLU(x₀) + SiLU(x₁) as attention: head 0.1 is the unit of x₀, 0.2 that of x₁, and 0.0 writes −x, which cancels
    the skip connection. From x₀ = −1 to 1 the unit rises by 1, the skip by 2, and 0.0 takes these 2 away."""
    network = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.SiLU(), torch.nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        network[0].weight.copy_(torch.eye(2))
        network[2].weight.fill_(1)
    compiled = compile_ffn(network, bound=4, tolerance=1e-6, n_tokens=1)
    clean, corrupted = (compiled.embed(torch.tensor([[[x, -0.5]]], dtype=torch.float64)) for x in (1.0, -1.0))
    pairs = PromptPairs.of_inputs(compiled.model, clean, corrupted, [0], [0])
    alone = path_patch(compiled.model, pairs, metric="output")
    outputs = dict(zip(map(str, alone.edges), alone.restored, strict=True))
    for edge, share in (("embed → logits", 2), ("0.0 → logits", -2), ("0.1 → logits", 1), ("0.2 → logits", 0)):
        assert outputs[edge] == pytest.approx(share, abs=1e-9)
    found = find_circuit(compiled.model, pairs, "output", held_out=0, keep=0.99)
    assert found.faithfulness == pytest.approx(1, abs=0.01) and found.completeness == pytest.approx(0, abs=0.01)
    assert {edge.source for edge in found.edges} == {"embed", "0.0", "0.1"}
    with_skip = circuit_faithfulness(compiled.model, pairs, ["embed → logits"], "output")
    assert with_skip.faithfulness == pytest.approx(2)  # more than is asked for is not faithful either
