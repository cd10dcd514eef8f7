"""The checkpoint's card: what it is, and how it was trained."""

from __future__ import annotations

from aotlens.checkpoints.card import render_card
from aotlens.report.parts import Markdown, Part
from aotlens.report.subject import Subject


def card_parts(subject: Subject) -> list[Part]:
    """Return the text of card.md, or, of a model without one, what is known of it in the same form."""
    info = subject.info
    if not (info.card or info.model or info.description):
        raise ValueError("This model has no card: another program wrote it, and says nothing of its training.")
    return [Markdown(text=info.card or render_card(info))]
