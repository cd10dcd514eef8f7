"""A row a head: label, motifs, pattern consistency, copying, what the model loses without it."""

from __future__ import annotations

from typing import Any

from aotlens.heads import Atlas, find_heads, label_words
from aotlens.plots.atlas import column_title
from aotlens.report.parts import Part, Table, Text
from aotlens.report.sections.view import view_parts
from aotlens.report.subject import Subject
from aotlens.views.atlas import SCORES, AtlasParameters

_AXES = ("previous_token", "induction_random", "induction", "current_token", "first_token")
_COLUMNS = (
    "label", "margin", "induction_random", "pattern_consistency", "entropy", "mean_distance", "copying", "reads",
    "loss_position_mean",
)  # fmt: skip


def atlas_parts(subject: Subject) -> list[Part]:
    """Return any two scores as a figure, the table, and a sentence a head."""
    if subject.reads != "tokens":
        reads = {"patches": "images", "vectors": "vectors"}[subject.reads]
        raise ValueError(
            f"An atlas is measured on text, and this model reads {reads}: Where heads look shows what "
            "its heads attend to."
        )
    atlas = subject.atlas
    if atlas is None:
        raise ValueError(
            subject.why_no_atlas
            or f"No atlas of {subject.info.name} comes with aotlens. With --corpus SPEC (stdlib, "
            "file:PATH, dir:PATH), the "
            "report measures one."
        )
    frame = atlas.to_frame()
    parts: list[Part] = [Text(text=_about(subject, atlas))]
    parts += [
        Text(text=f"{what.capitalize()} are not there, since {why}.", note=True) for what, why in atlas.missing.items()
    ]
    if subject.has_mlps:
        parts.append(
            Text(text="This model has MLPs, too: what they add is in its losses, and in no other column.", note=True)
        )
    axes = [name for name in _AXES if name in frame]
    if len(axes) > 1:
        values = AtlasParameters(checkpoint=subject.info.name, x=axes[0], y=axes[1])
        parts += view_parts(SCORES, values, find_heads(atlas))
    chosen = {name: column_title(name) for name in _COLUMNS if name in frame}
    rows = [
        (
            f"{row['layer']}.{row['head']}",
            *(label_words(row[name], row["resting"]) if name == "label" else _cell(row[name]) for name in chosen),
        )
        for row in frame.to_dict("records")
    ]
    parts.append(Table(caption="All heads", columns=("head", *chosen.values()), rows=rows))
    sentences = [(f"{layer}.{head}", atlas.sentence((layer, head))) for layer, head in atlas.heads]
    parts.append(Table(caption="In a sentence each", columns=("head", "what it does"), rows=sentences))
    return parts


def _about(subject: Subject, atlas: Atlas) -> str:
    record = subject.stored
    if record is None:
        return f"Measured for this report on {atlas.about}."
    held_out = f", of documents held out from its training ({', '.join(record.documents)})" if record.documents else ""
    return f"Measured on {atlas.about} of {record.corpus}{held_out}. Command: {record.command}."


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("_", " ")
    return "" if value != value else f"{value:.3f}"
