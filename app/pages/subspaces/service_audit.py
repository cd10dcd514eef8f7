"""Audits of layers' denoising: `aotlens.denoise.audit`, stored with the package, or of a text in the background."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.files import without_folder
from app.core import Core
from app.core.corpora import PASTED, Text
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report
from app.core.own_texts import is_key

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.data import Corpus
    from aotlens.denoise import DenoisingAudit
    from aotlens.models import AttentionOnlyTransformer

#: Tokens of a corpus that are read.
TOKENS = 2048
#: The first tokens that are read of a text of somebody's own, at most and at least: two windows, of which the tokens at
#: their beginnings are left out.
OWN_TOKENS, _SHORTEST = 8192, 16


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """An audit to be made."""

    checkpoint: str
    corpus: str
    """Its name, or the key of somebody's own text."""
    draws: int
    """Random rotations."""

    def to_dict(self) -> dict[str, Any]:
        """Return the request for the browser."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditResult:
    """The finding, and what it is of."""

    order: AuditRequest
    about: str
    """The text, in words."""
    audit: DenoisingAudit


class Audits:
    """The stored audits, and new ones in the background, of which the last are kept."""

    def __init__(self, core: Core) -> None:
        self.core, self.jobs = core, Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)

    def order(self, checkpoint: str | None, source: str | None, text: str | None, draws: int) -> AuditRequest:
        """Read the request from a form. Raises RequestError for a text that can't be read."""
        if source == PASTED or source is None:
            source = self.core.corpora.paste(text or "")
        return AuditRequest(checkpoint=str(checkpoint), corpus=source, draws=draws)

    def start(self, order: AuditRequest, session: str = "") -> Job:
        """Audit in the background; return the job that does, or did. Raises RequestError for what
        isn't there."""
        loaded = self.core.catalog.load(order.checkpoint)
        cfg = loaded.model.cfg
        self.core.catalog.need_text(order.checkpoint)
        if not cfg.has_query_key:
            raise RequestError(f"The heads of {order.checkpoint} have fixed patterns: they choose no tokens to move.")
        self._text(order)  # refused here if it isn't there
        self.core.corpora.keep_pasted(order.corpus)  # so that the address goes on to mean it
        label = f"Auditing {order.checkpoint}"
        return self.jobs.start(self._key(order), label, lambda report: self._audit(order, report), session=session)

    def stored(self, checkpoint: str | None) -> AuditResult | None:
        """Load the audit that comes with a checkpoint; None for one that has none, or other weights of that name.

        Raises RequestError for one that can't be read.
        """
        from aotlens.denoise.audit_files import AuditRecord, bundled_audit_path
        from aotlens.results import load

        info = self.core.catalog.info(checkpoint or self.core.catalog.default())
        path = bundled_audit_path(info.name)
        if not path.exists():
            return None
        try:
            record: AuditRecord = load(path, AuditRecord)
        except ValueError as error:
            raise RequestError(f"The audit can't be read. {without_folder(error, path)}") from error
        if not record.belongs_to(info):
            return None
        order = AuditRequest(checkpoint=info.name, corpus=record.corpus, draws=len(record.audit.null_snr))
        documents = f"{len(record.documents)} held-out documents of " if record.documents else ""
        about = f"{documents}{record.corpus}: {record.audit.n_tokens:,} tokens (stored)"
        return AuditResult(order=order, about=about, audit=record.audit)

    def choose(self, checkpoint: str, made: dict[str, Any] | None) -> dict[str, Any]:
        """Choose which audit of a checkpoint is shown: the one that was `made` if it is of it and still here, else the
        stored one, without text and draws. For the browser: the checkpoint is None where it is the first choice."""
        own = self.made(made)
        order = own.order.to_dict() if own is not None and own.order.checkpoint == checkpoint else {}
        first = checkpoint == self.core.catalog.default()
        return {"corpus": None, "draws": None, **order, "checkpoint": None if first else checkpoint}

    def shown(self, choice: dict[str, Any] | None) -> AuditResult | None:
        """Return the audit that `choose` chose; None where there is none any more."""
        if not choice:
            return None
        return self.made(choice) if choice["corpus"] else self.stored(choice["checkpoint"])

    def made(self, order: dict[str, Any] | None) -> AuditResult | None:
        """Return a finished audit by its order (the checkpoint None: the first choice); None where there is none any
        more."""
        if not order or not order["corpus"] or not order["draws"]:
            return None
        checkpoint = order["checkpoint"] or self.core.catalog.default()
        job = self.jobs.get(self._key(AuditRequest(**{**order, "checkpoint": checkpoint})))
        return job.result if job is not None and job.state == "done" else None

    def _key(self, order: AuditRequest) -> str:
        return f"{self.core.catalog.info(order.checkpoint).weights_sha256}:{order}"

    def _audit(self, order: AuditRequest, report: Report) -> AuditResult:
        from aotlens.denoise import audit

        loaded, text = self.core.catalog.load(order.checkpoint), self._text(order)
        report(0, loaded.model.cfg.n_layers, "reading text")
        model = loaded.copied()
        assert text.corpus is not None  # what was pasted is kept
        tokens = _start(model, text.corpus) if is_key(order.corpus) else _held_out(model, text.corpus)
        result = audit(
            model, tokens, n_draws=order.draws,
            progress=lambda done, total: report(done, total, "measuring layers"),
        )  # fmt: skip
        return AuditResult(order=order, about=f"{text.about}: {result.n_tokens:,} tokens", audit=result)

    def _text(self, order: AuditRequest) -> Text:
        return self.core.corpora.text(order.corpus, self.core.catalog.info(order.checkpoint))


def _held_out(model: AttentionOnlyTransformer, corpus: Corpus) -> Tensor:
    from aotlens.distill import held_out_windows

    return held_out_windows(model, corpus, TOKENS)


def _start(model: AttentionOnlyTransformer, corpus: Corpus) -> Tensor:
    """The first tokens of somebody's own text, `[1, pos]`, which the audit cuts into windows."""
    (document,) = corpus.documents()
    tokens = model.to_tokens(document.text)[:, :OWN_TOKENS]
    if tokens.shape[1] < _SHORTEST:
        raise ValueError(
            f"expected a text of at least {_SHORTEST} tokens, to be cut into two halves; got {tokens.shape[1]}. Paste "
            "a longer one."
        )
    return tokens
