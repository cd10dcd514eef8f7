"""``aotlens atlas``: a row a head: what it attends to, how constant that is, what it copies, what the model loses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.shared import (
    MOST_ROWS,
    MOST_TOKENS,
    Checkpoint,
    Csv,
    Device,
    Folders,
    Force,
    TokenBar,
    card_of,
    check_csv,
    check_heads,
    check_out,
    corpus_name,
    print_text,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.checkpoints import CheckpointInfo
    from aotlens.heads import Atlas


def atlas_command(
    checkpoint: Checkpoint,
    corpus: Annotated[str, typer.Option(metavar="SPEC", help="Text to read: dir:PATH, a name, hf:….")],
    tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, metavar="N", help="How much of it, spread over it.")
    ] = 200_000,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="L.H", callback=check_heads, help="This head's summary, with examples, in place of the table."
        ),
    ] = None,
    how: Annotated[
        list[str],
        typer.Option(metavar="HOW", help="As of aotlens ablate; repeatable. Default: position_mean."),
    ] = [],  # noqa: B006 (Typer copies it)
    sequences: Annotated[int, typer.Option(min=2, max=MOST_ROWS, metavar="N", help="Windows to ablate on.")] = 32,
    where: Annotated[
        str, typer.Option(metavar="SEARCH", help="Rows to print, as 'induction_random > 0.4 and layer = 1'.")
    ] = "",
    distillation: Annotated[
        bool, typer.Option("--distillation", help="Add the bundled distillation's error of each head.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew, and keep nothing on disk.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the atlas and the windows here, in NAME.safetensors.")
    ] = None,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
    folders: Folders = [],  # noqa: B006
) -> None:
    """Measure every head: motifs beside chance, pattern consistency, copying, composition, Δ loss; examples of a head.

    Of text that the checkpoint was trained on, only the documents that were held out are read. What is measured is kept
    under $AOTLENS_HOME, so that a second call reads it and one after an interruption goes on. With --out,
    aotlens.results.load reads the file again.
    """
    check_csv(csv, force)
    if out is not None:
        check_out(out, force)

    from aotlens.checkpoints import load
    from aotlens.conventions import as_head
    from aotlens.heads import AtlasRecord, atlas
    from aotlens.heads.head_search import rows_where
    from aotlens.results import load as load_result

    if out is not None and out.exists():
        load_result(out, AtlasRecord)  # only an atlas is overwritten
    model = load(checkpoint, device, folders=folders)
    wanted = None if head is None else as_head(head, model.cfg)
    distilled = _distillation(checkpoint) if distillation else None
    hows = how or ["position_mean"]
    with TokenBar() as bar:
        heads_atlas = atlas(
            model, corpus, distillation=distilled, n_tokens=tokens, hows=hows,
            n_ablated=sequences, cache=None if fresh else "home", progress=bar,
        )  # fmt: skip
    if out is not None:
        sizes = f"--tokens {tokens} {' '.join(f'--how {each}' for each in hows)} --sequences {sequences}"
        _save(out, heads_atlas, card_of(model, checkpoint, folders), corpus, sizes)
    frame = heads_atlas.to_frame()
    frame = frame[rows_where(frame, where)]
    if csv is not None:
        write_csv(frame, csv)
        return
    print_text(f"{heads_atlas.model} on {heads_atlas.about}.")
    for what, why in heads_atlas.missing.items():
        print_text(f"{what}: not measured, {why}.")
    print_text("")
    if wanted is not None:
        _print_summary(heads_atlas, wanted, model.tokenizer)
        return
    _print_table(heads_atlas, frame)


def _distillation(checkpoint: str) -> object:
    from aotlens.distill import bundled_distillations

    bundled = bundled_distillations()
    if checkpoint not in bundled:
        raise ValueError(f"--distillation: there is one of {', '.join(bundled)}, not of {checkpoint}.")
    return bundled[checkpoint].distillation


def _save(out: Path, heads_atlas: Atlas, info: CheckpointInfo, corpus: str, sizes: str) -> None:
    from aotlens.data import open_corpus
    from aotlens.data.sources import portable_spec
    from aotlens.heads import AtlasRecord

    text = open_corpus(corpus)
    record = AtlasRecord(
        atlas=heads_atlas,
        checkpoint=info.name,
        weights_sha256=info.weights_sha256,
        corpus=corpus_name(info, text),
        documents=tuple(info.held_out(text.names())),
        command=f"aotlens atlas {info.name} --corpus {portable_spec(corpus)} {sizes}",
    )
    record.save(out, compact=True)
    print_text(f"{out}: saved")


def _print_table(heads_atlas: Atlas, frame: pd.DataFrame) -> None:
    from aotlens.heads import label_words
    from aotlens.statistics import interval_text

    hows = list(heads_atlas.ablations)
    lines: list[tuple[str, ...]] = [
        ("head", "label", "margin", "induction*", "consistency", "without 0", "distance", "copying",
         "input composition",
         *(f"{how.replace('_', ' ')}: loss, 95%" for how in hows),
         *(("FFN error",) if "ffn_error" in frame else ()))
    ]  # fmt: skip
    for row in frame.to_dict("records"):
        losses = (
            f"{row[f'loss_{how}']:+.4f}" + interval_text((row[f"loss_{how}_low"], row[f"loss_{how}_high"]), "+.4f", "")
            for how in hows
        )
        lines.append(
            (f"{row['layer']}.{row['head']}", label_words(row["label"], row["resting"]), _number(row["margin"], ".2f"),
             _number(row.get("induction_random"), ".2f"), _number(row["pattern_consistency"], ".2f"),
             _number(row["pattern_consistency_without_first"], ".2f"), _number(row["mean_distance"], ".0f"),
             _number(row.get("copying"), ".2f"), str(row.get("reads", "")), *losses,
             *((_number(row["ffn_error"], ".2f"),) if "ffn_error" in frame else ()))
        )  # fmt: skip
    print_text(table(lines))
    print_text("\n* on random tokens that come twice")
    for how, result in heads_atlas.together.items():
        print_text(
            f"all heads at once, {how.replace('_', ' ')}: {result.change:+.3f} nats"
            f"{interval_text(result.interval(), '+.3f', '')}, from {result.clean_mean:.3f}"
        )


def _number(value: float | None, digits: str) -> str:
    return "" if value is None or value != value else format(value, digits)


def _print_summary(heads_atlas: Atlas, head: tuple[int, int], tokenizer: object) -> None:
    from aotlens.conventions import describe

    print_text(f"Head {head[0]}.{head[1]}. {heads_atlas.sentence(head)}")
    for name, partners in (("reads", heads_atlas.reads(head)), ("feeds", heads_atlas.feeds(head))):
        if partners:
            names = ", ".join(f"{p.head[0]}.{p.head[1]} ({p.mode}, z = {p.z:.1f})" for p in partners)
            print_text(f"It {name} {names}.")
    lines: list[tuple[str, ...]] = [("off key 0", "query", "attends to", "attention")]
    for example in heads_atlas.examples.of(head):
        ids = heads_atlas.examples.tokens[example.sequence]
        strings = tokenizer.str_tokens(ids.tolist()) if tokenizer is not None else [str(i) for i in ids]  # type: ignore[attr-defined]
        key = example.keys[0] if example.keys else 0
        passage = "".join(strings[max(1, example.query - 6) : example.query + 1])
        target = "".join(strings[max(1, key - 3) : key + 1])
        weight = f"{example.weights[0]:.2f}" if example.weights else ""
        lines.append((f"{example.away:.2f}", f"… {describe(passage)}", f"… {describe(target)}", weight))
    print_text(f"\n{table(lines)}")
