"""A training run as a film: analyses of every snapshot, the order of events, what each circuit took off the loss, and
what each training window did to a head.

over_training.py  any analysis of every snapshot: a result with an axis `step`
film.py           the measures of a film: losses, motifs, composition, copying, sizes
products.py       the model between two snapshots, along lines in the products of its heads
events.py         change points of curves, and the order of events over seeds
ledger.py         the change of the loss, split by circuit
recipe_run.py     a run that can be made again, batch by batch
adamw.py          AdamW's step, the step undone, and its derivative
influence.py      the derivative of a measure of the end with respect to every window (influence_measures.py, its
                  result influence_result.py)
influence_files.py  influences that are kept with a checkpoint, their windows as text, and the properties of windows
                  that predict them
retraining.py     training again with other windows; influence_check.py, whether influences order that
"""

from __future__ import annotations

from aotlens.dynamics.events import ChangePoint, EventOrder, change_point, half_way, order_of_events
from aotlens.dynamics.film import Measures, film, film_curves, measure_model
from aotlens.dynamics.influence import influence
from aotlens.dynamics.influence_check import InfluenceCheck, Removal, check_influence, remove_windows
from aotlens.dynamics.influence_files import (
    InfluenceProperties,
    InfluentialWindows,
    influence_properties,
    influential_windows,
    stored_check,
    stored_influence,
    window_properties,
)
from aotlens.dynamics.influence_result import Influence, TrainingWindows
from aotlens.dynamics.ledger import Ledger, ledger
from aotlens.dynamics.over_training import OverTraining, over_training
from aotlens.dynamics.recipe_run import RecipeRun, recipe_run
from aotlens.dynamics.retraining import Retrained, retrain
