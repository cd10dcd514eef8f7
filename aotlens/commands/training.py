"""``aotlens train``, ``film`` and ``influence``: a checkpoint from a recipe, the snapshots of its run, and the training
windows that taught a head."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotlens.commands import options
from aotlens.commands.shared import (
    Context,
    Parts,
    TokenBar,
    check_new,
    command,
    documents_to_read,
    frame_text,
    print_text,
    several,
    table,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor

    from aotlens.checkpoints import Run
    from aotlens.dynamics import Influence, InfluenceCheck, InfluentialWindows, Ledger, OverTraining, RecipeRun

#: Motifs whose best heads `film` prints.
_MOTIFS = ("previous_token", "induction")
#: Documents of either end that `influence` prints.
_N_DOCUMENTS = 5


# ── aotlens train ───────────────────────────────────────────────────────────────────────────────────────────────


def train_command(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name, or a TOML file.")],
    corpus: Annotated[
        str | None,
        options.word(
            "Text that replaces the recipe's: stdlib, novels, file:PATH, dir:PATH or hf:NAME; of images digits, "
            "npz:PATH, folder:PATH, openml:NAME or hf:NAME.",
            "SPEC",
            "--corpus",
            "--data",
        ),
    ] = None,
    out: Annotated[
        Path | None, options.word("The checkpoint's folder, not $AOTLENS_HOME/checkpoints/NAME.", "DIR")
    ] = None,
    device: options.Device = "auto",
    resume: Annotated[bool, options.flag("resume", "Go on from where a stopped run was.")] = False,
    seed: Annotated[int | None, options.whole("Instead of the recipe's.", 0, options.MOST_NUMBER)] = None,
    learning_rate: Annotated[
        float | None, options.word("Of the last stage, instead of the recipe's.", "NUMBER")
    ] = None,
    tokens: Annotated[
        int | None, options.whole("Of the last stage, or images, instead of the recipe's.", 1, options.MOST_NUMBER)
    ] = None,
    tokenizer: Annotated[
        str | None, options.word("GPT-2's tokens: a folder with encoder.json and vocab.bpe.", "gpt2_bpe:FOLDER")
    ] = None,
    rows_at_once: Annotated[
        int | None, options.whole("Rows of a pass on each device; a step adds up its passes' gradients.")
    ] = None,
    dry_run: Annotated[
        bool, options.flag("dry-run", "Train nothing: parameters, memory, speed and days on this device.")
    ] = False,
) -> None:
    """Train a model from a recipe, and save it as a checkpoint as it goes.

    On several GPUs: torchrun --nproc_per_node N -m aotlens train RECIPE
    """
    from aotlens.train import dry_run as measure  # imports torch, which the other commands need not wait for
    from aotlens.train import run_recipe
    from aotlens.train.run import changed_recipe

    if dry_run:
        changed = changed_recipe(recipe, seed, learning_rate, tokens, tokenizer, rows_at_once)
        print_text(measure(changed, device=device).text)
        return
    folder = run_recipe(
        recipe,
        corpus=corpus,
        out=out,
        device=device,
        resume=resume,
        seed=seed,
        learning_rate=learning_rate,
        tokens=tokens,
        tokenizer=tokenizer,
        rows_at_once=rows_at_once,
    )
    if os.environ.get("RANK", "0") == "0":
        print_text(f"{folder.name}: saved in {folder}")


# ── aotlens film ────────────────────────────────────────────────────────────────────────────────────────────────


@command("film", "folders")
def film_command(
    context: Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A checkpoint that was trained with snapshots, by its name or folder.")
    ],
    corpus: Annotated[str, options.word("Text to read: dir:PATH, a name, hf:….", "SPEC")],
    sequences: Annotated[int, options.whole("Windows of it.")] = 32,
    length: Annotated[
        int | None, options.whole("Tokens of a window; default: the context.", 5, options.MOST_NUMBER)
    ] = None,
    random: Annotated[int, options.whole("Rotations for p of compositions.", 0, options.MOST_ROWS)] = 100,
    with_ledger: Annotated[
        bool, options.flag("ledger", "Also split the change of the loss by circuit (minutes).")
    ] = False,
    start: Annotated[
        int | None, options.whole("First step of the ledger.", 0, options.MOST_NUMBER, metavar="STEP")
    ] = None,
    end: Annotated[
        int | None, options.whole("Last step of the ledger.", 0, options.MOST_NUMBER, metavar="STEP")
    ] = None,
    html: Annotated[
        Path | None, options.word("Write a page that plays the film, which needs no network.", "FILE")
    ] = None,
    movie: Annotated[
        Path | None, options.word("Write all heads' maps over training as NAME.gif, or NAME.mp4 by ffmpeg.", "FILE")
    ] = None,
    text: Annotated[
        str | None, options.word("Text of the maps of --movie; default: the first window's first 48 tokens.", "TEXT")
    ] = None,
) -> Parts:
    """Measure every snapshot of a run: losses, the heads with the highest motifs and composition; and when they change.

    Of text that the run was trained on, only the documents that were held out are read. What is measured is kept under
    $AOTLENS_HOME, so that a second call reads it and one after an interruption goes on.
    """
    from aotlens.checkpoints import load_run
    from aotlens.data import Encoding, open_corpus, spread_windows
    from aotlens.dynamics import film, ledger

    for file in (html, movie):
        check_new(file, context.force)
    if text is not None and movie is None:
        raise ValueError("--text: expected with --movie, whose maps it is read for.")
    if not with_ledger and (start, end) != (None, None):
        raise ValueError("--start and --end: expected with --ledger, whose steps they are.")
    models, source = load_run(run, context.device), open_corpus(corpus)
    last = models[models.steps[-1]]
    documents, read = documents_to_read(last, source, corpus)
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
    context.write(measures.to_frame())
    yield f"{several(len(tokens), 'window')} of {tokens.shape[1]} tokens of {read}; losses in nats per token."
    yield _steps(measures)
    yield _events(measures)
    if with_ledger:
        with TokenBar("segments", lines=True) as bar:
            print_text(f"\n{_split(ledger(models, tokens, start=start, end=end, progress=bar))}")


def _movie(run: Run, tokens: Tensor, measures: OverTraining, path: Path) -> None:
    """The maps of all heads on a text at every step, above the loss."""
    from aotlens.heads import attention_patterns
    from aotlens.plots.film import film_frames, save_film

    patterns = (attention_patterns(model, tokens).pattern for model in run)
    save_film(film_frames(patterns, measures.steps.tolist(), measures["loss"].tolist()), path)
    print_text(f"{path}: {several(len(run), 'frame')}")


def _best(values: np.ndarray) -> tuple[tuple[int, int], str]:
    """The head with the largest of `values [layer, head]`, and the same with its value in words."""
    import numpy as np

    layer, head = map(int, np.unravel_index(np.nanargmax(values), values.shape))
    return (layer, head), f"{layer}.{head} {values[layer, head]:.3f}"


def _steps(measures: OverTraining) -> pd.DataFrame:
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for place, result in enumerate(measures.results):
        row = {"step": measures.steps[place], "tokens": None if measures.tokens is None else measures.tokens[place]}
        row |= {name: getattr(result, name) for name in ("loss", "in_context", "repeated_gain")}
        row |= {name: _best(result.motif_scores[result.motifs.index(name)])[1] for name in _MOTIFS}
        if result.composition.shape[1] > 1:
            head, row["k composition"] = _best(result.composition[1])
            row["p"] = result.composition_p[1][head]
        rows.append(row)
    return pd.DataFrame(rows)


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
    rows = [("entry", "nats per token")]
    rows += [(split.entries[place], f"{split.totals[place]:+.4f}") for place in order]
    rows += [("residual", f"{split.residuals.sum():+.1e}"), ("change of the loss", f"{split.change:+.4f}")]
    halved = (
        "" if split.halved is None else f" With every second snapshot the split differs by {split.halved:.3f} of it."
    )
    about = f"Ledger from step {split.steps[0]:,} to {split.steps[-1]:,}, in {len(split.parts)} segments.{halved}"
    return f"{about}\n\n{table(rows)}"


# ── aotlens influence ───────────────────────────────────────────────────────────────────────────────────────────


@command("influence", "device", "folders")
def influence_command(
    context: Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A checkpoint that was trained here by a recipe: its name or folder.")
    ],
    corpus: Annotated[str, options.word("The text it was trained on: dir:PATH, a name, hf:….", "SPEC")],
    measure: Annotated[
        list[str],
        options.word('Of the end of training: "induction 1.0", repeated_loss, …; may be given several times.', "NAME"),
    ],
    steps: Annotated[int | None, options.whole("First steps of the run; default: all.", 1, options.MOST_NUMBER)] = None,
    top: Annotated[int, options.whole("Windows of either end to print.", 0)] = 5,
    check: Annotated[int | None, options.whole("Retrain without so many random tenths.")] = None,
    remove: Annotated[
        float, typer.Option(min=0, max=0.5, metavar="SHARE", help="Retrain without this share of either end.")
    ] = 0.0,
    eps_root: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="NUMBER", help="Inside AdamW's root; 1e-6 is nearer to linear, another run."
        ),
    ] = 1e-8,
    again: Annotated[bool, options.flag("again", "Compute again what is kept with the checkpoint.")] = False,
) -> None:
    """Find dM/dw of every training window for measures M of a trained model, through every step of AdamW.

    Training is replayed and then run backwards, on the CPU: some 9 times as long as training for two measures. A call
    after an interruption goes on. The result is kept with the checkpoint, where the page Training and a second call of
    the same measures and steps read it. Of retrainings (--check) 40 decide, fewer than 8 say nothing.
    """
    from aotlens.checkpoints import find_checkpoint
    from aotlens.conventions import require_whole
    from aotlens.dynamics import check_influence, influence_properties, recipe_run, remove_windows
    from aotlens.dynamics.influence_check import LEAST_RETRAININGS
    from aotlens.dynamics.influence_files import influential_windows
    from aotlens.dynamics.recipe_run import require_eps_root
    from aotlens.results import save_stored

    if not 0 <= remove <= 0.5:
        raise ValueError(f"remove={remove}: expected a share from 0 to 0.5.")
    require_eps_root(eps_root)
    if check is not None:
        require_whole("check", check, LEAST_RETRAININGS)
    info = find_checkpoint(run)
    followed = recipe_run(info, corpus)
    assert info.path is not None
    influences = _influences(followed, info.path, measure, steps, eps_root, again)
    context.write(influences.to_frame())
    blocks = [*_about(influences)]
    for name in influences.measures:
        documents = frame_text(_documents(influences, name))
        blocks += [name, f"{influence_properties(influences, name).headline}.", documents]
        if top:
            blocks.append(_windows(influential_windows(influences, followed.objective.data.tokenizer, top, name)))
    print_text("\n\n".join([*blocks, frame_text(influences.by_class())]))
    if check is not None:
        with TokenBar("retrainings", lines=True) as bar:
            checked = check_influence(followed, influences, n=check, progress=bar)
        save_stored("influence-check", info.path, checked)
        print_text(f"\n{_checked(checked)}")
    for name in influences.measures if remove else ():
        with TokenBar("retrainings", lines=True) as bar:
            removed = remove_windows(followed, influences, name, top=remove, progress=bar)
        print_text(f"\n{removed.headline}.")


def _influences(
    run: RecipeRun, checkpoint: Path, measures: list[str], steps: int | None, eps_root: float, again: bool
) -> Influence:
    """Return the stored influences of these measures, steps and ε, or else compute and store them."""
    from aotlens.dynamics import influence, stored_influence
    from aotlens.dynamics.influence_check import require_same_run
    from aotlens.dynamics.influence_measures import as_measures
    from aotlens.results import save_stored, stored_path

    path = stored_path("influence", checkpoint)
    if path.is_file() and not again:
        influences = stored_influence(checkpoint)
        require_same_run(run, influences)
        expected = (tuple(as_measures(measures, run)), steps or run.n_steps, eps_root)
        if (influences.measures, influences.n_steps, influences.eps_root) != expected:
            raise ValueError(
                f"{path}: there are influences on {', '.join(influences.measures)} of {influences.n_steps:,} steps "
                f"with --eps-root {influences.eps_root:g}; give these, or --again to replace them."
            )
        return influences
    with TokenBar("steps", lines=True) as bar:
        influences = influence(run, measures, steps=steps, eps_root=eps_root, progress=bar)
    save_stored("influence", checkpoint, influences)
    stored_path("influence-check", checkpoint).unlink(missing_ok=True)  # of other influences
    return influences


def _about(influences: Influence) -> Parts:
    replayed = "" if influences.replayed is None else f"; ‖replay − snapshot‖ ÷ ‖snapshot‖ {influences.replayed:.1e}"
    yield (
        f"{several(len(influences.windows), 'window')} of {several(influences.n_steps, 'step')}. Checks: Σ over a "
        f"batch {influences.batch_residual:.1e} of its norm; undone to {influences.undone:.1e} of each state{replayed}."
    )
    rows: list[tuple[str, ...]] = [("measure", "at the end", "influence of step 0", "of the first quarter after it")]
    for place, name in enumerate(influences.measures):
        shares = (influences.first_step_share[place], influences.first_quarter_share[place])
        rows.append((name, f"{influences.values[place]:.4g}", *(f"{share:.1%}" for share in shares)))
    yield table(rows)
    if len(influences.measures) > 1:
        correlations = influences.correlations()
        pairs = [
            f"{influences.measures[i]} and {influences.measures[j]} {correlations[i, j]:+.2f}"
            for i in range(len(influences.measures))
            for j in range(i)
        ]
        yield f"Rank correlations of influences over windows: {', '.join(pairs)}."


def _documents(influences: Influence, measure: str) -> pd.DataFrame:
    """The documents with the largest and the smallest sum."""
    import pandas as pd

    frame = influences.by_document()[["document", "windows", measure]]
    frame = frame.sort_values(measure, ascending=False, kind="stable")
    few = len(frame) <= 2 * _N_DOCUMENTS
    return frame if few else pd.concat([frame[:_N_DOCUMENTS], frame[-_N_DOCUMENTS:]])


def _windows(ends: InfluentialWindows) -> str:
    lines = []
    for helps, title in ((True, "Most helpful"), (False, "Most harmful")):
        lines.append(f"{title} windows, [what is repeated] in brackets:")
        for place in [place for place, end in enumerate(ends.helps) if end == helps]:
            where = f"step {ends.steps[place]:,}, {ends.documents[place]}"
            lines.append(f"  {ends.influences[place]:+.3g}  ({where})  {' '.join(ends.texts[place].split())}")
    return "\n".join(lines)


def _checked(checked: InfluenceCheck) -> str:
    rows: list[tuple[str, ...]] = [
        ("measure", "rank correlation with retraining", "95%", "TracIn", "95%", "difference, 95%")
    ]
    for name in checked.measures:
        intervals = (checked.interval(name), checked.tracin_interval(name), checked.difference_interval(name))
        exact, tracin, difference = (f"{low:+.2f} to {high:+.2f}" for low, high in intervals)
        both = (f"{checked.correlation(name):+.2f}", f"{checked.tracin_correlation(name):+.2f}")
        rows.append((name, both[0], exact, both[1], tracin, difference))
    about = f"Of {several(checked.found.shape[1], 'retraining')} without a random {checked.drop:.0%} of the windows:"
    return f"{about}\n\n{table(rows)}"
