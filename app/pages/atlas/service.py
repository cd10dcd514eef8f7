"""Atlases: those that come with bundled checkpoints, and new ones in the background; what of them is listed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.files import without_folder
from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from aotlens.circuits import StrongestRows
    from aotlens.conventions import Head
    from aotlens.heads import Atlas, InductionCircuit

#: Kinds of replacement that an atlas of this page measures, and on how many windows.
HOWS, N_ABLATED = ("position_mean", "fixed_pattern"), 32
#: Tokens whose rows of a circuit are looked through: the most frequent ones of the training text.
_FREQUENT = 512
#: Rows of a circuit that are listed.
_N_ROWS = 5


@dataclass(frozen=True, kw_only=True)
class Order:
    """An atlas to be made."""

    checkpoint: str
    corpus: str
    """A corpus's name, or the key of a text of somebody's own."""
    tokens: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """An atlas and what it was made of."""

    checkpoint: str
    corpus: str | None
    """None: it is stored with the checkpoint."""
    about: str
    """What was read, in words."""
    atlas: Atlas
    key: str
    """Another atlas has another one."""
    tokens: int


class Atlases:
    """Atlases by checkpoint and text, each read or made once."""

    def __init__(self, core: Core) -> None:
        self.core, self.jobs = core, Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)
        self._stored: Cache[tuple[str, str], Made | None] = core.memory.cache(16)
        self._frames: Cache[str, pd.DataFrame] = core.memory.cache(16)
        self._rows: Cache[tuple[Any, ...], StrongestRows] = core.memory.cache(256)
        self._paths: Cache[str, InductionCircuit] = core.memory.cache(4)
        self._keys: dict[tuple[str, str], str] = {}

    # ── which atlas ─────────────────────────────────────────────────────────────────────────────────────────

    def choose(self, checkpoint: str | None, corpus: str | None, made: str | None) -> dict[str, Any] | None:
        """Which atlas of a checkpoint is shown, for the browser: the one that was `made` (a job's key) if it is of it,
        else that on `corpus`, else the stored one; None where there is none.

        `checkpoint` is None in it where it is the first choice, `key` and `corpus` where the atlas is stored.
        """
        name = checkpoint or self.core.catalog.default()
        done = self.done(made) or self.done(self._keys.get((str(name), corpus or "")))
        shown = done if done is not None and done.checkpoint == name else self.stored(name)
        if shown is None:
            return None
        first = name == self.core.catalog.default()
        key = None if shown.corpus is None else shown.key
        return {"checkpoint": None if first else name, "corpus": shown.corpus, "key": key, "name": name}

    def shown(self, choice: dict[str, Any] | None) -> Made | None:
        """What `choose` chose; None where there is none any more."""
        if not choice:
            return None
        return self.done(choice["key"]) if choice["key"] else self.stored(choice["name"])

    def of(self, checkpoint: str | None, corpus: str | None) -> Made:
        """The atlas that an address names. Raises RequestError where there is none."""
        made = self.shown(self.choose(checkpoint, corpus, None))
        if made is None:
            name = checkpoint or self.core.catalog.default()
            raise RequestError(f"There is no atlas of {name} yet: choose a text above, and press Make the atlas.")
        return made

    def stored(self, checkpoint: str | None) -> Made | None:
        """The atlas that comes with a checkpoint; None for one that has none, or other weights of that name.

        Raises RequestError for one that can't be read.
        """
        info = self.core.catalog.info(checkpoint)
        return self._stored.get((info.name, info.weights_sha256), lambda: self._read(info))

    def _read(self, info: Any) -> Made | None:
        from aotlens.heads.atlas_records import AtlasRecord, bundled_atlas_path
        from aotlens.results import load

        path = bundled_atlas_path(info.name)
        if info.problem is not None or not path.exists():
            return None
        try:
            record: AtlasRecord = load(path, AtlasRecord)
        except ValueError as error:
            raise RequestError(f"The atlas can't be read. {without_folder(error, path)}") from error
        if not record.belongs_to(info):
            return None
        tokens = record.atlas.examples.tokens.size
        held_out = f"{len(record.documents)} held-out documents of " if record.documents else ""
        return Made(
            checkpoint=info.name, corpus=None, about=f"{held_out}{record.corpus}, {tokens:,} tokens (stored)",
            atlas=dataclasses.replace(record.atlas, distillation=_distillation(info)),
            key=f"stored:{info.name}:{info.weights_sha256}", tokens=tokens,
        )  # fmt: skip

    def done(self, key: str | None) -> Made | None:
        """A finished atlas; None where there is none any more."""
        job = self.jobs.get(key) if key else None
        return job.result if job is not None and job.state == "done" else None

    def start(self, order: Order, *, session: str = "") -> Job:
        """Make an atlas in the background; the job that does, or did. Raises RequestError for what isn't there."""
        loaded = self.core.catalog.load(order.checkpoint)
        self.core.catalog.need_text(order.checkpoint)
        self.core.corpora.text(order.corpus, self.core.catalog.info(order.checkpoint))  # refused here if not there
        key = f"{loaded.key}:{order}"
        return self.jobs.start(
            key, f"Atlas of {order.checkpoint}", lambda report: self._make(order, key, report), session=session
        )  # fmt: skip

    def _make(self, order: Order, key: str, report: Report) -> Made:
        from aotlens.heads import atlas

        info = self.core.catalog.info(order.checkpoint)
        loaded, text = self.core.catalog.load(order.checkpoint), self.core.corpora.text(order.corpus, info)
        assert text.corpus is not None  # a pasted text is kept before it is ordered
        report(0, 0, "reading text")
        model = loaded.copied()
        made = atlas(
            model, text.corpus, n_tokens=order.tokens, hows=HOWS, n_ablated=N_ABLATED,
            progress=lambda done, total: report(done, total, "measuring heads"),
        )  # fmt: skip
        self._keys[(order.checkpoint, order.corpus)] = key
        return Made(
            checkpoint=order.checkpoint, corpus=order.corpus, about=f"{text.about}: {made.examples.tokens.size:,} "
            "tokens", atlas=made, key=key, tokens=order.tokens,
        )  # fmt: skip

    # ── what is listed ──────────────────────────────────────────────────────────────────────────────────────

    def frame(self, made: Made) -> pd.DataFrame:
        """A row a head; `name` is the head as it is written."""

        def make() -> pd.DataFrame:
            frame = made.atlas.to_frame()
            frame.insert(0, "name", [f"{row.layer}.{row.head}" for row in frame.itertuples()])
            return frame

        return self._frames.get(made.key, make)

    def scores(self, made: Made) -> list[str]:
        """The columns that are numbers, which the scatter can be of."""
        columns = self.frame(made).select_dtypes("number").columns
        return [name for name in columns if name not in ("layer", "head") and not name.endswith(("_low", "_high"))]

    def found(self, made: Made, where: str | None) -> np.ndarray:
        """Which rows a search finds. Raises RequestError for a search that cannot be read."""
        from aotlens.heads.head_search import rows_where

        try:
            return rows_where(self.frame(made).drop(columns="name"), where or "")
        except ValueError as error:
            raise RequestError(f"Heads where {error}") from error

    # ── one head ────────────────────────────────────────────────────────────────────────────────────────────

    def strongest(self, checkpoint: str, head: Head, kind: str, through: Head | None, side: str) -> StrongestRows:
        """The rows that a head's circuit is sharpest about, among the most frequent tokens of the training text.

        Its QK circuit's queries or keys (`side`) may come through an earlier head. Raises RequestError where there is
        no such circuit.
        """
        import torch

        from aotlens.circuits import ov_circuit, qk_circuit, strongest_rows

        loaded = self.core.catalog.load(checkpoint)

        def make() -> StrongestRows:
            try:
                sides = ["tokens", "tokens" if kind == "qk" else "logits"]
                if through is not None:
                    sides[side == "k"] = f"{through[0]}.{through[1]}"
                circuit = (qk_circuit if kind == "qk" else ov_circuit)(loaded.model, head, *sides)
                counts = loaded.model.unigram_counts
                frequent = torch.arange(circuit.shape[0]) if counts is None else counts.argsort(descending=True).cpu()
                return strongest_rows(circuit, frequent[:_FREQUENT], n=_N_ROWS)
            except ValueError as error:
                raise RequestError(str(error)) from error

        return self._rows.get((loaded.key, head, kind, through, side), make)

    # ── the guided path ─────────────────────────────────────────────────────────────────────────────────────

    def induction(self, made: Made) -> InductionCircuit:
        """The induction circuit of a checkpoint, measured once. Raises RequestError where there is none."""
        from aotlens.heads import induction_circuit

        loaded = self.core.catalog.load(made.checkpoint)

        def make() -> InductionCircuit:
            try:
                with loaded.exclusive:
                    return induction_circuit(loaded.model, made.atlas)
            except ValueError as error:
                raise RequestError(f"There is no path to walk: {error}") from error

        return self._paths.get(made.key, make)


def _distillation(info: Any) -> Any:
    """The bundled distillation of a checkpoint, whose errors stand among its scores; None where there is none."""
    from aotlens.distill.records import bundled_distillations_folder, load_record

    path = bundled_distillations_folder() / f"{info.name}.safetensors"
    if not path.exists():
        return None
    record = load_record(path)
    return record.distillation if record.belongs_to(info) else None
