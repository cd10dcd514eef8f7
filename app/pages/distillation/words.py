"""What the Distillation page says of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from app.pages.distillation.service import Distillations, Shown

if TYPE_CHECKING:
    from aotlens.distill import Distillation, TextErrors

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
#: What the progress of a phase counts.
UNITS = {
    "reading text": "tokens", "training FFNs": "tokens (those that errors are measured on, too)",
    "replacing heads": "passes over the text",
}  # fmt: skip
NO_RESULT = (
    "No distillation is here. Distil one (Distil a checkpoint), or start the app with --distillation FILE, a file that "
    "the save of a distillation wrote."
)
NO_CORPUS = (
    "This app was started without a corpus. To distil a checkpoint here, upload or paste a text, or start it with "
    "--corpus dir:PATH, file:PATH or stdlib."
)


def across_options() -> list[dict[str, str]]:
    """What errors can be drawn against, for the menu: attention to each motif's keys."""
    from aotlens.heads import motifs_of

    return [{"value": name, "label": f"attention: {motif.title}"} for name, motif in motifs_of("tokens").items()]


def motif_columns(page: Distillations, shown: Shown) -> list[tuple[str, str, str]]:
    """Name, title and meaning of every motif that was measured in one of the results, for the table."""
    from aotlens.heads import motifs_of

    attending = [page.record(key).distillation.attending for key in shown.results]
    return [
        (name, motif.title, f"Score: {motif.sentence}")
        for name, motif in motifs_of("tokens").items()
        if any(each.why_not(name) is None for each in attending)
    ]


def units(width: int) -> str:
    """`16 hidden units`."""
    return "linear map" if width == 0 else f"{width} hidden unit{'' if width == 1 else 's'}"


def no_curve(shown: Shown) -> str:
    """Why there is no learning curve."""
    if shown.width:
        return f"The result {shown.of} has kept no learning curves."
    return "The linear map is solved for, not trained: choose a number of hidden units above to see how FFNs learnt."


def name(shown: Shown) -> str:
    """The chosen head."""
    return f"{shown.of} {shown.layer}.{shown.head}"


def data(page: Distillations, key: str, width: int) -> str:
    """What was distilled, on what, by what; and what came out on the whole."""
    record = page.record(key)
    found, settings = record.distillation, record.distillation.settings
    known = next((info for info in page.catalog.list() if info.name == record.checkpoint), None)
    model = {} if known is None or known.problem else known.model
    kind = str(model.get("attention", "")).upper() + (" and MLPs" if model.get("d_mlp") else "")
    about = f" ({kind}, {model['n_layers']} × {model['n_heads']} heads)" if kind else ""
    whole = f"{len(found.heads)} heads" if len(found.heads) > 1 else "1 head"
    mean = f"mean error {found.mean_error(width).mean():.3f}"
    if len(found.heads) > 1:
        _, low, high = found.over_heads(width)
        mean = f"{mean} (95% over heads: {max(low, 0):.3f} to {high:.3f})"
    seeds = settings.seed if settings.seeds == 1 else f"{settings.seed}–{settings.seed + settings.seeds - 1}"
    where = f" of {record.corpus}" if record.corpus else ""
    held_out = f" from {_count(len(found.held_out_documents), 'held-out document')}" if found.held_out_documents else ""
    command = f" Made by: {record.command}." if record.command else ""
    return (
        f"{about}: {whole}, {units(width)}: {mean}. Trained on at most {found.train_tokens:,} tokens{where}, "
        f"seeds {seeds}; errors on {found.held_out_tokens:,} tokens{held_out}.{command}"
    )


def cell(found: Distillation, place: int, interval: np.ndarray) -> str:
    """One head, for the hover text of the grid."""
    said = f"95%: {interval[0]:.3f} to {interval[1]:.3f}, over {found.text_unit} and {_count(found.n_seeds, 'seed')}"
    said += f" · attends: {found.attending.attends[place].replace('_', ' ')}"
    return said if found.linear_error is None else f"{said} · linear map {found.linear_error[place]:.3f}"


def head(page: Distillations, shown: Shown) -> str:
    """The chosen head in sentences."""
    record = page.record(shown.of)
    found = record.distillation
    place = found.place((shown.layer, shown.head))
    low, high = found.interval(shown.width)[place]
    error = found.mean_error(shown.width)[place]
    rank = found.order(shown.width).index((shown.layer, shown.head)) + 1
    label = found.attending.attends[place]
    attends = "attends to no one target" if label == "mixed" else f"attends most to: {label.replace('_', ' ')}"
    constancy = found.attending.constancy[place]
    same = "attends evenly" if constancy != constancy else f"has a pattern of constancy {constancy:.2f}"
    said = [
        f"With {units(shown.width)}: error {error:.3f} (95% over {found.text_unit} and seeds: {low:.3f} to "
        f"{high:.3f}), number {rank} of {len(found.heads)} in FFN-likeness.",
        f"The head {attends}; it {same} (1: the same on every text).",
        _others(found, place),
    ]
    if record.costs is not None:
        alone = [f"{cost:+.4f}".replace("-", "−") for cost in record.costs.alone[place]]
        said.append(
            f"Replaced alone, it costs {alone[0]} nats a token by its FFN ({units(record.costs.width)}), {alone[1]} by "
            f"its mean, {alone[2]} by zero."
        )
    return " ".join(said)


def _others(found: Distillation, place: int) -> str:
    parts = []
    if found.linear_error is not None:
        parts.append(f"linear map {found.linear_error[place]:.3f}")
    parts.append(f"mean at the position {found.position_error[place]:.3f}")
    if found.wide_error is not None:
        parts.append(f"FFN of {found.settings.wide} units {found.wide_error[place]:.3f}")
    if found.neighbour_error is not None:
        parts.append(f"nearest neighbours {found.neighbour_error[place]:.3f}")
    return f"Beside it: {', '.join(parts)}."


def on_text(shown: Shown, errors: TextErrors | None, width: int) -> str:
    """What the colours of the tokens mean, and the text's own error."""
    if errors is None:
        return "This result has kept no FFN, so there is only the head’s map: distil below to see where one fails."
    other = "" if width == shown.width else f" Only FFNs of {units(width)} were kept, so these are theirs."
    return (
        f"Error on this text: {errors.error:.3f}, with {units(width)}.{other} The number under a token is the FFN’s "
        "squared error there; 1 is what always writing the mean is off by on an average token. Blue: the FFN fails."
    )


def costs(page: Distillations, shown: Shown) -> list[str]:
    """How the curves were measured, and what is missing."""
    found = {key: page.record(key).costs for key in shown.results}
    missing = [key for key, one in found.items() if one is None]
    said = [
        f"{key}: on {one.n_tokens:,} held-out tokens; rank correlation of a head’s error with its cost alone "
        f"{one.rank_correlation:+.2f}."
        for key, one in found.items()
        if one is not None
    ]
    if missing:
        said.append(f"Not measured for {', '.join(missing)}.")
    return said


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
