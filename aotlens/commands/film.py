"""``aotlens film``: every snapshot of a training run, when it changes, and what each circuit took off the loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Csv,
    Device,
    Force,
    TokenBar,
    check_csv,
    print_text,
    several,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from aotlens.checkpoints import Run
    from aotlens.dynamics import Ledger, OverTraining


def film_command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A checkpoint that was trained with snapshots, by its name or folder.")
    ],
    corpus: Annotated[str, typer.Option(metavar="SPEC", help="Text to read: dir:PATH, a name, hf:….")],
    sequences: Annotated[int, typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Windows of it.")] = 32,
    length: Annotated[
        int | None, typer.Option(min=5, max=MOST_NUMBER, metavar="N", help="Tokens of a window; default: the context.")
    ] = None,
    random: Annotated[
        int, typer.Option(min=0, max=MOST_ROWS, metavar="N", help="Rotations for p of compositions.")
    ] = 100,
    with_ledger: Annotated[
        bool, typer.Option("--ledger", help="Also split the change of the loss by circuit (minutes).")
    ] = False,
    start: Annotated[int | None, typer.Option(min=0, max=MOST_NUMBER, metavar="STEP", help="Of the ledger.")] = None,
    end: Annotated[int | None, typer.Option(min=0, max=MOST_NUMBER, metavar="STEP", help="Of the ledger.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that plays the film, which needs no network.")
    ] = None,
    movie: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all heads' maps over training as NAME.gif, or NAME.mp4 by ffmpeg."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Text of the maps of --movie; default: the first window's first 48 tokens.")
    ] = None,
    csv: Csv = None,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Measure every snapshot of a run: losses, the heads with the highest motifs and composition; and when they change.

    Of text that the run was trained on, only the documents that were held out are read. What is measured is kept under
    $AOTLENS_HOME, so that a second call reads it and one after an interruption goes on.
    """
    from aotlens.checkpoints import load_run
    from aotlens.commands.choosing import documents_to_read
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.dynamics import film, ledger

    for file in (csv, html, movie):
        check_csv(file, force)
    if text is not None and movie is None:
        raise ValueError("--text: expected beside --movie, whose maps it is read for.")
    if not with_ledger and (start, end) != (None, None):
        raise ValueError("--start and --end: expected beside --ledger, of which they are.")
    models, source = load_run(run, device), open_corpus(corpus)
    last = models[models.steps[-1]]
    documents, read = documents_to_read(last, source, corpus, (), False)
    width = min(length or last.cfg.n_ctx, last.cfg.n_ctx)
    tokens = spread_windows(source, documents or source.names(), Encoding.of(last.tokenizer), sequences, width)
    with TokenBar("steps", lines=True) as bar:
        measures = film(models, tokens, n_random=random, progress=bar)
    if html is not None:
        from aotlens.plots.film import film_figure
        from aotlens.plots.results import write_page

        write_page(film_figure(measures), html, auto_play=False)
        print_text(f"{html}: a film of {several(len(models), 'snapshot')}")
    if movie is not None:
        _movie(models, last.to_tokens(text) if text is not None else tokens[:1, :48], measures, movie)
    if csv is not None:
        write_csv(measures.to_frame(), csv)
    else:
        print_text(f"{several(len(tokens), 'window')} of {tokens.shape[1]} tokens of {read}; losses in nats a token.\n")
        print_text(table(_rows(measures)))
        print_text(f"\n{_events(measures)}")
    if with_ledger:
        with TokenBar("segments", lines=True) as bar:
            split = ledger(models, tokens, start=start, end=end, progress=bar)
        print_text(f"\n{_split(split)}")


def _movie(run: Run, tokens: Tensor, measures: OverTraining, path: Path) -> None:
    """The maps of all heads on a text at every step, above the loss."""
    from aotlens.heads import attention_patterns
    from aotlens.plots.film import film_frames, save_film

    patterns = (attention_patterns(model, tokens).pattern for model in run)
    save_film(film_frames(patterns, measures.steps.tolist(), measures["loss"].tolist()), path)
    print_text(f"{path}: {several(len(run), 'frame')}")


def _best(values: np.ndarray) -> tuple[str, float]:
    """The head with the largest of `values [layer, head]`, and its value."""
    import numpy as np

    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    return f"{layer}.{head}", float(values[layer, head])


def _rows(measures: OverTraining) -> list[tuple[str, ...]]:
    names = ("previous_token", "induction")
    rows: list[tuple[str, ...]] = [
        ("step", "tokens", "loss", "in context", "repeated", "previous token", "induction", "k composition", "p")
    ]
    for place, each in enumerate(measures.results):
        cells = [f"{measures.steps[place]:,}", "" if measures.tokens is None else f"{measures.tokens[place]:,}"]
        cells += [f"{value:.3f}" for value in (each.loss, each.in_context, each.repeated_gain)]
        for name in names:
            head, value = _best(each.motif_scores[each.motifs.index(name)])
            cells.append(f"{head} {value:.3f}")
        if each.composition.shape[1] > 1:
            head, value = _best(each.composition[1])
            p = each.composition_p[1][tuple(map(int, head.split(".")))]
            cells += [f"{head} {value:.3f}", "" if p != p else f"{p:.3f}"]
        else:
            cells += ["", ""]
        rows.append(tuple(cells))
    return rows


def _events(measures: OverTraining) -> str:
    """Tabulate when each measure leaves the band of its first snapshots for good."""
    from aotlens.dynamics.events import LEAST_SNAPSHOTS

    if not measures.events:
        return f"Change points need at least {LEAST_SNAPSHOTS} snapshots."
    rows = [("measure (largest over heads)", "leaves its first values between steps", "segmented fit begins at", "p")]
    for name, change in measures.events.items():
        between = "no lasting change found" if change.step is None else f"{change.after:,} and {change.step:,}"
        onset = "" if change.onset is None else f"{change.onset:,}"
        rows.append((name, between, onset, f"{change.p:.3f}"))
    return table(rows)


def _split(split: Ledger) -> str:
    """The entries, the one that lowered the loss most first, and the residual."""
    import numpy as np

    order = np.argsort(split.totals, kind="stable")
    rows = [("entry", "nats a token")] + [(split.entries[place], f"{split.totals[place]:+.4f}") for place in order]
    rows += [("residual", f"{split.residuals.sum():+.1e}"), ("change of the loss", f"{split.change:+.4f}")]
    halved = (
        "" if split.halved is None else f" With every second snapshot the split differs by {split.halved:.3f} of it."
    )
    about = f"Ledger from step {split.steps[0]:,} to {split.steps[-1]:,}, in {len(split.parts)} segments.{halved}"
    return f"{about}\n\n{table(rows)}"
