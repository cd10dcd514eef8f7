"""What taught an induction head: the influence of every window of training, and whether retraining confirms it.

    python -m analyses.influence RECIPE[@SEED] ... --corpus dir:PATH --out DIR [--page docs/influence.md]

Each run is trained, and two measures of its end are taken: the loss on what comes twice, of text or of random tokens as
in training, and the induction score of its best head. Of these the influence of every window is found
(`aotlens.dynamics.influence`), its order is checked by 40 retrainings without a random tenth of the windows, and the
1.5% most helpful and most harmful windows for induction are left out, beside random windows of the same steps. What is
done is kept in DIR; a second call goes on. A run takes some 40 minutes of two cores.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import joblib
import torch

from analyses._claims import markdown, parser
from analyses._outcomes import ROOT, of_run
from aotlens.conventions import head_name
from aotlens.dynamics import (
    Influence,
    InfluenceCheck,
    RecipeRun,
    Removal,
    check_influence,
    influence,
    influence_properties,
    recipe_run,
    remove_windows,
)
from aotlens.dynamics.influence_check import require_same_run
from aotlens.dynamics.influence_files import PROPERTIES
from aotlens.heads import motif_scores
from aotlens.results import Result, load
from aotlens.train import OBJECTIVES
from aotlens.train.recipe import load_recipe

#: The ε inside AdamW's root, in training as in the derivative.
EPS_ROOT = 1e-6


def made(path: Path, kind: type[Result], make: Callable[[], Result]) -> Result:
    """Return the result that was kept, or a new one, which is."""
    if not path.is_file():
        make().save(path)
    result: Result = load(path, kind)
    return result


#: Influences, their check, and the removal of the ends.
Study: TypeAlias = tuple[Influence, InfluenceCheck, Removal]


def study(run: RecipeRun, name: str, out: Path) -> Study:
    """Return the influences on a run's loss on repeats and on its induction head, their check, and the removal of the
    ends."""
    path = out / f"{name}.safetensors"

    def first() -> Influence:
        scores = motif_scores(run.train(eps_root=EPS_ROOT), n_sequences=16, half_length=31)
        best = scores.best("induction")
        assert best is not None
        loss = "repeated_text_loss" if run.recipe.stages[-1].repeat_source == "text" else "repeated_loss"
        measures = [loss, f"induction {head_name(best[0])}"]
        print(name, measures, flush=True)
        return influence(run, measures, eps_root=EPS_ROOT, folder=out / "states", progress=_progress(name))

    effects = made(path, Influence, first)
    assert isinstance(effects, Influence)
    require_same_run(run, effects)
    print(name, effects.headline, flush=True)
    induction = effects.measures[1]
    checked = made(out / f"{name}-check.safetensors", InfluenceCheck, lambda: check_influence(run, effects, n=40))
    print(name, checked, flush=True)
    removed = made(
        out / f"{name}-removal.safetensors", Removal, lambda: remove_windows(run, effects, induction, n_random=6)
    )
    print(name, removed, flush=True)
    assert isinstance(checked, InfluenceCheck) and isinstance(removed, Removal)
    return effects, checked, removed


def check_table(studies: Mapping[str, Study]) -> str:
    """Return a row a measure of a run: how well its influences order retrainings."""
    rows = []
    for name, (effects, checked, _) in studies.items():
        for place, measure in enumerate(effects.measures):
            rows.append(
                (
                    name,
                    measure,
                    f"{effects.values[place]:.3f}",
                    _with(checked.correlation(measure), checked.interval(measure)),
                    _with(checked.tracin_correlation(measure), checked.tracin_interval(measure)),
                    _to(checked.difference_interval(measure)),
                    f"{effects.first_step_share[place]:.1%}",
                    f"{effects.first_quarter_share[place]:.0%}",
                )
            )
    header = ("run", "measure", "at the end", "rank correlation with 40 retrainings", "TracIn's", "difference")
    return markdown((*header, "influence of step 0", "of the first quarter after it"), rows)


def removal_table(studies: Mapping[str, Study]) -> str:
    """Return a row a run: the measure without the windows at the ends of the order, beside random removals."""
    rows = []
    for name, (_, _, removed) in studies.items():
        helpful, harmful = removed.effects
        random = (removed.random_helpful[:, -1], removed.random_harmful[:, -1])
        rows.append(
            (
                name,
                f"{removed.whole[-1]:.3f}",
                f"{removed.without_helpful[-1]:.3f} ({helpful:+.1f})",
                f"{random[0].mean():.3f} ± {random[0].std(ddof=1):.3f}",
                f"{removed.without_harmful[-1]:.3f} ({harmful:+.1f})",
                f"{random[1].mean():.3f} ± {random[1].std(ddof=1):.3f}",
            )
        )
    header = (
        "run",
        "induction score",
        "without the most helpful (in sd of random)",
        "without random ones of their steps",
    )
    return markdown((*header, "without the most harmful", "without random ones of those steps"), rows)


def property_table(studies: Mapping[str, Study]) -> str:
    """Return a row a run: what a standard deviation of each property alone is worth for the induction score."""
    rows = []
    for name, (effects, _, _) in studies.items():
        fit = influence_properties(effects, effects.measures[1])
        pairs = zip(fit.alone[0], fit.alone_intervals[0], strict=True)
        cells = [_with(value, interval) for value, interval in pairs]
        together = f"{fit.correlations[0, 1]:+.3f}"
        rows.append((name, *cells, f"{fit.r_squared[0]:.2f}", together, f"{fit.n_clusters} {fit.clusters}"))
    header = ("run", *PROPERTIES, "R² of all", "correlation of repeats and distance", "drawn")
    return markdown(header, rows)


def agreement_table(studies: Mapping[str, Study]) -> str:
    """Return a row a pair of seeds on text: whether the same documents help in both, for the loss and for induction,
    and in two halves of each run's own windows."""
    rows = []
    on_text = [(name, effects) for name, (effects, _, _) in studies.items() if effects.windows.names]
    for (name, left), (other_name, right) in itertools.combinations(on_text, 2):
        if left.run != right.run:
            continue  # of other kinds, which have windows in common
        cells = []
        for measure, other_measure in zip(left.measures, right.measures, strict=True):
            correlation, interval, n_documents = left.agreement(right, measure, other_measure)
            halves = left.document_reliability(measure), right.document_reliability(other_measure)
            cells += [_with(correlation, interval), ", ".join(f"{half:+.2f}" for half in halves)]
        rows.append((f"{name} and {other_name}", *cells, str(n_documents)))
    header = ("rank correlation for the loss", "of halves within each", "for induction", "of halves within each")
    return markdown(("runs", *header, "documents"), rows)


def _with(value: float, interval: Sequence[float]) -> str:
    return f"{value:+.2f} ({_to(interval)})"


def _to(interval: Sequence[float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"


def _progress(name: str) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done % 100 == 0:
            print(f"{name}: step {done:,} of {total:,}", flush=True)

    return progress


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="+", metavar="RECIPE[@SEED]", help="a recipe's file; its own seed by default")
    options.add_argument("--corpus", required=True, metavar="SPEC")
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="what was found is kept here")
    options.add_argument("--page", type=Path, help="write its section of this page, and store the outcome")
    options.add_argument("--processes", type=int, default=2, metavar="N", help="of retrainings side by side")
    arguments = options.parse_args(argv)
    torch.set_num_threads(1)
    studies: dict[str, Study] = {}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for source in arguments.runs:
        path, _, seed = source.partition("@")
        recipe = load_recipe(path)
        recipe = dataclasses.replace(recipe, seed=int(seed)) if seed else recipe
        run = recipe_run((recipe, OBJECTIVES["next_token"].prepare(recipe, arguments.corpus)))
        with joblib.parallel_config(backend="loky", n_jobs=arguments.processes):
            name = f"{recipe.name.removeprefix('influence-')}-{recipe.seed}"
            studies[name] = study(run, name, arguments.out)
    parts = [check_table(studies), removal_table(studies), property_table(studies)]
    if sum(bool(effects.windows.names) for effects, _, _ in studies.values()) > 1:
        parts.append(agreement_table(studies))
    print("\n\n".join(parts))
    if arguments.page is not None:
        command = f"python -m analyses.influence {' '.join(arguments.runs)} --corpus dir:PATH --out DIR"
        outcome = of_run("influence", command, str(arguments.page), parts)
        outcome.publish(ROOT / arguments.page, store=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
