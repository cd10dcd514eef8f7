"""``aotlens paths``: which way a logit came, from tokens through heads, or why a head attends where it does."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands import options
from aotlens.commands.shared import Context, Parts, check_new, command, one_of_two, print_text, prompt, several, table

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer
    from aotlens.paths import ScoreExpansion, Trace

_ENDINGS = (".json", ".svg", ".html")
_CELL = "LAYER.HEAD QUERY KEY"

TokenId = Annotated[
    int | None, typer.Option(max=options.MOST_NUMBER, metavar="ID", help="The same, by the token's id.")
]


@command("paths")
def paths_command(
    context: Context,
    checkpoint: options.Checkpoint,
    text: Annotated[str | None, options.word("The prompt.", "TEXT")] = None,
    ids: options.Ids = None,
    target: Annotated[
        str | None, options.word("Whose logit (' Darcy'). Default: the model's first choice.", "TOKEN")
    ] = None,
    target_id: TokenId = None,
    versus: Annotated[
        str | None, options.word("The target's logit minus this token's, not the logit.", "TOKEN")
    ] = None,
    versus_id: TokenId = None,
    position: Annotated[
        int,
        typer.Option(
            max=options.MOST_NUMBER, metavar="N", help="Where: 0 is the start token, -1 the last token of the prompt."
        ),
    ] = -1,
    top: Annotated[int, options.whole("How many paths.")] = 20,
    by: Annotated[
        str, options.word("The largest in size, the most for it, or the most against it.", "abs|pos|neg")
    ] = "abs",
    through: Annotated[str | None, options.word("Only the paths that pass this head.", "LAYER.HEAD")] = None,
    split: Annotated[bool, options.flag("split", "Tell the positions apart that a path starts from.")] = False,
    score: Annotated[
        tuple[str, int, int] | None, options.word("Explain this attention score, and no logit.", _CELL)
    ] = None,
    trace: Annotated[
        tuple[str, int, int] | None, options.word("Follow this attention score back to the cells behind it.", _CELL)
    ] = None,
    against: Annotated[
        str, options.word("The key whose score is subtracted. Default: by the model's φ.", "mean|none|KEY")
    ] = "default",
    out: Annotated[FilePath | None, options.word("Write the trace here: .json, .svg or .html.", "FILE")] = None,
    budget: Annotated[int, options.whole("How many nodes the search may expand before it gives up proof.")] = 1000,
) -> Parts:
    """Expand a logit into paths: a source and the heads that carry it, patterns and norm scales frozen.

    Prints what paths of each length add, then the largest single paths, how many of them are proven to be the
    largest of all, and how far the sum over all paths is from the model's own logits. With --score, the same of one
    attention score: pairs of paths, to the query and to the keys, in nats. With --trace, what made its query and its
    keys one layer below, and what made those.
    """
    from aotlens.paths import expand

    if out is not None:
        if trace is None or context.csv is not None:
            raise ValueError(f"--out {out}: expected --trace, which is what it writes, and no --csv.")
        if out.suffix not in _ENDINGS:
            raise ValueError(f"--out {out}: expected a name that ends in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}.")
        check_new(out, context.force)
    model = context.model(checkpoint)
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
            yield from _score(context, expansion.score(*score, _key(against)), top, by, budget)
        elif trace is not None:
            yield from _trace(context, expansion.trace(*trace, _key(against)), out)
        return
    if not -expansion.n_pos <= position < expansion.n_pos:
        raise ValueError(
            f"--position {position}: expected {-expansion.n_pos} to {expansion.n_pos - 1} for this prompt."
        )
    if token is None:
        token = int(expansion.frozen.logits[position].argmax())
    direction = token if other is None else (token, other)
    paths = expansion.top(top, position, direction, by, through=through, budget=budget)
    context.write(paths.to_frame())
    name = expansion.token_name(token)
    name = name if other is None else f"{name} − {expansion.token_name(other)}"
    place = position % expansion.n_pos
    here = repr(expansion.str_tokens[place]) if expansion.str_tokens else f"token {expansion.tokens[place]}"
    yield f"Logit {name} after position {place} ({here}): {paths.logit:.3f}"
    values = expansion.by_order(direction)[:, place].tolist()
    orders = [*enumerate(values), ("all", sum(values))]
    yield table([("heads", "logits"), *((str(order), f"{value:+.4f}") for order, value in orders)])
    yield paths.to_frame()[["rank", "logits", "proven", "path"]]
    yield f"{paths.sentences()}\nAll paths: {expansion.residual()}."


def _token(model: AttentionOnlyTransformer, option: str, text: str | None, number: int | None) -> int | None:
    one_of_two(option, text, f"{option}-id", number)
    if text is not None:
        return model.to_single_token(text)
    if number is not None and not 0 <= number < (model.cfg.d_vocab or 0):
        raise ValueError(f"{option}-id {number}: expected an id from 0 to {(model.cfg.d_vocab or 0) - 1}.")
    return number


def _key(text: str) -> int | str | None:
    """A key's position, None for "none", or the word itself."""
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def _score(context: Context, score: ScoreExpansion, k: int, by: str, budget: int) -> Parts:
    """The products by order, the largest pairs of paths and what is proven of them."""
    best = score.top(k, by, budget=budget)
    context.write(best.to_frame())
    yield f"{score.sentences()} All in nats."
    orders = score.by_pair_of_orders().values.tolist()
    head = ("query \\ key heads", *(str(order) for order in range(len(orders))))
    yield table([head, *((str(i), *(f"{value:+.4f}" for value in row)) for i, row in enumerate(orders))])
    yield best.to_frame()[["rank", "nats", "proven", "formula"]]
    yield (
        f"{best.n_proven} of {len(best.pairs)} ranks proven among {best.n_pairs:,} pairs of paths; no other is "
        f"above {best.bound:.4f}.\nThe others together: {best.remainder:+.4f}.\nAll pairs: {score.residual()}."
    )


def _trace(context: Context, trace: Trace, out: FilePath | None) -> Parts:
    """Every cell with the largest terms of its query side and of its key side; or the trace as a file."""
    from aotlens.files import replacing_file

    if out is not None:
        content = {".json": trace.to_json, ".svg": trace.to_svg, ".html": trace.to_html}[out.suffix]()
        with replacing_file(out) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
        print_text(f"{out}: {several(len(trace.nodes), 'cell')}")
        return
    context.write(trace.to_frame())
    yield f"{trace.sentences()} Terms in nats; shares are within one side of a cell."
    for node in trace.nodes:
        softmax = ", of the softmax before the threshold" if node.before_threshold else ""
        query, key = node.cancellation
        about = (
            f"{trace.name(node)}: score {node.score:+.3f}, contrast {node.contrast:+.3f}{softmax}; Σ|term| ÷ "
            f"|Σ term| is {query:.2f} of the query side, {key:.2f} of the key side"
        )
        rows = [("", "nats", "share", "term")]
        for edge in node.edges:
            count = f" ({edge.n_terms:,} terms)" if edge.n_terms > 1 else ""
            rows.append((edge.side, f"{edge.nats:+.4f}", f"{edge.share:.1%}", f"{trace.name(edge)}{count}"))
        yield f"{about}\n{table(rows)}"
    if trace.n_not_followed:
        yield f"{several(trace.n_not_followed, 'cell')} more were not followed."
