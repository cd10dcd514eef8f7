"""The result of `aotlens.dynamics.influence`: the influence of every token of every window, and its sums."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from aotlens.conventions import require_choice, require_seed, require_whole
from aotlens.dynamics.influence_measures import is_loss
from aotlens.dynamics.recipe_run import RecipeRun
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: Classes of tokens by those before them in the window: their bigram stood there, the token did but not the bigram,
#: neither.
TOKEN_CLASSES = ("repeated bigram", "repeated token", "new token")
#: Of fewer documents a rank correlation between runs says nothing.
_LEAST_DOCUMENTS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingWindows(Result):
    """The windows of training, in their order: where each came from, and its tokens."""

    steps: Int64[np.ndarray, " window"]
    documents: Int64[np.ndarray, " window"]
    """The index in `names` of the document in which its text begins; −1 for random tokens."""
    offsets: Int64[np.ndarray, " window"]
    """The offset of its text (of a repeated row, its segment) in the training tokens; −1 for random tokens."""
    lengths: Int64[np.ndarray, " window"]
    tokens: Int64[np.ndarray, " token"]
    """The tokens of all windows, one after another."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, run: RecipeRun, n_steps: int) -> TrainingWindows:
        """Collect the windows of the first steps of a run."""
        rows = [run.rows(step).numpy() for step in range(n_steps)]
        offsets = np.concatenate([run.offsets(step) for step in range(n_steps)])
        documents = run.documents(offsets)
        present = np.unique(documents[documents >= 0])
        own = np.where(documents < 0, -1, np.searchsorted(present, documents))
        names = run.objective.data.train.document_names
        return cls(
            steps=np.repeat(np.arange(n_steps), [len(each) for each in rows]),
            documents=own.astype(np.int64),
            offsets=offsets,
            lengths=np.concatenate([np.full(len(each), each.shape[1]) for each in rows]),
            tokens=np.concatenate([each.ravel() for each in rows]),
            names=tuple(names[place] for place in present),
        )

    def __len__(self) -> int:
        return len(self.steps)

    def are_those_of(self, other: TrainingWindows) -> bool:
        """Return whether another run has the same windows in the same order, as one of the same seed."""
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(self.tokens, other.tokens)

    @functools.cached_property
    def quarters(self) -> Int64[np.ndarray, " window"]:
        """The quarter of the steps after the first to which each window belongs, from 0; −1 for step 0."""
        quarters = (self.steps - 1) * 4 // max(1, int(self.steps[-1]))
        return np.where(self.steps > 0, quarters, -1)

    @functools.cached_property
    def starts(self) -> Int64[np.ndarray, " window"]:
        """The offset of each window among the tokens."""
        return np.concatenate([[0], self.lengths.cumsum()[:-1]])

    @functools.cached_property
    def of_token(self) -> Int64[np.ndarray, " token"]:
        """The window of each token."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def own(self, window: int) -> Int64[np.ndarray, " pos"]:
        """Return the tokens of a window. Raises `ValueError` if the index is out of range."""
        if not 0 <= window < len(self):
            raise ValueError(f"window {window}: expected one from 0 to {len(self) - 1}.")
        start = self.starts[window]
        return self.tokens[start : start + self.lengths[window]]

    def spans(self, window: int) -> list[tuple[bool, list[int]]]:
        """Return a window's tokens without its first, in spans: whether its bigrams stand earlier in the window, and
        ids."""
        start, tokens = self.starts[window], self.own(window)
        repeated = self.classes[start : start + len(tokens)] == 0
        # The first token of a repeated bigram belongs to the span.
        repeated[:-1] |= repeated[1:]
        groups = itertools.groupby(zip(repeated[1:].tolist(), tokens[1:].tolist(), strict=True), lambda pair: pair[0])
        return [(again, [token for _, token in group]) for again, group in groups]

    def document(self, window: int) -> str:
        """Return the name of the document in which a window begins, or "random tokens"."""
        place = self.documents[window]
        return "random tokens" if place < 0 else self.names[place]

    @functools.cached_property
    def classes(self) -> Int8[np.ndarray, " token"]:
        """The place of each token in `TOKEN_CLASSES`; −1 for the first of a window, which nothing predicts."""
        classes = np.where(self.seen_before(1), 1, 2).astype(np.int8)
        classes[self.seen_before(2)] = 0
        classes[self.starts] = -1
        return classes

    def seen_before(self, n: int) -> Bool[np.ndarray, " token"]:
        """Return whether the n tokens that end at each token stand earlier in its window."""
        again = np.ones(len(self.tokens), dtype=bool)
        again[np.unique(self._keys(n, within=True), return_index=True)[1]] = False
        return again

    def distances(self, n: int) -> Int64[np.ndarray, " token"]:
        """Return how far back the n tokens that end at each last ended in its window, in tokens; 0: they did not."""
        keys = self._keys(n, within=True)
        order = np.lexsort((np.arange(len(keys)), keys))
        back = np.zeros(len(keys), dtype=np.int64)
        back[order[1:]] = np.where(keys[order[1:]] == keys[order[:-1]], np.diff(order), 0)
        return back

    def new_to_training(self) -> Bool[np.ndarray, " token"]:
        """Return whether the bigram that ends at each token stood nowhere in training before, this window included."""
        new = np.zeros(len(self.tokens), dtype=bool)
        new[np.unique(self._keys(2, within=False), return_index=True)[1]] = True
        new[self.starts] = False
        return new

    def _keys(self, n: int, *, within: bool) -> Int64[np.ndarray, " token"]:
        """A number for the n tokens that end at each, and with `within` for its window; one of its own for each of a
        window's first n − 1 tokens, which end nothing."""
        vocabulary = int(self.tokens.max()) + 1
        keys = self.of_token.copy() if within else np.zeros_like(self.tokens)
        for back in reversed(range(n)):
            keys = keys * vocabulary + np.roll(self.tokens, back)
        places = np.arange(len(keys))
        return np.where(places - self.starts[self.of_token] < n - 1, -1 - places, keys)


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence(Result):
    """dM/dw of every training window for each measure M: what a slightly larger weight of the window would do to it.

    Of a loss a negative influence helps, of any other measure a positive one. Leaving a window out changes M by minus
    its influence to first order. How far that orders what retraining does depends on the run: `check_influence`.
    """

    run: str
    identity: str
    """A hash of all that determines the run: recipe, data, number of steps."""
    weights_sha256: str | None
    """The hash of the checkpoint's weights; None for a run that was given by its recipe."""
    measures: tuple[str, ...]
    values: Float64[np.ndarray, " measure"]
    """The values of the measures at the end, which the derivative is of."""
    windows: TrainingWindows
    per_token: Float64[np.ndarray, "measure token"]
    """The influence of the loss at each token of each window; 0 at its first, which nothing predicts."""
    undone: float
    """The largest ‖state − state‖ ÷ ‖state‖ of a state that was undone to and the one that was kept."""
    replayed: float | None
    """‖replayed − snapshot‖ ÷ ‖snapshot‖ of the last step that has both; None where none has."""
    eps_root: float
    dtype: str

    @functools.cached_property
    def per_window(self) -> Float64[np.ndarray, "measure window"]:
        """Sums over the tokens of each window."""
        return np.add.reduceat(self.per_token, self.windows.starts, axis=1)

    def of(self, measure: str | None = None) -> Float64[np.ndarray, " window"]:
        """Return each window's influence on a measure (the first). Raises `ValueError` for an unknown one."""
        return self.per_window[self.place(measure)]

    def place(self, measure: str | None = None) -> int:
        """Return a measure's place among the measures. Raises `ValueError` for an unknown one."""
        return 0 if measure is None else self.measures.index(require_choice("measure", measure, self.measures))

    @property
    def n_steps(self) -> int:
        return int(self.windows.steps[-1]) + 1

    @functools.cached_property
    def by_step(self) -> Float64[np.ndarray, "measure step"]:
        """Σ |dM/dw| over the windows of each step; their sum itself is 0."""
        return _sums(np.abs(self.per_window), self.windows.steps, self.n_steps)

    @property
    def first_step_share(self) -> Float64[np.ndarray, " measure"]:
        """The share of step 0 in Σ |dM/dw|: AdamW's first step takes signs, so that differences do not confirm it."""
        return _shares(self.by_step)[:, 0]

    @property
    def first_quarter_share(self) -> Float64[np.ndarray, " measure"]:
        """The share of the first quarter of the steps in Σ |dM/dw|, step 0 left out."""
        shares = _shares(np.abs(self.per_window) * (self.windows.steps > 0))
        return shares[:, self.windows.quarters == 0].sum(1)

    @property
    def batch_residual(self) -> float:
        """The largest |Σ| ÷ norm of the influences of a step's windows, where it has several: 0 but for rounding."""
        several = np.bincount(self.windows.steps)[self.windows.steps] > 1
        sums = _sums(self.per_window * several, self.windows.steps, self.n_steps)
        norms = np.sqrt(_sums(np.square(self.per_window), self.windows.steps, self.n_steps))
        return float((np.abs(sums) / np.where(norms > 0, norms, 1)).max())

    def by_document(self) -> pd.DataFrame:
        """Return a row per document in which windows begin: their number, and their influence on each measure without
        step 0."""
        import pandas as pd

        own, later = self.windows.documents + 1, self.windows.steps > 0
        sums = _sums(self.per_window * later, own, len(self.windows.names) + 1)
        counts = np.bincount(own[later], minlength=len(self.windows.names) + 1)
        frame = pd.DataFrame({"document": ["random tokens", *self.windows.names], "windows": counts})
        for place, measure in enumerate(self.measures):
            frame[measure] = sums[place]
        return frame[frame["windows"] > 0].reset_index(drop=True)

    def by_class(self) -> pd.DataFrame:
        """Return a row per class of tokens (`TOKEN_CLASSES`): their number, and their influence on each measure
        without step 0."""
        import pandas as pd

        later = (self.windows.steps > 0)[self.windows.of_token]
        classes = np.where(later, self.windows.classes, -1) + 1
        sums = _sums(self.per_token, classes, len(TOKEN_CLASSES) + 1)[:, 1:]
        counts = np.bincount(classes, minlength=len(TOKEN_CLASSES) + 1)[1:]
        frame = pd.DataFrame({"tokens that are": TOKEN_CLASSES, "tokens": counts})
        for place, measure in enumerate(self.measures):
            frame[measure] = sums[place]
        return frame

    def helpful(self, n: int, measure: str | None = None) -> Int64[np.ndarray, " n"]:
        """Return the n windows after step 0 that help a measure most: a loss by lowering it, others by raising them.
        Fewer where fewer help."""
        return self._ends(n, measure, helps=True)

    def harmful(self, n: int, measure: str | None = None) -> Int64[np.ndarray, " n"]:
        """Return the n windows after step 0 that harm a measure most; fewer where fewer do."""
        return self._ends(n, measure, helps=False)

    def _ends(self, n: int, measure: str | None, *, helps: bool) -> Int64[np.ndarray, " n"]:
        place = self.place(measure)
        rises = helps != is_loss(self.measures[place])
        own = self.per_window[place] * (self.windows.steps > 0) * (1 if rises else -1)
        return np.argsort(-own, kind="stable")[: min(n, int((own > 0).sum()))].astype(np.int64)

    def correlations(self) -> Float64[np.ndarray, "measure measure"]:
        """Rank correlations of the windows' influences on each pair of measures, without step 0."""
        from aotlens.statistics import rank_correlation

        own = self.per_window[:, self.windows.steps > 0]
        return np.array([[rank_correlation(left, right) for right in own] for left in own])

    def agreement(
        self, other: Influence, measure: str | None = None, other_measure: str | None = None
    ) -> tuple[float, tuple[float, float], int]:
        """Correlate the documents' influences on a measure here with those on a measure of another run, as of another
        seed: whether the same documents help. `other_measure` is the one of the same name; without either it is each
        run's first.

        Returns the rank correlation over the documents in which windows of both runs begin, its 95% interval by a
        bootstrap of documents, and their number. A document's influence is the mean of its windows', each divided by
        the root mean square of its step, so that early steps do not decide, without step 0. A loss counts with its sign
        changed, so that a positive correlation always says: helps here, helps there. The interval is of these two runs;
        with other documents, not with other seeds. Documents whose means are not alike in two halves of one run's own
        windows cannot agree between runs: a correlation around 0 then says nothing of the runs.

        Raises `ValueError` for fewer than 8 documents in common, for runs with the same windows at the same steps
        (`correlations` of one sweep compares those, window by window), and for an unknown measure.
        """
        from aotlens.statistics import bootstrap_interval, rank_correlation

        if self.windows.are_those_of(other.windows):
            raise ValueError("expected runs with other windows, as of another seed; got the same at the same steps, "
                             "which agree whatever their documents are.")  # fmt: skip
        own, others = (
            self._document_means(measure),
            other._document_means(measure if other_measure is None else other_measure),
        )
        common = sorted(own.keys() & others.keys())
        if len(common) < _LEAST_DOCUMENTS:
            raise ValueError(
                f"expected {_LEAST_DOCUMENTS} documents or more in which windows of both runs begin, got {len(common)}."
            )
        left, right = (np.array([means[name] for name in common]) for means in (own, others))
        interval = bootstrap_interval(lambda drawn: rank_correlation(left[drawn], right[drawn]), len(common))
        return rank_correlation(left, right), interval, len(common)

    def document_reliability(self, measure: str | None = None, *, n_splits: int = 100, seed: int = 0) -> float:
        """Return how similar the documents' influences are in two random halves of each document's windows: the mean
        rank correlation over `n_splits` splits, of documents with two windows or more, each window's influence as in
        `agreement`. With r of halves, whole documents have some 2r ÷ (1 + r); where that is near 0, `agreement` with
        another run says nothing.

        Raises `ValueError` for fewer than 8 such documents, for splits or a seed that are no whole numbers of at least
        1 and 0, and for an unknown measure.
        """
        from aotlens.statistics import rank_correlation

        require_whole("n_splits", n_splits, 1)
        random = np.random.default_rng(require_seed(seed))
        help_, documents = self._in_documents(measure)
        _, documents, sizes = np.unique(documents, return_inverse=True, return_counts=True)
        has_two = sizes > 1
        if has_two.sum() < _LEAST_DOCUMENTS:
            raise ValueError(
                f"expected {_LEAST_DOCUMENTS} documents or more with two windows each, got {has_two.sum()}."
            )
        correlations = []
        for _ in range(n_splits):
            order = np.lexsort((random.random(len(documents)), documents))
            half = np.empty(len(documents), dtype=np.int64)
            half[order] = np.arange(len(documents)) % 2  # every second one of a document's windows, in random order
            sums = [np.bincount(documents, help_ * (half == each)) for each in (0, 1)]
            counts = [np.bincount(documents, half == each) for each in (0, 1)]
            first, second = (total[has_two] / count[has_two] for total, count in zip(sums, counts, strict=True))
            correlations.append(rank_correlation(first, second))
        return float(np.mean(correlations))

    def _document_means(self, measure: str | None) -> dict[str, float]:
        """The mean help of each document's windows."""
        help_, documents = self._in_documents(measure)
        return {self.windows.names[place]: float(help_[documents == place].mean()) for place in np.unique(documents)}

    def _in_documents(self, measure: str | None) -> tuple[Float64[np.ndarray, " w"], Int64[np.ndarray, " w"]]:
        """The help of the windows that begin in a document, without step 0, and their documents."""
        counted = (self.windows.steps > 0) & (self.windows.documents >= 0)
        return self.help(measure)[counted], self.windows.documents[counted]

    def help(self, measure: str | None = None) -> Float64[np.ndarray, " window"]:
        """Return each window's influence, positive where it helps, divided by the root mean square of its step's."""
        place = self.place(measure)
        own = self.per_window[place] * (-1 if is_loss(self.measures[place]) else 1)
        size = np.sqrt(step_means(np.square(own), self.windows.steps))
        return np.divide(own, size, out=np.zeros_like(own), where=size > 0)

    @property
    def headline(self) -> str:
        early = ", ".join(
            f"{name} {value:.4g} ({share:.0%} of the influence in the first quarter)"
            for name, value, share in zip(self.measures, self.values, self.first_quarter_share, strict=True)
        )
        return f"{len(self.windows):,} windows of {self.n_steps:,} steps; {early}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per window: window, step, document, offset, and its influence on each measure."""
        import pandas as pd

        names = np.array(["random tokens", *self.windows.names])
        frame = pd.DataFrame(
            {
                "window": np.arange(len(self.windows)),
                "step": self.windows.steps,
                "document": names[self.windows.documents + 1],
                "offset": self.windows.offsets,
            }
        )
        for place, measure in enumerate(self.measures):
            frame[measure] = self.per_window[place]
        return frame


def _sums(
    values: Float64[np.ndarray, "measure unit"], groups: Sequence[int] | np.ndarray, n: int
) -> Float64[np.ndarray, "measure group"]:
    """Sum over the units of each group."""
    return np.array([np.bincount(groups, each, minlength=n) for each in values])


def _shares(values: Float64[np.ndarray, "measure part"]) -> Float64[np.ndarray, "measure part"]:
    whole = values.sum(1, keepdims=True)
    return values / np.where(whole > 0, whole, 1)


def step_means(
    values: Float64[np.ndarray, " window"], steps: Int64[np.ndarray, " window"]
) -> Float64[np.ndarray, " window"]:
    """Return for each window the mean over those of its step that have a value; NaN where none has."""
    known = np.isfinite(values)
    sums, counts = np.bincount(steps, np.where(known, values, 0)), np.bincount(steps, known)
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)[steps]
