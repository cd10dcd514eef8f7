"""A head's skip-trigrams as they are read: grouped, with their kinds and, where they were checked, with what text says.

table = aotlens.trigrams.skip_trigrams(model, "0.6", k=20_000, min_count=300)
rows = aotlens.trigrams.list_rows(table, k=500, over=("source", "destination"))
checked = aotlens.trigrams.check_rows(model, rows, aotlens.data.open_corpus("novels"))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from aotlens.conventions import Head, HeadLike, Progress, all_heads, as_head, head_name, several
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.results import OfCheckpoint, Result, data_frame, find_stored, stored, stored_path
from aotlens.trigrams.counting import Counts, Strata
from aotlens.trigrams.evidence import Evidence, evidence
from aotlens.trigrams.find import skip_trigrams
from aotlens.trigrams.skip_trigram_bug import SkipTrigramBugs, skip_trigram_bugs
from aotlens.trigrams.table import KINDS, FoldedTrigrams, TrigramTable, fold_rows, kinds
from aotlens.trigrams.text import Text, read_ids
from aotlens.trigrams.verdict import TOO_RARE, VERDICTS

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.checkpoints import CheckpointInfo

#: The verdict of rows that were not checked.
NOT_CHECKED = "not checked"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrigramRows(Result):
    """The rows of a head that are listed, each the best of its group, and what text says of them."""

    table: TrigramTable
    """The rows, best first."""
    groups: FoldedTrigrams | None = None
    """The groups that they stand for; None where each row stands for itself."""
    evidence: Evidence | None = None
    """None for rows that were not checked against text."""
    forced: SkipTrigramBugs | None = None
    """The triples that pairs of confirmed rows force."""

    @property
    def headline(self) -> str:
        return self.table.headline if self.evidence is None else self.evidence.headline

    def __len__(self) -> int:
        return len(self.table)

    @property
    def first(self) -> int:
        """The rank of the best confirmed row; 1 where none is confirmed."""
        confirmed = [] if self.evidence is None else [word == VERDICTS[0] for word in self.evidence.verdict]
        return confirmed.index(True) + 1 if any(confirmed) else 1

    def members(self, rank: int) -> TrigramTable:
        """Return the other rows of the group of the row of this rank (1 is the first), best first."""
        if self.groups is None:
            return self.table.take(np.empty(0, dtype=np.int64))
        return self.groups.table.take(self.groups.members(int(self.groups.best[rank - 1]))[1:])

    def listed_frame(self) -> pd.DataFrame:
        """Return one row per listed row: the table, its evidence, `score` (the ranking), `kind`, and `grouped`, the
        others of its group."""
        frame = _described(self.table, self.evidence)
        if self.groups is not None:
            beneath = self.groups.beneath
            sizes = np.bincount(beneath, minlength=len(beneath))[self.groups.best[: len(frame)]]
            frame["grouped"] = sizes.astype(np.int64) - 1
        return frame

    def to_frame(self) -> pd.DataFrame:
        """Return `listed_frame`, and after each row the others of its group, without rank and verdict; `group` is the
        listed row's rank."""
        frame, groups = self.listed_frame(), self.groups
        if groups is None:
            return frame
        import pandas as pd

        group = np.searchsorted(groups.best, groups.beneath) + 1
        beneath = np.flatnonzero((group <= len(frame)) & (groups.beneath != np.arange(len(group))))
        others = _described(groups.table.take(beneath), None).drop(columns="rank").assign(group=group[beneath])
        # Integers stay integers where some are missing.
        whole = {str(name): "Int64" for name in frame.select_dtypes("integer")}
        listed = frame.assign(group=frame["rank"]).astype(whole)
        return pd.concat([listed, others]).sort_values("group", kind="stable", ignore_index=True)

    def by_kind(self) -> pd.DataFrame:
        """Count the rows of each kind (`aotlens.trigrams.table`, the index) that have each verdict (the columns)."""
        if self.evidence is not None:
            return self.evidence.by_kind()
        words = kinds(self.table)
        return data_frame({NOT_CHECKED: [words.count(kind) for kind in KINDS]}, index=list(KINDS))

    def kind_frame(self) -> pd.DataFrame:
        """Return `by_kind` with the kinds as a column."""
        return self.by_kind().rename_axis("kind").reset_index()

    def forced_frame(self) -> pd.DataFrame:
        """Return one row per triple that pairs of confirmed rows force. Raises `ValueError` for unchecked rows."""
        if self.forced is None:
            raise ValueError("The rows were not checked against text, so it is not known what confirmed rows force.")
        return self.forced.to_frame()

    def row(self, rank: int | None = None) -> TrigramRow:
        """Return one row by its rank, clamped to the nearest available; None: the best confirmed one, else the first.

        Raises `ValueError` where there are no rows.
        """
        if not len(self):
            raise ValueError("No triple qualifies, so there is no row.")
        rank = self.first if rank is None else rank
        return TrigramRow(rows=self, number=min(max(rank, 1), len(self)) - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrigramRow(Result):
    """One of the rows that are listed."""

    rows: TrigramRows
    number: int
    """0 is the first."""

    @property
    def headline(self) -> str:
        return self.rows.table.take(np.array([self.number])).headline

    @property
    def others(self) -> TrigramTable:
        """The other rows of its group, best first."""
        return self.rows.members(self.number + 1)

    def to_frame(self) -> pd.DataFrame:
        """Return its line of `TrigramRows.listed_frame`."""
        return self.rows.listed_frame().iloc[[self.number]]


def list_rows(table: TrigramTable, k: int = 500, over: Iterable[str] = ()) -> TrigramRows:
    """Return the first `k` rows of a table; with `over`, the best rows of its first `k` groups (`fold_rows`)."""
    over = tuple(over)
    if not over:
        return TrigramRows(table=table.take(np.arange(min(k, len(table)))))
    groups = fold_rows(table, over)
    return TrigramRows(table=table.take(groups.best[:k]), groups=groups)


def check_rows(
    model: AttentionOnlyTransformer,
    rows: TrigramRows,
    corpus: Text,
    *,
    max_tokens: int | None = 1_000_000,
    documents: Collection[str] | None = None,
    n_examples: int = 4,
    limit: int = 1000,
    run_model: bool = True,
    progress: Progress | None = None,
) -> TrigramRows:
    """Return the rows with their `evidence` in a text, and with the first `limit` triples that its confirmed rows
    force.

    `run_model=False` counts only: verdicts need no more. Raises `ValueError` as `evidence` does.
    """
    require_ours(model, "check_rows", without=(*NOT_LINEAR, "score_cap"))
    limits: dict[str, Any] = {"max_tokens": max_tokens, "documents": documents}
    held = evidence(
        model, rows.table, corpus, n_examples=n_examples, run_model=run_model, progress=progress, **limits
    )  # fmt: skip
    return replace(rows, evidence=held, forced=skip_trigram_bugs(model, held, corpus, limit=limit, **limits))


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsByHead(Result):
    """The number of rows of each kind, by head, and what text says of them."""

    heads: tuple[Head, ...]
    kinds: Int64[np.ndarray, "heads kinds"]
    """The rows by kind, in the order of `aotlens.trigrams.table.KINDS`."""
    verdicts: Int64[np.ndarray, "heads verdicts"] | None
    """Confirmed, not confirmed, too rare; None where the rows were not checked."""

    @property
    def headline(self) -> str:
        rows = int(self.kinds.sum())
        if self.verdicts is None:
            return f"{rows:,} rows of {several(len(self.heads), 'head')}"
        confirmed = self.verdicts[:, 0]
        return f"{int(confirmed.sum()):,} of {rows:,} rows of {several(len(self.heads), 'head')} are confirmed"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head."""
        frame = data_frame({"head": list(map(head_name, self.heads)), "rows": self.kinds.sum(1)})
        if self.verdicts is not None:
            frame[list(VERDICTS)] = self.verdicts
        frame[list(KINDS)] = self.kinds
        return frame


def rows_by_head(
    model: AttentionOnlyTransformer,
    corpus: Text | None = None,
    *,
    heads: Iterable[HeadLike] | None = None,
    k: int = 500,
    depth: int | None = None,
    over: Iterable[str] = (),
    max_tokens: int | None = 1_000_000,
    documents: Collection[str] | None = None,
    progress: Progress | None = None,
    **search: Any,
) -> RowsByHead:
    """Return `list_rows` of each head (None: all), of its `depth` best triples (None: k), checked where there is a
    corpus.

    `search` are options of `skip_trigrams`; `progress(heads, all)`. Raises `ValueError` as these do.
    """
    require_ours(model, "rows_by_head", without=(*NOT_LINEAR, "score_cap"))
    over, depth = tuple(over), depth or k
    ids = None if corpus is None else read_ids(model, corpus, max_tokens=max_tokens, documents=documents)

    def rows_of(head: Head) -> TrigramRows:
        rows = list_rows(skip_trigrams(model, head, k=depth, **search), k, over)
        return rows if ids is None else check_rows(model, rows, ids, max_tokens=None, run_model=False)

    cfg = model.cfg
    rows = all_heads(cfg) if heads is None else [as_head(head, cfg) for head in heads]
    return gather_rows(rows, rows_of, progress=progress)


def gather_rows(
    heads: Iterable[Head], rows_of: Callable[[Head], TrigramRows], *, progress: Progress | None = None
) -> RowsByHead:
    """Return `RowsByHead` of the rows that `rows_of` gives for each head."""
    selection = tuple(heads)
    frames = []
    for done, head in enumerate(selection):
        if progress is not None:
            progress(done, len(selection))
        frames.append(rows_of(head).by_kind())
    checked = bool(frames) and NOT_CHECKED not in frames[0]
    return RowsByHead(
        heads=selection,
        kinds=np.array([frame.sum(axis=1) for frame in frames], dtype=np.int64).reshape(-1, len(KINDS)),
        verdicts=np.array([frame.sum() for frame in frames], dtype=np.int64) if checked else None,
    )


def _described(table: TrigramTable, held: Evidence | None) -> pd.DataFrame:
    frame = (table if held is None else held).to_frame()
    frame["score"] = {"sum": frame.qk + frame.ov, "product": frame.qk * frame.ov}.get(table.score or "", frame.effect)
    frame["kind"] = kinds(table)
    return frame


# ── rows that come with aotlens ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredRows(OfCheckpoint):
    """Rows of some heads of a checkpoint that were checked, without their groups and their counts by strata.

    The bundled one is of the first rows of the Skip-trigrams page:

        model, novels = aotlens.load("novels-1l-mhsa"), aotlens.data.open_corpus("novels")
        triples = aotlens.trigrams.skip_trigrams(model, (0, 6), k=20_000, min_count=300)
        rows = aotlens.trigrams.list_rows(triples, k=500, over=("source", "destination"))
        checked = aotlens.trigrams.check_rows(model, rows, novels, max_tokens=300_000)
        kept = StoredRows.keep([checked], max_tokens=300_000, checkpoint="novels-1l-mhsa", corpus="novels")
        kept.save(PATH, compact=True)
    """

    rows: tuple[TrigramRows, ...]
    max_tokens: int
    """The most that were to be read of the text."""

    @property
    def headline(self) -> str:
        return "; ".join(f"head {each.table.layer}.{each.table.head}: {each.headline}" for each in self.rows)

    @classmethod
    def keep(cls, rows: Iterable[TrigramRows], **origin: Any) -> StoredRows:
        """Keep checked rows, with all examples of confirmed rows and one of each other row that the text decides."""
        return cls(rows=tuple(map(_lightened, rows)), **origin)

    def of(self, rows: TrigramRows) -> TrigramRows | None:
        """Return the stored check of the same rows, with their groups; None if there is none."""
        for each in self.rows:
            if _names(each.table) == _names(rows.table):
                return replace(each, groups=rows.groups)
        return None


def _lightened(rows: TrigramRows) -> TrigramRows:
    held, forced = rows.evidence, rows.forced
    assert held is not None and forced is not None
    first = {example.row: example for example in reversed(held.examples) if held.verdict[example.row] != TOO_RARE}
    confirmed = [held.verdict[example.row] == VERDICTS[0] for example in held.examples]
    examples = tuple(
        example
        for example, all_of_it in zip(held.examples, confirmed, strict=True)
        if all_of_it or first.get(example.row) is example
    )
    return TrigramRows(
        table=rows.table,
        evidence=replace(held, counts=_without_strata(held.counts), examples=examples),
        forced=replace(forced, counts=_without_strata(forced.counts)),
    )


def _without_strata(counts: Counts) -> Counts:
    none = np.empty(0, dtype=np.int64)
    rows = np.full(counts.strata.n_rows, np.nan)
    empty = Strata(
        n_rows=len(rows), row=none, places=none, with_source=none, followed=none, both=none, variance=rows,
        variance_squared=rows,
    )  # fmt: skip
    return replace(counts, strata=empty, documents=empty)


def stored_check(rows: TrigramRows, checkpoint: str) -> TrigramRows:
    """Return the rows with the bundled check of them, without running the model: that of the first rows of the
    Skip-trigrams page, on the bundled novels.

    Raises `ValueError` if none is stored for these rows and this checkpoint: `check_rows` checks them.
    """
    checked = stored("trigrams", checkpoint).of(rows) if stored_path("trigrams", checkpoint).exists() else None
    if checked is None:
        raise ValueError(f"no check of these rows of {checkpoint!r} is stored. Make it: trigrams.check_rows(…).")
    kept: TrigramRows = checked
    return kept


def find_rows(info: CheckpointInfo) -> StoredRows | None:
    """Return `aotlens.results.find_stored("trigrams", info)`. The name goes with the next release."""
    record: StoredRows | None = find_stored("trigrams", info)
    return record


def _names(table: TrigramTable) -> tuple[Any, ...]:
    return table.layer, table.head, *(ids.tolist() for ids in (table.source, table.destination, table.out))
