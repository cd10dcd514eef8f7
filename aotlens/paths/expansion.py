"""The path expansion of a model on one prompt (*structures* §5, Proposition 22; Elhage et al. 2021), for any depth.

With patterns and norm scales frozen, the logits are a sum over paths: a source term and a sequence of heads in
increasing layers (`aotlens.paths.frozen` has the maps). *structures* writes it for one layer,

    T(x) = (I ⊗ W_U W_E) x + Σ_h (A^h ⊗ W_U W_O^h W_V^h W_E) x,

and stops there, since L layers of H heads have (H+1)^L sequences. Nothing here forms them all unless asked to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.paths import groups
from aotlens.paths.bounds import Bounds, prepare
from aotlens.paths.enumeration import AllPaths, all_paths
from aotlens.paths.frozen import Frozen, freeze
from aotlens.paths.groups import ByHead, BySource
from aotlens.paths.kronecker import Kronecker, KroneckerSum
from aotlens.paths.operators import path_operator
from aotlens.paths.path import Path, SourceName, check_heads
from aotlens.paths.residual import Residual, residual_of
from aotlens.paths.sankey import Sankey, sankey
from aotlens.paths.score.contrast import Against
from aotlens.paths.score.expansion import ScoreExpansion, score_of
from aotlens.paths.score.layer import ScoredLayer, scored_layer
from aotlens.paths.score.trace import Trace, trace_of
from aotlens.paths.search import TopPaths, top_paths
from aotlens.paths.streams import order_streams, root_gradient
from aotlens.paths.target import Target, checked_position, direction, output
from aotlens.results import Result


@torch.no_grad()
def expand(
    model: AttentionOnlyTransformer, tokens: Tensor | str | list[str], *, split_sources: bool = False
) -> PathExpansion:
    """Freeze `model` on one prompt and expand its logits into paths.

    `tokens` is ids `[pos]` or `[1, pos]`, or a text. With `split_sources` a path also has the position where its source
    stands. One forward pass on the hooked path; no hook stays on the model.

    Raises `ValueError` for a model with MLPs, for a batch, and for what the model itself refuses.
    """
    require_ours(model, "paths")
    inputs = model.to_prompt(tokens, "paths")
    frozen = freeze(model, inputs)
    ids: tuple[int, ...] = ()
    if model.cfg.read_in == "tokens":
        ids = tuple(inputs[0].tolist())
    names = () if model.tokenizer is None or not ids else tuple(model.tokenizer.str_tokens(list(ids)))
    return PathExpansion(
        frozen=frozen, split_sources=split_sources, tokens=ids, str_tokens=names, model=model, inputs=inputs
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PathExpansion(Result):
    """All paths of a model on one prompt.

    Every contribution is in logits, of `target`: an output, or (token, versus), the first's minus the second's. A head
    is (1, 0) or "1.0".
    """

    frozen: Frozen
    split_sources: bool
    tokens: tuple[int, ...]
    """Token ids; () for a model that reads something else."""
    str_tokens: tuple[str, ...]
    """One string a token; () without a tokenizer."""
    model: AttentionOnlyTransformer
    inputs: Tensor
    """The prompt as a batch of one."""

    def __repr__(self) -> str:
        return (
            f"PathExpansion({self.n_paths:,} paths: {self.n_layers} layers × {self.n_heads} heads, {self.n_pos} "
            f"positions, from {', '.join(self.source_names)}{' at each position' if self.split_sources else ''})"
        )

    @property
    def n_layers(self) -> int:
        return self.frozen.n_layers

    @property
    def n_heads(self) -> int:
        return self.frozen.n_heads

    @property
    def n_pos(self) -> int:
        return self.frozen.n_pos

    @cached_property
    def source_names(self) -> tuple[SourceName, ...]:
        """The source terms of this model: token (or input), position if added to the stream, bias if there is any."""
        names: list[SourceName] = [*self.frozen.sources]
        return (*names, "bias") if self.frozen.has_bias else tuple(names)

    @property
    def n_paths(self) -> int:
        """How many paths there are: sources × (H+1)^L, times the positions where sources are split."""
        split = self.n_pos if self.split_sources else 1
        return len(self.source_names) * split * (self.n_heads + 1) ** self.n_layers

    @property
    def n_paths_by_order(self) -> tuple[int, ...]:
        """How many pass k heads, k = 0 … L: starts × C(L, k) × H^k."""
        starts = self.n_paths // (self.n_heads + 1) ** self.n_layers
        return tuple(starts * comb(self.n_layers, k) * self.n_heads**k for k in range(self.n_layers + 1))

    # Single paths

    def paths(self, max_order: int | None = None) -> Iterator[Path]:
        """Every path with at most `max_order` heads, shortest first, made one at a time.

        Raises `ValueError` for a negative `max_order`.
        """
        if max_order is not None and max_order < 0:
            raise ValueError(f"paths: expected max_order ≥ 0, got {max_order}.")
        return self._paths(max_order)

    def _paths(self, max_order: int | None) -> Iterator[Path]:
        last = self.n_layers if max_order is None else min(max_order, self.n_layers)
        positions: list[int | None] = [*range(self.n_pos)] if self.split_sources else [None]
        for order in range(last + 1):
            for layers in combinations(range(self.n_layers), order):
                for indices in product(range(self.n_heads), repeat=order):
                    heads = tuple(zip(layers, indices, strict=True))
                    for source in self.source_names:
                        for position in positions:
                            yield Path(source, heads, position)

    def logits(self, path: Path) -> Float[Tensor, "pos out"]:
        """One path's contribution to every logit. O(order · pos · d_model · d_head) and one unembedding."""
        self._check(path)
        logits = self.frozen.read_out(self.stream(path))
        if path.source == "bias" and not path.heads:
            # The read-out adds its bias at every position; split by source, each position's belongs to itself.
            logits = logits + self.frozen.pool @ self._ones(path) * self.frozen.out_bias
        return logits

    def stream(self, path: Path) -> Float[Tensor, "pos d_model"]:
        """What one path writes to the final stream, before the read-out."""
        self._check(path)
        frozen = self.frozen
        x = self._start(path)
        for index, head in enumerate(path.heads):
            own_bias = path.source == "bias" and index == 0
            if own_bias:
                v = (x * frozen.inverse_scale[head[0]][:, None]) @ frozen.W_V[head]
                x = frozen.patterns[head] @ (v + self._ones(path) * frozen.v_bias[head]) @ frozen.W_O[head]
            else:
                x = frozen.head_step(head, x, bias=False)
        return x

    def source(self, name: SourceName, position: int | None = None) -> Float[Tensor, "pos width"]:
        """What `operator(path)` acts on: embeddings `[pos, d_model]`, or for biases a column of ones `[pos, 1]`.

        With `position`, all other rows are 0. Raises `ValueError` for a source that this model does not have.
        """
        if name != "bias" and name not in self.frozen.sources:
            raise ValueError(f"source {name!r}: expected one of {', '.join([*self.frozen.sources, 'bias'])}.")
        if name == "bias":
            x = torch.ones(self.n_pos, 1, dtype=self.frozen.R.dtype, device=self.frozen.R.device)
        else:
            x = self.frozen.sources[name]
        if position is None:
            return x
        kept = torch.zeros_like(x)
        kept[position] = x[position]
        return kept

    def operator(self, path: Path) -> Kronecker | KroneckerSum:
        """The path as an operator: `operator(path)(source(path.source, path.source_position))` is `logits(path)`.

        (read · A_k … A_1) ⊗ (V_1 W_O,1 … V_k W_O,k R)ᵀ with A = pattern · diag(1/s). A bias path is a sum of two:
        Σ b_O of the layers before its first head, and that head's own bias, which the pattern's row sums carry (no
        1/s). It acts on ones (the constant coordinate of *structures*, footnote 2). O(order · d_model² · d_head) time.
        """
        self._check(path)
        return path_operator(self.frozen, path)

    def _start(self, path: Path) -> Tensor:
        if path.source != "bias":
            return self.source(path.source, path.source_position)
        before = path.heads[0][0] if path.heads else self.n_layers
        return self._ones(path) * self.frozen.bias_before[before]

    def _ones(self, path: Path) -> Tensor:
        return self.source("bias", path.source_position)

    def _check(self, path: Path) -> None:
        check_heads(path.heads, self)
        if path.source not in self.source_names:
            raise ValueError(f"path {path}: expected a source among {', '.join(self.source_names)}.")
        if path.source_position is not None and not 0 <= path.source_position < self.n_pos:
            raise ValueError(f"path {path}: expected a source position 0 to {self.n_pos - 1}.")

    # Sums of paths

    @cached_property
    def _orders(self) -> Tensor:
        return order_streams(self.frozen)

    @torch.no_grad()
    def by_order(self, target: Target = None) -> Float[Tensor, "order pos *out"]:
        """The exact contribution of all paths with k heads, k = 0 … n_layers: `[order, pos, vocab]`.

        For one `target`, or (token, versus), `[order, pos]`. O(L²) head evaluations, once for all targets; the whole
        vocabulary costs n_layers + 1 unembeddings more, and as many logits of memory.

        Raises `ValueError` where the whole vocabulary would take more than 2 GB; give a target.
        """
        if target is None:
            groups.check_size("by_order", self.frozen, (self.n_layers + 1) * self.frozen.logits.numel())
        return output(self.frozen, self._orders, target, bias_row=0)

    @torch.no_grad()
    def by_head(self, target: Target = None) -> ByHead:
        """All paths grouped by their last head, which is what each head itself adds to the logits; see `ByHead`."""
        return groups.by_head(self.frozen, target)

    @torch.no_grad()
    def through(self, head: HeadLike, target: Target = None) -> Float[Tensor, " pos *out"]:
        """All paths that pass `head`, wherever: what the logits would lose without it, patterns and scales frozen.

        Heads overlap: the sum over heads counts a path once for each of its heads.
        """
        return groups.through(self.frozen, as_head(head, self), target)

    @torch.no_grad()
    def through_each(self, position: int, target: int | tuple[int, int]) -> Float[Tensor, "layer head"]:
        """`through` of every head for one logit at once, from one pass backwards."""
        return groups.through_each(self.frozen, checked_position(self.frozen, position), target)

    @torch.no_grad()
    def by_source(self, target: Target = None) -> BySource:
        """All paths grouped by where they start; see `BySource`."""
        return groups.by_source(self.frozen, target)

    @torch.no_grad()
    def by_source_position(self, position: int, target: int | tuple[int, int]) -> Float[Tensor, "source pos"]:
        """All paths to one logit, by source and the position where it stands; rows as `source_names`."""
        at, to = checked_position(self.frozen, position), direction(self.frozen, target)
        root = root_gradient(self.frozen, at, to.column)
        return groups.by_source_position(self.frozen, root, self.frozen.pool[at] * to.bias)

    @torch.no_grad()
    def by_virtual_head(self, target: Target = None) -> Float[Tensor, "layer head layer head pos *out"]:
        """All paths with at least two heads, grouped by their last two.

        Indexed [earlier layer, head, later layer, head, pos]. Each entry is a virtual head's direct effect on the logit
        at each position; 0 unless the layers increase.
        """
        return groups.by_virtual_head(self.frozen, target)

    @torch.no_grad()
    def residual(self) -> Residual:
        """How far the sum over all paths is from the model's own logits; see `Residual`."""
        return residual_of(self.frozen, self._orders)

    # Which paths matter

    @cached_property
    def _bounds(self) -> Bounds:
        return prepare(self.frozen, self.split_sources)

    @torch.no_grad()
    def top(
        self,
        k: int,
        position: int = -1,
        target: Target = None,
        by: str = "abs",
        *,
        through: HeadLike | None = None,
        budget: int = 1000,
    ) -> TopPaths:
        """The k largest paths to a logit or a logit difference, by best-first search; see `aotlens.paths.search`.

        `by="abs"` ranks by size, "pos" by the largest, "neg" by the smallest contribution. `target=None` takes the
        model's own first choice at `position`. With `through`, of the paths that pass that head. `budget` is how many
        nodes may be expanded.

        Raises `ValueError` for k or budget below 1, another `by`, and a position, output or head that there is not.
        """
        at = checked_position(self.frozen, position)
        target = int(self.frozen.logits[at].argmax()) if target is None else target
        passing = None
        if through is not None:
            through = as_head(through, self)
            passing = (through, float(groups.through(self.frozen, through, target)[at]))
        return top_paths(self.frozen, self._bounds, k, at, target, by, budget, passing)

    @torch.no_grad()
    def all_paths(self, position: int, target: int | tuple[int, int], *, max_paths: int = 2_000_000) -> AllPaths:
        """Every single path's contribution to one logit, sources not split; see `AllPaths`."""
        return all_paths(self.frozen, checked_position(self.frozen, position), target, max_paths)

    @torch.no_grad()
    def sankey(self, position: int, target: int | tuple[int, int], *, max_links: int = 60) -> Sankey:
        """The flow of a logit back through heads to the source tokens; see `Sankey`."""
        return sankey(self.frozen, checked_position(self.frozen, position), target, max_links)

    # Why a head attends where it does

    @cached_property
    def _scored_layers(self) -> dict[int, ScoredLayer]:
        return {}

    def _scored_layer(self, layer: int) -> ScoredLayer:
        if layer not in self._scored_layers:
            self._scored_layers[layer] = scored_layer(self, layer)
        return self._scored_layers[layer]

    @torch.no_grad()
    def score(self, head: HeadLike, query: int, key: int, against: Against = "default") -> ScoreExpansion:
        """The attention score of one cell as a sum over pairs of paths, to the query and to the key.

        A softmax ignores what all keys of a query share, so by default its score is taken `against="mean"`, the mean
        over visible keys weighted by softmax(scores) (for the thresholded softmax by the softmax before the threshold).
        For any other φ the plain score is the default, and "mean" weighs visible keys equally. `against` may also be
        another key, or None for the plain score. One forward pass more for each layer that is asked for.

        Raises `ValueError` for phi="fixed", which has no scores, for a key hidden from the query, and for a head or a
        position that there is not.
        """
        return score_of(self, head, query, key, against)

    @torch.no_grad()
    def trace(
        self,
        head: HeadLike,
        query: int,
        key: int,
        against: Against = "default",
        *,
        max_edges: int = 4,
        min_share: float = 0.02,
        max_nodes: int = 40,
    ) -> Trace:
        """The cells behind one cell, layer by layer, and what each is made of; see `aotlens.paths.score.trace`.

        Of each node, on its query side and on its key side, the `max_edges` largest terms with at least `min_share` of
        their side are edges of their own, and those that are cells are followed, up to `max_nodes`. Raises `ValueError`
        as `score` does, and for limits out of range.
        """
        limits: dict[str, Any] = {"max_edges": max_edges, "min_share": min_share, "max_nodes": max_nodes}
        return trace_of(self, head, query, key, against, **limits)

    @torch.no_grad()
    def logit(self, position: int, target: int | tuple[int, int]) -> float:
        """The model's own logit, or difference of two, at `position`."""
        at = checked_position(self.frozen, position)
        return float(direction(self.frozen, target).of(self.frozen.logits[at]))

    def token_name(self, token: int) -> str:
        """A token in quotes, or its number without a tokenizer."""
        if self.model.tokenizer is None or self.model.cfg.read_out != "tokens":
            return f"output {token}"
        return _quoted(self.model.tokenizer.str_tokens([token])[0])

    def describe(self, path: Path, target: int | tuple[int, int] | None = None, value: float | None = None) -> str:
        """A path as a sentence: `" Mr"@3 → 0.5 → 1.2 → logit " Darcy" +1.84`."""
        steps = self.steps(path, target)
        return " → ".join(steps) + ("" if value is None else f" {value:+.3g}")

    def steps(self, path: Path, target: int | tuple[int, int] | None = None) -> list[str]:
        """The words of `describe`: the source, each head, and the end."""
        start: str = path.source
        if path.source_position is not None:
            at = path.source_position
            start = f"{path.source}@{at}"
            if path.source == "token":
                start = f"{_quoted(self.str_tokens[at])}@{at}" if self.str_tokens else f"token {self.tokens[at]}@{at}"
        end = "logits"
        if isinstance(target, tuple):
            end = f"logit {self.token_name(target[0])} − {self.token_name(target[1])}"
        elif target is not None:
            end = f"logit {self.token_name(target)}"
        return [start, *(f"{layer}.{head}" for layer, head in path.heads), end]


def _quoted(token: str) -> str:
    """In quotes and on one line."""
    return json.dumps(token, ensure_ascii=False)
