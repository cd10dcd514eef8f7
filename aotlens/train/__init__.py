"""Training: recipes, one process or torchrun, resume, metrics.

recipe.py        what a run does, from TOML
corpus.py        tokenizer and token files, made once
stream.py        token files of a stream, in one pass
dry_run.py       what a run would take: parameters, memory, time
optimiser.py     AdamW and the schedule
loop.py          the loop
state.py         the state from which a killed run resumes
report.py        what is measured as training goes and at the end
distributed.py   what torchrun starts
recipes/         the recipes of the bundled checkpoints, and of Table 4 of *aot*
"""

from __future__ import annotations

from aotlens.train.corpus import TrainingData, prepare
from aotlens.train.dry_run import DryRun, dry_run
from aotlens.train.loop import TrainingError, train
from aotlens.train.recipe import CorpusRecipe, Recipe, Stage, list_recipes, load_recipe
from aotlens.train.run import run_recipe

__all__ = [
    "CorpusRecipe",
    "DryRun",
    "Recipe",
    "Stage",
    "TrainingData",
    "TrainingError",
    "dry_run",
    "list_recipes",
    "load_recipe",
    "prepare",
    "run_recipe",
    "train",
]
