"""``aotlens compile``: what it takes to write a feed-forward network as attention heads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from aotlens.commands.shared import MOST_ROWS, Csv, Force, check_csv, print_text, several, table, write_csv

if TYPE_CHECKING:
    from aotlens.distill import CompiledFFN
    from aotlens.distill.compile.ffn import Activation
    from aotlens.distill.compile.layers import Construction

_ACTIVATIONS = ("relu", "silu")
_CONSTRUCTIONS = ("lean", "narrow", "paper")


def compile_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FFN.safetensors",
            help="The state dict of an nn.Sequential of nn.Linear: tensors N.weight [output, input] and N.bias, by "
            "ascending N, the activation between them.",
        ),
    ],
    bound: Annotated[float, typer.Option(metavar="M", help="Inputs lie in [-M, M] in every coordinate.")],
    tolerance: Annotated[float, typer.Option(metavar="E", help="How far an output may be from the FFN's.")],
    activation: Annotated[str, typer.Option(metavar="relu|silu", help="Between the layers.")] = "relu",
    construction: Annotated[
        str, typer.Option(metavar="lean|narrow|paper", help="One wide head a layer, heads of size 1, or the paper's.")
    ] = "lean",
    points: Annotated[
        int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Adversarial points to measure the error at.")
    ] = 2000,
    csv: Csv = None,
    force: Force = False,
) -> None:
    """Compile a ReLU or SiLU network into an attention-only transformer, and say what that takes.

    Prints heads and η of each layer, the model's shape, the proven bound on the error over all inputs, and the largest
    error measured at kinks, corners and random points. In a script: aotlens.distill.compile_ffn.

    A state dict does not show activations: the network is taken to have --activation between its layers and none after
    the last. For one that ends with an activation, or has different ones, give compile_ffn the module itself.
    """
    from aotlens.distill.compile import compile_ffn, load_ffn

    check_csv(csv, force)
    for option, word, choices in (
        ("--activation", activation, _ACTIVATIONS),
        ("--construction", construction, _CONSTRUCTIONS),
    ):
        if word not in choices:
            raise ValueError(f"{option} {word}: expected one of {', '.join(choices)}.")
    for option, value in (("--bound", bound), ("--tolerance", tolerance)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{option} {value:g}: expected a positive finite number.")
    ffn = load_ffn(file, cast("Activation", activation))
    compiled = compile_ffn(ffn, bound=bound, tolerance=tolerance, construction=cast("Construction", construction))
    if csv is not None:
        write_csv(compiled.to_frame(), csv)
        return
    print_text(_layers(compiled))
    print_text("")
    print_text(_summary(compiled, points))


def _layers(compiled: CompiledFFN) -> str:
    lines: list[tuple[str, ...]] = [("layer", "units", "activation", "η", "heads", "Theorem 4.1 says")]
    for row in compiled.to_frame().itertuples():
        eta = f"{row.eta:.3g}"
        lines.append((str(row.layer), str(row.units), row.activation, eta, str(row.heads), str(row.paper_heads)))
    return table(lines)


def _summary(compiled: CompiledFFN, points: int) -> str:
    cfg, m = compiled.model.cfg, compiled.bound
    return table(
        [
            ("model", f"{several(cfg.n_layers, 'layer')}, d_model {cfg.d_model}, d_head {cfg.d_head}"),
            ("heads", f"{compiled.n_heads} in all"),
            ("proven error", f"{compiled.proven_error:.3g} on [-{m:g}, {m:g}]^{compiled.ffn.d_in}"),
            ("of it rounding", f"{compiled.rounding_error:.3g}"),
            ("measured error", f"{compiled.measured_error(n=points):.3g}"),
        ]
    )
