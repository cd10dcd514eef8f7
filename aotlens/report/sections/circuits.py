"""The largest entries of the heads' QK and OV circuits."""

from __future__ import annotations

from typing import Any

import torch

from aotlens.circuits import Circuit, above_row_level, ov_circuit, qk_circuit
from aotlens.circuits.labelled import CircuitTable
from aotlens.conventions import describe
from aotlens.models import require_ours
from aotlens.report.parts import Part, Table, Text
from aotlens.report.subject import Subject

N_ENTRIES = 8
#: Rows and columns are tokens that make up at least this share of the training text: rarer ones, whose vectors training
#: has hardly touched, crowd the top.
FREQUENT = 1e-4


def circuit_parts(subject: Subject) -> list[Part]:
    """Show each head's tokens × tokens (what it looks for) and tokens × logits (what it writes), of frequent tokens."""
    require_readable(subject, "Circuits")
    counts = subject.counts
    among = None if counts is None else torch.nonzero(counts >= FREQUENT * counts.sum()).flatten()
    which = (
        "all tokens" if among is None else f"the {len(among):,} tokens that make up at least {FREQUENT:.2%} of its text"
    )
    parts: list[Part] = [
        Text(
            text=f"The {N_ENTRIES} largest entries of each circuit over {which}. A QK entry is how much a destination "
            "scores a source, in nats, here also above its row's level, the log-mean-exp over all sources, since a "
            "softmax sees a row up to a constant; an OV entry is what attending to a source adds to an output's logit. "
            + subject.why_heads
        )
    ]
    reasons: dict[str, None] = {}
    for layer, head in subject.heads:
        for name, circuit in _circuits(subject.model, (layer, head)).items():
            reasons |= dict.fromkeys(circuit.reasons)
            parts.append(_table(f"Head {layer}.{head} {name}", circuit, among))
    if reasons:
        parts.insert(1, Text(text=f"Entries are relative to the model's own: {' '.join(reasons)}", note=True))
    return parts


def require_readable(subject: Subject, what: str) -> None:
    """Raise `ValueError`, with a sentence for the report, for a model whose weights say nothing of tokens."""
    if subject.is_bridge:
        raise ValueError(f"{what} are read from the weights of aotlens's own models; this one is of TransformerLens.")
    cfg = subject.model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        ends = {"patches": "images", "vectors": "vectors", "tokens": "tokens", "classes": "classes"}
        raise ValueError(
            f"{what} are of tokens, and this model reads {ends.get(cfg.read_in, cfg.read_in)} and writes "
            f"{ends.get(cfg.read_out, cfg.read_out)}."
        )
    require_ours(subject.model, what)


def _circuits(model: Any, head: tuple[int, int]) -> dict[str, Circuit]:
    both = {} if not model.cfg.has_query_key else {"looks for (QK)": qk_circuit(model, head)}
    return {**both, "writes (OV)": ov_circuit(model, head)}


def _table(caption: str, circuit: Circuit, among: Any) -> Table:
    part = circuit if among is None else circuit[among, among]
    best: CircuitTable = part.top(N_ENTRIES)
    names = [(_token(row, i), _token(column, j)) for row, column, i, j in zip(
        best.row_labels, best.column_labels, best.rows.tolist(), best.columns.tolist(), strict=True)]  # fmt: skip
    values = [f"{value:+.3f}" for value in best.values]
    if circuit.kind == "ov":
        columns: tuple[str, ...] = ("source", "output", "logits")
        return Table(caption=caption, columns=columns, rows=[(*pair, v) for pair, v in zip(names, values, strict=True)])
    above = above_row_level(circuit, torch.from_numpy(best.rows), torch.from_numpy(best.values))
    columns = ("destination", "source", "nats", "above its row's level")
    rows = [(*pair, v, f"{float(a):+.3f}") for pair, v, a in zip(names, values, above, strict=True)]
    return Table(caption=caption, columns=columns, rows=rows)


def _token(label: str, number: int) -> str:
    return describe(label) if label else f"#{number}"
