"""A training run as a film: analyses of every snapshot, the order of events, and what each circuit took off the loss.

over_training.py  any analysis of every snapshot: a result with an axis `step`
film.py           the measures of a film: losses, motifs, composition, copying, sizes
"""

from __future__ import annotations

from aotlens.dynamics.film import Measures, film, measure_model
from aotlens.dynamics.over_training import OverTraining, over_training

__all__ = ["Measures", "OverTraining", "film", "measure_model", "over_training"]
