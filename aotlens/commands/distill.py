"""``aotlens distill`` and ``compile``: networks that imitate heads, and a network written as attention heads."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from aotlens.commands import options
from aotlens.commands.shared import (
    Context,
    Parts,
    TokenBar,
    check_out,
    command,
    corpus_name,
    print_text,
    several,
    table,
)
from aotlens.conventions import require_choice

if TYPE_CHECKING:
    from aotlens.distill import Distillation, SubstitutionCosts
    from aotlens.distill.compile.ffn import Activation
    from aotlens.distill.compile.layers import Construction


@command("distill")
def distill_command(
    context: Context,
    checkpoint: options.Checkpoint,
    corpus: Annotated[
        str, options.word("Text to learn from and to be judged by: stdlib, dir:PATH, hf:NAME, ...", "SPEC")
    ],
    hidden: Annotated[str, options.word("Hidden units of the networks; 0 is the best linear map.", "N,N,...")] = "0,16",
    head: Annotated[list[str], options.heads("Only this head. Several times for more; default: all.")] = [],
    sequence_length: Annotated[
        int | None, options.whole("Tokens of a window; default: the context, at most 512.", 3, options.MOST_TOKENS)
    ] = None,
    target: Annotated[str, options.word("The target: the head's output, or its z before W_O.", "result|z")] = "result",
    seeds: Annotated[int, options.whole("Networks of each head and width.")] = 3,
    tokens: Annotated[int, options.whole("Training tokens.", 1, options.MOST_TOKENS)] = 400_000,
    held_out_tokens: Annotated[int, options.whole("Tokens to be judged by.", 1, options.MOST_TOKENS)] = 65_536,
    document: Annotated[
        list[str],
        options.word(
            "Hold this document out. Several times for more; default: those of the checkpoint's card, or a tenth.",
            "NAME",
        ),
    ] = [],
    wide: Annotated[int, options.whole("Units of the network for the floor; 0 for none.", 0, options.MOST_WIDTH)] = 256,
    neighbours: Annotated[
        int, options.whole("Training tokens to look for nearest neighbours in; 0 for none.", 0, options.MOST_ROWS)
    ] = 16_384,
    replace: Annotated[
        int,
        options.whole(
            "Held-out tokens on which heads are also replaced by their widest networks; 0 for none.",
            0,
            options.MOST_TOKENS,
        ),
    ] = 0,
    out: Annotated[Path | None, options.word("Keep the networks and errors here, in NAME.safetensors.", "FILE")] = None,
    resume: Annotated[bool, options.flag("resume", "Go on with the run to --out that was stopped.")] = False,
) -> Parts:
    """Train a feed-forward network for each head, reading the token's own input only, to write what the head writes.

    error = sum of squared differences on held-out documents, over that of the training mean: 0 is a perfect copy, 1 no
    better than a constant. floor is the least error found by any means (networks, nearest neighbours), an estimate from
    above of what any function of the same input could reach. Intervals: 95%, over held-out documents (fewer than
    three: stretches of them) and seeds.

    With --replace, cost is the loss that the model gains with the head replaced by its widest network, in nats per
    token.

    With --out, a stopped run goes on with --resume. aotlens.distill.load_record reads the file, which names its
    checkpoint and text and holds the costs; the app shows it with --distillation FILE.
    """
    # The checks come before what takes seconds to import.
    state, widths = _state(out, resume, context.force), _widths(hidden)

    from aotlens.data import open_corpus
    from aotlens.data.sources import portable_spec
    from aotlens.distill import load_record, record_distillation

    if out is not None and out.exists():
        load_record(out)  # only a distillation is overwritten
    text = open_corpus(corpus)
    model = context.load(checkpoint)
    info = context.card(model, checkpoint)
    with TokenBar() as bar:
        record = record_distillation(
            model,
            text,
            widths,
            heads=head or None,
            target=target,
            seeds=seeds,
            held_out=document or None,
            sequence_length=sequence_length,
            checkpoint=state,
            progress=bar,
            train_tokens=tokens,
            held_out_tokens=held_out_tokens,
            validation_tokens=8192,
            wide=wide or None,
            neighbours=neighbours,
            replace=replace,
            text="" if out is None else corpus_name(info, text),
            command=f"aotlens distill {info.name} --corpus {portable_spec(corpus)}",
        )
    distillation = record.distillation
    if out is not None:
        dataclasses.replace(record, checkpoint=info.name, weights_sha256=info.weights_sha256).save(out)
    context.write(distillation.to_frame())
    yield _errors(distillation, record.costs)
    documents = f" of {', '.join(distillation.held_out_documents[:3])}"
    if len(distillation.held_out_documents) > 3:
        documents += f" and {len(distillation.held_out_documents) - 3} more"
    print_text(
        f"\n{distillation.train_tokens:,} training tokens ({distillation.distinct_tokens:,} different), "
        f"{distillation.held_out_tokens:,} held-out ones{documents}."
    )
    if out is not None:
        print_text(f"{out}: saved")


def _state(out: Path | None, resume: bool, force: bool) -> Path | None:
    """Check `out`, and return the path at which the state of a run to it is kept."""
    check_out(out, force)
    if out is None:
        if resume:
            raise ValueError("--resume: needs --out FILE, the one of the stopped run.")
        return None
    state = out.with_name(f"{out.name}.state")
    if state.exists() and not resume:
        raise ValueError(f"{state}: a stopped run's. Go on with it with --resume, or delete it to begin again.")
    return state


def _widths(hidden: str) -> list[int]:
    try:
        widths = sorted({int(part) for part in hidden.split(",")})
    except ValueError:
        raise ValueError(f"--hidden {hidden}: expected whole numbers with commas between, as 0,4,16.") from None
    if not 0 <= widths[0] <= widths[-1] <= options.MOST_WIDTH:
        raise ValueError(f"--hidden {hidden}: expected widths from 0 to {options.MOST_WIDTH:,}.")
    return widths


def _errors(distillation: Distillation, costs: SubstitutionCosts | None) -> str:
    """A line per head, the most like an FFN (of the largest width) first."""
    intervals = {width: distillation.interval(width) for width in distillation.hidden}
    titles = ("linear" if width == 0 else f"{width} units" for width in distillation.hidden)
    lines: list[tuple[str, ...]] = [("head", "attends to", *titles, "position", "floor", *(["cost"] if costs else []))]
    for head in distillation.order(distillation.hidden[-1]):
        place = distillation.place(head)
        cells = [distillation.attending.attends[place]]
        for width in distillation.hidden:
            low, high = intervals[width][place]
            cells.append(f"{distillation.mean_error(width)[place]:.3f} ({low:.3f}-{high:.3f})")
        cells += [f"{value:.3f}" for value in (distillation.position_error[place], distillation.floor[place])]
        if costs is not None:
            cells.append(f"{costs.alone[costs.heads.index(head), 0]:.4f}")
        lines.append((f"{head[0]}.{head[1]}", *cells))
    return table(lines)


@command("compile", "device", "folders")
def compile_command(
    context: Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FFN.safetensors",
            help="The state dict of an nn.Sequential of nn.Linear: tensors N.weight [output, input] and N.bias, by "
            "ascending N, the activation between them.",
        ),
    ],
    bound: Annotated[float, options.word("Inputs lie in [-M, M] in every coordinate.", "M")],
    tolerance: Annotated[float, options.word("How far an output may be from the FFN's.", "E")],
    activation: Annotated[str, options.word("Between the layers.", "relu|silu")] = "relu",
    construction: Annotated[
        str, options.word("One wide head in each layer, heads of size 1, or the paper's.", "lean|narrow|paper")
    ] = "lean",
    points: Annotated[int, options.whole("Adversarial points to measure the error at.")] = 2000,
) -> Parts:
    """Compile a ReLU or SiLU network into an attention-only transformer, and say what that takes.

    Prints heads and η of each layer, the model's shape, the proven bound on the error over all inputs, and the largest
    error measured at kinks, corners and random points. In a script: aotlens.distill.compile_ffn.

    A state dict does not show activations: the network is taken to have --activation between its layers and none after
    the last. For one that ends with an activation, or has different ones, give compile_ffn the module itself.
    """
    from aotlens.distill.compile import compile_ffn, load_ffn

    require_choice("--activation", activation, ("relu", "silu"))
    require_choice("--construction", construction, ("lean", "narrow", "paper"))
    for option, value in (("--bound", bound), ("--tolerance", tolerance)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{option} {value:g}: expected a positive finite number.")
    ffn = load_ffn(file, cast("Activation", activation))
    compiled = compile_ffn(ffn, bound=bound, tolerance=tolerance, construction=cast("Construction", construction))
    context.write(compiled.to_frame())
    yield compiled.to_frame()
    cfg, m = compiled.model.cfg, compiled.bound
    yield table(
        [
            ("model", f"{several(cfg.n_layers, 'layer')}, d_model {cfg.d_model}, d_head {cfg.d_head}"),
            ("heads", f"{compiled.n_heads} in all"),
            ("proven error", f"{compiled.proven_error:.3g} on [-{m:g}, {m:g}]^{compiled.ffn.d_in}"),
            ("of it rounding", f"{compiled.rounding_error:.3g}"),
            ("measured error", f"{compiled.measured_error(n=points):.3g}"),
        ]
    )
