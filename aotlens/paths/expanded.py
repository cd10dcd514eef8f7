"""A model that is frozen on one prompt, and its logits as sums over paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import HeadLike, as_head, head_name, require_whole
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import groups
from aotlens.paths.bounds import Bounds, prepare
from aotlens.paths.enumeration import (
    AllPaths,
    all_paths,
    check_path,
    every_path,
    n_paths,
    n_paths_by_order,
    path_operator,
    source_of,
    stream_of,
)
from aotlens.paths.frozen import Frozen, order_streams, root_gradient
from aotlens.paths.groups import ByHead, BySource
from aotlens.paths.kronecker import Kronecker, KroneckerSum
from aotlens.paths.of_logit import LogitByHead, LogitByOrder, LogitBySource, Sankey, sankey, unit_of
from aotlens.paths.path import Path, SourceName, end_words, output_text, source_words, token_name
from aotlens.paths.search import TopPaths, top_paths
from aotlens.paths.target import Residual, Target, checked_position, direction, output, residual_of
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Expanded(Result):
    """The base of `PathExpansion`: all of it but its attention scores, which are expanded by what stands here.

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

    @property
    def n_layers(self) -> int:
        return self.frozen.n_layers

    @property
    def n_heads(self) -> int:
        return self.frozen.n_heads

    @property
    def n_pos(self) -> int:
        return self.frozen.n_pos

    @property
    def source_names(self) -> tuple[SourceName, ...]:
        """The sources: token (or input), position if added to the stream, mlp_0 …, and bias if there is one."""
        return self.frozen.source_names

    def __repr__(self) -> str:
        return (
            f"PathExpansion({self.n_paths:,} paths: {self.n_layers} layers × {self.n_heads} heads, {self.n_pos} "
            f"positions, from {', '.join(self.source_names)}{' at each position' if self.split_sources else ''})"
        )

    @property
    def n_paths(self) -> int:
        """The number of paths: (H+1)^L per source, (H+1)^(L−1−l) for the MLP of layer l; times the positions if
        split."""
        return n_paths(self.frozen, self.split_sources)

    @property
    def n_paths_by_order(self) -> tuple[int, ...]:
        """The number of paths of k heads, k = 0 … L: C(L, k) × H^k of a source, C(L−1−l, k) × H^k of layer l's MLP."""
        return n_paths_by_order(self.frozen, self.split_sources)

    # Single paths

    def paths(self, max_order: int | None = None) -> Iterator[Path]:
        """Yield every path with at most `max_order` heads, shortest first, made one at a time.

        Raises `ValueError` for a negative `max_order`.
        """
        if max_order is not None:
            require_whole("max_order", max_order)
        return every_path(self.frozen, self.split_sources, max_order)

    def logits(self, path: Path) -> Float[Tensor, "pos out"]:
        """Return one path's contribution to every logit. O(order · pos · d_model · d_head) and one unembedding."""
        logits = self.frozen.read_out(self.stream(path))
        if path.source == "bias" and not path.heads:
            # The read-out adds its bias at every position; split by source, each position's belongs to itself.
            logits = logits + self.frozen.pool @ self.source("bias", path.source_position) * self.frozen.out_bias
        return logits

    def stream(self, path: Path) -> Float[Tensor, "pos d_model"]:
        """Return the contribution of one path to the final stream, before the read-out."""
        check_path(self.frozen, path)
        return stream_of(self.frozen, path)

    def source(self, name: SourceName, position: int | None = None) -> Float[Tensor, "pos width"]:
        """Return the input of `operator(path)`: embeddings or an MLP's output `[pos, d_model]`, or for biases ones
        `[pos, 1]`.

        `name` is a path's `start`. With `position`, all other rows are 0. Raises `ValueError` for a source that this
        model does not have.
        """
        return source_of(self.frozen, name, position)

    def operator(self, path: Path) -> Kronecker | KroneckerSum:
        """Return the path as an operator: `operator(path)(source(path.start, path.source_position))` is `logits(path)`.

        (read · A_k … A_1) ⊗ (V_1 W_O,1 … V_k W_O,k R)ᵀ with A = pattern · diag(1/s). A bias path is a sum of two:
        Σ b_O of the layers before its first head, and that head's own bias, which the pattern's row sums carry (no
        1/s). It acts on ones (the constant coordinate of *structures*, footnote 2). O(order · d_model² · d_head) time.
        """
        check_path(self.frozen, path)
        return path_operator(self.frozen, path)

    # Sums of paths

    @cached_property
    def _orders(self) -> Tensor:
        return order_streams(self.frozen)

    @torch.no_grad()
    def by_order(self, target: Target = None) -> Float[Tensor, "order pos *out"]:
        """Return the exact contribution of all paths with k heads, k = 0 … n_layers: `[order, pos, vocab]`.

        For one `target`, or (token, versus), `[order, pos]`. O(L²) head evaluations, once for all targets; the whole
        vocabulary costs n_layers + 1 unembeddings more, and as many logits of memory.

        Raises `ValueError` where the whole vocabulary would take more than 2 GB; give a target.
        """
        if target is None:
            groups.check_size("by_order", self.frozen, (self.n_layers + 1) * self.frozen.logits.numel())
        return output(self.frozen, self._orders, target, bias_row=0)

    @torch.no_grad()
    def by_head(self, target: Target = None) -> ByHead:
        """Return all paths grouped by their last head: each head's direct effect; see `ByHead`."""
        return groups.by_head(self.frozen, target)

    @torch.no_grad()
    def through(self, head: HeadLike, target: Target = None) -> Float[Tensor, " pos *out"]:
        """Return all paths that pass `head`, wherever: what the logits would lose without it, with patterns, scales and
        what MLPs write frozen.

        Heads overlap: the sum over heads counts a path once for each of its heads.
        """
        return groups.through(self.frozen, as_head(head, self), target)

    @torch.no_grad()
    def through_each(self, position: int, target: int | tuple[int, int]) -> Float[Tensor, "layer head"]:
        """Return `through` of every head for one logit at once, from one pass backwards."""
        return groups.through_each(self.frozen, checked_position(self.frozen, position), target)

    @torch.no_grad()
    def by_source(self, target: Target = None) -> BySource:
        """Return all paths grouped by where they start; see `BySource`."""
        return groups.by_source(self.frozen, target)

    @torch.no_grad()
    def by_source_position(self, position: int, target: int | tuple[int, int]) -> Float[Tensor, "source pos"]:
        """Return all paths to one logit, by source and the position where it stands; rows as `source_names`."""
        place, to = checked_position(self.frozen, position), direction(self.frozen, target)
        root = root_gradient(self.frozen, place, to.column)
        return groups.by_source_position(self.frozen, root, self.frozen.pool[place] * to.bias)

    @torch.no_grad()
    def by_virtual_head(self, target: Target = None) -> Float[Tensor, "layer head layer head pos *out"]:
        """Return all paths with at least two heads, grouped by their last two.

        Indexed [earlier layer, head, later layer, head, pos]. Each entry is a virtual head's direct effect on the logit
        at each position; 0 unless the layers increase.
        """
        return groups.by_virtual_head(self.frozen, target)

    @torch.no_grad()
    def residual(self) -> Residual:
        """Return the difference between the sum over all paths and the model's own logits; see `Residual`."""
        return self._residual

    @cached_property
    def _residual(self) -> Residual:
        return residual_of(self.frozen, self._orders)

    # The search for the paths that matter

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
        """Return the k largest paths to a logit or a logit difference, by best-first search (`aotlens.paths.search`).

        `by="abs"` ranks by size, "pos" by the largest, "neg" by the smallest contribution. `target=None` takes the
        model's first choice at `position`. `through` keeps the paths that pass a head. At most `budget` nodes are
        expanded.

        Raises `ValueError` for k or budget below 1, another `by`, and a missing position, output or head.
        """
        place, target = self.aimed(position, target)
        passing = None
        if through is not None:
            through = as_head(through, self)
            passing = (through, float(groups.through(self.frozen, through, target)[place]))
        paths = top_paths(self.frozen, self._bounds, k, place, target, by, budget, passing)
        descriptions = tuple(self.describe(path, paths.target) for path in paths.paths)
        return replace(paths, descriptions=descriptions, end=end_words(self.model, paths.target))

    @torch.no_grad()
    def all_paths(self, position: int, target: int | tuple[int, int], *, max_paths: int = 2_000_000) -> AllPaths:
        """Return every single path's contribution to one logit, sources not split; see `AllPaths`."""
        return all_paths(self.frozen, checked_position(self.frozen, position), target, max_paths)

    @torch.no_grad()
    def sankey(self, position: int = -1, target: Target = None, *, max_links: int = 60) -> Sankey:
        """Return the flow of a logit back through heads to the source tokens; see `Sankey`. `target` as of `top`."""
        place, target = self.aimed(position, target)
        flow = sankey(self.frozen, place, target, max_links)
        end = end_words(self.model, target)
        return replace(flow, str_tokens=self.str_tokens, end=end, unit=unit_of(target))

    @torch.no_grad()
    def logit_by_order(self, position: int = -1, target: Target = None) -> LogitByOrder:
        """Return one logit by the number of heads of its paths; see `LogitByOrder`. `target` as of `top`."""
        place, target = self.aimed(position, target)
        values = self.by_order(target)[:, place].cpu().double().numpy()
        fields = self._of_logit(place, target)
        return LogitByOrder(
            **fields, values=values, counts=self.n_paths_by_order, sources=self.source_names, n_pos=self.n_pos,
            n_heads=self.n_heads, error=float(values.sum()) - fields["logit"],
        )  # fmt: skip

    @torch.no_grad()
    def logit_by_head(self, position: int = -1, target: Target = None) -> LogitByHead:
        """Return one logit by head; see `LogitByHead`. `target` as of `top`."""
        place, target = self.aimed(position, target)
        direct, through = self.by_head(target).heads[:, :, place], self.through_each(place, target)
        return LogitByHead(
            **self._of_logit(place, target),
            direct=direct.cpu().double().numpy(),
            through=through.cpu().double().numpy(),
        )

    @torch.no_grad()
    def logit_by_source(self, position: int = -1, target: Target = None) -> LogitBySource:
        """Return one logit by where its paths start; see `LogitBySource`. `target` as of `top`."""
        place, target = self.aimed(position, target)
        values = self.by_source_position(place, target).cpu().double().numpy()
        first = target[0] if isinstance(target, tuple) else target
        probabilities = self.frozen.logits[place].double().softmax(-1)
        return LogitBySource(
            **self._of_logit(place, target), names=self.source_names, values=values, str_tokens=self.str_tokens,
            probability=float(probabilities[first]), first=self.token_name(first), residual=self.residual(),
            by_order=self.logit_by_order(place, target),
        )  # fmt: skip

    def aimed(self, position: int, target: Target) -> tuple[int, int | tuple[int, int]]:
        """Return a position from 0, and a target, the model's first choice there for None."""
        place = checked_position(self.frozen, position)
        return place, self.first_choice(place) if target is None else target

    def first_choice(self, position: int = -1) -> int:
        """Return the output with the largest logit at a position."""
        return int(self.frozen.logits[checked_position(self.frozen, position)].argmax())

    def _of_logit(self, position: int, target: int | tuple[int, int]) -> dict[str, Any]:
        end = end_words(self.model, target)
        return {"position": position, "target": target, "end": end, "logit": self.logit(position, target)}

    @torch.no_grad()
    def logit(self, position: int, target: int | tuple[int, int]) -> float:
        """Return the model's own logit, or difference of two, at `position`."""
        place = checked_position(self.frozen, position)
        return float(direction(self.frozen, target).of(self.frozen.logits[place]))

    def token_name(self, token: int) -> str:
        """Return a token in quotes, or its number without a tokenizer."""
        return token_name(self.model, token)

    def output_text(self, token: int) -> str:
        """Return a token as it is, or its number without a tokenizer."""
        return output_text(self.model, token)

    def describe(self, path: Path, target: int | tuple[int, int] | None = None, value: float | None = None) -> str:
        """Return a path as a sentence: `" Mr"@3 → 0.5 → 1.2 → logit " Darcy" +1.84`."""
        return " → ".join(self.steps(path, target)) + ("" if value is None else f" {value:+.3g}")

    def steps(self, path: Path, target: int | tuple[int, int] | None = None) -> list[str]:
        """Return the words of `describe`: the source, each head, and the end."""
        start = source_words(path, self.tokens, self.str_tokens)
        return [start, *map(head_name, path.heads), end_words(self.model, target)]

    @cached_property
    def scored_layers(self) -> dict[int, Any]:
        """The layers that `aotlens.paths.score.layer.scored_layer` has made, by number."""
        return {}
