"""``aotlens circuits`` and ``aotlens spectrum``: what a head looks for and writes, from its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.choosing import Distance, HeadName, Kind, Left, Right, choose_circuit, describe_circuit, names
from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    check_csv,
    load_ours,
    print_text,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.circuits import Circuit

_N_PAIRS = 5


def circuits_command(
    checkpoint: Checkpoint,
    head: HeadName,
    kind: Kind = "qk",
    left: Left = "tokens",
    right: Right = None,
    distance: Distance = None,
    top: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many entries.")] = 20,
    token: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Entries of this token only (' the'), in its row and in its column."),
    ] = None,
    token_id: Annotated[
        int | None, typer.Option(max=MOST_NUMBER, metavar="ID", help="The same, by the token's id.")
    ] = None,
    smallest: Annotated[bool, typer.Option("--smallest", help="The lowest entries, not the highest.")] = False,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """List the largest entries of a head's QK or OV circuit, exactly, over its whole vocabulary.

    A QK entry is the score of a destination for a source in nats, an OV entry what attending to a source adds to
    an output's logit. QK scores of one destination can be compared with each other only, so they are also given
    above their row's level, the log-mean-exp over all sources.
    """

    check_csv(csv, force)
    if token is not None and token_id is not None:
        raise ValueError("--token and --token-id: expected one of them, got both.")
    model = load_ours("circuits", checkpoint, device, folders)
    circuit = choose_circuit(model, head, kind, left, right, distance)
    if token is not None:
        token_id = model.to_single_token(token)
    if token_id is None:
        tables = [("", _entries(circuit, circuit, top, not smallest))]
    else:
        tables = _of_token(circuit, token_id, top, not smallest)
    if csv is not None:
        import pandas as pd

        write_csv(pd.concat([frame.assign(list=title) for title, frame in tables], ignore_index=True), csv)
        return
    print_text(describe_circuit(circuit))
    for title, frame in tables:
        print_text(f"\n{title}" if title else "")
        print_text(_as_text(circuit, frame))


def spectrum_command(
    checkpoint: Checkpoint,
    head: HeadName,
    kind: Kind = "ov",
    left: Left = "tokens",
    right: Right = None,
    distance: Distance = None,
    top: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many tokens at each end of a vector.")
    ] = 5,
    rate: Annotated[
        bool, typer.Option("--rate", help="Also the share of tokens whose own logit the head raises most.")
    ] = False,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Show what a circuit does most (its singular pairs), and how much it copies (its eigenvalues).

    The copying score is the sum of the eigenvalues over the sum of their sizes, from -1 to 1. A singular pair reads
    along its left vector and writes along its right one: + on the left pushes + on the right up and - down.
    """
    from aotlens.circuits import copying_rate, spectrum

    check_csv(csv, force)
    model = load_ours("spectrum", checkpoint, device, folders)
    circuit = choose_circuit(model, head, kind, left, right, distance)
    if rate and (circuit.kind, circuit.left.name, circuit.right.name) != ("ov", "tokens", "logits"):
        raise ValueError("--rate: expected the OV circuit from tokens to logits; leave --kind, --left and --right.")
    copied = copying_rate(model, circuit.heads) if rate else None
    result = spectrum(circuit, top, n_vectors=_N_PAIRS)
    if csv is not None:
        frame, sides = result.to_frame(), {"left": circuit.left, "right": circuit.right}
        frame["label"] = [names(circuit, sides[row.side], [row.id])[0] for row in frame.itertuples()]
        write_csv(frame, csv)
        return
    print_text(describe_circuit(circuit))
    if result.copying_score is None:
        print_text(f"No copying score: {result.why}")
    else:
        note = f", by construction: {result.why}" if result.by_construction else "."
        print_text(f"Copying score {result.copying_score:.3f}{note}")
    if copied is not None:
        print_text(
            f"Own logit the largest for {copied.top1:.1%} of {copied.n_tokens:,} tokens, among the five largest for "
            f"{copied.top5:.1%}."
        )
    print_text("")
    lines = [("pair", "size", "", *(str(side) for side, _ in _sides(circuit)))]
    for i in range(result.left.highest.shape[0]):
        size = f"{result.singular_values[i]:.3g}"
        ends = (
            ("+", result.left.highest, result.right.highest),
            ("-", result.left.lowest, result.right.lowest),
        )
        for sign, *ids in ends:
            read, written = (
                " ".join(names(circuit, side, chosen[i]))
                for (side, _), chosen in zip(_sides(circuit), ids, strict=True)
            )
            lines.append((str(i) if sign == "+" else "", size if sign == "+" else "", sign, read, written))
    print_text(table(lines))


def _sides(circuit: Circuit) -> list:
    return [(circuit.left, circuit.shape[0]), (circuit.right, circuit.shape[1])]


def _of_token(circuit: Circuit, token: int, top: int, largest: bool) -> list[tuple[str, pd.DataFrame]]:
    """The token's row and its column, as far as the sides are tokens."""
    (left, n_rows), (right, n_columns) = _sides(circuit)
    if "token" not in (left.index, right.index):
        raise ValueError(f"--token: expected a side of tokens, got {left} × {right}.")
    n_tokens = n_rows if left.index == "token" else n_columns
    if not 0 <= token < n_tokens:
        raise ValueError(f"--token-id {token}: expected an id from 0 to {n_tokens - 1}.")
    (name,) = names(circuit, left if left.index == "token" else right, [token])
    if circuit.kind == "qk":
        end = "Highest" if largest else "Lowest"
        titles = (f"{end} attention scores of destination {name}", f"{end} attention scores of source {name}")
    else:
        promotes = "promotes" if largest else "suppresses"
        titles = (f"Outputs that source {name} {promotes}", f"Sources that {promotes[:-1]} {name}")
    tables = []
    if left.index == "token":
        tables.append((titles[0], _entries(circuit, circuit[token : token + 1], top, largest)))
    if right.index == "token":
        tables.append((titles[1], _entries(circuit, circuit[:, token : token + 1], top, largest)))
    return tables


def _entries(circuit: Circuit, part: Circuit, top: int, largest: bool) -> pd.DataFrame:
    """The best entries of a part of the circuit: all of it, a row or a column."""
    import pandas as pd
    import torch

    from aotlens.circuits import above_row_level

    best = part.top(top, largest=largest)
    row_name, column_name = ("destination", "source") if circuit.kind == "qk" else ("source", "output")
    frame = {
        row_name: names(circuit, circuit.left, best.rows),
        f"{row_name}_id": best.rows,
        column_name: names(circuit, circuit.right, best.columns),
        f"{column_name}_id": best.columns,
        circuit.unit.replace(" ", "_"): best.values,
    }
    if circuit.kind == "qk":
        rows, values = torch.from_numpy(best.rows), torch.from_numpy(best.values)
        frame["above_row_level"] = above_row_level(circuit, rows, values).numpy()
    return pd.DataFrame(frame)


def _as_text(circuit: Circuit, frame: pd.DataFrame) -> str:
    head = tuple("id" if name.endswith("_id") else name.replace("_", " ") for name in frame.columns)
    rows = [
        tuple(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row)
        for row in frame.itertuples(index=False)
    ]
    return table([head, *rows])
