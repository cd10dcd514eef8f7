"""Distillations: those that are bundled, those made here, those in files that whoever started the server named.

A browser chooses among names; no name of its own ever becomes a path.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aotlens.files import without_folder
from aotlens.views import Call
from aotlens.views.distillation import WIDTH, DistillationParameters
from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.core.jobs import Job, Jobs, Report
from app.core.workshop import AppWorkshop
from app.pages.distillation.address import DistillationState

if TYPE_CHECKING:
    from aotlens.conventions import Head
    from aotlens.distill import Record, TextErrors

#: The results that the page opens on, where they are: one checkpoint of each kind, of one size and training text.
COMPARED = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt")
_SUFFIX = ".safetensors"
Source = Literal["bundled", "made here", "file"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A result that may be chosen."""

    key: str
    source: Source
    path: Path

    @property
    def label(self) -> str:
        return f"{self.key} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class DistillationRequest:
    """A distillation to be made."""

    checkpoint: str
    corpus: str
    hidden: tuple[int, ...]
    heads: tuple[Head, ...] | None
    seeds: int
    tokens: int
    costs: bool
    """Whether heads are replaced too."""

    @property
    def key(self) -> str:
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:6]
        return f"{self.checkpoint}-{self.tokens // 1000}k-{digest}"


class Distillations:
    """Results by name, read once, and new ones in the background."""

    def __init__(self, core: Core) -> None:
        self.settings, self.catalog = core.settings, core.catalog
        self.corpora, self.inference = core.corpora, core.inference
        self.jobs = Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)
        self._records: Cache[tuple[str, int], Record] = core.memory.cache(core.settings.n_distillations)
        self.workshop = _Workshop(core, self)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────

    def list(self) -> list[Entry]:
        """List the results: files first, then what was made here, then the bundled ones."""
        from aotlens.distill import record_paths
        from aotlens.distill.records import bundled_distillations_folder, distillations_folder

        sources: dict[Path, Source] = {
            distillations_folder(): "made here", bundled_distillations_folder(): "bundled"
        }  # fmt: skip
        given = [path.expanduser() for path in self.settings.distillations]
        return [
            Entry(key=key, source="file" if path in given else sources[path.parent], path=path)
            for key, path in record_paths(given).items()
        ]

    def record(self, key: str) -> Record:
        """Raise RequestError for a name that isn't there, and for a file that can't be read."""
        entries = {entry.key: entry for entry in self.list()}
        if key not in entries:
            names = ", ".join(entries) or "none yet"
            raise RequestError(f"No distillation is called {key!r}. There are: {names}. Choose one, or distil below.")
        path = entries[key].path
        try:
            return self._read(path)
        except (OSError, ValueError) as error:
            raise RequestError(f"The distillation {key} can't be read. {without_folder(error, path)}") from error

    def _read(self, path: Path) -> Record:
        from aotlens.distill import load_record

        return self._records.get((str(path), path.stat().st_mtime_ns), lambda: load_record(path))

    def values(self, shown: Mapping[str, Any], **also: Any) -> DistillationParameters:
        """Return what the page says that it shows. Raises RequestError for a result that is no longer there."""
        entries, results = {entry.key: entry for entry in self.list()}, tuple(shown["results"])
        for key in results:
            self.record(key)
        paths = {key: entries[key].path for key in results}
        names = self._names(entries)
        fields = {name: shown[name] for name in ("width", "across", "of", "layer", "head")}
        return DistillationParameters(
            results=results, **fields,
            files={key: names[key] for key in results if entries[key].source == "file"},
            names={key: names[key] for key in results if entries[key].source != "file"},
            stamps={key: path.stat().st_mtime_ns for key, path in paths.items()},
        )  # fmt: skip

    @staticmethod
    def _names(entries: Mapping[str, Entry]) -> dict[str, str]:
        """Name each as Python does: `named_record`'s name, or the file's own, with the key where several have one."""
        from aotlens.distill import record_paths

        known = {path: name for name, path in record_paths().items()}
        files = [entry.path.name for entry in entries.values() if entry.source == "file"]

        def of(entry: Entry) -> str:
            if entry.source != "file":
                return known.get(entry.path, entry.key)
            return entry.path.name if files.count(entry.path.name) == 1 else f"{entry.key}{_SUFFIX}"

        return {key: of(entry) for key, entry in entries.items()}

    def called(self, name: str, *, in_file: bool) -> Record:
        """Return the record that Python calls so: a file's, or one of `named_record`."""
        entries = {entry.key: entry for entry in self.list()}
        named = self._names(entries)
        return self.record(
            next(key for key, entry in entries.items() if named[key] == name and (entry.source == "file") == in_file)
        )

    def first(self) -> tuple[str, ...]:
        """Return the results that the page opens on."""
        keys = [entry.key for entry in self.list()]
        compared = tuple(key for key in COMPARED if key in keys)
        return compared or tuple(keys[:1])

    def read(self, shown: Any) -> DistillationParameters | None:
        """Return what the page says that it shows; None where nothing is shown."""
        return self.values(shown) if shown else None

    def describe(self, state: DistillationState) -> tuple[DistillationParameters | None, list[str]]:
        """Return what a state asks for, as far as it is there, and what is wrong with the rest."""
        from aotlens.heads import MOTIFS

        records, problems = {}, []
        for key in state.results or self.first():
            try:
                records[key] = self.record(key)
            except RequestError as error:
                problems.append(str(error))
        if not records:
            return None, problems
        widths = sorted({width for record in records.values() for width in record.distillation.hidden})
        width = state.width
        if width not in widths:
            width = WIDTH if WIDTH in widths else widths[len(widths) // 2]
            if state.width is not None:
                problems.append(f"No result here has FFNs of {state.width} hidden units: those of {width} are shown.")
        with_width = {key: stored for key, stored in records.items() if width in stored.distillation.hidden}
        for key in records.keys() - with_width.keys():
            had = ", ".join(map(str, records[key].distillation.hidden))
            problems.append(f"{key} has no FFNs of {width} hidden units, only of {had}: choose one of these to see it.")
        of = state.of if state.of in with_width else next(iter(with_width))
        if state.of not in (None, of):
            problems.append(f"{state.of} is not among what is shown, so the head is one of {of}.")
        distillation = with_width[of].distillation
        head = state.head if state.head in distillation.heads else distillation.order(width)[0]
        if state.head is not None and head != state.head and state.of == of:
            problems.append(f"Head {state.head[0]}.{state.head[1]} of {of} was not distilled.")
        across = state.across if state.across in MOTIFS else DistillationState.across
        if across != state.across:
            problems.append(f"There is no motif {state.across}: errors are drawn against {across.replace('_', ' ')}.")
        for key, record in with_width.items():
            if why := record.distillation.attending.why_not(across):
                problems.append(f"{key}: attention to {across.replace('_', ' ')} was not measured: {why}.")
        choice = {"width": width, "across": across, "of": of, "layer": head[0], "head": head[1]}
        return self.values({"results": tuple(with_width), **choice}), problems

    def widths(self, chosen: DistillationParameters) -> list[int]:
        """Return the numbers of hidden units of all results that are shown."""
        return sorted({width for key in chosen.results for width in self.record(key).distillation.hidden})

    def shape(self, key: str) -> tuple[int, int]:
        """Return layers and heads of a result's model; as far as distilled where the model isn't here."""
        record = self.record(key)
        layers, heads = zip(*record.distillation.heads, strict=True)
        known = next((info for info in self.catalog.list() if info.name == record.checkpoint), None)
        model = known.model if known is not None and known.problem is None else {}
        return max(max(layers) + 1, model.get("n_layers") or 0), max(max(heads) + 1, model.get("n_heads") or 0)

    # ── one head on a text ──────────────────────────────────────────────────────────────────────────────────

    def on_text(
        self, chosen: DistillationParameters, text: str, length: int | None = None
    ) -> tuple[TextErrors | None, int, PromptResult]:
        """Return where the chosen head's FFN fails, of how many hidden units, and the head's patterns.

        None where no FFN was kept. Raises RequestError for text that can't be read, and for another checkpoint's FFNs.
        """
        import torch

        from aotlens.distill import text_errors

        record = self.record(chosen.of)
        info = self.catalog.info(record.checkpoint)
        if not record.belongs_to(info):
            raise RequestError(
                f"The checkpoint {info.name} here has other weights than the one that was distilled: its heads can't "
                "be held against these FFNs. Distil it below."
            )
        result = self.inference.analyse(info.name, text, length=length)
        weights = record.distillation.weights
        width = chosen.width if chosen.width in weights else WIDTH if WIDTH in weights else next(iter(weights), None)
        if width is None:
            return None, chosen.width, result
        loaded = self.catalog.load(info.name)
        with loaded.exclusive:
            errors = text_errors(
                loaded.model, record.distillation, torch.from_numpy(result.patterns.tokens),
                (chosen.layer, chosen.head), width=width,
            )  # fmt: skip
        return errors, width, result

    # ── distil ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, order: DistillationRequest, *, session: str = "") -> Job:
        """Distil in the background for a session; return the job. Raises RequestError for what isn't there."""
        loaded = self.catalog.load(order.checkpoint)
        cfg = loaded.model.cfg
        self.catalog.need_text(order.checkpoint)
        for layer, head in order.heads or ():
            if layer >= cfg.n_layers or head >= cfg.n_heads:
                raise RequestError(
                    f"{order.checkpoint} has no head {layer}.{head}: its layers are 0 to {cfg.n_layers - 1}, its heads "
                    f"0 to {cfg.n_heads - 1}."
                )
        self.corpora.text(order.corpus, self.catalog.info(order.checkpoint))  # refused here if it isn't there
        label = f"Distilling {order.checkpoint}"
        return self.jobs.start(
            f"{loaded.key}:{order}", label, lambda report: self._distil(order, report), session=session
        )

    def _distil(self, order: DistillationRequest, report: Report) -> str:
        from aotlens.distill import distill_heads, held_out_windows, substitution_costs
        from aotlens.distill.records import Record, distillations_folder

        loaded, info = self.catalog.load(order.checkpoint), self.catalog.info(order.checkpoint)
        text = self.corpora.text(order.corpus, info)
        assert text.corpus is not None
        report(0, order.tokens, "reading text")
        model = loaded.copied()
        tokens = max(order.tokens, 1024)
        result = distill_heads(
            model, text.corpus, order.hidden, heads=order.heads, seeds=order.seeds, train_tokens=tokens,
            held_out_tokens=min(65_536, tokens), validation_tokens=min(8192, tokens // 4),
            neighbours=min(16_384, tokens), progress=lambda done, total: report(done, total, "training FFNs"),
        )  # fmt: skip
        costs = None
        if order.costs:
            width = WIDTH if WIDTH in order.hidden else order.hidden[-1]
            windows = held_out_windows(model, text.corpus, min(self.settings.cost_tokens, tokens))
            costs = substitution_costs(
                model,
                result,
                windows,
                width=width,
                progress=lambda done, total: report(done, total, "replacing heads"),
            )
        record = Record(
            distillation=result, checkpoint=order.checkpoint, weights_sha256=info.weights_sha256, corpus=text.label,
            command="distilled in this app", costs=costs,
        )  # fmt: skip
        record.save(distillations_folder() / f"{order.key}{_SUFFIX}")
        return order.key


def heads_of(text: str | None) -> tuple[Head, ...] | None:
    """Read heads, `1.0, 2.3`; nothing is all heads. Raises RequestError for anything else."""
    parts = [part for part in re.split(r"[,\s]+", text or "") if part]
    if not parts:
        return None
    matches = [re.fullmatch(r"(\d{1,4})\.(\d{1,4})", part) for part in parts]
    if not all(matches):
        raise RequestError(
            f"Heads: expected layer.head with commas between, as 1.0, 2.3, or nothing for all; got {text!r}."
        )
    return tuple(sorted({(int(match[1]), int(match[2])) for match in matches if match}))


class _Workshop(AppWorkshop):
    """Records by the names that the page has for them, files of their own included, each read once."""

    def __init__(self, core: Core, service: Distillations) -> None:
        super().__init__(core, core.settings.n_views)
        self._service = service

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """A record by its name, or what has been kept of a call."""
        readers = {"aotlens.distill.named_record": False, "aotlens.distill.load_record": True}
        if node.function in readers:
            return self._service.called(node.args[0], in_file=readers[str(node.function)])
        return super().call(node, work)
