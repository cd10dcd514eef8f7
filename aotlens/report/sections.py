"""The sections of a report, in their order; a new one is a function here and a line of `SECTIONS`.

A section is a function of the subject, most of whose parts are views (`view_parts`) and tables. What a model cannot
show raises `ValueError` with a sentence, which then stands in the section's place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from aotlens.checkpoints.card import render_card
from aotlens.circuits import above_row_level, ov_circuit, qk_circuit
from aotlens.conventions import describe, head_name
from aotlens.distill import compare_distillations
from aotlens.distill.records import Record, distillations_folder, load_record
from aotlens.heads import Atlas, find_heads, label_words
from aotlens.models import require_ours
from aotlens.plots import training_curve
from aotlens.plots.atlas import column_title
from aotlens.report.maps import map_parts
from aotlens.report.parts import Figure, Markdown, Part, Table, Text, view_parts
from aotlens.report.subject import Subject
from aotlens.results import stored_path
from aotlens.trigrams import evidence, skip_trigrams
from aotlens.views.atlas import SCORES, AtlasParameters
from aotlens.views.distillation import COSTS, HEADS, DistillationParameters

# ── the atlas ───────────────────────────────────────────────────────────────────────────────────────────────────────

_AXES = ("previous_token", "induction_random", "induction", "current_token", "first_token")
_COLUMNS = (
    "label", "margin", "induction_random", "pattern_consistency", "entropy", "mean_distance", "copying", "reads",
    "loss_position_mean",
)  # fmt: skip


def atlas_parts(subject: Subject) -> list[Part]:
    """Return two scores as a figure, the table of all heads, and a sentence per head."""
    if subject.reads != "tokens":
        reads = {"patches": "images", "vectors": "vectors"}[subject.reads]
        raise ValueError(
            f"An atlas is measured on text, and this model reads {reads}: Where heads look shows what its heads attend "
            "to."
        )
    atlas = subject.atlas
    if atlas is None:
        raise ValueError(
            subject.why_no_atlas
            or f"No atlas of {subject.info.name} comes with aotlens. With --corpus SPEC (stdlib, file:PATH, dir:PATH), "
            "the report measures one."
        )
    frame, notes = atlas.to_frame(), [f"{what.capitalize()} are missing: {why}." for what, why in atlas.missing.items()]
    if subject.has_mlps:
        notes.append("This model has MLPs, too: what they add is in its losses, and in no other column.")
    parts: list[Part] = [Text(text=_about_atlas(subject, atlas)), *(Text(text=note, note=True) for note in notes)]
    axes = [name for name in _AXES if name in frame]
    if len(axes) > 1:
        values = AtlasParameters(checkpoint=subject.info.name, x=axes[0], y=axes[1])
        parts += view_parts(SCORES, values, find_heads(atlas))
    columns = [name for name in _COLUMNS if name in frame]
    rows = [
        (
            f"{row['layer']}.{row['head']}",
            *(label_words(row[name], row["resting"]) if name == "label" else _cell(row[name]) for name in columns),
        )
        for row in frame.to_dict("records")
    ]
    parts.append(Table(caption="All heads", columns=("head", *map(column_title, columns)), rows=rows))
    sentences = [(head_name(head), atlas.sentence(head)) for head in atlas.heads]
    return [*parts, Table(caption="In a sentence each", columns=("head", "what it does"), rows=sentences)]


def _about_atlas(subject: Subject, atlas: Atlas) -> str:
    record = subject.stored
    if record is None:
        return f"Measured for this report on {atlas.about}."
    held_out = f", of documents held out from its training ({', '.join(record.documents)})" if record.documents else ""
    return f"Measured on {atlas.about} of {record.corpus}{held_out}. Command: {record.command}."


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("_", " ")
    return "" if value != value else f"{value:.3f}"


# ── circuits ────────────────────────────────────────────────────────────────────────────────────────────────────────

N_ENTRIES = 8
#: The least share of the training text of tokens in circuits, and in skip-trigrams: training has hardly touched the
#: vectors of rarer ones, which crowd the top, and triples of rare ones hardly occur, so that no verdict is possible.
FREQUENT, FREQUENT_IN_TRIGRAMS = 1e-4, 1e-3


def circuit_parts(subject: Subject) -> list[Part]:
    """Show each head's tokens × tokens (what it looks for) and tokens × logits (what it writes), of frequent tokens."""
    _require_tokens(subject, "Circuits")
    counts, which = subject.counts, "all tokens"
    among = None if counts is None else torch.nonzero(counts >= FREQUENT * counts.sum()).flatten()
    if among is not None:
        which = f"the {len(among):,} tokens that make up at least {FREQUENT:.2%} of its text"
    tables: list[Part] = []
    reasons: dict[str, None] = {}
    for head in subject.heads:
        qk = {"looks for (QK)": qk_circuit(subject.model, head)} if subject.model.cfg.has_query_key else {}
        for name, circuit in (qk | {"writes (OV)": ov_circuit(subject.model, head)}).items():
            reasons |= dict.fromkeys(circuit.reasons)
            tables.append(_entries(f"Head {head_name(head)} {name}", circuit, among))
    notes = [f"Entries are relative to the model's own: {' '.join(reasons)}"] if reasons else []
    about = (
        f"The {N_ENTRIES} largest entries of each circuit over {which}. A QK entry is how much a destination scores a "
        "source, in nats, here also above its row's level, the log-mean-exp over all sources, since a softmax sees a "
        "row up to a constant; an OV entry is what attending to a source adds to an output's logit. "
    )
    return [Text(text=about + subject.why_heads), *(Text(text=note, note=True) for note in notes), *tables]


def _require_tokens(subject: Subject, what: str) -> None:
    """Raise `ValueError`, with a sentence for the report, for a model whose weights say nothing of tokens."""
    if subject.is_bridge:
        raise ValueError(f"{what} are read from the weights of aotlens's own models; this one is of TransformerLens.")
    cfg = subject.model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        reads = "images" if cfg.read_in == "patches" else cfg.read_in
        raise ValueError(f"{what} are of tokens, and this model reads {reads} and writes {cfg.read_out}.")
    require_ours(subject.model, what)


def _entries(caption: str, circuit: Any, among: Any) -> Table:
    best = (circuit if among is None else circuit[among, among]).top(N_ENTRIES)
    columns = [
        _tokens(best.row_labels, best.rows.tolist()), _tokens(best.column_labels, best.columns.tolist()),
        _numbers(best.values),
    ]  # fmt: skip
    titles = ["source", "output", "logits"]
    if circuit.kind == "qk":
        titles = ["destination", "source", "nats", "above its row's level"]
        columns.append(_numbers(above_row_level(circuit, torch.from_numpy(best.rows), torch.from_numpy(best.values))))
    return Table(caption=caption, columns=titles, rows=list(zip(*columns, strict=True)))


def _tokens(strings: Sequence[str], ids: Sequence[int]) -> list[str]:
    return [describe(text) if text else f"#{number}" for text, number in zip(strings, ids, strict=True)]


def _numbers(values: Any, form: str = "{:+.3f}") -> list[str]:
    return ["–" if value != value else form.format(value) for value in values.tolist()]


# ── skip-trigrams ───────────────────────────────────────────────────────────────────────────────────────────────────

N_ROWS = 10
_RULE = (
    "A row is confirmed where, within stretches of text, the out follows more often than after the destination anyway, "
    "at a false discovery rate of 5% among the rows of a head."
)


def trigram_parts(subject: Subject) -> list[Part]:
    """List each head's `source … destination → out` by effect, with verdicts of the corpus or the atlas's windows."""
    _require_tokens(subject, "Skip-trigrams")
    counts = subject.counts
    if counts is None:
        raise ValueError(
            "Skip-trigrams are weighed against the tokens of the training text, and this checkpoint has no counts of "
            "them."
        )
    check, about = _check(subject)
    tables: list[Part] = []
    relative: dict[str, None] = {}
    for head in subject.heads:
        table = skip_trigrams(subject.model, head, k=N_ROWS, min_count=FREQUENT_IN_TRIGRAMS * float(counts.sum()))
        relative |= dict.fromkeys(re.findall(r"[^.]+\.", table.relative))
        tables.append(_rows(f"Head {head_name(head)}", table, None if check is None else check(table)))
    reasons = "".join(relative).strip()
    notes = [f"Weights alone are relative to the model's own numbers: {reasons}"] if reasons else []
    text = (
        f"The {N_ROWS} best of each head by effect, attention × OV in logits, from its weights, over the tokens that "
        f"make up at least {FREQUENT_IN_TRIGRAMS:.2%} of the training text. {about} {subject.why_heads}"
    )
    return [Text(text=text), *(Text(text=note, note=True) for note in notes), *tables]


def _check(subject: Subject) -> tuple[Callable[[Any], Any] | None, str]:
    """Return what checks a table against text, None if nothing does, and a sentence about it."""
    if subject.model.sees_later_keys:
        return None, "There are no verdicts: this model sees later tokens, and a verdict is about the next one."
    if subject.corpus is not None:
        documents = subject.held_out()
        options: dict[str, Any] = {"max_tokens": subject.n_tokens, "documents": documents}
        which = "" if documents is None else " that were held out from its training"
        about = f"{_RULE} Read: up to {subject.n_tokens:,} tokens of documents of the corpus{which}."
        corpus = subject.corpus
        return lambda table: evidence(subject.model, table, corpus, run_model=False, **options), about
    if subject.atlas is None:
        return None, "There are no verdicts: --corpus SPEC names text to check the rows against."
    text = subject.atlas.examples.tokens.ravel()
    about = f"{_RULE} Read: {subject.atlas.about}, each a stretch of its own."
    return lambda table: evidence(subject.model, table, text, run_model=False), about


def _rows(caption: str, table: Any, check: Any) -> Table:
    roles = {"source": "source …", "destination": "destination", "out": "→ out"}
    titles = [*roles.values(), "QK, nats", "attention", "OV, logits", "effect, logits"]
    columns = [_tokens(getattr(table, f"{role}_token"), getattr(table, role).tolist()) for role in roles]
    columns += [_numbers(table.qk), _numbers(table.attention, "{:.3f}"), _numbers(table.ov), _numbers(table.effect)]
    if check is not None:
        lift = _numbers(check.association.lift_within, "{:.2f}")
        columns += [[f"{n:,}" for n in check.counts.pair.tolist()], lift, list(check.verdict)]
        titles += ["occurs", "lift within documents", "verdict"]
    return Table(caption=caption, columns=titles, rows=list(zip(*columns, strict=True)))


# ── distillation ────────────────────────────────────────────────────────────────────────────────────────────────────


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
    distillation, corpus = record.distillation, f" on {record.corpus}" if record.corpus else ""
    about = (
        f"Every head was distilled{corpus} into feed-forward networks of its input, {distillation.train_tokens:,} "
        "training tokens each. An error of 0 is a head that the network is, 1 is its mean output."
        f"{record.command and f' Command: {record.command}.'}"
    )
    widths = [width for width in distillation.hidden if width] or list(distillation.hidden)
    compared = compare_distillations({subject.info.name: record}, widths[len(widths) // 2])
    values = DistillationParameters(results=(subject.info.name,), width=compared.width, head=compared.head)
    errors = [distillation.mean_error(width) for width in distillation.hidden]
    rows = [
        (head_name(head), *(f"{error[place]:.3f}" for error in errors)) for place, head in enumerate(distillation.heads)
    ]
    columns = ("head", *(f"{width} hidden units" if width else "linear" for width in distillation.hidden))
    table = Table(caption="Errors by width", columns=columns, rows=rows)
    costs = [] if record.costs is None else view_parts(COSTS, values, compared)
    return [Text(text=about), *view_parts(HEADS, values, compared), table, *costs]


def _record(subject: Subject) -> Record | None:
    """Return the distillation of these weights, first of those made here; skip files that are damaged."""
    own = sorted(distillations_folder().glob("*.safetensors")) if distillations_folder().is_dir() else []
    for path in (*own, stored_path("distillation", subject.info.name)):
        try:
            record = load_record(path)
        except ValueError:
            continue
        if record.belongs_to(subject.info):
            return record
    return None


# ── losses and the card ─────────────────────────────────────────────────────────────────────────────────────────────


def loss_parts(subject: Subject) -> list[Part]:
    """Return the card's figures as a table, and the training curve if one was logged."""
    info, damage = subject.info, ""
    history: list[dict[str, Any]] = []
    figures = {name: value for name, value in info.metrics.items() if isinstance(value, int | float)}
    try:
        history = info.history()
    except ValueError as error:
        damage = f"The training log cannot be read: {error}"
    if not (figures or history):
        raise ValueError(damage or "No losses are known: this checkpoint's files have no figures and no training log.")
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
        draw = partial(training_curve, history, references=references)
        parts.append(Figure(caption="Training", make=lambda theme: draw(theme=theme)))
    return parts


def card_parts(subject: Subject) -> list[Part]:
    """Return the text of card.md, or, of a model without one, what is known of it in the same form."""
    info = subject.info
    if not (info.card or info.model or info.description):
        raise ValueError("This model has no card: another program wrote it, and says nothing of its training.")
    return [Markdown(text=info.card or render_card(info))]


#: Title and content of each section, by the name that --sections takes.
SECTIONS: Final[dict[str, tuple[str, Callable[[Subject], list[Part]]]]] = {
    "maps": ("Where heads look", map_parts),
    "atlas": ("What every head does", atlas_parts),
    "circuits": ("What heads look for and write", circuit_parts),
    "trigrams": ("Skip-trigrams", trigram_parts),
    "distillation": ("Heads as feed-forward networks", distillation_parts),
    "losses": ("Losses", loss_parts),
    "card": ("Card", card_parts),
}
