"""A head's skip-trigrams and what text says of them: found and checked in the background, then read by page.

Searching reads weights. Checking runs the model, on a copy of its own, so that nobody waits for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from aotlens.plots import glyphs
from app.core import Core
from app.core.cache import Cache
from app.core.catalog import LoadedModel
from app.core.corpora import Text
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report
from app.pages.trigrams.address import End, Fold, Score, TrigramsState, max_distance

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.models import AttentionOnlyTransformer
    from aotlens.trigrams import Evidence, FoldedTrigrams, SkipTrigramBugs, TrigramTable

#: The tokens in which a row may differ from the one that it is folded beneath.
OVER: dict[Fold, tuple[str, ...]] = {"similar": ("source", "destination"), "sources": ("source",), "none": ()}

#: Forced triples that are counted and listed, largest forced effect first.
MAX_BUGS = 1000


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which table."""

    checkpoint: str
    layer: int
    head: int
    score: Score
    end: End
    distance: int | Literal["mean"] | None
    k: int
    """Rows; where some are folded, groups."""
    fold: Fold = "none"
    least: int = 0
    """Training counts that the tokens searched through must have."""
    source: str = ""
    """What the tokens searched through must contain; empty: all tokens."""
    destination: str = ""
    out: str = ""

    @property
    def name(self) -> str:
        """For titles and file names."""
        return f"{self.checkpoint} · head {self.layer}.{self.head} · skip-trigrams"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def at(self, layer: int, head: int) -> Choice:
        """The same of another head."""
        return replace(self, layer=layer, head=head)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which text, and how many tokens of it."""

    text: str
    """A corpus's name, or the key of a text of somebody's own."""
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the model offers."""

    n_layers: int
    n_heads: int
    max_distance: int
    """0 for a model without positions."""
    counted: bool
    """Whether the checkpoint has the counts of its training tokens, which are the background."""
    most_count: int
    """The count of its most frequent token; 0 where there are no counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """What a search found."""

    table: TrigramTable
    """The rows that are listed."""
    folded: FoldedTrigrams | None
    """The groups that they stand for; None where nothing is folded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Checked:
    """What a check found."""

    found: Evidence
    bugs: SkipTrigramBugs


class Trigrams:
    """Tables and evidence of all checkpoints, remembered."""

    def __init__(self, core: Core) -> None:
        self.core, self.settings, self.corpora = core, core.settings, core.corpora
        self._searches = Jobs(kept=256, memory=core.memory, seconds=core.settings.job_seconds)
        self.checks = Jobs(kept=core.settings.n_evidence, memory=core.memory, seconds=core.settings.job_seconds)
        self._copies: Cache[str, AttentionOnlyTransformer] = core.memory.cache(1)
        self._frames: Cache[str, pd.DataFrame] = core.memory.cache(16)
        self.paths: Cache[str, Any] = core.memory.cache(8)
        """Direct paths (service_direct.py)."""

    def describe(self, state: TrigramsState) -> tuple[Choice, Shape]:
        """The table that a state asks for; what the model doesn't have is replaced by what it has.

        Raises RequestError for a checkpoint that isn't there, can't be opened, or has no tokens.
        """
        name = state.checkpoint or self.core.catalog.default()
        loaded = self.core.catalog.load(name)
        cfg = loaded.model.cfg
        self.core.catalog.need_text(name)
        if cfg.read_in != "tokens" or cfg.read_out != "tokens" or loaded.model.tokenizer is None:
            raise RequestError(
                f"The checkpoint {name} doesn't read and write text, so it has no skip-trigrams; choose one with a "
                "tokenizer."
            )
        layer, head = state.head or (0, 0)
        if layer >= cfg.n_layers or head >= cfg.n_heads:
            layer, head = 0, 0
        most = max_distance(cfg.n_ctx, cfg.positions)
        distance = state.distance if most else None
        if isinstance(distance, int):
            distance = min(max(distance, 1), most)
        every = state.within == "all"
        counts = loaded.model.unigram_counts
        most_count = 0 if counts is None else int(counts.max())
        choice = Choice(
            checkpoint=str(name),
            layer=layer,
            head=head,
            score=state.score,
            end=state.end,
            distance=distance,
            k=state.k,
            fold=state.fold,
            least=state.least if state.least <= most_count else 0,
            source=state.source if every else "",
            destination=state.destination if every else "",
            out=state.out if every else "",
        )
        return choice, Shape(
            n_layers=cfg.n_layers, n_heads=cfg.n_heads, max_distance=most, counted=counts is not None,
            most_count=most_count,
        )  # fmt: skip

    # ── tables ──────────────────────────────────────────────────────────────────────────────────────────────

    def search(self, choice: Choice, *, session: str = "") -> Job:
        """Find the table in the background for a session; the job that does, or did."""
        loaded = self.core.catalog.load(choice.checkpoint)
        label = f"Head {choice.layer}.{choice.head}"
        return self._searches.start(
            f"{loaded.key}:{choice}", label, lambda report: self._find(loaded, choice, report), session=session
        )

    def searching(self, choice: Choice) -> Job | None:
        """The job of `search`, if it was started."""
        return self._searches.get(f"{self.core.catalog.load(choice.checkpoint).key}:{choice}")

    def table(self, choice: Choice) -> TrigramTable | None:
        """The table if it has been found."""
        searched = self._searched(choice)
        return None if searched is None else searched.table

    def folded(self, choice: Choice) -> FoldedTrigrams | None:
        """The groups that its rows stand for, where some are folded and they have been found."""
        searched = self._searched(choice)
        return None if searched is None else searched.folded

    def _searched(self, choice: Choice) -> Searched | None:
        job = self.searching(choice)
        return job.result if job is not None and job.state == "done" else None

    def strings(self, checkpoint: str) -> list[str]:
        """Every token as it is."""
        model = self.core.catalog.load(checkpoint).model
        assert model.tokenizer is not None and model.cfg.d_vocab is not None
        return list(model.tokenizer.str_tokens(range(model.cfg.d_vocab)))

    def _find(self, loaded: LoadedModel, choice: Choice, report: Report) -> Searched:
        import numpy as np

        from aotlens.trigrams import fold_rows, skip_trigrams

        report(0, 0, "searching all triples")
        model = loaded.model
        filters: dict[str, list[int] | None] = {}
        shown: list[str] = []
        for name in ("source", "destination", "out"):
            wanted = getattr(choice, name)
            if wanted and not shown:
                shown = [glyphs(token) for token in self.strings(choice.checkpoint)]
            filters[f"{name}s"] = matching(shown, wanted, name) if wanted else None
        over = OVER[choice.fold]
        table = skip_trigrams(
            model,
            (choice.layer, choice.head),
            k=max(choice.k, self.settings.folded_rows) if over else choice.k,
            score=choice.score,
            largest=choice.end == "top",
            distance=choice.distance,
            min_count=choice.least,
            background=np.ones(model.cfg.d_vocab or 0) if model.unigram_counts is None else None,
            **filters,
        )
        if not over:
            return Searched(table=table, folded=None)
        folded = fold_rows(table, over)
        return Searched(table=table.take(folded.best[: choice.k]), folded=folded)

    def frame(self, choice: Choice, reading: Reading | None) -> pd.DataFrame | None:
        """Every row with its kind and, where it has been checked, its evidence; None until it is found."""
        table, found = self.table(choice), self.evidence(choice, reading)
        if table is None:
            return None
        loaded = self.core.catalog.load(choice.checkpoint)
        key = f"{self._check_key(loaded, choice, reading)}:{found is not None}"
        folded = self.folded(choice)

        def make() -> pd.DataFrame:
            frame = frame_of(table, found)
            if folded is not None:
                frame["folded"] = folded.to_frame()["rows"].to_numpy()[: len(frame)] - 1
            return frame

        return self._frames.get(key, make)

    # ── evidence ────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, reading: Reading, checkpoint: str) -> Text:
        """What a reading reads. Raises RequestError for text that isn't here."""
        return self.corpora.text(reading.text, self.core.catalog.info(checkpoint))

    def reading(self, state: TrigramsState, checkpoint: str) -> Reading | None:
        """What a state reads, as far as it is offered here; None where there is no text."""
        name = self.corpora.chosen(state.corpus, self.core.catalog.info(checkpoint))
        tokens = min(state.tokens, max(self.settings.evidence_tokens))
        return None if name is None else Reading(text=name, tokens=tokens)

    def about(self, choice: Choice, reading: Reading | None) -> str:
        """Which text is read, in words."""
        return "" if reading is None else self.text(reading, choice.checkpoint).about

    def check_every_head(self, choice: Choice, reading: Reading, shape: tuple[int, int], *, session: str = "") -> None:
        """Queue a check of each head for a session. Raises RequestError for more heads than results are kept for."""
        most = self.settings.n_evidence
        if shape[0] * shape[1] > most:
            raise RequestError(
                f"This model has {shape[0] * shape[1]} heads, and evidence for at most {most} is kept here. Choose "
                "heads one by one, or use the command: aotlens trigrams."
            )
        for layer in range(shape[0]):
            for head in range(shape[1]):
                self.search(choice.at(layer, head), session=session)
                self.check(choice.at(layer, head), reading, session=session)

    def check(self, choice: Choice, reading: Reading, *, session: str = "") -> Job:
        """Hold the table against text in the background for a session; the job that does, or did."""
        loaded, text = self.core.catalog.load(choice.checkpoint), self.text(reading, choice.checkpoint)
        label = f"Checking head {choice.layer}.{choice.head} on {text.label}"
        return self.checks.start(
            self._check_key(loaded, choice, reading),
            label,
            lambda report: self._check(loaded, choice, reading, text, report),
            session=session,
        )

    def checking(self, choice: Choice, reading: Reading) -> Job | None:
        """The job of `check`, if it was started."""
        loaded = self.core.catalog.load(choice.checkpoint)
        return self.checks.get(self._check_key(loaded, choice, reading))

    def evidence(self, choice: Choice, reading: Reading | None) -> Evidence | None:
        """The evidence if it is there."""
        checked = self._checked(choice, reading)
        return None if checked is None else checked.found

    def bugs(self, choice: Choice, reading: Reading | None) -> SkipTrigramBugs | None:
        """What pairs of confirmed rows force, if the table has been checked."""
        checked = self._checked(choice, reading)
        return None if checked is None else checked.bugs

    def _checked(self, choice: Choice, reading: Reading | None) -> Checked | None:
        job = None if reading is None else self.checking(choice, reading)
        return job.result if job is not None and job.state == "done" else None

    @staticmethod
    def _check_key(loaded: LoadedModel, choice: Choice, reading: Reading | None) -> str:
        return f"{loaded.key}:{choice}:{reading}"

    @staticmethod
    def source(reading: Reading, text: Text) -> tuple[Any, dict[str, Any]]:
        """What the library reads, and how much of it."""
        source: Any = text.pasted if text.corpus is None else text.corpus
        return source, {"max_tokens": reading.tokens, "documents": text.documents}

    def _check(self, loaded: LoadedModel, choice: Choice, reading: Reading, text: Text, report: Report) -> Checked:
        from aotlens.trigrams import evidence, skip_trigram_bugs

        table = self.table(choice)
        if table is None:
            table = self._find(loaded, choice, report).table
        report(0, reading.tokens, "reading")
        model = self._copies.get(loaded.key, loaded.copied)
        read, how_much = self.source(reading, text)
        found = evidence(
            model,
            table,
            read,
            n_examples=self.settings.n_occurrences,
            progress=lambda done, total: report(done, total, "reading"),
            **how_much,
        )
        bugs = skip_trigram_bugs(
            model, found, read, limit=MAX_BUGS, progress=lambda _, total: report(total, total, "reading"), **how_much
        )
        return Checked(found=found, bugs=bugs)


def frame_of(table: TrigramTable, found: Evidence | None) -> pd.DataFrame:
    """A row a trigram: what the library says, tokens with glyphs, the score that ranks, the kind."""
    from aotlens.trigrams.kinds import kinds

    frame = (table if found is None else found).to_frame()
    for column in ("source", "destination", "out"):
        frame[f"{column}_shown"] = [glyphs(token) for token in frame[column]]
    frame["score"] = {"sum": frame.qk + frame.ov, "product": frame.qk * frame.ov}.get(table.score or "", frame.effect)
    frame["kind"] = kinds(table)
    return frame


def matching(shown: list[str], wanted: str, name: str) -> list[int]:
    """Ids of tokens (written with glyphs) that contain `wanted`, or are it where it begins with `=`."""
    found = [index for index, token in enumerate(shown) if contains(token, wanted)]
    if not found:
        raise ValueError(
            f"No token matches the {name} {wanted!r}: try a part of it. · stands for a space, ⏎ for a line end."
        )
    return found


def contains(shown: str, wanted: str) -> bool:
    """Whether a token, written with glyphs, is what somebody searches for: a part of it, or with `=` all of it."""
    if wanted.startswith("="):
        return shown == glyphs(wanted[1:])
    return glyphs(wanted).casefold() in shown.casefold()
