"""``aotlens paths``: which way a logit came, from tokens through heads, or why a head attends where it does."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Ids,
    check_csv,
    load_ours,
    print_text,
    prompt,
    table,
    write_csv,
)
from aotlens.commands.why import check_trace_file, compared_with, print_score, print_trace

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer
    from aotlens.paths import PathExpansion, TopPaths


def paths_command(
    checkpoint: Checkpoint,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="The prompt.")] = None,
    ids: Ids = None,
    target: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Whose logit (' Darcy'). Default: the model's first choice.")
    ] = None,
    target_id: Annotated[
        int | None, typer.Option(max=MOST_NUMBER, metavar="ID", help="The same, by the token's id.")
    ] = None,
    versus: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="The target's logit minus this token's, not the logit.")
    ] = None,
    versus_id: Annotated[
        int | None, typer.Option(max=MOST_NUMBER, metavar="ID", help="The same, by the token's id.")
    ] = None,
    position: Annotated[
        int,
        typer.Option(
            max=MOST_NUMBER, metavar="N", help="Where: 0 is the start token, -1 the last token of the prompt."
        ),
    ] = -1,
    top: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="How many paths.")] = 20,
    by: Annotated[
        str, typer.Option(metavar="abs|pos|neg", help="The largest in size, the most for it, or the most against it.")
    ] = "abs",
    through: Annotated[
        str | None, typer.Option(metavar="LAYER.HEAD", help="Of the paths that pass this head only.")
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Tell the positions apart that a path starts from.")] = False,
    score: Annotated[
        tuple[str, int, int] | None,
        typer.Option(metavar="LAYER.HEAD QUERY KEY", help="Explain this attention score, and no logit."),
    ] = None,
    trace: Annotated[
        tuple[str, int, int] | None,
        typer.Option(metavar="LAYER.HEAD QUERY KEY", help="Follow this attention score back to the cells behind it."),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="mean|none|KEY",
            help="The key whose score is subtracted. Default: by the model's φ.",
        ),
    ] = "default",
    out: Annotated[
        FilePath | None, typer.Option(metavar="FILE", help="Write the trace here: .json, .svg or .html.")
    ] = None,
    budget: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_ROWS, metavar="N", help="How many nodes the search may expand before it gives up proof."
        ),
    ] = 1000,
    csv: Csv = None,
    force: Annotated[bool, typer.Option("--force", help="Let --csv or --out overwrite a file.")] = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Expand a logit into paths: a source and the heads that carry it, patterns and norm scales frozen.

    Prints what paths of each length add, then the largest single paths, how many of them are proven to be the
    largest of all, and how far the sum over all paths is from the model's own logits. With --score, the same of one
    attention score: pairs of paths, to the query and to the keys, in nats. With --trace, what made its query and its
    keys one layer below, and what made those.
    """
    from aotlens.paths import expand

    check_csv(csv, force)
    check_trace_file(out, force, wanted=trace is not None and csv is None)
    model = load_ours("paths", checkpoint, device, folders)
    token = _token(model, "--target", target, target_id)
    other = _token(model, "--versus", versus, versus_id)
    tokens = prompt(model, text, ids)
    if tokens is None:
        raise ValueError("expected a prompt: --text TEXT or --ids '12 7 7 3'.")
    expansion = expand(model, tokens, split_sources=split)
    if score is not None or trace is not None:
        if (token, other, through) != (None, None, None) or (score is not None and trace is not None):
            raise ValueError(
                "--score and --trace explain an attention score: one of them goes without the other, and without "
                "--target, --versus and --through."
            )
        if score is not None:
            print_score(expansion.score(*score, compared_with(against)), top, by, budget, csv)
        elif trace is not None:
            print_trace(expansion.trace(*trace, compared_with(against)), csv, out)
        return
    if not -expansion.n_pos <= position < expansion.n_pos:
        raise ValueError(
            f"--position {position}: expected {-expansion.n_pos} to {expansion.n_pos - 1} for this prompt."
        )
    if token is None:
        token = int(expansion.frozen.logits[position].argmax())
    chosen = token if other is None else (token, other)
    paths = expansion.top(top, position, chosen, by, through=through, budget=budget)
    sentences = [expansion.describe(path) for path in paths.paths]
    if csv is not None:
        frame = paths.to_frame()
        write_csv(frame, csv)
        return
    name = expansion.token_name(token)
    name = name if other is None else f"{name} − {expansion.token_name(other)}"
    place = position % expansion.n_pos
    here = repr(expansion.str_tokens[place]) if expansion.str_tokens else f"token {expansion.tokens[place]}"
    print_text(f"Logit {name} after position {place} ({here}): {paths.logit:.3f}\n")
    print_text(_orders(expansion, place, chosen))
    print_text("")
    print_text(_largest(paths, sentences))
    print_text("")
    print_text(_proof(paths))
    print_text(f"All paths: {expansion.residual()}.")


def _token(model: AttentionOnlyTransformer, option: str, text: str | None, number: int | None) -> int | None:
    if text is not None and number is not None:
        raise ValueError(f"{option} and {option}-id: expected one of them, got both.")
    if text is not None:
        return model.to_single_token(text)
    if number is not None and not 0 <= number < (model.cfg.d_vocab or 0):
        raise ValueError(f"{option}-id {number}: expected an id from 0 to {(model.cfg.d_vocab or 0) - 1}.")
    return number


def _orders(expansion: PathExpansion, position: int, target: int | tuple[int, int]) -> str:
    values = expansion.by_order(target)[:, position].tolist()
    lines: list[tuple[str, ...]] = [("heads", "logits")]
    lines += [(str(order), f"{value:+.4f}") for order, value in enumerate(values)]
    return table([*lines, ("all", f"{sum(values):+.4f}")])


def _largest(paths: TopPaths, sentences: list[str]) -> str:
    lines: list[tuple[str, ...]] = [("rank", "logits", "", "path")]
    for i, (value, sentence) in enumerate(zip(paths.values, sentences, strict=True)):
        lines.append((str(i + 1), f"{value:+.4f}", "" if i < paths.n_proven else "not proven", sentence))
    return table(lines)


def _proof(paths: TopPaths) -> str:
    several = f"{paths.n_proven} of {len(paths.paths)} ranks proven"
    order = {"abs": "in size", "pos": "for it", "neg": "against it"}[paths.by]
    which = ""
    if paths.through is not None:
        layer, head = paths.through
        which = f" through {layer}.{head}, which add {paths.total:+.4f} together"
    return (
        f"{several} among {paths.n_paths:,} paths{which} ({paths.n_evaluated:,} evaluated); no other is above "
        f"{paths.bound:.4f} {order}.\nThe others together: {paths.remainder:+.4f}."
    )
