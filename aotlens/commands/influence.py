"""``aotlens influence``: which windows of training taught a head, and whether retraining confirms it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aotlens.commands.shared import (
    MOST_NUMBER,
    MOST_ROWS,
    Csv,
    Force,
    TokenBar,
    check_csv,
    print_text,
    several,
    table,
    write_csv,
)

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.dynamics import Influence, InfluenceCheck, InfluentialWindows, RecipeRun

#: Documents of either end that are printed.
_N_DOCUMENTS = 5


def influence_command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A checkpoint that was trained here by a recipe: its name or folder.")
    ],
    corpus: Annotated[str, typer.Option(metavar="SPEC", help="The text it was trained on: dir:PATH, a name, hf:….")],
    measure: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help='Of the end of training: "induction 1.0", repeated_loss, …; may be given several times.',
        ),
    ],
    steps: Annotated[
        int | None, typer.Option(min=1, max=MOST_NUMBER, metavar="N", help="First steps of the run; default: all.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, max=MOST_ROWS, metavar="N", help="Windows of either end to print.")] = 5,
    check: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_ROWS, metavar="N", help="Retrain without so many random tenths."),
    ] = None,
    remove: Annotated[
        float,
        typer.Option(min=0, max=0.5, metavar="SHARE", help="Retrain without this share of either end."),
    ] = 0.0,
    eps_root: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="NUMBER", help="Inside AdamW's root; 1e-6 is nearer to linear, another run."
        ),
    ] = 1e-8,
    csv: Csv = None,
    again: Annotated[bool, typer.Option("--again", help="Find again what is kept beside the checkpoint.")] = False,
    force: Force = False,
) -> None:
    """Find dM/dw of every training window for measures M of a trained model, through every step of AdamW.

    Training is replayed and then run backwards, on the CPU: some 9 times as long as training for two measures. A call
    after an interruption goes on. What is found is kept beside the checkpoint, where the page Training and a second
    call of the same measures and steps read it. Of retrainings (--check) 40 decide, fewer than 8 say nothing.
    """
    from aotlens.checkpoints import find_checkpoint
    from aotlens.conventions import require_whole
    from aotlens.dynamics import check_influence, influence_properties, recipe_run, remove_windows
    from aotlens.dynamics.influence_check import LEAST_RETRAININGS
    from aotlens.dynamics.influence_files import check_path, influential_windows
    from aotlens.dynamics.recipe_run import require_eps_root

    check_csv(csv, force)
    if not 0 <= remove <= 0.5:
        raise ValueError(f"remove={remove}: expected a share from 0 to 0.5.")
    require_eps_root(eps_root)
    if check is not None:
        require_whole("check", check, LEAST_RETRAININGS)
    info = find_checkpoint(run)
    followed = recipe_run(info, corpus)
    assert info.path is not None
    influences = _found(followed, info.path, measure, steps, eps_root, again)
    if csv is not None:
        write_csv(influences.to_frame(), csv)
    print_text(_about(influences))
    for name in influences.measures:
        print_text(f"\n{name}\n")
        print_text(f"{influence_properties(influences, name).headline}.\n")
        print_text(_documents(influences, name))
        if top:
            print_text(f"\n{_windows(influential_windows(influences, followed.objective.data.tokenizer, top, name))}")
    print_text(f"\n{_frame(influences.by_class())}")
    if check is not None:
        with TokenBar("retrainings", lines=True) as bar:
            checked = check_influence(followed, influences, n=check, progress=bar)
        checked.save(check_path(info.path))
        print_text(f"\n{_checked(checked)}")
    if remove:
        for name in influences.measures:
            with TokenBar("retrainings", lines=True) as bar:
                removed = remove_windows(followed, influences, name, top=remove, progress=bar)
            print_text(f"\n{removed.headline}.")


def _found(
    run: RecipeRun, checkpoint: Path, measures: list[str], steps: int | None, eps_root: float, again: bool
) -> Influence:
    """Return the stored influences of these measures, steps and ε, or else compute and store them."""
    from aotlens.dynamics import influence, stored_influence
    from aotlens.dynamics.influence_check import require_same_run
    from aotlens.dynamics.influence_files import check_path, influence_path
    from aotlens.dynamics.influence_measures import as_measures

    path = influence_path(checkpoint)
    if path.is_file() and not again:
        influences = stored_influence(checkpoint)
        require_same_run(run, influences)
        asked = (tuple(as_measures(measures, run)), steps or run.n_steps, eps_root)
        if (influences.measures, influences.n_steps, influences.eps_root) != asked:
            raise ValueError(
                f"{path}: there are influences on {', '.join(influences.measures)} of {influences.n_steps:,} steps "
                f"with --eps-root {influences.eps_root:g}; give these, or --again to replace them."
            )
        return influences
    with TokenBar("steps", lines=True) as bar:
        influences = influence(run, measures, steps=steps, eps_root=eps_root, progress=bar)
    influences.save(path)
    check_path(checkpoint).unlink(missing_ok=True)  # of other influences
    return influences


def _about(influences: Influence) -> str:
    rows: list[tuple[str, ...]] = [("measure", "at the end", "influence of step 0", "of the first quarter after it")]
    for place, name in enumerate(influences.measures):
        shares = (influences.first_step_share[place], influences.first_quarter_share[place])
        rows.append((name, f"{influences.values[place]:.4g}", *(f"{share:.1%}" for share in shares)))
    replayed = "" if influences.replayed is None else f"; ‖replay − snapshot‖ ÷ ‖snapshot‖ {influences.replayed:.1e}"
    about = (
        f"{several(len(influences.windows), 'window')} of {several(influences.n_steps, 'step')}. Checks: Σ over a "
        f"batch {influences.batch_residual:.1e} of its norm; undone to {influences.undone:.1e} of each state{replayed}."
    )
    lines = [about, "", table(rows)]
    if len(influences.measures) > 1:
        correlations = influences.correlations()
        pairs = [
            f"{influences.measures[i]} and {influences.measures[j]} {correlations[i, j]:+.2f}"
            for i in range(len(influences.measures))
            for j in range(i)
        ]
        lines += ["", f"Rank correlations of influences over windows: {', '.join(pairs)}."]
    return "\n".join(lines)


def _documents(influences: Influence, measure: str) -> str:
    """The documents with the largest and the smallest sum."""
    frame = influences.by_document()[["document", "windows", measure]].sort_values(
        measure, ascending=False, kind="stable"
    )
    if len(frame) > 2 * _N_DOCUMENTS:
        import pandas as pd

        frame = pd.concat([frame[:_N_DOCUMENTS], frame[-_N_DOCUMENTS:]])
    return _frame(frame)


def _windows(ends: InfluentialWindows) -> str:
    lines = []
    for helps, title in ((True, "Most helpful"), (False, "Most harmful")):
        lines.append(f"{title} windows, [what comes again] in brackets:")
        for place in [place for place, each in enumerate(ends.helps) if each == helps]:
            where = f"step {ends.steps[place]:,}, {ends.documents[place]}"
            lines.append(f"  {ends.influences[place]:+.3g}  ({where})  {' '.join(ends.texts[place].split())}")
    return "\n".join(lines)


def _checked(checked: InfluenceCheck) -> str:
    rows = [("measure", "rank correlation with retraining", "95%", "TracIn", "95%", "difference, 95%")]
    for name in checked.measures:
        intervals = (checked.interval(name), checked.tracin_interval(name), checked.difference_interval(name))
        own, tracin, difference = (f"{low:+.2f} to {high:+.2f}" for low, high in intervals)
        both = (f"{checked.correlation(name):+.2f}", f"{checked.tracin_correlation(name):+.2f}")
        rows.append((name, both[0], own, both[1], tracin, difference))
    about = f"Of {several(checked.found.shape[1], 'retraining')} without a random {checked.drop:.0%} of the windows:"
    return f"{about}\n\n{table(rows)}"


def _frame(frame: pd.DataFrame) -> str:
    return table([tuple(map(str, frame.columns)), *(tuple(map(_cell, row)) for row in frame.itertuples(index=False))])


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:+.4g}" if isinstance(value, float) else f"{value:,}"
