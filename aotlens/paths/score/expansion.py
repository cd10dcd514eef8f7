"""The explanation of a head's attention: one attention score as a sum over pairs of paths (`PathExpansion.score`).

Elhage et al. (2021) write the scores of a two-layer model as a sum over what queries and keys read, W_E's and earlier
heads' parts on each side. Frozen patterns and scales make it exact at any depth: each side is a sum of paths
(`aotlens.paths.score.side`), and the score is bilinear in the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, require_choice
from aotlens.paths.path import Path, PathPair, SourceName
from aotlens.paths.score.layer import ScoredLayer, scored_layer
from aotlens.paths.score.pairs import PairSums, ScoreWords, TopPairs
from aotlens.paths.score.search import top_pairs
from aotlens.paths.score.side import Against, Contrast, ScoreSide, contrast, sides_of
from aotlens.paths.target import Residual, place_of, residual_of_score
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.paths.expanded import Expanded

#: From this share of its query's attention on, the average key is largely the key itself.
_LARGE = 0.25
#: The difference of scores, in nats, from which on another key is worth comparing with.
_APART = 1.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScoreExpansion(Result):
    """One attention score on a prompt as a sum over pairs of paths: one to the query, one to the keys.

    All values are nats, of what `contrast` says: the score itself (`against=None`), the score less the mean over the
    visible keys ("mean"), or less another key's score. On the key side a path stands for what it brings to the key less
    what it brings to those.
    """

    head: Head
    contrast: Contrast
    layer: ScoredLayer
    sides: tuple[ScoreSide, ScoreSide]
    """The query side and the key side."""
    attention: float
    """The pattern's own entry."""
    reason: str = ""
    """The reason for a contrast that was not named, a sentence."""

    def __repr__(self) -> str:
        return f"ScoreExpansion({self.headline})"

    @property
    def headline(self) -> str:
        cell, compared = f"head {self.head[0]}.{self.head[1]}, {self.query} → {self.key}", ""
        if self.against is not None:
            other = "the average key" if self.against == "mean" else f"key {self.against}"
            compared = f", {self.value:+.3f} against {other}"
        softmax = ", of the softmax before the threshold" if self.contrast.before_threshold else ""
        return f"{cell}: score {self.score:+.3f}{compared}{softmax}"

    @property
    def query(self) -> int:
        return self.contrast.query

    @property
    def key(self) -> int:
        return self.contrast.key

    @property
    def against(self) -> int | str | None:
        """The reference that the score is compared with: "mean", a key's position, or None."""
        return self.contrast.against

    @property
    def score(self) -> float:
        """The model's own score of the cell, nats."""
        return float(self.contrast.scores[self.key])

    @property
    def value(self) -> float:
        """The model's own contrast: what all pairs add together."""
        return self.contrast.value

    @property
    def compares(self) -> bool:
        """Whether it can be compared with other keys: not where each has another map of the stream."""
        return self.layer.placing is None

    @property
    def log_probability(self) -> float | None:
        """log P_ij of softmax(scores), before any threshold; None for a φ that does not normalise."""
        log_softmax = self.contrast.log_softmax
        return None if log_softmax is None else float(log_softmax[self.key])

    @property
    def entropy(self) -> float | None:
        """H(P_i) of softmax(scores), nats: against the mean the pairs add up to log_probability + entropy."""
        log_softmax = self.contrast.log_softmax
        if log_softmax is None:
            return None
        seen = log_softmax[self.contrast.visible]
        return -float((seen.exp() * seen.nan_to_num(neginf=0.0)).sum())

    @property
    def source_names(self) -> tuple[SourceName, ...]:
        """The sources of either side."""
        return self.layer.source_names

    # Single pairs

    @property
    def n_paths(self) -> int:
        """The number of a side's paths; positions of kind "qk" have one, or one a position where sources are split."""
        below = self.layer.below
        only_here = "position" not in below.source_names and "position" in self.source_names
        return below.n_paths + only_here * (below.n_pos if below.split_sources else 1)

    @property
    def n_pairs(self) -> int:
        """The number of pairs of paths that the score is a sum of."""
        return self.n_paths**2

    def paths(self) -> Iterator[Path]:
        """Yield every path of a side, shortest first, made one at a time; both sides have the same."""
        below = self.layer.below
        if "position" in self.source_names and "position" not in below.source_names:
            positions: list[int | None] = [*range(below.n_pos)] if below.split_sources else [None]
            yield from (Path("position", (), position) for position in positions)
        yield from below.paths()

    @torch.no_grad()
    def term(self, query_path: Path, key_path: Path) -> float:
        """Return the term of one pair of paths. Raises `ValueError` for a path that the layers below do not have."""
        query, key = self.sides
        return float(query.path(query_path) @ key.path(key_path))

    @property
    def words(self) -> ScoreWords:
        """The names of its cell, its contrast and its pairs."""
        return ScoreWords(
            head=self.head, contrast=self.contrast, key_side=self.sides[1], str_tokens=self.layer.below.str_tokens
        )

    def describe(self, pair: PathPair) -> str:
        """Return a pair as words, `" Pend"@18 × token → 0.3`: the path to the query, and the one to the keys.

        A path without heads starts where it ends: at the query, and for the raw score at the key.
        """
        names = []
        for path, end in zip(pair, (self.query, self.key if self.against is None else None), strict=True):
            position = path.source_position
            if position is None and not path.heads and path.source != "bias":
                position = end
            start, *heads, _ = self.layer.below.steps(Path(path.start, path.heads, position))
            names.append(" → ".join([start, *heads]))
        return " × ".join(names)

    # Sums of pairs

    @torch.no_grad()
    def by_pair_of_orders(self) -> PairSums:
        """Return all pairs by how many heads their two paths pass: O(L²) head evaluations, and as many products."""
        query, key = (side.by_order() for side in self.sides)
        names = tuple(f"{n} head{'' if n == 1 else 's'}" for n in range(len(query)))
        return PairSums(names=names, values=query @ key.T, by="orders", total=self.value, unit=self.words.unit)

    @torch.no_grad()
    def by_source_pair(self) -> PairSums:
        """Return all pairs by where their two paths start; see `PairSums`."""
        query, key = (side.by_source() for side in self.sides)
        return PairSums(
            names=tuple(self.source_names), values=query @ key.T, by="sources", total=self.value, unit=self.words.unit
        )

    @torch.no_grad()
    def by_head_pair(self) -> PairSums:
        """Return all pairs by the last head on either side, and paths without heads by source; see `PairSums`."""
        query, key = (side.by_head() for side in self.sides)
        below = self.layer.below
        heads = (f"{layer}.{head}" for layer in range(below.n_layers) for head in range(below.n_heads))
        names = (*self.source_names, *heads)
        return PairSums(names=names, values=query @ key.T, by="heads", total=self.value, unit=self.words.unit)

    @torch.no_grad()
    def by_source_position(self, side: str) -> Float[Tensor, "source pos"]:
        """Return all pairs by the source of one side, "query" or "key", and the position where it stands.

        Rows as `source_names`. Raises `ValueError` for another side.
        """
        require_choice("side", side, ("query", "key"))
        query, key = self.sides
        own, other = (query, key) if side == "query" else (key, query)
        return own.by_source_position(other.by_order().sum(0))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per position: position, token, query and key: what the paths of that side from there add, in
        nats, times the whole other side. Either column sums to `value`."""
        sides = {side: self.by_source_position(side).sum(0).double().cpu().numpy() for side in ("query", "key")}
        tokens = self.words.str_tokens
        columns = {"position": range(len(sides["key"]))} | ({"token": tokens} if tokens else {})
        return data_frame(columns | sides)

    @torch.no_grad()
    def top(self, k: int, by: str = "abs", *, budget: int = 1000) -> TopPairs:
        """Return the k largest pairs of paths, by best-first search on both sides; see `aotlens.paths.score.search`.

        `by="abs"` ranks by size, "pos" by the largest, "neg" by the smallest term. `budget` is how many nodes may be
        expanded, of both sides together. Raises `ValueError` for k or budget below 1 and for another `by`.
        """
        best = top_pairs(self.sides, k, by, budget, self.value, self.n_pairs)
        words = self.words
        descriptions, formulas = (tuple(map(say, best.pairs)) for say in (words.line, self.describe))
        pieces = tuple(tuple(words.sentence(pair)) for pair in best.pairs)
        return replace(
            best, descriptions=descriptions, formulas=formulas, pieces=pieces, unit=words.unit, score=self.score,
            log_probability=self.log_probability,
        )  # fmt: skip

    @torch.no_grad()
    def residual(self) -> Residual:
        """Return the difference between the sum over all pairs and the model's own contrast; see `Residual`."""
        largest = float(self.contrast.scores.abs().max())
        return residual_of_score(
            self.by_pair_of_orders().values, self.value, largest, self.layer.below.frozen.precision
        )


def score_of(expansion: Expanded, head: HeadLike | None, query: Any, key: Any, against: Against) -> ScoreExpansion:
    """See `PathExpansion.score`."""
    head, query, key = default_cell(expansion, head, query, key)
    if isinstance(against, str) and against == "auto":
        score = score_of(expansion, head, query, key, "default")
        against, reason = default_contrast(score)
        return replace(score_of(expansion, head, query, key, against), reason=reason)
    layer = scored_layer(expansion, head[0])
    cell = contrast(expansion.model.cfg, layer.scores[head[1]], query, key, against)
    attention = float(expansion.frozen.patterns[(*head, cell.query, cell.key)])
    return ScoreExpansion(
        head=head, contrast=cell, layer=layer, sides=sides_of(layer, head[1], cell), attention=attention
    )


def default_cell(expansion: Expanded, head: HeadLike | None, query: Any, key: Any) -> tuple[Head, int, int]:
    """Return a cell. Default key: the most attended but the first token and the query; default head: above the first
    layer, the one that attends to such a key most."""
    patterns = expansion.frozen.patterns
    place = place_of("query", query, patterns.shape[2])
    if head is not None and key is not None:
        return as_head(head, expansion), place, key
    attention = patterns[:, :, place].double().clone()
    n_keys = attention.shape[-1]
    if place > 1 or (n_keys > 2 and expansion.model.sees_later_keys):
        attention[..., [0, place]] = -torch.inf
    if head is None:
        first = min(1, expansion.n_layers - 1)
        layer, number = divmod(int(attention[first:].amax(-1).argmax()), expansion.n_heads)
        head = (first + layer, number)
    head = as_head(head, expansion)
    return head, place, int(attention[head].argmax()) if key is None else key


def default_contrast(score: ScoreExpansion, asked: Against = "auto") -> tuple[Against, str]:
    """Return what a score is compared with, and the reason in a sentence, "" if it needs none.

    `score` is of the same cell. By default ("auto") it is the mean over keys; if that is largely the key itself,
    the first token, or another key whose score is at least a nat away. `asked` is replaced if it is impossible.
    """
    if not score.compares:
        return None, "Positions rotate this model's queries and keys, so the score itself is explained."
    others, wrong = [key for key in keys_by_score(score) if key != score.key], ""
    if isinstance(asked, int):
        if asked in others:
            return asked, ""
        wrong = f"The query sees no other key at position {asked}. "
    elif asked is None or (asked == "mean" and others):
        return asked, ""
    if score.log_probability is None:
        return None, f"{wrong}This model's attention is no softmax, so the score itself is explained."
    if not others:
        return None, f"{wrong}The query sees no other key: all its attention is here, whatever the score."
    share = math.exp(score.log_probability)
    if share < _LARGE:
        return "mean", wrong.strip()
    scores = score.contrast.scores
    ordered = [*([0] if 0 in others else []), *(key for key in others if key)]
    other = next((key for key in ordered if abs(float(scores[score.key] - scores[key])) >= _APART), ordered[0])
    name = "the first token" if other == 0 else score.words.at(other)
    rival = "" if other == ordered[0] else " (other keys before it have about as much)"
    return other, (
        f"{wrong}The key has {share:.0%} of the query's attention, so the average key is largely itself; it is "
        f"compared with {name}{rival}."
    )


def keys_by_score(score: ScoreExpansion) -> list[int]:
    """Return the visible keys, the largest score first."""
    visible = score.contrast.visible.nonzero()[:, 0].tolist()
    return sorted(visible, key=lambda key: -float(score.contrast.scores[key]))
