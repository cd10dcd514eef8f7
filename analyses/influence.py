"""What taught an induction head: the influence of every window of training, and whether retraining confirms it.

    python -m analyses.influence RECIPE ... --corpus dir:PATH --out DIR [--seeds 0 1 2] [--page docs/influence.md]

Each run is trained, and two measures of its end are taken: the loss on held-out text that comes twice, and the induction
score of its best head. Of these the influence of every window is found
(`aotlens.dynamics.influence`), its order is checked by 40 retrainings without a random tenth of the windows, and the
1.5% most helpful and most harmful windows are left out, beside random windows of the same steps. What is done is
kept in DIR; a second call goes on. A run takes some 20 minutes of two cores.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import joblib
import torch

from analyses._claims import parser
from aotlens.conventions import head_name
from aotlens.dynamics import (
    Influence,
    InfluenceCheck,
    RecipeRun,
    Removal,
    check_influence,
    influence,
    recipe_run,
    remove_windows,
)
from aotlens.heads import motif_scores
from aotlens.results import Result, load
from aotlens.train import OBJECTIVES
from aotlens.train.recipe import load_recipe


def made(path: Path, kind: type[Result], make: Callable[[], Result]) -> Result:
    """The result that was kept, or a new one, which is."""
    if not path.is_file():
        make().save(path)
    found: Result = load(path, kind)
    return found


def study(run: RecipeRun, name: str, out: Path) -> tuple[Influence, InfluenceCheck, Removal]:
    """The influences of a run on its induction head, their check, and the removal of the ends."""
    path = out / f"{name}.safetensors"

    def first() -> Influence:
        scores = motif_scores(run.train(), n_sequences=16, half_length=31)
        best = scores.best("induction")
        assert best is not None
        measures = ["repeated_text_loss", f"induction {head_name(best[0])}"]
        print(name, measures, flush=True)
        return influence(run, measures, folder=out / "states", progress=_progress(name))

    found = made(path, Influence, first)
    assert isinstance(found, Influence)
    print(name, found.headline, flush=True)
    induction = found.measures[1]
    checked = made(out / f"{name}-check.safetensors", InfluenceCheck, lambda: check_influence(run, found, n=40))
    print(name, checked, flush=True)
    removed = made(
        out / f"{name}-removal.safetensors", Removal, lambda: remove_windows(run, found, induction, n_random=6)
    )
    print(name, removed, flush=True)
    assert isinstance(checked, InfluenceCheck) and isinstance(removed, Removal)
    return found, checked, removed


def _progress(name: str) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done % 100 == 0:
            print(f"{name}: step {done:,} of {total:,}", flush=True)

    return progress


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("recipes", nargs="+", metavar="RECIPE")
    options.add_argument("--corpus", required=True, metavar="SPEC")
    options.add_argument("--out", type=Path, required=True, metavar="DIR", help="what was found is kept here")
    options.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N")
    chosen = options.parse_args(argv)
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for path in chosen.recipes:
        for seed in chosen.seeds:
            recipe = dataclasses.replace(load_recipe(path), seed=seed)
            run = recipe_run((recipe, OBJECTIVES["next_token"].prepare(recipe, chosen.corpus)))
            with joblib.parallel_config(backend="loky", n_jobs=2):
                study(run, f"{recipe.name}-{seed}", chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
