"""A small set of edges that does, by itself, what the model does on pairs of prompts: found, and then checked.

For a set C of edges let m(C) be the metric of the clean prompt's run with all edges *outside* C carrying the corrupted
prompt's run. On pairs that the search did not see,

    faithfulness  F(C) = (m(C) − m(∅)) ÷ (m(all) − m(∅))         1 as the full model, 0 as the corrupted prompt
    completeness  F(all ∖ C)                                     near 0 where C is all there is

each a ratio of means over pairs. The search goes two ways, by exact values, and the smaller set wins (Conmy et al.
2023; Hanna et al. 2024):

    forward     the edges whose attribution is largest, as few of them as reach `keep`
    backward    from all edges, those with the smallest attribution leave in halves, as long as `keep` is reached

Edges whose removal costs least are then removed from both sets, until every remaining edge is needed. Edges that do not
lie on a path from `embed` to `logits` change nothing and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from aotlens.conventions import Progress, require_between, require_whole, several
from aotlens.data.pairs import PromptPairs
from aotlens.data.windows import held_out_rows
from aotlens.models import AttentionOnlyTransformer
from aotlens.patching.circuit_search import CONFIDENCE, Search, Sets
from aotlens.patching.edges import checked_for_edges
from aotlens.patching.metrics import Measure, PairMetric, name_of
from aotlens.paths import Edge, EdgeLike, Wires
from aotlens.results import Result
from aotlens.statistics import Verdict, as_clusters, interval_text, necessity

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeCircuit(Result):
    """A set of edges, and what it does on the pairs that it was not searched on, or on all where `n_held_out` is 0.

    Intervals are over clusters where pairs have some, else pairs, and hold for the faithfulness, the completeness and
    all edges at once in 95% of cases: each at Šidák's .95^(1/n). NaN for a single pair."""

    edges: tuple[Edge, ...]
    keep: float | int
    metric: str
    unit: str
    whole: float
    """m(all): the mean over pairs of the clean prompts' metric, in `unit`."""
    empty: float
    """m(∅): that of the corrupted prompts."""
    value: float
    """m(C): the mean over pairs of the metric with all edges but the circuit's patched."""
    searched: float
    """The faithfulness on the pairs of the search; of a set that was given, on all pairs."""
    faithfulness: float
    interval: tuple[float, float]
    completeness: float
    """F of all edges but these."""
    completeness_interval: tuple[float, float]
    without: Float64[np.ndarray, " edge"]
    """The faithfulness of the set without each of its edges."""
    without_intervals: Float64[np.ndarray, "edge 2"]
    estimate: Float64[np.ndarray, " edge"]
    """The estimated cost of taking the edge away, by attribution, in `unit`; NaN for a set that was given."""
    n_edges: int
    """Edges of the model."""
    n_layers: int
    """Layers of the model."""
    search: Literal["forward", "backward", "given"]
    sizes: tuple[int, int]
    """Edges that the forward and the backward search ended with."""
    n_searched: int
    n_held_out: int
    n_runs: int
    """Sets of edges that were tried."""
    removed: tuple[Edge, ...] = ()
    """Edges that were taken out of the circuit by hand."""

    @property
    def necessary(self) -> tuple[Verdict, ...]:
        """The verdict on each edge: whether the set falls below `keep` without it."""
        return necessity(self.without_intervals, self.keep)

    @property
    def headline(self) -> str:
        low, high = self.interval
        reach = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        where = f"{self.n_held_out} held-out pairs" if self.n_held_out else f"{self.n_searched} searched pairs"
        return (
            f"{len(self.edges)} of {self.n_edges} edges: faithfulness {self.faithfulness:.3f}{reach}, all others "
            f"{self.completeness:.3f}, on {where}"
        )

    def sentences(self) -> str:
        """Return how faithful and complete the circuit is, on which pairs, and how many of its edges are necessary."""
        where = "on the pair that it was searched on; pairs that it has not seen would check it"
        if self.n_held_out:
            where = f"on {self.n_held_out} pairs that the search did not see"
        elif self.search == "given":
            where = f"on all {self.n_searched} pairs, with {several(len(self.removed), 'edge')} taken out"
        sentence = (
            f"{len(self.edges)} of {self.n_edges} edges keep {self.faithfulness:.2f}"
            f"{interval_text(self.interval, '.2f', over=', over pairs')} of what the corrupted prompt takes away, "
            f"{where}; all other edges keep {self.completeness:.2f}."
        )
        needed = sum(verdict == "necessary" for verdict in self.necessary)
        return sentence if np.isnan(self.interval[0]) else f"{sentence} {needed} are necessary for {self.keep:g}."

    def to_frame(self) -> pd.DataFrame:
        """Return one row an edge: source, destination, without (the faithfulness without it), its interval (low, high),
        necessary, estimate."""
        import pandas as pd

        low, high = self.without_intervals.T
        return pd.DataFrame(list(self.edges), columns=["source", "destination"]).assign(
            without=self.without, low=low, high=high, necessary=self.necessary, estimate=self.estimate
        )

    def to_graph(self, name: str = "circuit") -> dict[str, Any]:
        """Return the circuit as nodes and links in circuit-tracer's graph format (metadata, qParams, nodes, links), for
        JSON.

        A link's weight is the faithfulness that is lost without the edge. Nodes are heads and MLPs, not features, at no
        position: `ctx_idx` is 0, `feature` a head's number. Edges into one head's queries, keys and values are one link
        each; `side` says which.
        """
        nodes: dict[str, dict[str, Any]] = {}
        links = []
        for edge, without in zip(self.edges, self.without, strict=True):
            receiver, side = edge.receiver
            for end in (edge.source, receiver):
                nodes.setdefault(end, _node(end, self.n_layers))
            links.append(
                {"source": nodes[edge.source]["node_id"], "target": nodes[receiver]["node_id"],
                 "weight": self.faithfulness - float(without), "side": side}
            )  # fmt: skip
        return {
            "metadata": {"slug": name, "scan": "aotlens", "transcoder_list": [], "prompt_tokens": [""], "prompt": "",
                         "schema_version": 1},
            "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
            "nodes": list(nodes.values()),
            "links": links,
        }  # fmt: skip


def _node(name: str, n_layers: int) -> dict[str, Any]:
    if name == "embed":
        layer, kind, number = "E", "embedding", 0
    elif name == "logits":
        layer, kind, number = str(n_layers + 1), "logit", 0
    elif name.startswith("mlp "):
        layer, kind, number = name[4:], "mlp", 0
    else:
        layer, _, head = name.partition(".")
        kind, number = "head", int(head)
    id = f"{layer}_{kind}{number}_0"
    return {
        "node_id": id, "jsNodeId": id, "feature": number, "layer": layer, "ctx_idx": 0, "reverse_ctx_idx": 0,
        "run_idx": 0, "feature_type": kind, "clerp": name, "is_target_logit": name == "logits", "token_prob": 0.0,
        "influence": None, "activation": None,
    }  # fmt: skip


@torch.no_grad()
def find_circuit(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    metric: str | PairMetric = "logit_difference",
    keep: float | int = 0.9,
    *,
    held_out: float | int = 0.5,
    steps: int = 5,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> EdgeCircuit:
    """Search a small set of edges whose faithfulness is `keep` or more; definitions at the head of this module.

    The share `held_out` of the pairs, whole clusters where they have some, drawn from `seed`, is kept out of the search
    and checks its result; 0 for few pairs. A set is enough where its faithfulness on the searched pairs surely reaches
    `keep`, by the lower end of a one-sided 80% interval (of a single pair, by itself), so that other pairs are likely
    to bear it out, and where it goes no farther beyond 1 than `keep` lies below. No single edge of the set can be
    spared; it is not the smallest, which only trying all would find. `progress(done, total)` counts sets, `total`
    being a bound that may grow.

    Raises `ValueError` for `keep` outside (0, 1], for too few pairs, where the interval of m(all) − m(∅) over the
    searched or the held-out pairs (95%) holds 0, since then there is nothing to be faithful to, and as
    `aotlens.patching.path_patch`.
    """
    measure = checked_for_edges(model, metric, "noising")
    for name, count in (("steps", steps), ("batch_size", batch_size)):
        require_whole(name, count, 1)
    require_between("keep", keep, above=0, most=1)
    require_between("held_out", held_out, 0, below=1)
    aside = held_out_rows(len(pairs), held_out, as_clusters(pairs.clusters, len(pairs), "pairs"), seed).numpy()
    n_aside, n_searched = int(aside.sum()), int((~aside).sum())
    if held_out and (n_searched < 2 or n_aside < 2):
        raise ValueError(
            f"expected at least 2 pairs to search and 2 to check, got {n_searched} and {n_aside} of {len(pairs)}; give "
            "more, or held_out=0 for a circuit that is not checked on others."
        )
    searched = Sets(model, pairs.at((~aside).nonzero()[0]), measure, batch_size, progress=progress)
    searched.require_effect("searched")
    checked = searched
    if n_aside:
        checked = Sets(model, pairs.at(aside.nonzero()[0]), measure, batch_size)
        checked.require_effect("held-out")
    estimate = searched.estimates(steps)
    search = Search(searched, estimate, keep)
    masks: dict[Literal["forward", "backward"], Bool[Tensor, "receiver sender"]] = {
        "forward": search.least(search.forward()), "backward": search.least(search.backward()),
    }  # fmt: skip
    sizes = tuple(int(mask.sum()) for mask in masks.values())
    way: Literal["forward", "backward"] = "forward" if sizes[0] <= sizes[1] else "backward"
    return _measured(
        checked, masks[way], keep, search=way, sizes=sizes, searched=searched.faithfulness([masks[way]])[0],
        estimate=estimate, n_searched=n_searched, n_held_out=n_aside, n_runs=searched.n_runs,
    )  # fmt: skip


@torch.no_grad()
def circuit_faithfulness(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    edges: Iterable[EdgeLike] | EdgeCircuit,
    metric: str | PairMetric = "logit_difference",
    *,
    without: Iterable[EdgeLike] = (),
    keep: float | int = 0.9,
    batch_size: int = 32,
) -> EdgeCircuit:
    """Measure a set of edges, or a circuit, `without` some of its edges.

    Edges that lie on no way from `embed` to `logits` within the set are left out of the result, since they change
    nothing, unless one norm takes the queries of all heads (`qk_norm="layer"`): there they all stay. Raises
    `ValueError` if an edge does not exist, for edges `without` that are not in the set, for prompts that measure the
    same, and as `find_circuit`.
    """
    measure = checked_for_edges(model, metric, "noising")
    require_between("keep", keep, above=0, most=1)
    require_whole("batch_size", batch_size, 1)
    wires = Wires.of(model)
    sets = Sets(model, pairs, measure, batch_size)
    sets.require_effect("given", tested=False)
    members = wires.mask(edges.edges if isinstance(edges, EdgeCircuit) else edges)
    gone = wires.mask(without)
    if (gone & ~members).any():
        other = ", ".join(map(str, wires.named(gone & ~members)))
        raise ValueError(f"without: expected edges of the circuit, got {other}, which it has not.")
    mask = wires.connected(members & ~gone)
    return _measured(
        sets, mask, keep, search="given", sizes=(int(mask.sum()),) * 2, searched=sets.faithfulness([mask])[0],
        estimate=np.full(tuple(wires.exists.shape), np.nan), n_searched=len(pairs), n_held_out=0, n_runs=sets.n_runs,
        removed=wires.named(gone),
    )  # fmt: skip


def _measured(
    sets: Sets, mask: Bool[Tensor, "receiver sender"], keep: float | int, *, estimate: np.ndarray, **rest: object
) -> EdgeCircuit:
    """The result of a set, measured on the pairs of `sets`."""
    edges = sets.wires.named(mask)
    less = [mask & ~sets.wires.mask([edge]) for edge in edges]
    all_sets = [mask, sets.wires.exists & ~mask, *less]
    shares = sets.faithfulness(all_sets)
    intervals = sets.intervals(all_sets, CONFIDENCE ** (1 / len(all_sets)))
    return EdgeCircuit(
        edges=edges, n_layers=sets.wires.n_layers, keep=keep, metric=name_of(sets.metric),
        unit=Measure(metric=sets.metric, pairs=sets.pairs).unit, whole=float(sets.whole.mean()),
        empty=float(sets.empty.mean()), value=float(sets.numbers([mask]).mean()), faithfulness=shares[0],
        interval=tuple(intervals[0].tolist()), completeness=shares[1],
        completeness_interval=tuple(intervals[1].tolist()), without=np.array(shares[2:]),
        without_intervals=intervals[2:], estimate=estimate[mask.numpy()], n_edges=len(sets.wires.edges), **rest,  # type: ignore[arg-type]
    )  # fmt: skip
