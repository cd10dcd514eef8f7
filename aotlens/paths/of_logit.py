"""One logit of a prompt, or a difference of two, as a few sums of its paths: by number of heads, by head, by source.

**Flow.** One logit flows back through heads to the source tokens. The flow along an edge is the sum of all paths that
use it: from a (a source position, the output of an MLP, or a head) into head f directly,

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

from aotlens.conventions import Head, describe, head_name, percent, require_whole, several, signed
from aotlens.paths.frozen import Frozen, head_results, root_gradient, stream_gradients, total_gradients
from aotlens.paths.path import SourceName, mlp_name, place_words
from aotlens.paths.target import Residual, direction
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class OfLogit(Result):
    """The base of the tables of one logit. All values are logits."""

    position: int
    target: int | tuple[int, int]
    """An output, or (token, versus): the first's logit minus the second's."""
    end: str
    """The target in words: `logit " Darcy"`."""
    logit: float
    """The target's logit, or difference of logits, in the model's own output."""

    @property
    def unit(self) -> str:
        """The unit of a contribution."""
        return unit_of(self.target)


def unit_of(target: int | tuple[int, int]) -> str:
    """Return the unit of a contribution to a target."""
    return "logits of difference" if isinstance(target, tuple) else "logits"


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitByOrder(OfLogit):
    """All paths by how many heads they pass: `values.sum()` is the logit."""

    values: Float64[np.ndarray, " order"]
    """The contribution of the paths with k heads, k = 0 …"""
    counts: tuple[int, ...]
    """The number of these paths."""
    sources: tuple[SourceName, ...]
    """The sources where they start."""
    n_pos: int
    """Positions of the prompt."""
    n_heads: int
    """Heads of a layer."""
    error: float
    """Sum of all paths − the model's own logit."""

    @property
    def headline(self) -> str:
        most = int(np.abs(self.values).argmax())
        return f"paths through {most} heads add {self.values[most]:+.3f} of {self.logit:+.3f} logits"

    def sentences(self) -> str:
        """Return how many paths there are, and from where."""
        return (
            f"{sum(self.counts):,} paths in all: {' + '.join(self.sources)}, at {self.n_pos} positions, through "
            f"{several(len(self.values) - 1, 'layer')} of {self.n_heads} heads."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a number of heads: heads, paths, logits."""
        return data_frame({"heads": range(len(self.values)), "paths": self.counts, "logits": self.values})


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitByHead(OfLogit):
    """The contribution of the paths through each head; a path through two heads counts for both.

    `direct` are the paths on which a head is the last, its direct effect: with the paths without heads these add up to
    the logit.
    """

    direct: Float64[np.ndarray, "layer head"]
    through: Float64[np.ndarray, "layer head"]

    @property
    def headline(self) -> str:
        layer, head = np.unravel_index(np.abs(self.through).argmax(), self.through.shape)
        return f"most passes through head {layer}.{head}: {self.through[layer, head]:+.3f} of {self.logit:+.3f} logits"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head, the largest first: head, through, direct, and later, what later heads carry on."""
        later = self.through - self.direct
        later[-1] = 0.0  # the last layer's heads reach the logit directly only; rounding would show as −0.000
        frame = data_frame(
            {
                "head": list(map(head_name, np.ndindex(*self.direct.shape))),
                "through": self.through.ravel(),
                "direct": self.direct.ravel(),
                "later": later.ravel(),
            }
        )
        return frame.sort_values("through", key=abs, ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitBySource(OfLogit):
    """All paths by where they start: `values.sum()` is the logit."""

    names: tuple[SourceName, ...]
    values: Float64[np.ndarray, "source pos"]
    """Biases at the position where they are added."""
    str_tokens: tuple[str, ...]
    """The tokens of the prompt; () without a tokenizer."""
    first: str
    """The (first) target's output in words."""
    probability: float
    """The probability of that output at the position."""
    by_order: LogitByOrder
    residual: Residual
    """The residual of all positions and outputs."""

    @property
    def of_tokens(self) -> Float64[np.ndarray, " pos"]:
        """The contribution of all paths from each position, biases apart."""
        total: np.ndarray = self.values[[name != "bias" for name in self.names]].sum(0)
        return total

    @property
    def of_biases(self) -> float:
        """The contribution of all paths from biases."""
        return float(self.values[[name == "bias" for name in self.names]].sum())

    @property
    def headline(self) -> str:
        most = int(np.abs(self.of_tokens).argmax())
        return f"{place_words(self.str_tokens, most)} brings {self.of_tokens[most]:+.3f} of {self.logit:+.3f} logits"

    def sentences(self) -> str:
        """Return the logit, where it is read, how likely its token is, what biases bring, and whether paths add up."""
        residual, error = self.residual, self.by_order.error
        of_biases = f" Of the logit, biases bring {signed(self.of_biases)}." if "bias" in self.names else ""
        distrust = " This is above the tolerance: don't trust the paths of this text."
        sums = (
            f"Sum of paths − model logit: {f'{error:+.1e}' if error else '0'} logits here; at most "
            f"{residual.largest:.1e} over all positions and tokens (tolerance {residual.tolerance:.1e}: rounding)."
        ).replace("-", "−")
        return (
            f"After {describe(self.str_tokens[self.position])} at position {self.position}: {self.end} = "
            f"{signed(self.logit)}, probability of {self.first} {percent(self.probability)}.{of_biases} {sums}"
            f"{'' if residual.within_tolerance else distrust}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per position: source_position, str_token, and the logits of all paths from each source
        there."""
        columns: dict[str, object] = {"source_position": range(self.values.shape[1])}
        if self.str_tokens:
            columns["str_token"] = self.str_tokens
        return data_frame(columns | dict(zip(self.names, self.values, strict=True)))


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
        return data_frame(
            {
                "from": [self.label(self.nodes[i]) for i in self.sources],
                "to": [self.label(self.nodes[i]) for i in self.targets],
                "logits": self.values,
            }
        )


def sankey(frozen: Frozen, position: int, target: int | tuple[int, int], max_links: int) -> Sankey:
    """See `PathExpansion.sankey`. O((L·H)² · pos · d_model) time; memory of one stream per head."""
    require_whole("max_links", max_links, 1)
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
