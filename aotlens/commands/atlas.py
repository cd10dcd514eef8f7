"""``aotlens atlas`` and ``audit``: what every head attends to and copies, and what layers do in heads' subspaces; both
are measured on a text, and can be kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.heads import Atlas


@command("atlas")
def atlas_command(
    context: Context,
    checkpoint: options.Checkpoint,
    corpus: Annotated[str, options.word("Text to read: dir:PATH, a name, hf:….", "SPEC")],
    tokens: Annotated[int, options.whole("How much of it, spread over it.", 1, options.MOST_TOKENS)] = 200_000,
    head: Annotated[str | None, options.heads("This head's summary, with examples, instead of the table.")] = None,
    how: Annotated[list[str], options.word("As of aotlens ablate; repeatable. Default: position_mean.", "HOW")] = [],
    sequences: Annotated[int, options.whole("Windows to ablate on.", 2)] = 32,
    where: Annotated[str, options.word("Rows to print, as 'induction_random > 0.4 and layer = 1'.", "SEARCH")] = "",
    distillation: Annotated[
        bool, options.flag("distillation", "Add the bundled distillation's error of each head.")
    ] = False,
    fresh: Annotated[bool, options.flag("fresh", "Measure again, and keep nothing on disk.")] = False,
    out: options.Record = None,
) -> Parts:
    """Measure every head: motifs next to chance, pattern consistency, copying, composition, Δ loss; examples of a head.

    Of text that the checkpoint was trained on, only the documents that were held out are read. What is measured is kept
    under $AOTLENS_HOME, so that a second call reads it and one after an interruption goes on. With --out,
    aotlens.results.load reads the file again.
    """
    check_out(out, context.force)

    from aotlens.conventions import as_head
    from aotlens.heads import AtlasRecord, atlas
    from aotlens.heads.head_search import rows_where

    _check_kind(out, AtlasRecord)
    model = context.load(checkpoint)
    summarised = None if head is None else as_head(head, model.cfg)
    hows = how or ["position_mean"]
    with TokenBar() as bar:
        heads_atlas = atlas(
            model, corpus, distillation=_distillation(checkpoint) if distillation else None, n_tokens=tokens,
            hows=hows, n_ablated=sequences, cache=None if fresh else "home", progress=bar,
        )  # fmt: skip
    if out is not None:
        sizes = f"--tokens {tokens} {' '.join(f'--how {name}' for name in hows)} --sequences {sequences}"
        _save(out, AtlasRecord, context, model, checkpoint, corpus, sizes, atlas=heads_atlas)
    frame = heads_atlas.to_frame()
    frame = frame[rows_where(frame, where)]
    context.write(frame)
    reasons = [f"{name}: not measured, {reason}." for name, reason in heads_atlas.missing.items()]
    yield "\n".join([f"{heads_atlas.model} on {heads_atlas.about}.", *reasons])
    yield from _table(heads_atlas, frame) if summarised is None else _summary(heads_atlas, summarised, model.tokenizer)


def _check_kind(out: Path | None, kind: type) -> None:
    """Raise ValueError for a file of another kind: only a record of this kind is overwritten."""
    from aotlens.results import load

    if out is not None and out.exists():
        load(out, kind)


def _save(
    out: Path, kind: Any, context: Context, model: Any, checkpoint: str, corpus: str, sizes: str, **fields: Any
) -> None:
    """Keep a record: the result, the checkpoint and text that it comes from, and the command that made it."""
    from aotlens.data import open_corpus
    from aotlens.data.sources import portable_spec

    text, info = open_corpus(corpus), context.card(model, checkpoint)
    record = kind(
        checkpoint=info.name,
        weights_sha256=info.weights_sha256,
        corpus=corpus_name(info, text),
        documents=tuple(info.held_out(text.names())),
        command=f"aotlens {context.command} {info.name} --corpus {portable_spec(corpus)} {sizes}",
        **fields,
    )
    record.save(out, compact=True)
    print_text(f"{out}: saved")


def _distillation(checkpoint: str) -> Any:
    from aotlens.distill import bundled_distillations

    bundled = bundled_distillations()
    if checkpoint not in bundled:
        raise ValueError(f"--distillation: there is one of {', '.join(bundled)}, not of {checkpoint}.")
    return bundled[checkpoint].distillation


def _table(heads_atlas: Atlas, frame: pd.DataFrame) -> Parts:
    from aotlens.heads import label_words
    from aotlens.statistics import interval_text

    losses = [f"loss_{how}{end}" for how in heads_atlas.ablations for end in ("", "_low", "_high")]
    columns = [
        "layer", "label", "margin", "induction_random", "pattern_consistency", "pattern_consistency_without_first",
        "mean_distance", "copying", "reads", *losses, "ffn_error",
    ]  # fmt: skip
    frame = frame.assign(label=[label_words(*words) for words in zip(frame.label, frame.resting, strict=True)])
    yield frame[[name for name in frame if name in (*columns, "head")]]
    yield "\n".join(
        f"all heads at once, {how.replace('_', ' ')}: {result.change:+.3f} nats"
        f"{interval_text(result.interval(), '+.3f', '')}, from {result.clean_mean:.3f}"
        for how, result in heads_atlas.together.items()
    )


def _summary(heads_atlas: Atlas, head: tuple[int, int], tokenizer: Any) -> Parts:
    from aotlens.conventions import describe, head_name

    lines = [f"Head {head_name(head)}. {heads_atlas.sentence(head)}"]
    for name, partners in (("reads", heads_atlas.reads(head)), ("feeds", heads_atlas.feeds(head))):
        if partners:
            names = ", ".join(f"{head_name(p.head)} ({p.mode}, z = {p.z:.1f})" for p in partners)
            lines.append(f"It {name} {names}.")
    yield "\n".join(lines)
    rows: list[tuple[str, ...]] = [("off key 0", "query", "attends to", "attention")]
    for example in heads_atlas.examples.of(head):
        ids = heads_atlas.examples.tokens[example.sequence].tolist()
        strings = tokenizer.str_tokens(ids) if tokenizer is not None else list(map(str, ids))
        key = example.keys[0] if example.keys else 0
        passage = "".join(strings[max(1, example.query - 6) : example.query + 1])
        target = "".join(strings[max(1, key - 3) : key + 1])
        weight = f"{example.weights[0]:.2f}" if example.weights else ""
        rows.append((f"{example.away:.2f}", f"… {describe(passage)}", f"… {describe(target)}", weight))
    yield table(rows)


@command("audit")
def audit_command(
    context: Context,
    checkpoint: options.Checkpoint,
    corpus: Annotated[str, options.word("Text to read: stdlib, file:PATH, dir:PATH, hf:NAME.", "SPEC")],
    tokens: Annotated[int, options.whole("How many of its tokens, in windows.", 6)] = 2048,
    draws: Annotated[int, options.whole("Random rotations, and random groups.", 1, options.MOST_ROWS)] = 20,
    seed: Annotated[int, options.whole("Of these.", 0, options.MOST_NUMBER)] = 0,
    out: options.Record = None,
) -> Parts:
    """Measure the signal-to-noise ratio (SNR) of every layer's tokens in its heads' subspaces, before and after it.

    The text is that which the checkpoint's card held out from training, where the corpus has some of it. Token 0 of
    each window is left out. Tokens count for every head ("all tokens"), for the head whose subspace holds most of them
    ("subspace"), or for the head whose pattern puts most on one key ("pattern"). ratio = SNR after ÷ before; writes
    rotated: the same had the layer written the same rotated by one random rotation; p above and below = (1 + rotations
    as extreme) ÷ (1 + rotations). rotated subspaces: SNR before the layer in randomly rotated subspaces.

    With --out, aotlens.results.load reads the file again.
    """
    check_out(out, context.force)

    from aotlens.data import open_corpus
    from aotlens.denoise import AuditRecord, audit
    from aotlens.distill import held_out_windows

    _check_kind(out, AuditRecord)
    text = open_corpus(corpus)
    model = context.model(checkpoint)
    windows = held_out_windows(model, text, tokens)
    result = audit(model, windows, n_draws=draws, seed=seed)
    frame = result.to_frame()
    context.write(frame)
    read = f"{several(windows.shape[0], 'window')} of {windows.shape[1]} tokens"
    yield f"SNR in the subspaces of {result.matrix}, {read}, {several(draws, 'rotation')}."
    yield frame
    if out is not None:
        sizes = f"--tokens {tokens} --draws {draws} --seed {seed}"
        fields: dict[str, Any] = {"audit": result, "tokens": windows, "seed": seed}
        _save(out, AuditRecord, context, model, checkpoint, corpus, sizes, **fields)
