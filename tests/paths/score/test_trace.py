"""The trace of a cell: its partitions by loops over cells, derivatives by finite differences, a circuit by hand."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import Trace, expand
from tests.messages import refused
from tests.paths.conftest import KINDS, MASK
from tests.small_models import MakeModel

FAMILY: dict[str, dict[str, Any]] = {
    "mhsa": {"n_layers": 3, "bias": True},
    "mssa, positions in queries and keys": {"n_layers": 3, "attention": "mssa", "bias": True, "positions": "qk"},
    "no norm": {"n_layers": 3, "bias": True, "norm": None, "positions": None},
    "linear": KINDS["linear"] | {"n_layers": 3, "bias": True},
    "thresholded": KINDS["thresholded"] | {"bias": True},
    "masked": {"attn_mask": MASK, "bias": True},
    "mlps": {"n_layers": 3, "bias": True, "d_mlp": 5},
}


def naive_terms(
    model: AttentionOnlyTransformer, tokens: Tensor, head: tuple[int, int], query: int, key: int, against: Any
) -> tuple[dict[Any, float], dict[Any, float]]:
    """Every term of the query side and of the key side, from the model's own cache, cell by cell."""
    _, cache = model.run_with_cache(tokens[None])
    layer, index = head
    row = cache["attn_scores", layer][0, index, query]
    c = torch.zeros_like(row)
    c[key] = 1
    if against == "mean":
        c = c - row.softmax(-1)
    visible = [k for k in range(len(row)) if row[k].isfinite()]
    q, k_all = cache["q", layer][0, query, index], cache["k", layer][0, :, index]
    whole = {"query": model.cfg.score_scale * (c @ k_all), "key": model.cfg.score_scale * q}

    def read(part: Tensor, at: int, W: Tensor) -> Tensor:
        if not model.cfg.norm:
            return part @ W
        norm, scale = model.blocks[layer].ln1, cache["scale", layer, "ln1"][0, at]
        return ((part - part.mean()) / scale * norm.w) @ W

    terms: tuple[dict[Any, float], dict[Any, float]] = ({}, {})
    for side, found in zip(("query", "key"), terms, strict=True):
        W, b = (model.W_Q[head], model.b_Q[head]) if side == "query" else (model.W_K[head], model.b_K[head])
        if model.cfg.norm:
            b = b + model.blocks[layer].ln1.b @ W
        for at in [query] if side == "query" else visible:
            weight = 1.0 if side == "query" else float(c[at])

            def add(name: Any, vector: Tensor, weight: float = weight, side: str = side, found: Any = found) -> None:
                found[name] = found.get(name, 0.0) + weight * float(vector @ whole[side])

            add(("token", at), read(cache["hook_embed"][0, at], at, W))
            if model.cfg.positions == "learned":
                add(("position", at), read(model.W_pos[at], at, W))
            if model.cfg.positions == "qk":
                add(("position", at), model.W_pos[at] @ W)
            for below in range(0 if model.cfg.attn_only else layer):
                add((f"mlp_{below}", at), read(cache["mlp_out", below][0, at], at, W))
            add(("bias", None), read(model.b_O[:layer].sum(0), at, W) + b)
            for below in range(layer):
                for other in range(model.cfg.n_heads):
                    for m in range(len(row)):
                        v = cache["v", below][0, m, other] @ model.W_O[below, other]
                        add(((below, other), at, m), read(cache["pattern", below][0, other, at, m] * v, at, W))
    return terms


@pytest.mark.parametrize("kind", FAMILY)
@torch.no_grad()
def test_both_sides_of_every_node_are_all_terms_of_its_contrast(make: MakeModel, tokens: Tensor, kind: str) -> None:
    model = make(**FAMILY[kind])
    if kind == "masked":
        tokens = torch.tensor([3, 1, 4, 1, 8, 0])
    head = (model.cfg.n_layers - 1, 0)
    trace = expand(model, tokens).trace(head, 4, 2, max_edges=1000, min_share=0.0, max_nodes=12)
    assert len({node.cell for node in trace.nodes}) == len(trace.nodes) and trace.nodes[0].cell == (head, 4, 2)
    for node in trace.nodes:
        terms = naive_terms(model, tokens, *node.cell, node.against)
        for side, expected in zip(("query", "key"), terms, strict=True):
            edges = [edge for edge in node.edges if edge.side == side]
            assert sum(edge.nats for edge in edges) == pytest.approx(node.contrast, abs=1e-9)
            assert sum(edge.share for edge in edges) == pytest.approx(1) or node.contrast == 0
            for edge in edges:
                if edge.kind == "rest":
                    assert abs(edge.nats) < 1e-9
                    continue
                name = edge.cell or (edge.start, edge.position)
                assert edge.nats == pytest.approx(expected.pop(name), abs=1e-9)
            assert sum(map(abs, expected.values())) < 1e-9
        layers = [edge.cell[0][0] for edge in node.edges if edge.cell is not None]
        assert all(layer < node.cell[0][0] for layer in layers)
    if model.cfg.phi != "thresholded_softmax":
        assert {node.against for node in trace.nodes} == ({None} if kind == "linear" else {"mean"})


def test_few_edges_and_what_is_left_of_each_side(make: MakeModel, tokens: Tensor) -> None:
    trace = expand(make(n_layers=3, bias=True), tokens).trace((2, 1), 4, 3, max_edges=2, max_nodes=5)
    assert len(trace.nodes) <= 5
    for node in trace.nodes:
        for side in ("query", "key"):
            edges = [edge for edge in node.edges if edge.side == side]
            assert sum(edge.nats for edge in edges) == pytest.approx(node.contrast, abs=1e-9)
            kept = [edge for edge in edges if edge.kind != "rest"]
            assert len(kept) <= 2 and all(edge.share >= 0.02 for edge in kept)
            assert [edge.share for edge in kept] == sorted((edge.share for edge in kept), reverse=True)
            assert len(edges) - len(kept) <= 1
    root = trace.nodes[0]
    assert all(edge.relative is None for edge in root.edges)
    assert root.cancellation[0] >= 1 and root.cancellation[1] >= 1
    frame = trace.to_frame()
    assert frame.node.nunique() == sum(bool(node.edges) for node in trace.nodes)
    assert len(frame) == sum(len(node.edges) for node in trace.nodes) and set(frame.side) == {"query", "key"}


@pytest.mark.parametrize("kind", ["mhsa", "linear", "thresholded", "mlps"])
@torch.no_grad()
def test_a_childs_term_is_the_relative_derivative_of_its_edge(make: MakeModel, tokens: Tensor, kind: str) -> None:
    """The parent's edge is proportional to the child's attention: a finite difference of that, one term scaled."""
    model = make(**FAMILY[kind])
    trace = expand(model, tokens).trace((model.cfg.n_layers - 1, 0), 4, 2, max_edges=6, min_share=0.0, max_nodes=5)
    children = [node for node in trace.nodes[1:] if node.cell[1] > 0]
    assert children
    for node in children:
        head, query, key = node.cell
        # Every term of every key's own score.
        plain = [naive_terms(model, tokens, head, query, k, None) for k in range(query + 1)]
        row = torch.tensor([sum(terms[0].values()) for terms in plain], dtype=torch.float64)
        for edge in node.edges:
            if kind == "thresholded":
                assert edge.relative is None and node.before_threshold
                continue
            if edge.kind == "rest":
                continue
            name, side = edge.cell or (edge.start, edge.position), int(edge.side == "key")
            term = torch.tensor([terms[side].get(name, 0.0) for terms in plain], dtype=torch.float64)

            def log_attention(scores: Tensor, key: int = key) -> float:
                return float(scores[key].abs().log() if kind == "linear" else scores.log_softmax(0)[key])

            step = 1e-5
            slope = (log_attention(row + step * term) - log_attention(row - step * term)) / (2 * step)
            assert edge.relative == pytest.approx(slope, abs=1e-7)


def induction_model() -> AttentionOnlyTransformer:
    """Two layers without norms: 0.0 copies the token before into a part of the stream that 1.0's keys read."""
    from aotlens.models import ModelConfig

    d, n_ctx, vocab = 24, 8, 8
    cfg = ModelConfig(
        n_layers=2, d_model=d, n_heads=2, d_head=8, n_ctx=n_ctx, d_vocab=vocab, norm=None, bias=False, attn_scale=1.0
    )
    model = AttentionOnlyTransformer(cfg).double().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    eye = torch.eye(8, dtype=torch.float64)
    model.embed.W_E[:, :8] = eye
    model.pos_embed.W_pos[:, 8:16] = eye
    first, second = model.blocks[0].attn, model.blocks[1].attn
    first.W_Q[0, 8:16] = 10 * torch.diag(torch.ones(7, dtype=torch.float64), -1)  # position i asks for i − 1
    first.W_K[0, 8:16] = eye
    first.W_V[0, :8], first.W_O[0, :, 16:24] = eye, eye
    second.W_Q[0, :8], second.W_K[0, 16:24] = 10 * eye, eye
    second.W_V[0, :8], second.W_O[0, :, :8] = eye, eye
    return model


def test_the_trace_of_an_induction_head_is_its_construction() -> None:
    model = induction_model()
    trace = expand(model, torch.tensor([0, 5, 2, 6, 3, 5])).trace((1, 0), 5, 2)
    root, child = trace.nodes[0], trace.nodes[1]
    assert root.attention > 0.999
    query = [edge for edge in root.edges if edge.side == "query"]
    keys = [edge for edge in root.edges if edge.side == "key"]
    assert (query[0].kind, query[0].source, query[0].position) == ("source", "token", 5) and query[0].share > 0.999
    assert keys[0].cell == ((0, 0), 2, 1) == child.cell
    expected = {("query", "position", 2), ("key", "position", 1)}
    mine = {
        (edge.side, edge.source, edge.position) for edge in child.edges if edge.kind == "source" and edge.share > 0.4
    }
    assert expected <= mine


def test_it_is_exported_whole(make: MakeModel, tokens: Tensor) -> None:
    trace = expand(make(n_layers=3, bias=True), tokens).trace((2, 1), 4, 3)
    record = json.loads(trace.to_json())
    assert record["schema"] == 1 and len(record["nodes"]) == len(trace.nodes)
    for node, written in zip(trace.nodes, record["nodes"], strict=True):
        assert (tuple(written["head"]), written["query"], written["key"]) == node.cell
        assert [edge["nats"] for edge in written["edges"]] == [edge.nats for edge in node.edges]
    layout = trace.layout()
    drawing = ElementTree.fromstring(trace.to_svg())
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f"{space}path")) == len(layout.links)
    assert len(drawing.findall(f"{space}rect")) == len(layout.boxes) + 1
    assert all(layout.boxes[link.start].column < layout.boxes[link.end].column for link in layout.links)
    page = trace.to_html()
    inside = re.search(r"<script type='application/json' id='trace'>(.*)</script>", page, re.DOTALL)
    assert inside is not None and json.loads(inside.group(1)) == record
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_hostile_tokens_are_text_in_every_file(make: MakeModel, tokens: Tensor) -> None:
    whole = expand(make(bias=True), tokens).trace((1, 1), 4, 3)
    hostile = Trace(nodes=whole.nodes, str_tokens=("</script><b>",) * 5, n_not_followed=0)
    assert "<b>" not in hostile.to_svg() and "<b>" not in hostile.to_html()
    ElementTree.fromstring(hostile.to_svg())


def test_an_mlp_is_an_edge_from_a_source(make: MakeModel, tokens: Tensor) -> None:
    trace = expand(make(bias=True, d_mlp=5), tokens).trace((1, 0), 4, 2, max_edges=100, min_share=0.0)
    edges = [edge for edge in trace.nodes[0].edges if edge.source == "mlp"]
    assert {(edge.side, trace.name(edge)) for edge in edges} == {
        ("query", "mlp_0@4"), *(("key", f"mlp_0@{at}") for at in range(5))
    }  # fmt: skip
    assert {edge.source_layer for edge in edges} == {0} and all(edge.kind == "source" for edge in edges)
    record = json.loads(trace.to_json())["nodes"][0]["edges"]
    assert {edge["source_layer"] for edge in record} == {0, None}
    assert "mlp_0" in {box.title for box in trace.layout().boxes} and "mlp_0@4" in trace.to_html()


def test_infinite_cancellation_is_null(make: MakeModel, tokens: Tensor) -> None:
    trace = expand(make(), tokens).trace((1, 0), 0, 0)  # one visible key: its contrast is 0
    assert trace.nodes[0].contrast == 0 and trace.nodes[0].cancellation == (math.inf, math.inf)
    assert json.loads(trace.to_json())["nodes"][0]["cancellation"] == {"query": None, "key": None}


def test_bad_limits_are_refused(make: MakeModel, tokens: Tensor) -> None:
    expansion = expand(make(), tokens)
    for name, wrong in (("max_edges", 0), ("max_nodes", 0), ("min_share", 2.0)):
        with refused(f"{name}={wrong}: expected"):
            expansion.trace((1, 0), 3, 1, **{name: wrong})
    with pytest.raises(ValueError, match="key=4"):
        expansion.trace((1, 0), 3, 4)
