"""The rows that the page says that it shows, and the place where they are searched for and checked: once each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head, glyphs
from aotlens.views import View
from aotlens.views.kinds import Reading
from aotlens.views.trigram_choice import TrigramsParameters
from aotlens.views.trigrams import BY_HEAD, CHECK, ROWS
from app.core import Core
from app.core.corpora import PASTED
from app.core.errors import RequestError
from app.core.jobs import Jobs
from app.core.workshop import AppWorkshop
from app.pages.trigrams.address import MAX_ROWS, Fold, TrigramsState, max_distance

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.trigrams import StoredRows

#: The tokens in which a row may differ from the best of its group.
OVER: dict[Fold, tuple[str, ...]] = {"similar": ("source", "destination"), "sources": ("source",), "none": ()}
#: The controls whose values the browser puts into the store `asked`.
CONTROLS = (
    "checkpoint", "score", "end", "distance", "delta", "k", "fold", "least", "within", "source", "destination", "out",
    "verdict", "kind", "corpus", "tokens", "own", "after", "pasted",
)  # fmt: skip
#: The checkpoint that the page opens on where the address says nothing: rows whose check comes with aotlens.
OPENS_ON = "novels-1l-mhsa"
_NO_TEXT = (
    "There is no text here to check the rows against: upload or paste one, or start the app with --corpus file:PATH or "
    "--corpus dir:PATH."
)
_NOTHING_PASTED = "There is no text to check the rows against: paste one above, or choose another."


@dataclass(frozen=True, kw_only=True)
class Shown(TrigramsParameters):
    """The rows, and which of them are listed."""

    least_asked: int = 0
    """Training counts that were asked for, of which the model may have none."""
    most_count: int = 0
    """The count of its most frequent token."""
    shape: Head = (1, 1)
    """Its layers and heads."""
    corpus: str | None = None
    """The text's name, or its key."""
    filters: tuple[tuple[str, str], ...] = ()
    """Columns of the rows, and what is searched for in them."""


class Trigrams:
    """Rows of all checkpoints, with what texts say of them."""

    def __init__(self, core: Core) -> None:
        self.core, self.workshop = core, _Workshop(core, core.settings.n_views)
        self.jobs = Jobs(core.settings.n_views, memory=core.memory, seconds=core.settings.job_seconds)
        self._frames = core.memory.cache(16)
        self._records: dict[str, StoredRows | None] = {}

    def first(self, state: TrigramsState) -> str | None:
        """Return the checkpoint of a state; where it names neither that nor a head, one whose rows come checked."""
        default = self.core.catalog.default()
        if state.checkpoint is not None or state.head is not None or self._record(OPENS_ON) is None:
            return state.checkpoint or default
        return OPENS_ON

    def values(
        self, asked: Mapping[str, Any], row: Any = None, checked: Any = None, *, keep: bool = False
    ) -> Shown:  # fmt: skip
        """Return what the page says that it shows; `keep` a text that was pasted."""
        given = {name: value for name, value in asked.items() if name in TrigramsState.__dataclass_fields__}
        head = given["head"]
        state = TrigramsState(**{**given, "head": None if head is None else (int(head[0]), int(head[1])), "row": row})
        if state.corpus != PASTED:
            return self.of_address(state)

        def pasted(name: str) -> str | None:
            text = asked["pasted"] or ""
            key = self.core.corpora.paste(text) if text.strip() else None
            if keep and key is not None:
                self.core.corpora.keep_pasted(key)
            return key

        return self._of(state, pasted, _NOTHING_PASTED if self.core.corpora.names else _NO_TEXT)

    def started(self, asked: Mapping[str, Any]) -> Shown:
        """Return the values for work that is started: the address goes on to mean a pasted text."""
        return self.values(asked, keep=True)

    def of_address(self, state: TrigramsState) -> Shown:
        """Return the choices that an address says."""
        corpora, catalog = self.core.corpora, self.core.catalog
        state = replace(state, checkpoint=self.first(state))
        return self._of(state, lambda name: corpora.chosen(state.corpus, catalog.info(name)), _NO_TEXT)

    def _of(self, state: TrigramsState, text: Callable[[str], str | None], no_text: str) -> Shown:
        try:
            corpus = text(self.core.catalog.info(state.checkpoint).name)
            chosen = self._chosen(state, corpus, no_text)
        except RequestError as error:
            return Shown(checkpoint=state.checkpoint or "", problem=str(error))
        if self.workshop.waits(ROWS, chosen):
            return replace(chosen, searched=False)
        try:
            rows = self.workshop.result(ROWS, chosen)
        except RequestError as error:
            return replace(chosen, problem=str(error))
        if chosen.reading is not None and self.workshop.known(CHECK, chosen):
            return replace(chosen, checked=True)
        record = self._record(chosen.checkpoint)
        stored = (
            record is not None
            and self.core.corpora.spec(corpus) == record.corpus
            and state.tokens == record.max_tokens
            and record.of(rows) is not None
        )
        return replace(chosen, stored=stored)

    def _chosen(self, state: TrigramsState, corpus: str | None, no_text: str) -> Shown:
        """Replace what the model does not have by what it has. Raises RequestError for one that has no tokens."""
        name = str(state.checkpoint)
        loaded = self.core.catalog.load(name)
        self.core.catalog.need_text(name)
        cfg, counts = loaded.model.cfg, loaded.model.unigram_counts
        if cfg.read_in != "tokens" or cfg.read_out != "tokens" or loaded.model.tokenizer is None:
            raise RequestError(
                f"The checkpoint {name} doesn't read and write text, so it has no skip-trigrams; choose one with a "
                "tokenizer."
            )
        record = self._record(name)
        first = (0, 0) if record is None else (record.rows[0].table.layer, record.rows[0].table.head)
        head = state.head or first
        if head[0] >= cfg.n_layers or head[1] >= cfg.n_heads:
            head = first
        most, every = max_distance(cfg.n_ctx, cfg.positions), state.within == "all"
        distance = state.distance if most else None
        texts = {role: getattr(state, role) for role in ("source", "destination", "out")}
        most_count = 0 if counts is None else int(counts.max())
        filters = {"verdict": state.verdict, "kind": state.kind, **({} if every else texts)}
        return Shown(
            checkpoint=name,
            head=head,
            model=self.core.catalog.info(name).model,
            counted=counts is not None,
            score=state.score,
            largest=state.end == "top",
            distance=min(max(distance, 1), most) if isinstance(distance, int) else distance,
            k=state.k,
            over=OVER[state.fold],
            depth=self.core.settings.folded_rows,
            least=state.least if state.least <= most_count else 0,
            **(texts if every else {}),
            reading=None if corpus is None else self._reading(corpus, name, state.tokens),
            no_text=no_text,
            row=state.row,
            own=state.own,
            after=state.after,
            most_rows=MAX_ROWS,
            least_asked=state.least,
            most_count=most_count,
            shape=(cfg.n_layers, cfg.n_heads),
            corpus=corpus,
            filters=tuple((column, str(text)) for column, text in filters.items() if text),
        )

    def _reading(self, corpus: str, checkpoint: str, tokens: int) -> Reading:
        reading = self.core.corpora.reading(corpus, self.core.catalog.info(checkpoint))
        return replace(reading, tokens=min(tokens, max(self.core.settings.evidence_tokens)))

    def _record(self, checkpoint: str) -> StoredRows | None:
        """The rows of a checkpoint that come checked; None where there are none, or other weights of that name."""
        from aotlens.results import load
        from aotlens.trigrams.rows import StoredRows, stored_rows_path

        path = stored_rows_path(checkpoint)
        if not path.exists():
            return None
        info = next(
            (each for each in self.core.catalog.list() if each.name == checkpoint and each.problem is None), None
        )
        if info is None:
            return None
        if checkpoint not in self._records:
            self._records[checkpoint] = load(path, StoredRows)
        record = self._records[checkpoint]
        return record if record is not None and record.belongs_to(info) else None

    def frame(self, chosen: TrigramsParameters) -> pd.DataFrame:
        """Return the rows that are listed, tokens with glyphs beside them."""
        call = ROWS.call(chosen)
        rows = self.workshop.result(ROWS, chosen)
        return self._frames.get((call.source, call.stamps, id(rows)), lambda: with_glyphs(rows.listed_frame()))


def with_glyphs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with what its tokens are shown as."""
    columns = {f"{role}_shown": [glyphs(token) for token in frame[role]] for role in ("source", "destination", "out")}
    return frame.assign(**columns)


class _Workshop(AppWorkshop):
    """Heads that are counted are those that are shown."""

    def result(self, view: View, values: Any) -> Any:
        """A view's result; of all heads, from rows that are kept for whoever goes to such a head."""
        if view is BY_HEAD and self.progress is not None:
            return self.keep(self._key(view.call(values)), lambda: self._every_head(values))
        return super().result(view, values)

    def _every_head(self, values: Shown) -> Any:
        from aotlens.trigrams.rows import gather_rows

        tell, view = self.progress, ROWS if values.reading is None else CHECK
        heads = [(layer, head) for layer in range(values.shape[0]) for head in range(values.shape[1])]

        def rows_of(head: Head) -> Any:
            done = heads.index(head)
            return self.told(lambda *_: tell and tell(done, len(heads))).result(view, values.of_head(head))

        return gather_rows(heads, rows_of, progress=tell)
