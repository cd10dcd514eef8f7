"""Whether trained layers denoise: `aotlens.denoise.audit`, stored with the package, or of a text in the background."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.corpora import PASTED, Text
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.data import Corpus
    from aotlens.denoise import DenoisingAudit
    from aotlens.models import AttentionOnlyTransformer

#: Tokens of a corpus that are read; of a pasted text at most four times as many, and at least the second: two windows,
#: of which the tokens at their beginnings are left out.
_TOKENS, _SHORTEST = 2048, 16


@dataclass(frozen=True, kw_only=True)
class AuditOrder:
    """An audit to be made."""

    checkpoint: str
    text: str
    """A corpus's name, or the key of a pasted text."""
    draws: int
    """Random rotations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """What was found, of what."""

    order: AuditOrder
    about: str
    """The text, in words."""
    audit: DenoisingAudit


class Audits:
    """The stored audits, and new ones in the background, of which the last are kept."""

    def __init__(self, core: Core) -> None:
        self.core, self.jobs = core, Jobs(kept=16)

    def order(self, checkpoint: str | None, source: str | None, text: str | None, draws: int) -> AuditOrder:
        """What a form says. Raises RequestError for a text that can't be read."""
        if source == PASTED or source is None:
            source = self.core.corpora.paste(text or "")
        return AuditOrder(checkpoint=str(checkpoint), text=source, draws=draws)

    def start(self, order: AuditOrder, session: str = "") -> Job:
        """Audit in the background; the job that does, or did. Raises RequestError for what isn't there."""
        loaded = self.core.catalog.load(order.checkpoint)
        cfg = loaded.model.cfg
        if loaded.model.tokenizer is None or cfg.read_in != "tokens":
            raise RequestError(f"The checkpoint {order.checkpoint} doesn't read text; choose one with a tokenizer.")
        if not cfg.has_query_key:
            raise RequestError(f"The heads of {order.checkpoint} have fixed patterns: they choose no tokens to move.")
        self._text(order)  # refused here if it isn't there
        label = f"Auditing {order.checkpoint}"
        return self.jobs.start(
            f"{loaded.key}:{order}", label, lambda report: self._audit(order, report), session=session
        )  # fmt: skip

    def stored(self, checkpoint: str | None) -> Audited | None:
        """The audit that comes with a checkpoint; None for one that has none, or other weights of that name.

        Raises RequestError for one that can't be read.
        """
        from aotlens.denoise.audit_files import bundled_audit_path, load_audit

        info = self.core.catalog.info(checkpoint or self.core.catalog.default())
        path = bundled_audit_path(info.name)
        if not path.exists():
            return None
        try:
            record = load_audit(path)
        except ValueError as error:
            # Where it lies is nobody's business at the browser.
            raise RequestError(f"The audit can't be read. {error}".replace(f"{path.parent}/", "")) from error
        if not record.belongs_to(info):
            return None
        order = AuditOrder(checkpoint=info.name, text=record.corpus, draws=len(record.audit.null_snr))
        documents = f"{len(record.documents)} held-out documents of " if record.documents else ""
        about = f"{documents}{record.corpus}: {record.audit.n_tokens:,} tokens (stored)"
        return Audited(order=order, about=about, audit=record.audit)

    def choose(self, checkpoint: str, made: str | None) -> dict[str, Any]:
        """Which audit of a checkpoint is shown: the one that was `made` (a job's key) if it is of it, else the stored
        one. For the browser: the checkpoint is None where it is the first choice, `key` where the audit is stored."""
        done = self.done(made)
        own = done is not None and done.order.checkpoint == checkpoint
        first = checkpoint == self.core.catalog.default()
        return {"checkpoint": None if first else checkpoint, "key": made if own else None}

    def shown(self, choice: dict[str, Any] | None) -> Audited | None:
        """What `choose` chose; None where there is none any more."""
        if not choice:
            return None
        return self.done(choice["key"]) if choice["key"] else self.stored(choice["checkpoint"])

    def done(self, key: str | None) -> Audited | None:
        """A finished audit; None where there is none any more."""
        job = self.jobs.get(key) if key else None
        return job.result if job is not None and job.state == "done" else None

    def _audit(self, order: AuditOrder, report: Report) -> Audited:
        from aotlens.denoise import audit

        loaded, text = self.core.catalog.load(order.checkpoint), self._text(order)
        report(0, loaded.model.cfg.n_layers, "reading text")
        with loaded.exclusive:  # hooks are a model's state: a copy can be run while others use the original
            model = copy.deepcopy(loaded.model)
        tokens = _start(model, text.pasted) if text.corpus is None else _held_out(model, text.corpus)
        result = audit(
            model, tokens, n_draws=order.draws,
            progress=lambda done, total: report(done, total, "measuring layers"),
        )  # fmt: skip
        return Audited(order=order, about=f"{text.about}: {result.n_tokens:,} tokens", audit=result)

    def _text(self, order: AuditOrder) -> Text:
        return self.core.corpora.text(order.text, self.core.catalog.info(order.checkpoint))


def _held_out(model: AttentionOnlyTransformer, corpus: Corpus) -> Tensor:
    from aotlens.distill import held_out_windows

    return held_out_windows(model, corpus, _TOKENS)


def _start(model: AttentionOnlyTransformer, text: str) -> Tensor:
    """The first tokens of a text, `[1, pos]`, which the audit cuts into windows."""
    tokens = model.to_tokens(text)[:, : 4 * _TOKENS]
    if tokens.shape[1] < _SHORTEST:
        raise ValueError(
            f"expected a text of at least {_SHORTEST} tokens, to be cut into two halves; got {tokens.shape[1]}. Paste "
            "a longer one."
        )
    return tokens
