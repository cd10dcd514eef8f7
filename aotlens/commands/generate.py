"""``aotlens generate``: continue a text, with and without some heads; or fill the masks of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands.choosing import documents_to_read
from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    MOST_TOKENS,
    Checkpoint,
    Device,
    Folders,
    Ids,
    load_ours,
    print_text,
    prompt,
)

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.models import AttentionOnlyTransformer

_WINDOWS = 32


def generate_command(
    checkpoint: Checkpoint,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The text to continue; <|mask|> in it is filled.")
    ] = None,
    ids: Ids = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="New tokens at most; 50 by default.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Divides the logits; 0 takes the likeliest. Default: 1; 0 to fill masks."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROWS, metavar="K", help="Draw among the K likeliest tokens.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_NUMBER, help="Of the draws; both continuations have the same.")
    ] = 0,
    stop: Annotated[str | None, typer.Option(metavar="TOKEN", help="End after this token, as ' the' or '.'.")] = None,
    without: Annotated[
        str | None, typer.Option(metavar="L.H,…", help="Also without these heads, all at once, as 1.0,1.3.")
    ] = None,
    how: Annotated[
        str, typer.Option(metavar="HOW", help="Replace head output with this, as in `aotlens ablate`.")
    ] = "zero",
    corpus: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Text of which means and resampling are taken.")
    ] = None,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006 (Typer copies it)
) -> None:
    """Continue a text token by token, and beside it the same without some heads.

    A model that sees both sides continues nothing: it fills the masks of the text, from left to right.
    """
    from aotlens.conventions import as_heads, head_name
    from aotlens.heads import HeadSwitches
    from aotlens.models import fill, generate

    model = load_ours("generate", checkpoint, device, folders)
    if model.sees_later_keys and (tokens is not None or stop is not None):
        raise ValueError(
            f"{checkpoint} sees both sides of a token, so nothing comes after its text: it fills <|mask|>, and takes "
            "no --tokens and no --stop."
        )
    tokens_given = prompt(model, text, ids)
    if tokens_given is None:
        raise ValueError("expected something to continue: --text TEXT or --ids IDS.")
    given = tokens_given if text is None or model.tokenizer is None else text
    n_new = 0 if model.sees_later_keys else 50 if tokens is None else tokens

    def went_on() -> str:
        options: dict[str, Any] = {"top_k": top_k, "seed": seed}
        if model.sees_later_keys:
            return _shown(model, fill(model, given, temperature=0.0 if temperature is None else temperature, **options))
        warmth = 1.0 if temperature is None else temperature
        return _shown(model, generate(model, given, n_new, temperature=warmth, stop_token=stop, **options))

    if without is None:
        print_text(went_on())
        return
    heads = as_heads(without.split(","), model.cfg)
    reference = None if corpus is None else _windows(model, corpus, tokens_given.shape[1], n_new, how)
    switches = HeadSwitches(model, how, reference=reference, heads=heads)
    names = ", ".join(map(head_name, heads))
    for title, off in (("Full model", ()), (f"Without {names} ({how})", heads)):
        with switches.off(off):
            print_text(f"{title}:\n{went_on()}\n")


def _shown(model: AttentionOnlyTransformer, output: str | Tensor) -> str:
    """A text as it is, and ids as text, or as `[12 7 7 3]` where the model has no tokenizer."""
    if isinstance(output, str):
        return output
    ids = output.flatten().tolist()
    return f"[{' '.join(map(str, ids))}]" if model.tokenizer is None else str(model.to_string(ids))


def _windows(model: AttentionOnlyTransformer, corpus: str, n_pos: int, n_new: int, how: str) -> Tensor:
    """Windows as long as the prompt, and where positions are compared as long as it may become."""
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.heads.without import reference_length

    source = open_corpus(corpus)
    names, _ = documents_to_read(model, source, corpus, (), False)
    encoding = Encoding.of(model.tokenizer, causal=not model.sees_later_keys)
    length = reference_length(how, n_pos, n_new)
    return spread_windows(source, names or source.names(), encoding, _WINDOWS, length)
