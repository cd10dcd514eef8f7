"""The quality of feed-forward networks as replacements of heads, and the cost of replacing heads by them."""

from __future__ import annotations

from aotlens.distill import compare_distillations
from aotlens.distill.records import Record, bundled_distillations_folder, distillations_folder, load_record
from aotlens.report.parts import Part, Table, Text
from aotlens.report.sections.view import view_parts
from aotlens.report.subject import Subject
from aotlens.views.distillation import COSTS, HEADS, DistillationParameters


def distillation_parts(subject: Subject) -> list[Part]:
    """Return errors by head and width, and the costs of substitution, of the distillation that is bundled or was made
    here."""
    if subject.reads != "tokens":
        raise ValueError("Heads are distilled on text, and this model reads none.")
    record = _record(subject)
    if record is None:
        raise ValueError(
            f"The heads of {subject.info.name} were not distilled: `aotlens distill CHECKPOINT --corpus SPEC` does it, "
            "of a checkpoint."
        )
    distillation = record.distillation
    corpus, command = (
        (f" on {record.corpus}" if record.corpus else ""),
        (record.command and f" Command: {record.command}."),
    )
    parts: list[Part] = [
        Text(
            text=f"Every head was distilled{corpus} into feed-forward networks of its input, "
            f"{distillation.train_tokens:,} training "
            f"tokens each. An error of 0 is a head that the network is, 1 is its mean output.{command}"
        )
    ]
    widths = [width for width in distillation.hidden if width] or list(distillation.hidden)
    compared = compare_distillations({subject.info.name: record}, widths[len(widths) // 2])
    values = DistillationParameters(results=(subject.info.name,), width=compared.width, head=compared.head)
    parts += view_parts(HEADS, values, compared)
    errors = [distillation.mean_error(each) for each in distillation.hidden]
    rows = [
        (f"{layer}.{head}", *(f"{error[place]:.3f}" for error in errors))
        for place, (layer, head) in enumerate(distillation.heads)
    ]
    columns = ("head", *(f"{each} hidden units" if each else "linear" for each in distillation.hidden))
    parts.append(Table(caption="Errors by width", columns=columns, rows=rows))
    if record.costs is not None:
        parts += view_parts(COSTS, values, compared)
    return parts


def _record(subject: Subject) -> Record | None:
    """Return the distillation of these weights, first of those made here. A file that is damaged or something else is
    passed over."""
    own = sorted(distillations_folder().glob("*.safetensors")) if distillations_folder().is_dir() else []
    for path in (*own, bundled_distillations_folder() / f"{subject.info.name}.safetensors"):
        try:
            record = load_record(path)
        except ValueError:
            continue
        if record.belongs_to(subject.info):
            return record
    return None
