"""What the Circuits page says: each kind of circuit in words, and what its rows, columns and entries are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.labels import Labels
from app.pages.circuits.address import Kind
from app.pages.circuits.service import Choice, Ends, Shown
from app.pages.circuits.service_sides import unit_of
from app.pages.circuits.service_structure import MAX_EDGES, Around

if TYPE_CHECKING:
    from aotlens.circuits import Spectrum


@dataclass(frozen=True)
class LineWords:
    """For a row, or a column, of one kind of circuit."""

    role: str
    title: str
    """With {it} for its token."""
    largest: str
    smallest: str


@dataclass(frozen=True, kw_only=True)
class Words:
    """For one kind of circuit."""

    row: LineWords
    column: LineWords
    column_caption: str
    entry: str
    relative: str
    """Header of the entries relative to their row."""
    relative_help: str


WORDS: dict[Kind, Words] = {
    "qk": Words(
        row=LineWords("destination", "What {it} looks for", "attends to most", "avoids most"),
        column=LineWords("source", "Who looks for {it}", "attend to it most", "avoid it most"),
        column_caption=(
            "Scores of different destinations can't be compared as they are: each destination's softmax ignores what "
            "all its sources have in common. “Above its row” can."
        ),
        entry=(
            "An entry is what this pair adds to the attention score, in nats, before the softmax: one nat more is "
            "e ≈ 2.7 times the attention, compared with other sources of the same destination."
        ),
        relative="above its row",
        relative_help=(
            "Nats above the row's log-mean-exp. A softmax ignores what all sources of a destination have in common, "
            "so this, and not the score itself, compares different destinations: by these scores alone the source "
            "gets e^x times the attention of an average token."
        ),
    ),
    "ov": Words(
        row=LineWords("source", "What attending to {it} promotes and suppresses", "promotes", "suppresses"),
        column=LineWords("output", "Which sources promote and suppress {it}", "promote it", "suppress it"),
        column_caption="Above its row: what attending to the source does for this output rather than for all outputs.",
        entry=(
            "An entry is what attending to the source, with weight 1, adds to the output's logit; one logit more is "
            "e ≈ 2.7 times the odds."
        ),
        relative="above its row",
        relative_help=(
            "Logits above the row's mean. The final softmax ignores what all outputs have in common, so this is what "
            "attending to the source does for this output rather than for all."
        ),
    ),
}


def role(labels: Labels, role: str) -> str:
    """`destination token`, `source position`, `output token, through head 1.2`."""
    if labels.of == "direction":
        return f"residual direction ({role})"
    noun = f"{role} {labels.of}"
    return f"{noun}, through {labels.through}" if labels.through else noun


def short_role(labels: Labels, role: str) -> str:
    """For a narrow header: `destination`, or `position`, where the role alone doesn't say it."""
    return role if labels.of == "token" else labels.of


def row_role(shown: Shown) -> str:
    """What a row is."""
    return role(shown.rows, WORDS[shown.choice.kind].row.role)


def column_role(shown: Shown) -> str:
    """What a column is."""
    return role(shown.columns, WORDS[shown.choice.kind].column.role)


def meaning(shown: Shown) -> str:
    """The circuit on the page, in three sentences."""
    circuit, choice = shown.circuit, shown.choice
    what = "looks for (QK)" if choice.kind == "qk" else "writes when it attends (OV)"
    entry = WORDS[choice.kind].entry
    if circuit.unit == "residual stream":
        entry = "An entry is what attending to the source, with weight 1, adds to a direction of the residual stream."
    if shown.causal and choice.kind == "qk" and shown.rows.of == shown.columns.of == "position":
        entry += " The model only looks back: entries above the diagonal, with the source after, are never used."
    if not (circuit.A.any() and circuit.B.any()):
        entry += (
            " Every entry is 0 here: this model has no such bias."
            if "bias" in choice.left + choice.right
            else (" Every entry is 0 here.")
        )
    reads = (shown.rows, shown.columns) if choice.kind == "qk" else (shown.rows,)
    for earlier in dict.fromkeys(side.through for side in reads if side.through):
        entry += f" Through {earlier}: as head {earlier} writes it when it attends to that token."
    if choice.kind == "ov" and shown.columns.through:
        entry += f" Through {shown.columns.through}: after head {shown.columns.through} has attended to the result."
    biases = " Biases are in every entry." if choice.biases else ""
    if choice.distance is not None:
        biases += f" The source stands {choice.distance} positions before the destination."
    return (
        f"What head {choice.layer}.{choice.head} {what}: row = {row_role(shown)} ({shown.rows.n:,}), column = "
        f"{column_role(shown)} ({shown.columns.n:,}). {entry}{biases}"
    )


def exact(shown: Shown) -> str:
    """What an exact circuit is."""
    whole = "attention score" if shown.choice.kind == "qk" else "logit"
    if shown.circuit.unit == "residual stream":
        return "Exact: every entry is a term of what the head writes, on any input."
    return f"Exact: every entry is a term of the model's own {whole}, on any input."


def quantity(shown: Shown) -> str:
    """The unit of an entry."""
    return unit_of(shown.circuit)


def row_caption(shown: Shown, ends: Ends) -> str:
    """A row's statistics."""
    if ends.row_statistics is None or shown.columns.n < 2:
        return ""
    found, unit = ends.row_statistics, quantity(shown)
    numbers = [f"mean {figures(float(found.mean[0]), 2)}", f"standard deviation {figures(float(found.std[0]), 2)}"]
    if shown.choice.kind == "qk":
        numbers.append(f"log-mean-exp {figures(float(found.log_mean_exp[0]), 2)}")
    return f"Over all {shown.columns.n:,} {shown.columns.plural}: {', '.join(numbers)} {unit}."


def titled(role: str) -> str:
    """For a label."""
    return role[:1].upper() + role[1:]


def figures(value: float, digits: int) -> str:
    """A number as everywhere on the page, with a minus that is one."""
    return f"{value:.{digits}f}".replace("-", "−")


def named(choice: Choice) -> str:
    """For a title."""
    return f"{choice.kind.upper()} of head {choice.layer}.{choice.head}"


ONE_LAYER = "This model has one layer: no head reads what another one writes."


def no_eigenvalues(shown: Shown) -> str:
    """Why there are none."""
    return (
        f"Rows are a {row_role(shown)}, columns a {column_role(shown)}: only where both are the same things does "
        "something come out that went in, and only there are there eigenvalues. Singular pairs are always there."
    )


def eigenvalues(shown: Shown, found: Spectrum) -> str:
    """The copying score, and what it says."""
    assert found.eigenvalues is not None
    number = f"{len(found.eigenvalues)} eigenvalues; the other {shown.rows.n - len(found.eigenvalues):,} are 0. "
    if found.copying_score is None:
        return number + found.why
    score = f"Σ Re λ / Σ |λ| = {figures(found.copying_score, 3)}"
    name = "Copying score" if shown.choice.kind == "ov" else "Balance of signs"
    if found.by_construction:
        return f"{number}{name} {score}. This is 1 by construction and says nothing about what was learned: {found.why}"
    return f"{number}{name} {score} (1: all positive, 0: they cancel, −1: all negative)."


def singular(shown: Shown, found: Spectrum) -> str:
    """How many, and how strong."""
    n, listed = len(found.singular_values), len(found.left.highest)
    share = float((found.singular_values[:listed] ** 2).sum() / max((found.singular_values**2).sum(), 1e-300))
    return f"The first {listed} of {n} pairs; together {share:.0%} of the circuit's squared size."


def composed(around: Around, z: float) -> str:
    """How many pairs lie above their null, and what the null is."""
    from aotlens.circuits.composition import EDGE_Z

    n = sum(edge.z >= z for edge in around.above_null)
    found = next(iter(around.compositions.values()))
    same = " Queries and keys are one matrix here (MSSA), so q and k composition are one number." if around.mssa else ""
    cut = f" The strongest {MAX_EDGES} are drawn." if n > MAX_EDGES else ""
    level = f" and at least z = {z:g}" if z > EDGE_Z else ""
    return (
        f"{n} of {len(around.edges)} pairs lie above their null{level}: z ≥ {EDGE_Z:g} where the directions in which "
        f"the stream varies are kept, and which of them the two heads share is drawn. Turned freely, every pair has a "
        f"root mean square of {found.random_rms:.3f}.{cut}{same}"
    )
