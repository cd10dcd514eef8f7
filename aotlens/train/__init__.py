"""Training: recipes, one process or torchrun, resume, metrics.

recipe.py        what a run does, from TOML; the interface of objectives
sections.py      its sections: corpus or images, stages
objectives/      what is learned: next tokens, hidden tokens, classes of images, labels in context
corpus.py        tokenizer and token files, made once, or from a stream in one pass
optimiser.py     AdamW, Lion and the schedule
loop.py          the loop, and the checkpoint's metadata
state.py         the state from which a killed run resumes; the steps at which weights are kept
run.py           a recipe from its name to its checkpoint; a dry run: parameters, memory, time
distributed.py   what torchrun starts
recipes/         the recipes of the bundled checkpoints, and of Table 4 of *aot*
"""

from __future__ import annotations

from aotlens.train.corpus import TrainingData, prepare
from aotlens.train.loop import TrainingError, train
from aotlens.train.objectives import OBJECTIVES, ImageTrainingData, Objective
from aotlens.train.recipe import Recipe, list_recipes, load_recipe
from aotlens.train.run import DryRun, dry_run, run_recipe
from aotlens.train.sections import CorpusRecipe, ImagesRecipe, Stage
