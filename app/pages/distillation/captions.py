"""Captions of the Distillation page's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.views.distillation import HEADS, DistillationParameters
from app.pages.distillation.service import Distillations

if TYPE_CHECKING:
    from aotlens.distill import TextErrors

MEANING = (
    "Can a small feed-forward network (FFN) that sees only a token’s own vector stand in for a head? Errors are on "
    "documents that the FFN was not trained on. 0: the FFN does all that the head does. 1: it does no better than "
    "always writing the mean; then what the head moves comes from other tokens."
)
ERROR = "error = Σ‖y − ŷ‖² ÷ Σ‖y − ȳ‖², with y what the head writes, ŷ the FFN’s, ȳ the head’s mean"
ONE_OF_EACH = (
    "One checkpoint in each column: a difference between columns is one between these checkpoints and says nothing of "
    "architectures."
)
#: The units that the progress of a phase counts.
UNITS = {
    "reading text": "tokens", "training FFNs": "tokens (those that errors are measured on, too)",
    "replacing heads": "passes over the text",
}  # fmt: skip
NO_RESULT = (
    "No distillation is here. Distil one (Distil a checkpoint), or start the app with --distillation FILE, a file that "
    "aotlens distill wrote."
)
NO_CORPUS = (
    "This app was started without a corpus. To distil a checkpoint here, upload or paste a text, or start it with "
    "--corpus dir:PATH, file:PATH or stdlib."
)


def across_options() -> list[dict[str, str]]:
    """Return what errors can be drawn against, for the menu: attention to each motif's keys."""
    from aotlens.heads import motifs_of

    return [{"value": name, "label": f"attention: {motif.title}"} for name, motif in motifs_of("tokens").items()]


def motif_columns(page: Distillations, chosen: DistillationParameters) -> list[tuple[str, str, str]]:
    """Name, title and meaning of every motif that was measured in one of the results, for the table."""
    from aotlens.heads import motifs_of

    attending = [page.record(key).distillation.attending for key in chosen.results]
    return [
        (name, motif.title, f"Score: {motif.sentence}")
        for name, motif in motifs_of("tokens").items()
        if any(each.why_not(name) is None for each in attending)
    ]


def units(width: int) -> str:
    """Write the number of units: `16 hidden units`."""
    from aotlens.distill.compared import units  # takes seconds, once

    return units(width)


def answer(page: Distillations, chosen: DistillationParameters) -> str:
    """Say what share of the heads' outputs FFNs of this width explain; and what a comparison of models does not say."""
    compared = page.workshop.result(HEADS, chosen)
    return " ".join([compared.answer, *([ONE_OF_EACH] if len(chosen.results) > 1 else [])])


def data(page: Distillations, key: str, width: int) -> str:
    """Say what was distilled, on what, by what; and what came out on the whole."""
    record = page.record(key)
    distillation, settings = record.distillation, record.distillation.settings
    known = next((info for info in page.catalog.list() if info.name == record.checkpoint), None)
    model = {} if known is None or known.problem else known.model
    kind = str(model.get("attention", "")).upper() + (" and MLPs" if model.get("d_mlp") else "")
    about = f" ({kind}, {model['n_layers']} × {model['n_heads']} heads)" if kind else ""
    whole = f"{len(distillation.heads)} heads" if len(distillation.heads) > 1 else "1 head"
    mean = f"mean error {distillation.mean_error(width).mean():.3f}"
    if len(distillation.heads) > 1:
        _, low, high = distillation.over_heads(width)
        mean = f"{mean} (95% over heads: {max(low, 0):.3f} to {high:.3f})"
    seeds = settings.seed if settings.seeds == 1 else f"{settings.seed}–{settings.seed + settings.seeds - 1}"
    where = f" of {record.corpus}" if record.corpus else ""
    held_out = (
        f" from {_count(len(distillation.held_out_documents), 'held-out document')}"
        if distillation.held_out_documents
        else ""
    )
    command = f" Made by: {record.command}." if record.command else ""
    return (
        f"{about}: {whole}, {units(width)}: {mean}. Trained on at most {distillation.train_tokens:,} tokens{where}, "
        f"seeds {seeds}; errors on {distillation.held_out_tokens:,} tokens{held_out}.{command}"
    )


def on_text(chosen: DistillationParameters, errors: TextErrors | None, width: int) -> str:
    """Say what the colours of the tokens mean, and the text's own error."""
    if errors is None:
        return "This result has kept no FFN, so there is only the head’s map: distil below to see where one fails."
    other = "" if width == chosen.width else f" Only FFNs of {units(width)} were kept, so these are theirs."
    return (
        f"Error on this text: {errors.error:.3f}, with {units(width)}.{other} The number under a token is the FFN’s "
        "squared error there; 1 is what always writing the mean is off by on an average token. Blue: the FFN fails."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
