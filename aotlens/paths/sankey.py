"""The flow of one logit back through heads to the source tokens.

The flow along an edge is the sum of all paths that use it: from a (a source position, the output of an MLP, or a head)
into head f directly,

    ⟨what a writes, ∂ logit / ∂ (the stream as f reads it)⟩.

What flows into a head equals what flows out of it, and is `through(head)`; what flows into the logit is the logit.
Flows are signed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.conventions import Head, describe
from aotlens.paths.frozen import Frozen
from aotlens.paths.path import mlp_name
from aotlens.paths.streams import head_results, root_gradient, stream_gradients, total_gradients
from aotlens.paths.target import direction
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Node:
    """A source position, the output of a layer's MLP, the biases, a head, or the logit."""

    kind: Literal["source", "mlp", "bias", "head", "logit"]
    position: int | None = None
    head: Head | None = None
    layer: int | None = None
    """The layer of an MLP."""

    def __str__(self) -> str:
        if self.head is not None:
            return f"{self.head[0]}.{self.head[1]}"
        if self.layer is not None:
            return mlp_name(self.layer)
        return self.kind if self.position is None else f"@{self.position}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sankey(Result):
    """Nodes and signed links (logits), the largest links in size."""

    nodes: tuple[Node, ...]
    sources: Int[np.ndarray, " link"]
    """The node that each link leaves."""
    targets: Int[np.ndarray, " link"]
    """The node that each link enters."""
    values: Float64[np.ndarray, " link"]
    through: Float64[np.ndarray, " node"]
    """The whole flow of each node, links that were left out included; the logit's is its value."""
    n_links: int
    """The number of links in all."""
    shown: float
    """Σ |value| of the links that are here, as a share of all."""
    str_tokens: tuple[str, ...] = ()
    """The tokens of the prompt; () without a tokenizer."""
    end: str = "logit"
    """The name of the logit, in words."""
    unit: str = "logits"
    """The unit of a flow."""

    @property
    def headline(self) -> str:
        return f"{len(self.values)} of {self.n_links} links, with {self.shown:.0%} of the flow"

    def sentences(self) -> str:
        """Return how many links are drawn, and how much of the flow."""
        return (
            f"The {len(self.values)} largest of {self.n_links:,} links, {self.shown:.0%} of the flow in size; the rest "
            "isn't drawn."
        )

    def label(self, node: Node) -> str:
        """Return a node in words: `" Mr"@3`, MLP 0, biases, 1.0, or the logit."""
        if node.position is not None and self.str_tokens:
            return f"{describe(self.str_tokens[node.position])}{node}"
        if node.layer is not None:
            return f"MLP {node.layer}"
        return {"bias": "biases", "logit": self.end}.get(node.kind, str(node))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a link, largest first: from and to (`label`), logits."""
        import pandas as pd

        return pd.DataFrame(
            {
                "from": [self.label(self.nodes[i]) for i in self.sources],
                "to": [self.label(self.nodes[i]) for i in self.targets],
                "logits": self.values,
            }
        )


def sankey(frozen: Frozen, position: int, target: int | tuple[int, int], max_links: int) -> Sankey:
    """Make the flow of a logit in O((L·H)² · pos · d_model) time; memory of one stream a head.

    Raises `ValueError` for max_links below 1.
    """
    if max_links < 1:
        raise ValueError(f"sankey: expected max_links ≥ 1, got {max_links}.")
    to = direction(frozen, target)
    flow, nodes = _flows(frozen, position, to.column, to.bias)
    # Each head's outflow, and for the logit its inflow.
    through = flow.sum(1)
    through[-1] = flow[:, -1].sum()
    entries = np.flatnonzero(flow)
    order = entries[np.argsort(-np.abs(flow.ravel()[entries]), kind="stable")][:max_links]
    rows, columns = np.unravel_index(order, flow.shape)
    total = np.abs(flow).sum()
    return Sankey(
        nodes=nodes,
        sources=rows.astype(np.int64),
        targets=columns.astype(np.int64),
        values=flow[rows, columns],
        through=through,
        n_links=len(entries),
        shown=float(np.abs(flow[rows, columns]).sum() / total) if total else 1.0,
    )


def _flows(frozen: Frozen, position: int, column: Tensor, bias: float) -> tuple[np.ndarray, tuple[Node, ...]]:
    """All flows `[from, to]` between source positions, MLPs, biases, heads and the logit, in this order."""
    n_layers, n_heads, n_pos = frozen.n_layers, frozen.n_heads, frozen.n_pos
    root = root_gradient(frozen, position, column)
    _, u = total_gradients(frozen, root)
    read = torch.stack([stream_gradients(frozen, layer, u[layer]) for layer in range(n_layers)]).flatten(0, 1)
    written = head_results(frozen).flatten(0, 1)
    x, n_starts = frozen.embedded, n_pos + frozen.n_mlps + 1
    mlps = x.new_zeros(0, *x.shape) if frozen.mlps is None else frozen.mlps
    below = frozen.bias_before[:-1].repeat_interleave(n_heads, 0)
    layer = torch.arange(n_layers, device=x.device).repeat_interleave(n_heads)
    into_heads = torch.cat(
        [
            torch.einsum("pd,fpd->pf", x, read),
            # A head reads what the MLPs of earlier layers wrote.
            torch.einsum("mpd,fpd->mf", mlps, read) * (torch.arange(len(mlps), device=x.device)[:, None] < layer),
            (torch.einsum("fd,fpd->f", below, read) + torch.einsum("lhpk,lhk->lh", u, frozen.v_bias).flatten())[None],
            written.flatten(1) @ read.flatten(1).T,
        ]
    )
    into_heads[n_starts:] *= layer[:, None] < layer  # and what their heads did
    of_biases = (root.sum(0) @ frozen.bias_before[-1])[None] + bias
    into_logit = torch.cat(
        [(x * root).sum(-1), mlps.flatten(1) @ root.flatten(), of_biases, written.flatten(1) @ root.flatten()]
    )
    n = n_starts + n_layers * n_heads
    flow = np.zeros((n + 1, n + 1))
    flow[:n, n_starts:n] = into_heads.cpu().double().numpy()
    flow[:n, n] = into_logit.cpu().double().numpy()
    heads = [Node("head", head=(index // n_heads, index % n_heads)) for index in range(n_layers * n_heads)]
    starts = [Node("source", position=i) for i in range(n_pos)]
    starts += [Node("mlp", layer=i) for i in range(len(mlps))]
    return flow, (*starts, Node("bias"), *heads, Node("logit"))
