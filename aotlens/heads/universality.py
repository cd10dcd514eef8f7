"""Whether the same heads recur: heads of many models matched on one evidence, and tested on another.

Of n models with the same tokens, for every two heads of two of them, the similarities of `aotlens.heads.matching` and
three more:

    ov        cosine of the OV circuits between tokens
    qk        cosine of the QK circuits between tokens
    pattern   cosine of the patterns on the same sequences without position 0, each row less as much spread evenly
    content   the same of each pattern less the head's own mean over the sequences at every (query, key): what is left
              depends on the text, and not on how the head attends by distance, nor on how sharply
    written   overlap of the directions that the heads write to the logits: ‖P Q‖² of the projections ÷ the lower rank
    effect    correlation over tokens of what ablating each head by zero adds to the loss

Two models' heads are assigned to each other so that one evidence sums to the most (Kuhn 1955). The assignment's own
value says nothing: it is as large whichever names heads have. So another evidence is read off the pairs: the mean over
all pairs of models, beside the same mean where the heads of each layer of each model are permuted (the null: within a
layer, being alike by the first evidence says nothing of the second). Matched and tested evidence have to be made from
different weights, or chance overlaps count twice: patterns are made by QK, and an effect by both, so the tests are
patterns or QK against OV, both ways. An MSSA head's W_Q, W_K and W_V are one matrix: there a test says that what the
head writes comes again with what it reads, and its W_O alone is new evidence.

Where patterns are the tested evidence, surrogates say in addition whether heads are alike beyond a shared mean pattern:
each model reads the sequences in an order of its own (`heads.likeness`), which keeps distances and entropies. That
null is of texts, and the other one of heads: models that share nothing may be alike by chance in how they read the same
tokens, on any text, and permuted heads alone tell that.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.conventions import Head, Progress, all_heads, head_name, require_choice, require_seed, require_whole
from aotlens.heads.assignments import EVIDENCE, Assignments, HeadGroup
from aotlens.heads.kinds import (
    KindComparison,
    by_kind,
    by_layer,
    compared,
    layer_interval,
    null_deviations,
    trend_sentence,
    without_each_model,
)
from aotlens.heads.likeness import (
    ON_PATTERNS,
    ON_TEXT,
    document_error,
    on_text,
    text_null,
    text_rows,
    texts_alike,
    weights_alike,
)
from aotlens.heads.matching import require_same_tokens
from aotlens.heads.reader import HeadReader, TokenSequences
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.statistics import as_clusters, permutation_p

if TYPE_CHECKING:
    import pandas as pd

#: Matched on the first, tested on the second.
TESTS = (("pattern", "ov"), ("qk", "ov"), ("ov", "content"), ("ov", "qk"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Universality(Result):
    """The likeness of several models' heads, those that recur, and whether more of them do than by chance."""

    models: tuple[str, ...]
    kinds: tuple[str, ...]
    """The kind of each model: MHSA, MSSA, with MLPs or not; or as the caller named it."""
    model: Int64[np.ndarray, " head"]
    """The index of each head's model among `models`; heads of all models stand in one row."""
    heads: tuple[Head, ...]
    similarity: Float64[np.ndarray, "evidence head head"]
    """The similarity of every two heads, in the order of `EVIDENCE`; NaN where a model has no queries and keys."""
    tests: tuple[tuple[str, str], ...]
    """The kinds of evidence of each test: (matched on, tested on)."""
    observed: Float64[np.ndarray, " test"]
    """Mean of the tested evidence over the pairs of heads of all pairs of models."""
    null_mean: Float64[np.ndarray, " test"]
    null_std: Float64[np.ndarray, " test"]
    p: Float64[np.ndarray, " test"]
    """The probability that permuting heads within layers gives as much, one-sided."""
    pair_means: Float64[np.ndarray, "test model model"]
    """`observed` of each two models; NaN on the diagonal."""
    pair_p: Float64[np.ndarray, "test model model"]
    """`p` of each two models; NaN on the diagonal."""
    pair_excess: Float64[np.ndarray, "test model model"]
    """`pair_means` less what permuted heads give on average: for each pair of heads the mean over all of their two
    layers."""
    by_layer: Float64[np.ndarray, "test layer"]
    """`observed` of the heads of each layer."""
    by_layer_null: Float64[np.ndarray, "test layer"]
    """The mean that permuted heads give in each layer."""
    by_layer_without: Float64[np.ndarray, "test model layer"]
    """`by_layer` less `by_layer_null` without each model in turn, for intervals over models; NaN for two models."""
    grouped_by: tuple[str, str]
    groups: tuple[HeadGroup, ...]
    """The largest first: maximal cliques of assigned heads, each head in one of them."""
    closed: float
    """The share, of heads a, its partner b in another model and b's partner c in a third, where c is a's partner, too;
    NaN for fewer than three models."""
    text_mean: Float64[np.ndarray, " test"] | None = None
    """`observed` of tests on patterns where each model reads the sequences in an order of its own: the mean over
    surrogates. NaN of tests on other evidence; None in files from before there were any."""
    text_std: Float64[np.ndarray, " test"] | None = None
    text_p: Float64[np.ndarray, " test"] | None = None
    """The probability that heads with these distances and entropies give as much, one-sided
    (`heads.likeness.text_null`)."""
    kind_null_std: Float64[np.ndarray, "test kind"] | None = None
    """The standard deviation of what permuted heads give on average over the pairs of models of each kind, in the order
    in which kinds first occur; NaN for one model of a kind; None in files from before there were any."""

    @property
    def headline(self) -> str:
        place = self.tests.index(self.grouped_by) if self.grouped_by in self.tests else 0
        matched, tested = self.tests[place]
        everywhere = sum(len(group.heads) == len(self.models) and group.q <= 0.05 for group in self.groups)
        units = f"{self.standardised[place]:.1f} standard deviations from permuted {self.null_mean[place]:.3f}"
        chance = f"{units}, p = {self.p[place]:.2g}"
        n = len(self.models)
        return (
            f"matched by {matched}, mean {tested} {self.observed[place]:.3f} ({chance}); "
            f"{everywhere} groups of heads are in {n} of {n} models with q ≤ .05"
        )

    def of(self, evidence: str) -> Float64[np.ndarray, "head head"]:
        """Return the similarities of one kind of evidence. Raises `ValueError` for an unknown one."""
        return self.similarity[EVIDENCE.index(require_choice("evidence", evidence, EVIDENCE))]

    def to_frame(self) -> pd.DataFrame:
        """Return a row a group: its size, its heads by model, `matched`, `tested`, `se`, `q`; and of evidence from text
        `matched_text_se`, `tested_text_se`."""
        import pandas as pd

        rows = []
        for group in self.groups:
            named = {name: head_name(head) for name, head in group.heads}
            heads = {name: named.get(name, "") for name in self.models}
            rows.append({"models": len(group.heads), **heads, "matched": group.matched, "tested": group.tested,
                         "se": group.se, "q": group.q})  # fmt: skip
            for side, evidence in zip(("matched", "tested"), self.grouped_by, strict=True):
                if evidence in ON_TEXT:
                    rows[-1][f"{side}_text_se"] = getattr(group, f"{side}_text_se")
        return pd.DataFrame(rows)

    @property
    def layer_trend(self) -> str:
        """Whether heads recur more in some layers than in others, in a sentence, by the evidence of the groups;
        empty for models of one layer, and where that evidence is none of `tests`."""
        if self.grouped_by not in self.tests:
            return ""
        place = self.tests.index(self.grouped_by)
        return trend_sentence(self.by_layer[place] - self.by_layer_null[place], self.by_layer_without[place])

    def layers_frame(self) -> pd.DataFrame:
        """Return a row a test and layer: `matched`, `tested`, `layer`, the `observed` mean of its heads, `null_mean`
        (of permuted ones), and the `excess` between them with its 95% interval over models, `low` and `high` (NaN for
        fewer than three; `heads.kinds` has the formula)."""
        import pandas as pd

        rows = []
        for place, layer in np.ndindex(*self.by_layer.shape):
            observed, null = self.by_layer[place, layer], self.by_layer_null[place, layer]
            excess = layer_interval(observed - null, self.by_layer_without[place, :, layer])
            rows.append((*self.tests[place], layer, observed, null, *excess))
        columns = ("matched", "tested", "layer", "observed", "null_mean", "excess", "low", "high")
        return pd.DataFrame(rows, columns=pd.Index(columns))

    @property
    def pairs(self) -> Int64[np.ndarray, "pair 2"]:
        """The heads that are assigned to each other by the evidence of the groups, of every two models."""
        layers = np.array([layer for layer, _ in self.heads])
        tests = Assignments(self.model, layers, self.similarity, np.zeros((0, len(self.heads)), dtype=int))
        return tests.pairs(self.grouped_by[0])

    def pairs_frame(self) -> pd.DataFrame:
        """Return a row for every two assigned heads: `left_model`, `left`, `right_model`, `right`; `matched` and
        `tested` similarity; `p`, the share of all pairs of heads of these two layers that are as alike by the tested
        evidence (exact, the smallest is one by their number); `mean` and `p_models`, the mean of `tested` over all
        heads of the two models and its `pair_p`, where the two kinds of evidence are one of `tests`."""
        import pandas as pd

        matched, tested = map(self.of, self.grouped_by)
        layers = np.array([layer for layer, _ in self.heads])
        test = self.tests.index(self.grouped_by) if self.grouped_by in self.tests else None
        rows = []
        for a, b in self.pairs.tolist():
            first, second = self.model[a], self.model[b]
            same = [np.flatnonzero((self.model == self.model[head]) & (layers == layers[head])) for head in (a, b)]
            row: dict[str, object] = {
                "left_model": self.models[first], "left": head_name(self.heads[a]),
                "right_model": self.models[second], "right": head_name(self.heads[b]),
                "matched": matched[a, b], "tested": tested[a, b],
                "p": float((tested[np.ix_(*same)] >= tested[a, b] - 1e-12).mean()),
            }  # fmt: skip
            if test is not None:
                row |= {"mean": self.pair_means[test, first, second], "p_models": self.pair_p[test, first, second]}
            rows.append(row)
        return pd.DataFrame(rows)

    def tests_frame(self) -> pd.DataFrame:
        """Return a row a test: `matched`, `tested`, `observed`, `null_mean`, `null_std`, `standardised`, the difference
        from permuted heads in units of `null_std`, `p`, and of tests on patterns `text_mean`, `text_std`, `text_p`,
        where each model reads the sequences in an order of its own."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("observed", "null_mean", "null_std", "standardised", "p")}
        columns |= {name: getattr(self, name) for name in ("text_mean", "text_std", "text_p")}
        matched, tested = zip(*self.tests, strict=True)
        return pd.DataFrame({"matched": matched, "tested": tested, **columns})

    @property
    def standardised(self) -> Float64[np.ndarray, " test"]:
        """Return (`observed` − `null_mean`) ÷ `null_std`: the difference from permuted heads in their standard
        deviations."""
        return (self.observed - self.null_mean) / self.null_std

    @property
    def by_kind(self) -> str:
        """How much the heads of each kind of model are alike above permuted ones, raw and standardised, by the evidence
        of the groups, in a sentence; empty for fewer than two kinds of two models or more."""
        if self.grouped_by not in self.tests or self.kind_null_std is None:
            return ""
        test = self.tests.index(self.grouped_by)
        return by_kind(self.pair_excess[test], self.kind_null_std[test], self.kinds)

    @property
    def beyond_distance(self) -> str:
        """Whether heads are alike beyond how they attend by distance, in a sentence: more than where models read
        different texts, and more than permuted heads; empty where that is not known."""
        frame = self.tests_frame()
        known = frame[frame.text_p.notna()]
        if known.empty:
            return ""
        test = known.iloc[0]
        verdict = "are alike" if max(test.p, test.text_p) <= 0.05 else "are not seen to be alike"
        return (
            f"Heads matched by {test.matched} {verdict} beyond their distances and entropies: mean {test.tested} "
            f"{test.observed:.3f}, and {test.text_mean:+.3f} ± {test.text_std:.3f} where models read different texts "
            f"(p = {test.text_p:.2g}; of permuted heads {test.p:.2g})"
        )

    def compare_kinds(self, first: str, second: str) -> KindComparison:
        """Test whether heads recur more in models of one kind than of another: the difference of the kinds' means of
        `pair_excess` over pairs of models, by Welch's t of the jackknife's pseudo-values, which Student's t and
        permutations of the models over the kinds have to confirm (`kinds.kinds_differ`). Fewer than five models of a
        kind are not tested (p is NaN).

        The null: a kind's models are drawn independently, and both kinds have the same excess over permuted heads; how
        alike heads of a kind are whether they are matched or not does not count. `python -m benchmarks.kinds` simulates
        its level and power; docs/universality.md has them.

        Raises `ValueError` for one kind, and for kinds of which there are fewer than two models each.
        """
        if first == second:
            raise ValueError(f"{first!r}: expected two kinds, got one twice.")
        for kind in (first, second):
            if self.kinds.count(kind) < 2:
                raise ValueError(f"{kind!r}: expected a kind of at least two of {', '.join(sorted({*self.kinds}))}.")
        return compared((first, second), self.tests, self.kinds, self.pair_excess, self.pair_means, self.kind_null_std)


def universality(
    models: Mapping[str, AttentionOnlyTransformer],
    tokens: TokenSequences,
    *,
    grouped_by: tuple[str, str] = ("pattern", "ov"),
    kinds: Mapping[str, str] | None = None,
    clusters: Iterable[Hashable] | None = None,
    n_permutations: int = 999,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Universality:
    """Find the heads of `models` (by name, at least two, with the same tokens) that recur, on the sequences
    `tokens`.

    `grouped_by` are the evidence that groups are matched on and the one that they are tested on. The unit of every test
    is a head within its layer: models are taken as they are, and nothing is said of others; `HeadGroup.se` is over
    models. `clusters` names the document of each sequence, as `shared_held_out_windows` gives it: `text_p`
    permutes sequences within documents, and `HeadGroup.matched_text_se` is over documents (without it each sequence is
    one). `kinds` names the kind of each model, for `Universality.compare_kinds`, such as the weight decay that it was
    trained with; by default that of its attention. `progress(done, total)` counts models, and then pairs of them.

    Time for n models of h heads: O(n² d_vocab (h d_head)²) in float64, and for each head a pass over `tokens`.

    Raises `ValueError` for fewer than two models, for models that do not take the same tokens, for kinds that are not
    one of each model, for another number of clusters than of sequences, and for unknown evidence.
    """
    require_whole("n_permutations", n_permutations, 19)
    for name, model in models.items():
        require_ours(model, "universality", without=("norm_after", "norm_output", "qk_norm", "clip_qkv"))
        if (model.cfg.read_in, model.cfg.read_out) != ("tokens", "tokens") or model.sees_later_keys:
            raise ValueError(f"{name}: expected a model that predicts its next token from tokens.")
    if len(models) < 2:
        raise ValueError(f"expected at least two models, got {', '.join(models) or 'none'}.")
    for evidence in grouped_by:
        require_choice("grouped_by", evidence, EVIDENCE)
    if kinds is not None and {*kinds} != {*models}:
        missing = sorted({*models} - {*kinds}) or sorted({*kinds} - {*models})
        raise ValueError(f"kinds: expected one of each of the models {', '.join(models)}; see {missing[0]!r}.")
    names, members = tuple(models), list(models.values())
    for other in members[1:]:
        require_same_tokens(members[0], other)
    readers = [HeadReader.of(model, "universality") for model in members]
    ids = readers[0].require_ids(tokens)
    documents = as_clusters(clusters, len(ids))
    owner = np.repeat(np.arange(len(members)), [model.cfg.n_layers * model.cfg.n_heads for model in members])
    heads = tuple(itertools.chain.from_iterable(map(all_heads, readers)))
    total, done = len(members) + len(members) * (len(members) - 1) // 2, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    runs = []
    for model in members:
        runs.append(on_text(model, ids, batch_size))
        step()
    rows = text_rows(runs)
    alike = {**weights_alike(members, owner, step), **texts_alike(rows)}
    similarity = np.stack([alike[name] for name in EVIDENCE])
    random = np.random.default_rng(require_seed(seed))
    layers = np.array([layer for layer, _ in heads])
    permutations = np.stack([_within(owner, layers, random) for _ in range(n_permutations)])
    tests = Assignments(owner, layers, similarity, permutations)
    tested = tuple(test for test in TESTS if tests.has(*test))
    measured = [tests.of(*test) for test in tested]
    groups, closed = tests.groups(names, heads, *grouped_by)
    places = {(names[model], head): place for place, (model, head) in enumerate(zip(owner, heads, strict=True))}

    def text_error(group: HeadGroup, evidence: str) -> float:
        own = [places[head] for head in group.heads]
        return document_error(rows[evidence][own], evidence, documents) if evidence in ON_TEXT else float("nan")

    groups = tuple(
        replace(each, matched_text_se=text_error(each, grouped_by[0]), tested_text_se=text_error(each, grouped_by[1]))
        for each in groups
    )
    observed, null = np.array([result.mean for result in measured]), np.array([result.null for result in measured])
    texts = np.full((len(tested), n_permutations), np.nan)
    for test, (matched, evidence) in enumerate(tested):
        if evidence in ON_PATTERNS:
            pairs = tests.pairs(matched)
            texts[test] = text_null(rows[evidence], pairs, owner, documents, n_permutations, random)
    kind_of = tuple(_kind(model) if kinds is None else kinds[name] for name, model in models.items())
    return Universality(
        models=names,
        kinds=kind_of,
        model=owner.astype(np.int64),
        heads=heads,
        similarity=similarity,
        tests=tested,
        observed=observed,
        null_mean=null.mean(1),
        null_std=null.std(1, ddof=1),
        p=permutation_p(null, observed),
        pair_means=np.stack([result.of_models for result in measured]),
        pair_p=np.stack([result.p for result in measured]),
        pair_excess=np.stack([result.excess for result in measured]),
        by_layer=np.stack([by_layer(result.by_head[:, None], layers) for result in measured]),
        by_layer_null=np.stack([by_layer(result.expected_by_head[:, None], layers) for result in measured]),
        by_layer_without=np.stack([without_each_model(result.by_model, owner, layers) for result in measured]),
        grouped_by=grouped_by,
        groups=groups,
        closed=closed,
        text_mean=texts.mean(1),
        text_std=texts.std(1, ddof=1),
        text_p=np.where(np.isnan(texts[:, 0]), np.nan, permutation_p(texts, observed)),
        kind_null_std=np.stack([null_deviations(result.null_of_models, kind_of) for result in measured]),
    )


def _kind(model: AttentionOnlyTransformer) -> str:
    return model.cfg.attention.upper() + ("" if model.cfg.attn_only else " and MLPs")


def _within(owner: np.ndarray, layers: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A permutation of all heads that leaves each in its layer of its model."""
    permuted = np.arange(len(layers))
    for model, layer in {*zip(owner.tolist(), layers.tolist(), strict=True)}:
        places = np.flatnonzero((owner == model) & (layers == layer))
        permuted[places] = random.permutation(places)
    return permuted
