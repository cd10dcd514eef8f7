"""Training: recipes, one process or torchrun, resume, metrics.

recipe.py        what a run does, from TOML
sections.py      its sections: corpus or images, stages
objectives/      what is learned: next tokens, hidden tokens, classes of images
corpus.py        tokenizer and token files, made once
stream.py        token files of a stream, in one pass
dry_run.py       what a run would take: parameters, memory, time
optimiser.py     AdamW, Lion and the schedule
loop.py          the loop
snapshots.py     at which steps weights are kept
state.py         the state from which a killed run resumes
report.py        what the checkpoint says about itself
distributed.py   what torchrun starts
recipes/         the recipes of the bundled checkpoints, and of Table 4 of *aot*
"""

from __future__ import annotations

from aotlens.train.corpus import TrainingData, prepare
from aotlens.train.dry_run import DryRun, dry_run
from aotlens.train.loop import TrainingError, train
from aotlens.train.objectives import OBJECTIVES, ImageTrainingData, Objective
from aotlens.train.recipe import Recipe, list_recipes, load_recipe
from aotlens.train.run import run_recipe
from aotlens.train.sections import CorpusRecipe, ImagesRecipe, Stage
