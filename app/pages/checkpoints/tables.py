"""The Checkpoints page's tables: what there is, and a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.shell.tables import mark, number_text, pick, value_table

#: Title, help, field and form of each number.
_NUMBERS = (
    (
        "Validation loss", "Nats per held-out token; †: per hidden token, per image, or regression's error",
        "loss", ".3f",
    ),
    (
        "Baseline loss",
        "On the same data: a smoothed bigram model; †: a unigram model, the classes' shares, or least squares",
        "baseline", ".3f",
    ),
    ("Layers", "", "layers", "d"),
    ("Heads", "Heads per layer", "heads", "d"),
    ("d_model", "Width of the residual stream", "d_model", "d"),
    ("Parameters", "Numbers in the weights' file", "parameters", ",d"),
    ("Tokens seen", "Training tokens", "tokens", ",d"),
)  # fmt: skip
_ATTENTION = "mhsa: separate query, key and value matrices; mssa: one matrix per head for all three"


def checkpoints_table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return every checkpoint; a click on a row chooses it."""
    columns = [("Name", "", "name"), ("Attention", _ATTENTION, "name")]
    columns += [(title, help, "number") for title, help, _, _ in _NUMBERS]
    return value_table([*columns, ("State", "", "name")], list(map(_line, rows)), marks=("checkpoint", None))


def _line(row: dict[str, Any]) -> list[Any]:
    name, problem, broken = row["name"], row["problem"] or "", "broken" if row["status"] == "broken" else ""
    numbers = [_number(row, field, form) for _, _, field, form in _NUMBERS]
    choice = pick(name, problem, {"checkpoint": name}, broken)
    return [choice, row["kind"] or "", *numbers, mark(row["status"], problem, broken)]


def _number(row: dict[str, Any], field: str, form: str) -> Any:
    text = number_text(row[field], form)
    if not row["loss_note"] or field not in ("loss", "baseline"):
        return text
    return mark(f"{text} †", row["loss_note"])  # of a masked model or of images: no next-token loss


def parameters_table(rows: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return how many weights a checkpoint has, and its tensors; counts of training tokens are no weights."""
    if not rows:
        return "Nothing could be read.", []
    total = sum(row["numbers"] for row in rows if row["name"] != "unigram_counts")
    columns = [("Tensor", "", "name"), ("Shape", "", "name"), ("Stored as", "", "name"), ("Numbers", "", "number")]
    cells = [[row["name"], row["shape"], row["dtype"], f"{row['numbers']:,}"] for row in rows]
    return f"{total:,} weights in {len(rows)} tensors.", [value_table(columns, cells)]
