"""Heads of many models assigned to each other by one evidence, and what another says of the pairs and of groups."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aotlens.conventions import Head
from aotlens.statistics import jackknife_error, permutation_p

#: The evidence that heads are compared by, in the order of `Universality.similarity`.
EVIDENCE = ("ov", "qk", "pattern", "content", "written", "effect")


@dataclass(frozen=True, kw_only=True)
class HeadGroup:
    """Heads of different models, each two of which are assigned to each other."""

    heads: tuple[tuple[str, Head], ...]
    """The model's name and its head, in the order of the models."""
    matched: float
    """Mean similarity of its pairs by the evidence that they were matched on."""
    tested: float
    """The mean similarity of its pairs by the other one."""
    se: float
    """The standard error of `tested`, by the jackknife over models; NaN for fewer than three."""
    q: float
    """False discovery rate (Benjamini and Hochberg over groups) of: permuted heads of the same layers are as alike by
    the other evidence. A group of m models of which a layer has h heads cannot go below h^(−m), nor below
    1 ÷ (1 + permutations), times the number of groups."""
    matched_text_se: float = float("nan")
    """The standard error of `matched` over documents of text, `likeness.document_error`, with the models as they are;
    NaN where its evidence is made from weights, and for fewer than three documents."""
    tested_text_se: float = float("nan")
    """The same of `tested`. `se` is over models with the text as it is: √(`se`² + this²) is over both, and rather too
    large."""


class TestedPairs(NamedTuple):
    """The tested evidence of assigned heads: the mean, that of every permutation, and theirs of every two models; of
    every two models the mean, the probability that permutations give as much, and the mean less theirs; of every head
    the mean, and theirs, and of its pair with each model the evidence less theirs (NaN without one)."""

    mean: float
    null: np.ndarray
    null_of_models: np.ndarray
    of_models: np.ndarray
    p: np.ndarray
    excess: np.ndarray
    by_head: np.ndarray
    expected_by_head: np.ndarray
    by_model: np.ndarray


class Assignments:
    """Assignments by one evidence, read by another."""

    def __init__(self, owner: np.ndarray, layers: np.ndarray, similarity: np.ndarray, permutations: np.ndarray) -> None:
        self._owner, self._layers, self._permutations = owner, layers, permutations
        self._similarity = dict(zip(EVIDENCE, similarity, strict=True))
        self._n = int(owner.max()) + 1

    def has(self, matched: str, tested: str) -> bool:
        """Return whether every model has both kinds of evidence."""
        return all(np.isfinite(self._similarity[name]).all() for name in (matched, tested))

    def pairs(self, matched: str) -> np.ndarray:
        """Return `[pair, 2]`: the heads that are assigned to each other, of every two models."""
        from scipy.optimize import linear_sum_assignment

        assigned = []
        for a, b in itertools.combinations(range(self._n), 2):
            left, right = (np.flatnonzero(self._owner == place) for place in (a, b))
            rows, columns = linear_sum_assignment(self._similarity[matched][np.ix_(left, right)], maximize=True)
            assigned.append(np.stack([left[rows], right[columns]], 1))
        return np.concatenate(assigned)

    def of(self, matched: str, tested: str) -> TestedPairs:
        """Read the tested evidence off the pairs that are matched on the other."""
        pairs, values = self.pairs(matched), self._similarity[tested]
        similarity = values[pairs[:, 0], pairs[:, 1]]
        permuted = values[self._permutations[:, pairs[:, 0]], self._permutations[:, pairs[:, 1]]]
        # The mean over all permutations: that of all heads of the two layers.
        _, layer = np.unique(np.stack([self._owner, self._layers]), axis=1, return_inverse=True)
        members = np.eye(layer.max() + 1)[layer]
        blocks = members.T @ values @ members / np.outer(members.sum(0), members.sum(0))
        expected = blocks[layer[pairs[:, 0]], layer[pairs[:, 1]]]
        of_models, p, excess = np.full((3, self._n, self._n), np.nan)
        null_of_models = np.full((len(permuted), self._n, self._n), np.nan)
        owners = self._owner[pairs]
        for a, b in itertools.combinations(range(self._n), 2):
            own = (owners == [a, b]).all(1)
            of_models[a, b] = of_models[b, a] = mean = similarity[own].mean()
            excess[a, b] = excess[b, a] = mean - expected[own].mean()
            null_of_models[:, a, b] = permuted[:, own].mean(1)
            p[a, b] = p[b, a] = permutation_p(null_of_models[:, a, b], mean)
        in_pairs = [(pairs == head).any(1) for head in range(len(self._owner))]
        by_head, expected_by_head = (
            np.array([each[own].mean() if own.any() else np.nan for own in in_pairs]) for each in (similarity, expected)
        )
        by_model = np.full((len(self._owner), self._n), np.nan)
        for side, other in ((0, 1), (1, 0)):
            by_model[pairs[:, side], owners[:, other]] = similarity - expected
        return TestedPairs(
            float(similarity.mean()), permuted.mean(1), null_of_models, of_models, p, excess, by_head,
            expected_by_head, by_model,
        )  # fmt: skip

    def groups(
        self, names: tuple[str, ...], heads: tuple[Head, ...], matched: str, tested: str
    ) -> tuple[tuple[HeadGroup, ...], float]:
        """Find disjoint cliques of assigned heads, the largest and then the most alike first, and the share of triples
        that close."""
        import networkx
        from scipy.stats import false_discovery_control

        if not self.has(matched, tested):
            raise ValueError(f"grouped_by: a model has no {matched} or {tested}, having no queries and keys.")
        pairs = self.pairs(matched)
        graph = networkx.Graph(pairs.tolist())
        paths = sum(d * (d - 1) // 2 for _, d in graph.degree())
        triangles = sum(networkx.triangles(graph).values())
        closed = triangles / paths if self._n > 2 else float("nan")
        alike, values = self._similarity[matched], self._similarity[tested]
        left, members = set(graph), []
        cliques = sorted(map(sorted, networkx.find_cliques(graph)), key=lambda each: (-len(each), -_mean(alike, each)))
        for clique in cliques:
            if len(clique) > 1 and left.issuperset(clique):
                members.append(clique)
                left -= set(clique)
        p = []
        for clique in members:
            ends = np.array(list(itertools.combinations(clique, 2)))
            null = values[self._permutations[:, ends[:, 0]], self._permutations[:, ends[:, 1]]].mean(1)
            p.append(permutation_p(null, _mean(values, clique)))
        q = false_discovery_control(p) if p else np.zeros(0)
        return tuple(
            HeadGroup(
                heads=tuple((names[self._owner[head]], heads[head]) for head in clique),
                matched=_mean(alike, clique),
                tested=_mean(values, clique),
                se=_jackknife(values, clique),
                q=float(each),
            )
            for clique, each in zip(members, q, strict=True)
        ), closed


def _mean(values: np.ndarray, clique: list[int]) -> float:
    """Return the mean over the pairs of a clique."""
    return float(np.mean([values[a, b] for a, b in itertools.combinations(clique, 2)]))


def _jackknife(values: np.ndarray, clique: list[int]) -> float:
    """The standard error of `_mean` by leaving out one model, and with it its head, at a time."""
    if len(clique) < 3:
        return float("nan")
    return jackknife_error(np.array([_mean(values, [other for other in clique if other != head]) for head in clique]))
