"""Atlases: those that come with bundled checkpoints, and new ones in the background."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aotlens.conventions import several
from aotlens.files import without_folder
from aotlens.views import Call
from aotlens.views.atlas import FIRST_X, FIRST_Y, HOWS, N_ABLATED, AtlasParameters
from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report
from app.core.workshop import AppWorkshop
from app.pages.atlas.address import AtlasState

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.heads import Atlas

_GONE = "This atlas is no longer in memory: make it again."


@dataclass(frozen=True, kw_only=True)
class AtlasRequest:
    """An atlas to be made."""

    checkpoint: str
    corpus: str
    """A corpus's name, or the key of a text of somebody's own."""
    tokens: int


@dataclass(frozen=True, kw_only=True, eq=False)
class AtlasResult:
    """An atlas and what it was made of."""

    chosen: AtlasParameters
    """The same as views ask for it."""
    corpus: str | None
    """A corpus's name, or the key of a text of somebody's own; None: it is stored with the checkpoint."""
    about: str
    """The text that was read, in words."""
    atlas: Atlas
    key: str
    """The key of the atlas; another atlas has another one."""


class Atlases:
    """Atlases by checkpoint and text, each read or made once."""

    def __init__(self, core: Core) -> None:
        self.core, self.jobs = core, Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)
        self.workshop = _Workshop(core, self)
        self._stored: Cache[tuple[str, str], AtlasResult | None] = core.memory.cache(16)
        self._keys: dict[tuple[str, str], str] = {}
        self._stamps: dict[int, str] = {}

    # ── which atlas ─────────────────────────────────────────────────────────────────────────────────────────

    def choose(self, checkpoint: str | None, corpus: str | None, made: str | None) -> dict[str, Any] | None:
        """Choose the atlas of a checkpoint that is shown, for the browser: the one that was `made` (a job's key) if it
        is of it, else that on `corpus`, else the stored one; None where there is none.

        `checkpoint` is None in it where it is the first choice, `key` and `corpus` where the atlas is stored.
        """
        name = checkpoint or self.core.catalog.default()
        done = self.done(made) or self.done(self._keys.get((str(name), corpus or "")))
        result = done if done is not None and done.chosen.checkpoint == name else self.stored(name)
        if result is None:
            return None
        first = name == self.core.catalog.default()
        key = None if result.corpus is None else result.key
        n_layers, n_heads = result.atlas.entropy.shape
        return {
            "checkpoint": None if first else name, "corpus": result.corpus, "key": key, "name": name,
            "layers": n_layers, "heads": n_heads,
        }  # fmt: skip

    def shown(self, choice: Mapping[str, Any] | None) -> AtlasResult | None:
        """Return the atlas that `choose` chose; None where there is none any more."""
        if not choice:
            return None
        return self.stored(choice["name"]) if choice["key"] is None else self.done(choice["key"])

    def stored(self, checkpoint: str | None) -> AtlasResult | None:
        """Return the atlas that comes with a checkpoint; None for one that has none, or other weights of that name.

        Raises RequestError for one that can't be read.
        """
        info = self.core.catalog.info(checkpoint)
        return self._stored.get((info.name, info.weights_sha256), lambda: self._read(info))

    def _read(self, info: Any) -> AtlasResult | None:
        from aotlens.heads.atlas_records import bundled_atlas_path

        path = bundled_atlas_path(info.name)
        if info.problem is not None or not path.exists():
            return None
        key = f"stored:{info.name}:{info.weights_sha256}"
        chosen = AtlasParameters(checkpoint=info.name, distillation=_distillation(info), stamp=_stamp(key))
        try:
            record = chosen.record.run(self.workshop)
        except ValueError as error:
            raise RequestError(f"The atlas can't be read. {without_folder(error, path)}") from error
        if not record.belongs_to(info):
            return None
        held_out = f"{several(len(record.documents), 'held-out document')} of " if record.documents else ""
        about = f"{held_out}{record.corpus}, {record.atlas.examples.tokens.size:,} tokens (stored)"
        return AtlasResult(chosen=chosen, corpus=None, about=about, atlas=record.atlas, key=key)

    def done(self, key: str | None) -> AtlasResult | None:
        """Return a finished atlas; None where there is none any more."""
        job = self.jobs.get(key) if key else None
        return job.result if job is not None and job.state == "done" else None

    def start(self, order: AtlasRequest, *, session: str = "") -> Job:
        """Make an atlas in the background; the job that does, or did. Raises RequestError for what isn't there."""
        loaded = self.core.catalog.load(order.checkpoint)
        self.core.catalog.need_text(order.checkpoint)
        self.core.corpora.text(order.corpus, self.core.catalog.info(order.checkpoint))  # refused here if not there
        key = f"{loaded.key}:{order}"
        return self.jobs.start(
            key, f"Atlas of {order.checkpoint}", lambda report: self._make(order, key, report), session=session
        )  # fmt: skip

    def _make(self, order: AtlasRequest, key: str, report: Report) -> AtlasResult:
        from aotlens.heads import atlas

        info = self.core.catalog.info(order.checkpoint)
        loaded, text = self.core.catalog.load(order.checkpoint), self.core.corpora.text(order.corpus, info)
        assert text.corpus is not None  # a pasted text is kept before it is ordered
        report(0, 0, "reading text")
        model = loaded.copied()
        result = atlas(
            model, text.corpus, n_tokens=order.tokens, hows=HOWS, n_ablated=N_ABLATED,
            progress=lambda done, total: report(done, total, "measuring heads"),
        )  # fmt: skip
        stamp = _stamp(key)
        self._keys[order.checkpoint, order.corpus] = self._stamps[stamp] = key
        chosen = AtlasParameters(
            checkpoint=order.checkpoint, corpus=self.core.corpora.opening(order.corpus), tokens=order.tokens,
            stamp=stamp,
        )  # fmt: skip
        about = f"{text.about}: {result.examples.tokens.size:,} tokens"
        return AtlasResult(chosen=chosen, corpus=order.corpus, about=about, atlas=result, key=key)

    def stamped(self, stamp: int) -> Atlas:
        """Return the atlas that was made in the background and has this stamp. Raises RequestError where it is gone."""
        result = self.done(self._stamps.get(stamp))
        if result is None:
            raise RequestError(_GONE)
        return result.atlas

    # ── what is chosen in it ────────────────────────────────────────────────────────────────────────────────

    def values(
        self, shown: Mapping[str, Any], where: str | None = None, x: str = FIRST_X, y: str = FIRST_Y,
        bin: str | None = None,
    ) -> AtlasParameters:  # fmt: skip
        """Return what the page says that it shows. Raises RequestError for an atlas that is no longer there."""
        result = self.needed(shown)
        head = (int(shown["layer"]), int(shown["head"])) if shown["picked"] else None
        return _chosen(result, where, x, y, head, int(bin) if bin else None)

    def needed(self, shown: Mapping[str, Any]) -> AtlasResult:
        """Return the atlas that is shown. Raises RequestError where it is no longer there."""
        result = self.shown(shown)
        if result is None:
            raise RequestError(_GONE)
        return result

    def made_of(self, chosen: AtlasParameters) -> AtlasResult:
        """Return the atlas that views ask for so. Raises RequestError where it is no longer there."""
        key = None if chosen.corpus is None else self._stamps.get(chosen.stamp, "")
        return self.needed({"key": key, "name": chosen.checkpoint})

    def of_address(self, state: AtlasState) -> AtlasParameters:
        """Return the choices that an address says. Raises RequestError for an atlas that is not there."""
        result = self.shown(self.choose(state.checkpoint, state.corpus, None))
        if result is None:
            name = state.checkpoint or self.core.catalog.default()
            raise RequestError(f"There is no atlas of {name} yet: choose a text above, and press Run.")
        return _chosen(result, state.where, state.x, state.y, state.head, state.bin)


def _chosen(
    result: AtlasResult, where: str | None, x: str, y: str, head: Head | None, bin: int | None
) -> AtlasParameters:
    from aotlens.heads import find_heads

    readable = where = where or ""
    try:
        find_heads(result.atlas, where)
    except ValueError:
        readable = ""
    return replace(result.chosen, where=where, readable=readable, x=x, y=y, head=head, bin=bin)


class _Workshop(AppWorkshop):
    """Atlases that were made in the background, by their stamps; stored ones and what is computed of any are kept."""

    def __init__(self, core: Core, service: Atlases) -> None:
        super().__init__(core, core.settings.n_views)
        self._service = service

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """An atlas that was made, or what has been kept of a call."""
        if node.function == "aotlens.heads.atlas":
            return self._service.stamped(node.stamp)
        return super().call(node, work)


def _stamp(key: str) -> int:
    return int(hashlib.sha256(key.encode()).hexdigest()[:12], 16)


def _distillation(info: Any) -> str | None:
    """The name of a checkpoint's bundled distillation, whose errors stand among its scores; None where it has none."""
    from aotlens.distill.records import bundled_distillations_folder, load_record, record_paths

    path = bundled_distillations_folder() / f"{info.name}.safetensors"
    if not path.exists() or not load_record(path).belongs_to(info):
        return None
    return next(name for name, each in record_paths().items() if each == path)
