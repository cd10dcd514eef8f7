"""The losses on held-out data beside a baseline, and how they fell."""

from __future__ import annotations

from typing import Any

from aotlens.plots import training_curve
from aotlens.report.parts import Figure, Part, Table, Text
from aotlens.report.subject import Subject


def loss_parts(subject: Subject) -> list[Part]:
    """Return the card's figures as a table, and the training curve where one was logged."""
    info = subject.info
    figures = {name: value for name, value in info.metrics.items() if isinstance(value, int | float)}
    history, damage = _history(subject)
    if damage and not figures:
        raise ValueError(damage)
    if not (figures or history):
        raise ValueError("No losses are known: this checkpoint's files have no figures and no training log.")
    parts: list[Part] = [Text(text=damage, note=True)] if damage else []
    loss, baseline = info.losses
    if loss is not None and baseline is not None:
        side = "below" if loss < baseline else "above"
        parts.append(Text(text=info.words.sentence.format(abs(baseline - loss), side)))
    if figures:
        rows = [
            (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.6g}")
            for name, value in figures.items()
        ]
        caption = f"Measured on the stored weights; losses in {info.words.unit}"
        parts.append(Table(caption=caption, columns=("figure", "value"), rows=rows))
    if history:
        levels = {kind: info.metrics.get(f"{kind}_loss") for kind in ("bigram", "unigram", "class_share")}
        references = {kind.replace("_", " "): level for kind, level in levels.items() if level}
        parts.append(
            Figure(caption="Training", make=lambda theme: training_curve(history, references=references, theme=theme))
        )
    return parts


def _history(subject: Subject) -> tuple[list[dict[str, Any]], str]:
    """The lines of the training log; none, and why as a sentence, where it is damaged."""
    try:
        return subject.info.history(), ""
    except ValueError as error:
        return [], f"The training log cannot be read: {error}"
