"""The Circuits page's tables: entries of a circuit, its singular pairs, composition, copying."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aotlens.conventions import describe
from aotlens.plots.circuits import full_labels, short_labels
from aotlens.views.circuits import ABOVE_ROW, ABOVE_ROW_NAMES
from app.shell.tables import Height, number_text, pick, value_table

if TYPE_CHECKING:
    from aotlens.circuits import CopyingScores, ExtremeEntries, HeadComposition, Lines, Spectrum

#: Tokens at each end of a singular vector.
_N_TOKENS = 8


def ends(result: ExtremeEntries, headings: tuple[str, str], *, but: str = "", height: Height) -> list[dict[str, Any]]:
    """List the largest and the smallest entries, in a table each, without the axis `but`, which has one row only."""
    n = result.n_largest
    places = (range(n), range(n, len(result.values)))
    return [
        _entries(result, each, but=but, heading=heading, height=height)
        for each, heading in zip(places, headings, strict=True)
    ]


def by_size(result: ExtremeEntries) -> list[dict[str, Any]]:
    """List all entries in one table, the largest in size first."""
    return [_entries(result, result.by_size().tolist(), height="rest")]


def _entries(result: ExtremeEntries, places: Sequence[int], *, but: str = "", **rest: Any) -> dict[str, Any]:
    columns, cells = [("", "", "rank")], [[str(rank) for rank in range(1, len(places) + 1)]]
    for axis, lines in (("row", result.rows), ("column", result.columns)):
        if axis != but:
            title = lines.role.split()[0] if lines.of == "token" else lines.of
            columns.append((title, f"{lines.role}; click to list this {axis}", "mono"))
            cells.append(_tokens(axis, lines, places))
    columns.append((result.unit, f"The entry, in {result.unit}", "number"))
    cells.append([number_text(result.values[place], ".2f") for place in places])
    if result.columns.n > 1:
        columns.append((ABOVE_ROW_NAMES[result.kind], ABOVE_ROW[result.kind], "number"))
        cells.append([number_text(result.above_row[place], "+.2f") for place in places])
    return value_table(columns, list(zip(*cells, strict=True)), **rest)


def _tokens(axis: str, lines: Lines, places: Sequence[int]) -> list[dict[str, Any]]:
    """Return cells that list the row or column of their token when they are clicked."""
    short, full = short_labels(lines), full_labels(lines)
    cells = []
    for place in places:
        number, label = int(lines.ids[place]), lines.labels[place]
        tip = f"{describe(label)} · id {number}" if lines.are_texts else label
        cells.append(pick(short[place], tip, {axis: {"value": number, "label": full[place]}, "beside": "lines"}))
    return cells


def singular(result: Spectrum) -> list[dict[str, Any]]:
    """List two rows per pair: what goes together at its + end, and at its − end."""
    assert result.rows is not None and result.columns is not None
    columns = [
        ("", "", "rank"), (f"strength σ ({result.unit})", "", "number"), ("share of Σσ²", "", "number"),
        ("", "", "text"), (result.rows.role, "", "tokens"), (result.columns.role, "", "tokens"),
    ]  # fmt: skip
    names = [
        dict(zip(lines.places.tolist(), short_labels(lines), strict=True)) for lines in (result.rows, result.columns)
    ]
    values, rows = result.singular_values, []
    size = float((values**2).sum()) or 1.0
    for pair in range(len(result.left.highest)):
        strength = (str(pair + 1), f"{values[pair]:,.4g}", f"{values[pair] ** 2 / size:.1%}")
        for sign, end in (("+", "highest"), ("−", "lowest")):
            tokens = [
                [of[int(place)] for place in getattr(side, end)[pair][:_N_TOKENS]]
                for side, of in zip((result.left, result.right), names, strict=True)
            ]
            rows.append((*(strength if sign == "+" else ("", "", "")), sign, *tokens))
    return [value_table(columns, rows, height="fill")]


def pairs(result: HeadComposition) -> list[dict[str, Any]]:
    """List the composition of the chosen head with the others, the highest score first."""
    rotated = "of the product's squared norm over random rotations of the same two heads"
    columns = [
        ("this head", "", "text"),
        ("head", "Click to go there", "mono"),
        ("by its", "The later head's queries, keys or values, which read the earlier head's output; click to see that "
                   "circuit through the earlier head", "text"),
        ("composition", "‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), 0 to 1", "number"),
        ("rank", "Of the earlier head among all heads that the later one can read, by composition", "number"),
        ("above null", "Whether the pair lies above its null: z of 3 or more", "text"),
        ("z", "Standard deviations of the product's squared norm from its mean, over flips of signs in the directions "
              "in which the embeddings vary: a candidate, since later layers read another stream (the Atlas has it on "
              "text). Skewed, and blind to size: the norm is next to it", "number"),
        ("z, randomly rotated", f"Standard deviations {rotated}, from their mean: large for any two heads of a stream "
                                "that few directions fill", "number"),
        ("norm", "‖W_first W_second‖: how much the later head reads", "number"),
        ("norm², randomly rotated", f"Mean ± standard deviation {rotated}", "number"),
    ]  # fmt: skip
    rows = []
    for i, row in enumerate(result.to_frame().to_dict("records")):
        earlier, later = tuple(result.earlier[i].tolist()), tuple(result.later[i].tolist())
        other = earlier if later == tuple(result.head) else later
        random = f"{row['random_mean']:.3g} ± {0.0 if math.isnan(row['random_std']) else row['random_std']:.2g}"
        rows.append(
            (
                row["relation"], pick(row["head"], "Go there", {"head": other}),
                pick(row["mode"], "The circuit through the earlier head",
                     _through(earlier, later, result.modes[i])),
                number_text(row["value"], ".3f"), str(row["rank"]), row["above_null"], number_text(row["z"], "+.1f"),
                number_text(row["z_rotated"], "+.1f"), number_text(row["norm"], ".3g"), random,
            )
        )  # fmt: skip
    return [value_table(columns, rows, height="rest")]


def _through(earlier: tuple[int, ...], later: tuple[int, ...], mode: str) -> dict[str, Any]:
    """The later head's circuit through the earlier one: QK for q and k composition, OV for v; if queries and keys are
    one matrix (qk), on the keys' side."""
    side = "right" if mode in ("k", "qk") else "left"
    sides = {"left": None, "right": None, side: f"{earlier[0]}.{earlier[1]}"}
    return {"head": later, "kind": "ov" if mode == "v" else "qk", **sides, "view": "map"}


def copying(result: CopyingScores, selected: tuple[int, int]) -> list[dict[str, Any]]:
    """List what every head copies."""
    columns = [
        ("head", "layer.head; click to go there", "mono"),
        ("copying score", "Σ Re λ / Σ |λ| of the OV circuit's eigenvalues: 1 pure copying, −1 pure suppression",
         "number"),
        ("own token first", "Share of tokens whose own logit is the largest of all that attending to them adds",
         "number"),
        ("in the first 5", "Share of tokens whose own logit is among the 5 largest", "number"),
    ]  # fmt: skip
    rows = [
        (
            pick(f"{head[0]}.{head[1]}", "Go there", {"head": head}, "here" if head == selected else ""),
            number_text(result.scores[i], "+.3f"), f"{result.top1[i]:.1%}", f"{result.top5[i]:.1%}",
        )
        for i, head in enumerate(result.heads)
    ]  # fmt: skip
    return [value_table(columns, rows, height="fill")]
