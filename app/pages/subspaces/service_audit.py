"""Whether trained layers denoise: `aotlens.denoise.audit` of a checkpoint on a text, in the background."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core import Core
from app.core.corpora import PASTED, Text
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.denoise import DenoisingAudit
    from aotlens.models import AttentionOnlyTransformer

#: Tokens of a window of a pasted text, at most, and of all windows of a corpus.
_WINDOW, _TOKENS = 128, 2048
#: Windows have at least so many tokens: token 0 is left out, and two halves need some each.
_SHORTEST = 8


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
    """Audits in the background; the last are kept."""

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
        windows = _windows(model, text.pasted) if text.corpus is None else _corpus_windows(model, text.corpus)
        result = audit(
            model, windows, n_draws=order.draws,
            progress=lambda done, total: report(done, total, "measuring layers"),
        )  # fmt: skip
        return Audited(order=order, about=f"{text.about}: {windows.numel():,} tokens", audit=result)

    def _text(self, order: AuditOrder) -> Text:
        if order.text.startswith(f"{PASTED}:"):
            return self.core.corpora.pasted(order.text)
        return self.core.corpora.text(order.text, self.core.catalog.info(order.checkpoint))


def _corpus_windows(model: AttentionOnlyTransformer, corpus: object) -> Tensor:
    from aotlens.distill import held_out_windows

    return held_out_windows(model, corpus, _TOKENS)  # type: ignore[arg-type]


def _windows(model: AttentionOnlyTransformer, text: str) -> Tensor:
    """A text in windows of one length, as many as are full."""
    tokens = model.to_tokens(text)[0][: 4 * _TOKENS]
    length = min(_WINDOW, model.cfg.n_ctx, len(tokens) // 2)
    if length < _SHORTEST:
        raise ValueError(
            f"expected a text of at least {2 * _SHORTEST} tokens, to be cut into two halves; got {len(tokens)}. Paste "
            "a longer one."
        )
    return tokens[: len(tokens) // length * length].reshape(-1, length)
