"""``aotlens circuits``, ``spectrum``, ``composition``, ``subspaces``: what weights say of heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from aotlens.commands import options
from aotlens.commands.shared import Context, Parts, command, documents_to_read, one_of_two, several, table

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.circuits import Circuit, Side
    from aotlens.models import AttentionOnlyTransformer

_N_PAIRS = 5

Kind = Annotated[str, options.word("qk: what the head looks for. ov: what it writes.", "qk|ov")]
Left = Annotated[
    str,
    options.word(
        "Rows, the destinations of QK or the sources of OV: tokens, positions, bias, residual, an earlier head L.H "
        "(the tokens that it has moved), or positions:L.H (the positions).",
        "SIDE",
    ),
]
Right = Annotated[
    str | None,
    options.word(
        "Columns, the sources of QK: as --left. Of OV: logits, residual, or a later head L.H. Default: tokens or "
        "logits.",
        "SIDE",
    ),
]
Distance = Annotated[
    int | None,
    options.whole(
        "QK of a model with rotary positions or ALiBi: at this distance from source to destination. Default: with "
        "rotary positions the mean over all distances.",
        0,
        options.MOST_NUMBER,
    ),
]


@command("circuits")
def circuits_command(
    context: Context,
    checkpoint: options.Checkpoint,
    head: options.Head,
    kind: Kind = "qk",
    left: Left = "tokens",
    right: Right = None,
    distance: Distance = None,
    top: Annotated[int, options.whole("How many entries.")] = 20,
    token: Annotated[
        str | None, options.word("Entries of this token only (' the'), in its row and in its column.", "TEXT")
    ] = None,
    token_id: Annotated[
        int | None, options.whole("The same, by the token's id.", 0, options.MOST_NUMBER, metavar="ID")
    ] = None,
    smallest: Annotated[bool, options.flag("smallest", "The lowest entries, not the highest.")] = False,
) -> Parts:
    """List the largest entries of a head's QK or OV circuit, exactly, over its whole vocabulary.

    A QK entry is the score of a destination for a source in nats, an OV entry what attending to a source adds to
    an output's logit. QK scores of one destination can be compared with each other only, so they are also given
    above their row's level, the log-mean-exp over all sources.
    """
    import pandas as pd

    one_of_two("--token", token, "--token-id", token_id)
    model = context.model(checkpoint)
    circuit = _circuit(model, head, kind, left, right, distance)
    if token is not None:
        token_id = model.to_single_token(token)
    if token_id is None:
        tables = [("", _entries(circuit, circuit, top, not smallest))]
    else:
        tables = _of_token(circuit, token_id, top, not smallest)
    context.write(pd.concat([frame.assign(list=title) for title, frame in tables], ignore_index=True))
    yield _about(circuit)
    for title, frame in tables:
        titles = tuple("id" if name.endswith("_id") else name.replace("_", " ") for name in frame)
        rows = frame.itertuples(index=False)
        cells = [tuple(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row) for row in rows]
        text = table([titles, *cells])
        yield f"{title}\n{text}" if title else text


@command("spectrum")
def spectrum_command(
    context: Context,
    checkpoint: options.Checkpoint,
    head: options.Head,
    kind: Kind = "ov",
    left: Left = "tokens",
    right: Right = None,
    distance: Distance = None,
    top: Annotated[int, options.whole("How many tokens at each end of a vector.")] = 5,
    rate: Annotated[
        bool, options.flag("rate", "Also the share of tokens whose own logit the head raises most.")
    ] = False,
) -> Parts:
    """Show what a circuit does most (its singular pairs), and how much it copies (its eigenvalues).

    The copying score is the sum of the eigenvalues over the sum of their sizes, from -1 to 1. A singular pair reads
    along its left vector and writes along its right one: + on the left pushes + on the right up and - down.
    """
    from aotlens.circuits import copying_rate, spectrum

    model = context.model(checkpoint)
    circuit = _circuit(model, head, kind, left, right, distance)
    if rate and (circuit.kind, circuit.left.name, circuit.right.name) != ("ov", "tokens", "logits"):
        raise ValueError("--rate: expected the OV circuit from tokens to logits; leave --kind, --left and --right.")
    copied = copying_rate(model, circuit.heads) if rate else None
    result = spectrum(circuit, top, n_vectors=_N_PAIRS)
    frame, sides = result.to_frame(), {"left": circuit.left, "right": circuit.right}
    frame["label"] = [_names(circuit, sides[row.side], [row.id])[0] for row in frame.itertuples()]
    context.write(frame)
    lines = [_about(circuit), result.sentences()]
    if copied is not None:
        lines.append(
            f"Own logit the largest for {copied.top1:.1%} of {copied.n_tokens:,} tokens, among the five largest for "
            f"{copied.top5:.1%}."
        )
    yield "\n".join(lines)
    rows = [("pair", "size", "", str(circuit.left), str(circuit.right))]
    for pair, size in enumerate(result.singular_values[: result.left.highest.shape[0]]):
        for sign, end, name in (("+", "highest", (str(pair), f"{size:.3g}")), ("-", "lowest", ("", ""))):
            read, written = (
                " ".join(_names(circuit, side, getattr(ids, end)[pair]))
                for side, ids in ((circuit.left, result.left), (circuit.right, result.right))
            )
            rows.append((*name, sign, read, written))
    yield table(rows)


@command("composition", "device")
def composition_command(
    context: Context,
    checkpoint: options.Checkpoint,
    mode: Annotated[str, options.word("The later head's side that reads: queries, keys or values.", "q|k|v")] = "q",
    top: Annotated[int, options.whole("How many pairs; --csv has them all.")] = 20,
    folded: Annotated[
        bool, options.flag("folded", "With the norms' gains and centring in the weights, not the bare weights.")
    ] = False,
    data: Annotated[
        str | None,
        options.word(
            "By what earlier heads wrote on this text, not by what their weights could write; implies --folded.", "SPEC"
        ),
    ] = None,
    second_moment: Annotated[
        bool, options.flag("second-moment", "Of --data, with the mean over positions left in.")
    ] = False,
    sequences: Annotated[int, options.whole("Windows of --data, spread over it.")] = 16,
    document: options.Documents = [],
    all_documents: options.AllDocuments = False,
    random: Annotated[int, options.whole("Rotations for p-values; 0 for none.", 0, options.MOST_ROWS, "--random")] = 0,
) -> Parts:
    """List the pairs of heads with the strongest composition: the later one reads what the earlier one writes.

    Pairs are sorted by their Frobenius ratio. Next to it: the earlier head's rank among all that the later head can
    read; whether the pair lies above its null, z of 3 or more; how many standard deviations the norm's square lies
    above its mean over flips of signs in the stream's own directions (z), and over random rotations of one of the two
    heads (z rotated), which any two heads of a trained stream exceed; the norm; and mean and standard deviation of its
    square over rotations (random) and over flips (signs). --random draws rotations for p-values of the pairs that are
    near. With --data, the covariance over positions of what the earlier head wrote there replaces its weights. The
    columns edge, z_signs and z of --csv are above null, z and z rotated.
    """
    from aotlens.circuits.composition import EDGE_Z, composition
    from aotlens.data import Encoding, open_corpus, spread_windows

    if data is None and second_moment:
        raise ValueError("--second-moment: expected --data SPEC, the text whose positions it is over.")
    source = None if data is None else open_corpus(data)
    model = context.model(checkpoint)
    windows, which = None, ""
    if source is not None:
        documents, read = documents_to_read(model, source, str(data), document, all_documents)
        encoding = Encoding.of(model.tokenizer)
        windows = spread_windows(source, documents or source.names(), encoding, sequences, model.cfg.n_ctx)
        which = f", of what was written on {several(len(windows), 'window')} of {windows.shape[1]} tokens of {read}"
    result = composition(model, mode, folded=folded, data=windows, about_mean=not second_moment, n_random=random)
    frame = result.to_frame()
    context.write(frame)
    if frame.empty:
        yield "This model has one layer, and so no pair of heads that could compose."
        return
    other = {"q": "k", "k": "q"}.get(mode)
    same = (
        f" (and {other} composition: MSSA has one matrix for both)" if model.cfg.attention == "mssa" and other else ""
    )
    yield (
        f"{mode} composition{same}{which}. {result.edges.sum()} of {several(len(frame), 'pair')} above their null, "
        f"z ≥ {EDGE_Z:g}. Rotated at random, every pair has a root mean square of {result.random_rms:.4f}."
    )
    if not random:
        frame = frame.drop(columns=["p_above", "p_below"])
    yield frame.head(top).rename(columns={"edge": "above_null", "z_signs": "z", "z": "z_rotated"})


@command("subspaces", "device")
def subspaces_command(
    context: Context,
    checkpoint: options.Checkpoint,
    top: Annotated[int, options.whole("How many pairs; --csv has them all.")] = 10,
) -> Parts:
    """Show the subspace that each head reads (U of MSSA, W_V otherwise), and the pairs that overlap most.

    Of each head: the dimension of its subspace; its effective rank, less than that where the head reads some directions
    more than others; and its mean overlap with the other heads of its layer, Σcos² over the principal angles, compared
    with that of random subspaces, and that of random weights behind the same norm, whose gain all heads of a layer
    share. Of each pair: the overlap, its mean over random rotations and how many standard deviations it lies above it
    (z), its mean over random weights behind the norms, the largest cosine, its mean over simulated rotations, and the
    share of them that reach it (p).
    """
    from aotlens.heads import subspaces

    result = subspaces(context.model(checkpoint))
    frame = result.to_frame()
    context.write(frame)
    room = result.room[0].upper() + result.room[1:]
    yield f"Subspaces of {result.matrix} in {several(result.width, 'dimension')}. {room}."
    yield result.head_frame()
    if not frame.empty:
        yield frame.head(top)


# ── circuits ────────────────────────────────────────────────────────────────────────────────────────────────────


def _circuit(
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


def _names(circuit: Circuit, side: Side, ids: Iterable[Any]) -> list[str]:
    """Name rows or columns: tokens as quoted text (ids without a tokenizer), other things by number."""
    from aotlens.circuits.circuit import labels
    from aotlens.conventions import describe

    plain = labels(side, [int(i) for i in ids], circuit.tokenizer)
    is_text = side.index == "token" and circuit.tokenizer is not None
    return [describe(label) for label in plain] if is_text else list(plain)


def _about(circuit: Circuit) -> str:
    """Describe a circuit in a line, and in another what its numbers leave out."""
    from aotlens.conventions import head_name

    rows, columns = ("destinations", "sources") if circuit.kind == "qk" else ("sources", "outputs")
    head = " + ".join(map(head_name, circuit.heads))
    height, width = circuit.shape
    unit = "units of the residual stream" if circuit.unit == "residual stream" else circuit.unit
    text = (
        f"{circuit.kind.upper()} circuit of head {head}, in {unit}: "
        f"{rows} ({circuit.left}, {height:,}) × {columns} ({circuit.right}, {width:,})."
    )
    relative = circuit.relative
    return f"{text}\nRelative, since {relative[:1].lower()}{relative[1:]}" if relative else text


def _of_token(circuit: Circuit, token: int, top: int, largest: bool) -> list[tuple[str, pd.DataFrame]]:
    """The token's row and its column, as far as the sides are tokens."""
    left, right, (n_rows, n_columns) = circuit.left, circuit.right, circuit.shape
    if "token" not in (left.index, right.index):
        raise ValueError(f"--token: expected a side of tokens, got {left} × {right}.")
    n_tokens = n_rows if left.index == "token" else n_columns
    if not 0 <= token < n_tokens:
        raise ValueError(f"--token-id {token}: expected an id from 0 to {n_tokens - 1}.")
    (name,) = _names(circuit, left if left.index == "token" else right, [token])
    if circuit.kind == "qk":
        end = "Highest" if largest else "Lowest"
        titles = (f"{end} attention scores of destination {name}", f"{end} attention scores of source {name}")
    else:
        promotes = "promotes" if largest else "suppresses"
        titles = (f"Outputs that source {name} {promotes}", f"Sources that {promotes[:-1]} {name}")
    parts = ((left, circuit[token : token + 1]), (right, circuit[:, token : token + 1]))
    return [
        (title, _entries(circuit, part, top, largest))
        for title, (side, part) in zip(titles, parts, strict=True)
        if side.index == "token"
    ]


def _entries(circuit: Circuit, part: Circuit, top: int, largest: bool) -> pd.DataFrame:
    """The best entries of a part of the circuit: all of it, a row or a column."""
    import pandas as pd
    import torch

    from aotlens.circuits import above_row_level

    best = part.top(top, largest=largest)
    row_name, column_name = ("destination", "source") if circuit.kind == "qk" else ("source", "output")
    frame = {
        row_name: _names(circuit, circuit.left, best.rows),
        f"{row_name}_id": best.rows,
        column_name: _names(circuit, circuit.right, best.columns),
        f"{column_name}_id": best.columns,
        circuit.unit.replace(" ", "_"): best.values,
    }
    if circuit.kind == "qk":
        rows, values = torch.from_numpy(best.rows), torch.from_numpy(best.values)
        frame["above_row_level"] = above_row_level(circuit, rows, values).numpy()
    return pd.DataFrame(frame)
