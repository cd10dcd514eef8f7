"""``aotlens trigrams``: a head's skip-trigrams, and whether they are true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.choosing import HeadName, layer_and_head
from aotlens.commands.shared import Checkpoint, Csv, Device, Folders, Force, check_csv, print_text, table, write_csv

if TYPE_CHECKING:
    import pandas as pd

Filter = Annotated[
    list[str], typer.Option(metavar="TEXT", help="Only this token (' the'), or its id (#262). Several times for more.")
]


def trigrams_command(
    checkpoint: Checkpoint,
    head: HeadName,
    k: Annotated[int, typer.Option("--k", min=1, metavar="N", help="How many rows.")] = 20,
    score: Annotated[
        str,
        typer.Option(
            metavar="effect|sum|product",
            help="Rank by attention × ov; by z + ov; or by z × ov where z > 0.",
        ),
    ] = "effect",
    lowest: Annotated[bool, typer.Option("--lowest", help="The lowest scores: what the head suppresses.")] = False,
    distance: Annotated[
        str | None,
        typer.Option(metavar="N|mean", help="With positions: the source N tokens back, or the mean over distances."),
    ] = None,
    source: Filter = [],  # noqa: B006 (Typer copies it)
    destination: Filter = [],  # noqa: B006
    out: Filter = [],  # noqa: B006
    evidence: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="Hold the rows against text: stdlib, file:PATH, dir:PATH or hf:NAME."),
    ] = None,
    document: Annotated[
        list[str], typer.Option(metavar="NAME", help="Read this document of the text only. Several times for more.")
    ] = [],  # noqa: B006
    max_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="How much of the text to read.")] = 1_000_000,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """List a head's skip-trigrams (source ... destination -> out), the best of all, from its weights.

    qk is the destination's score for the source above what it scores average text, in nats; attention the source's
    share against half a context of such text; ov what attending to the source adds to the out's logit, above the
    mean over outs; effect = attention × ov.

    With --evidence, every row is held against text: how often the source comes before the destination, how much
    likelier the out is then (lift), what the head does there, and a verdict. Confirmed: the out is likelier than
    after the destination anyway, at a false discovery rate of 5%, windows taken as independent.
    """
    from aotlens.checkpoints import load
    from aotlens.data import open_corpus
    from aotlens.trigrams import evidence as find_evidence
    from aotlens.trigrams import skip_trigrams

    check_csv(csv, force)
    corpus = None if evidence is None else open_corpus(evidence)
    model = load(checkpoint, device, folders=folders)
    layer, number = layer_and_head(head)
    chosen = [[_token(text) for text in texts] or None for texts in (source, destination, out)]
    found = skip_trigrams(
        model,
        layer,
        number,
        k=k,
        score=score,
        largest=not lowest,
        sources=chosen[0],
        destinations=chosen[1],
        outs=chosen[2],
        distance=int(distance) if distance is not None and distance.isdecimal() else distance,
    )
    if corpus is None:
        frame, summary = found.to_frame(), ""
    else:
        held = find_evidence(model, found, corpus, max_tokens=max_tokens, documents=document or None)
        frame = held.to_frame()
        verdicts = ", ".join(f"{number} {word}" for word, number in held.summary().items())
        summary = f"{held.n_tokens:,} tokens of {evidence}: {verdicts}."
    if csv is not None:
        write_csv(frame, csv)
    else:
        print_text(f"Head {layer}.{number}" + (f". Relative, since {found.relative}" if found.relative else "") + "\n")
        print_text(_as_text(frame))
    if summary:
        print_text(summary if csv is not None else f"\n{summary}")


def _token(text: str) -> int | str:
    return int(text[1:]) if text[:1] == "#" and text[1:].isdecimal() else text


def _as_text(frame: pd.DataFrame) -> str:
    """Tokens quoted, numbers rounded; with evidence, the columns that say whether a row is true."""
    from aotlens.plots.labels import describe

    columns = ["qk", "attention", "ov", "effect"]
    if "verdict" in frame:
        columns = ["effect", "occurrences", "followed", "lift", "lift_low", "lift_high", "measured_attention"]
        columns += ["measured_effect", "ablation_change", "verdict"]
    lines: list[tuple[str, ...]] = [("source", "destination", "out", *columns)]
    for _, row in frame.iterrows():
        tokens = (describe(row[name]) or f"#{row[f'{name}_id']}" for name in ("source", "destination", "out"))
        lines.append((*tokens, *(_cell(row[name]) for name in columns)))
    return table(lines)


def _cell(value: Any) -> str:
    if isinstance(value, str | int):
        return str(value)
    return "-" if value != value else f"{value:.3g}"
