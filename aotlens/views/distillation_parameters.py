"""The parameters of distillations: which results at which width, a head of one, a text, and a new distillation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.conventions import Head, as_heads, head_name, several
from aotlens.files import contents_hash, without_folder
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make, stamp_of
from aotlens.views.compare import TEXT
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfResult

if TYPE_CHECKING:
    from aotlens.distill import Record

#: The width that is shown by default.
WIDTH = 16
#: The results that are shown by default, where they exist: one checkpoint of each kind, of one size and training text.
COMPARED = ("novels-12l-mssa", "novels-6l-mhsa", "novels-2l-gpt")
#: The widths that a new distillation may have, and those that it has by default.
WIDTHS, FIRST_WIDTHS = (0, 2, 4, 8, 16, 32, 64, 128), (0, 4, 16)
NO_RESULT = (
    "No distillation is here. Make one in the panel ‹Distil a checkpoint›, or start the app with --distillation FILE, "
    "a file that aotlens distill wrote."
)


@lru_cache(maxsize=16)
def _open(path: Path, stamp: int) -> Record:
    from aotlens.distill import load_record

    return load_record(path)


@dataclass(frozen=True, kw_only=True)
class DistillationParameters(OfResult):
    """Distillations by name, at what width, and the head of one of them that is inspected; a text; and the settings of
    a new one."""

    results: tuple[str, ...] = declare.option("Distillations", blank="choose some", several=3)
    width: int | None = declare.row("Hidden units of the FFN", blank=f"{WIDTH}, if distilled")
    of: str | None = declare.option("Distillation of the head", blank="the first")
    head: tuple[int, int] | None = declare.pair("Head", blank="the most FFN-like")
    across: str | None = declare.option(
        "Attention to (motif)", blank="the first token", renamed={"broadcast": "uniform_attention"}
    )
    text: str = declare.text(TEXT, label="Text", most=50_000, lines=2, blank="none")
    corpus: Reading | None = declare.corpus("Text to distil on", blank="choose one")
    hidden: tuple[int, ...] = declare.row("Hidden units", blank="0, 4, 16", several=5)
    heads: str = declare.text("", label="Heads to distil", blank="all; or 0.1, 1.3")
    seeds: int = declare.whole(3, least=1, most=10, label="Seeds")
    tokens: int = declare.whole(100_000, least=1000, most=1_000_000, label="Training tokens")
    replaced: int = declare.whole(4096, most=65_536, label="Held-out tokens on which heads are replaced")

    def limits(self) -> Mapping[str, Limit]:
        from aotlens.distill.compared import units
        from aotlens.distill.records import distillations_folder
        from aotlens.heads import motifs_of

        own = distillations_folder()
        sources = {
            name: "file" if path in self.files else "made here" if path.parent == own else "bundled"
            for name, path in self.paths.items()
        }
        options = {name: f"{name} ({source})" for name, source in sources.items()}
        heads = {head: head_name(head) for head in self.distilled}
        motifs = {name: motif.title for name, motif in motifs_of("tokens").items()}
        return {
            "results": Limit(options=options, rest=self.first),
            "width": Limit(options={width: units(width) for width in self.widths}),
            "of": Limit(options={name: name for name in self.records}, hidden=len(self.records) < 2),
            "head": Limit(options=heads, words="a head that was distilled"),
            "across": Limit(options={"first_token": motifs["first_token"], **motifs}),
            "hidden": Limit(options={width: units(width) for width in WIDTHS}),
        }

    # ── stored results ──────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The files of all results by name."""
        from aotlens.distill import record_paths

        return record_paths(self.files)

    @property
    def first(self) -> tuple[str, ...]:
        """The results that are shown by default."""
        return tuple(name for name in COMPARED if name in self.paths) or tuple(self.paths)[:1]

    @cached_property
    def opened(self) -> dict[str, Record | str]:
        """The selected results; of one that cannot be read, the reason."""
        opened: dict[str, Record | str] = {}
        for name in self.results or self.first:
            path = self.paths.get(name)
            if path is None:
                continue
            try:
                opened[name] = _open(path, path.stat().st_mtime_ns)
            except (OSError, ValueError) as error:
                opened[name] = f"{name} cannot be read. {without_folder(error, path)}"
        return opened

    @cached_property
    def _readable(self) -> dict[str, Record]:
        return {name: record for name, record in self.opened.items() if not isinstance(record, str)}

    @property
    def widths(self) -> list[int]:
        """The widths of all selected results."""
        return sorted({width for record in self._readable.values() for width in record.distillation.hidden})

    @property
    def units(self) -> int:
        """The width that is shown: the selected one, or one that all results have if there is one."""
        if self.width in self.widths:
            return self.width
        hidden = [record.distillation.hidden for record in self._readable.values()]
        widths = [width for width in self.widths if all(width in widths for widths in hidden)] or self.widths
        return WIDTH if WIDTH in widths or not widths else widths[len(widths) // 2]

    @cached_property
    def records(self) -> dict[str, Record]:
        """The results that are shown: those with this width."""
        return {name: record for name, record in self._readable.items() if self.units in record.distillation.hidden}

    @property
    def left_out(self) -> list[str]:
        """Why further results are not shown, in sentences."""
        unread = [reason for reason in self.opened.values() if isinstance(reason, str)]
        return unread + [
            f"{name} has no FFNs of {several(self.units, 'hidden unit')}, only of "
            f"{', '.join(map(str, record.distillation.hidden))}: choose one of these to see it."
            for name, record in self._readable.items()
            if name not in self.records
        ]

    @property
    def name(self) -> str:
        """The name of the result whose head is inspected."""
        return self.of if self.of in self.records else next(iter(self.records))

    @property
    def distilled(self) -> tuple[Head, ...]:
        """The heads of that result."""
        return self.records[self.name].distillation.heads if self.records else ()

    @property
    def inspected(self) -> Head:
        """The head that is inspected: the selected one, or the most FFN-like."""
        return self.head if self.head in self.distilled else self.records[self.name].distillation.order(self.units)[0]

    @property
    def motif(self) -> str:
        """The motif that errors are compared with attention to."""
        return self.across or "first_token"

    def record(self, name: str) -> Call:
        """Return the call that opens a result. What it prints has a file's own name, not its folder."""
        from aotlens.distill import record_paths

        path = self.paths[name]
        if path in self.files:
            alone = [file.name for file in self.files].count(path.name) == 1
            opening = call("aotlens.distill.load_record", path.name if alone else f"{name}.safetensors")
        else:
            known = next((known for known, file in record_paths().items() if file == path), name)
            opening = call("aotlens.distill.named_record", known)
        stamp = path.stat().st_mtime_ns
        return opening.opened_by(lambda: _open(path, stamp), stamp_of(str(path), str(stamp)))

    def compared(self, *, head: bool = True, across: bool = False) -> Call:
        """Return the comparison of the results, with the inspected head, and the motif."""
        options: dict[str, Any] = {"of": self.name} if head else {}
        options |= {"across": self.motif} if across else {}
        records = {name: self.record(name) for name in self.records}
        return make(
            "aotlens.distill.compare_distillations", records, self.units, *([self.inspected] if head else []), **options
        )

    def file(self, what: str) -> str:
        """Name a file about all results."""
        return f"{'-'.join(self.records)}-{what}"

    def file_of_head(self, what: str) -> str:
        """Name a file about the head."""
        return f"{self.name}-head-{head_name(self.inspected)}-{what}"

    # ── one head on a text ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def kept(self) -> int | None:
        """The width of the FFNs that were kept with the result; None if none were."""
        weights = self.records[self.name].distillation.weights
        return next((width for width in (self.units, WIDTH, *weights) if width in weights), None)

    @property
    def on_text(self) -> Call:
        """The errors of the head's FFN along the text."""
        model = Load(self.records[self.name].checkpoint)
        distillation = self.record(self.name).method("distillation_of", model)
        return call("aotlens.distill.text_errors", model, distillation, self.text, self.inspected, width=self.kept)

    # ── a new distillation ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def wanted(self) -> list[str] | None:
        """The heads to distil; None for all. Raises ValueError for one that the checkpoint does not have."""
        parts, sizes = self.heads.replace(",", " ").split(), self.heads_of("heads")
        return [head_name(head) for head in as_heads(parts, sizes)] if parts and sizes is not None else None

    @property
    def _hidden(self) -> list[int]:
        return sorted(set(self.hidden or FIRST_WIDTHS))

    @property
    def _replaced(self) -> int:
        return min(self.replaced, self.tokens)

    @property
    def new(self) -> str:
        """The name under which a new distillation is kept."""
        weights = "" if self.info is None else self.info.weights_sha256
        corpus = None if self.corpus is None else (self.corpus.name, self.corpus.text.stamp)
        heads = None if self.wanted is None else sorted(self.wanted)
        settings = (weights, corpus, self._hidden, heads, self.seeds, self.tokens, self._replaced)
        digest = contents_hash({}, {"settings": repr(settings)})[:6]
        return re.sub(r"[^\w.\-]+", "_", f"{self.checkpoint}-{self.tokens // 1000}k-{digest}")

    @property
    def distillation(self) -> Any:
        """The new distillation; the stored one, if it was made."""
        if self.new in self.paths:
            return self.record(self.new).part("distillation")
        assert self.corpus is not None
        heads = {"heads": self.wanted} if self.wanted else {}
        return make(  # what is kept is the file
            "aotlens.distill.record_distillation", Load(self.checkpoint), self.corpus.text.named("text"),
            self._hidden, **heads, seeds=self.seeds, train_tokens=self.tokens,
            replace=self._replaced, text=self.corpus.about, model_name=self.checkpoint, name=self.new,
        ).part("distillation")  # fmt: skip
