"""The circuit that a command's options ask for, and the names of its rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.shared import MOST_NUMBER, check_heads, several

if TYPE_CHECKING:
    from aotlens.circuits import Circuit, Side
    from aotlens.data import Corpus
    from aotlens.models import AttentionOnlyTransformer

HeadName = Annotated[
    str, typer.Option("--head", metavar="L.H", callback=check_heads, help="Layer and head, from 0: 1.4.")
]
Kind = Annotated[str, typer.Option(metavar="qk|ov", help="qk: what the head looks for. ov: what it writes.")]
Left = Annotated[
    str,
    typer.Option(
        metavar="SIDE",
        help="Rows, the destinations of QK or the sources of OV: tokens, positions, bias, residual, an earlier "
        "head L.H (the tokens that it has moved), or positions:L.H (the positions).",
    ),
]
Right = Annotated[
    str | None,
    typer.Option(
        metavar="SIDE",
        help="Columns, the sources of QK: as --left. Of OV: logits, residual, or a later head L.H. Default: tokens "
        "or logits.",
    ),
]

Distance = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MOST_NUMBER,
        metavar="N",
        help="QK of a model with rotary positions or ALiBi: at this distance from source to destination. Default: with "
        "rotary positions the mean over all distances.",
    ),
]

AllDocuments = Annotated[
    bool,
    typer.Option("--all-documents", help="Read all documents; default: of its training text, only those held out."),
]


Documents = Annotated[
    list[str],
    typer.Option("--document", metavar="NAME", help="Read this document of the text only. Several times for more."),
]


def choose_circuit(
    model: AttentionOnlyTransformer, head: str, kind: str, left: str, right: str | None, distance: int | None
) -> Circuit:
    """Return the circuit of the options' words. Raises ValueError, in those words, for what does not exist."""
    from aotlens.circuits import ov_circuit, qk_circuit

    if kind not in ("qk", "ov"):
        raise ValueError(f"--kind {kind}: expected qk or ov.")
    for option, value in (("--left", left), ("--right", right)):
        if value == "prompt":
            raise ValueError(f"{option} prompt: needs a prompt's activations; use aotlens.circuits in a script.")
    if kind == "qk":
        return qk_circuit(model, head, _side(left), _side(right or "tokens"), distance=distance)
    if distance is not None:
        raise ValueError("--distance: an OV circuit is the same at every distance; leave it out, or take --kind qk.")
    return ov_circuit(model, head, _side(left), _side(right or "logits"))


def _side(value: str) -> str | tuple[str, str]:
    """`positions:0.3` as the library takes it; every other word as it is."""
    what, colon, head = value.partition(":")
    return (what, head) if colon else value


def names(circuit: Circuit, side: Side, ids: Iterable[Any]) -> list[str]:
    """Name rows or columns: tokens as quoted text (ids without a tokenizer), other things by number."""
    from aotlens.circuits.labelled import labels
    from aotlens.conventions import describe

    plain = labels(side, [int(i) for i in ids], circuit.tokenizer)
    is_text = side.index == "token" and circuit.tokenizer is not None
    return [describe(label) for label in plain] if is_text else list(plain)


def describe_circuit(circuit: Circuit) -> str:
    """Say in a line what a circuit is, and in another what its numbers leave out."""
    from aotlens.conventions import head_name

    rows, columns = ("destinations", "sources") if circuit.kind == "qk" else ("sources", "outputs")
    head = " + ".join(map(head_name, circuit.heads))
    height, width = circuit.shape
    unit = "units of the residual stream" if circuit.unit == "residual stream" else circuit.unit
    text = (
        f"{circuit.kind.upper()} circuit of head {head}, in {unit}: "
        f"{rows} ({circuit.left}, {height:,}) × {columns} ({circuit.right}, {width:,})."
    )
    return f"{text}\nRelative, since {_lower(circuit.relative)}" if circuit.relative else text


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def documents_to_read(
    model: AttentionOnlyTransformer, corpus: Corpus, spec: str, named: Sequence[str], everything: bool
) -> tuple[tuple[str, ...] | None, str]:
    """Return the documents (None: all), and which they are in words: of text that the model was trained on, those held
    out."""
    if named and everything:
        raise ValueError("--document and --all-documents: choose one of the two.")
    if named:
        return tuple(named), f"{', '.join(named)} in {spec}"
    held_out = () if everything else model.card.held_out(corpus.names())
    if not held_out:
        return None, spec
    which = f"{several(len(held_out), 'document')} in {spec} that {model.card.name} was not trained on"
    return held_out, f"the {which} (--all-documents reads all)"
