"""A training run as a film: analyses of every snapshot, the order of events, and what each circuit took off the loss.

over_training.py  any analysis of every snapshot: a result with an axis `step`
film.py           the measures of a film: losses, motifs, composition, copying, sizes
products.py       the model between two snapshots, along lines in the products of its heads
events.py         change points of curves, and the order of events over seeds
ledger.py         the change of the loss, split by circuit
"""

from __future__ import annotations

from aotlens.dynamics.events import ChangePoint, EventOrder, change_point, half_way, order_of_events
from aotlens.dynamics.film import Measures, film, film_curves, measure_model
from aotlens.dynamics.ledger import Ledger, ledger
from aotlens.dynamics.over_training import OverTraining, over_training

__all__ = [
    "ChangePoint",
    "EventOrder",
    "Ledger",
    "Measures",
    "OverTraining",
    "change_point",
    "film",
    "film_curves",
    "half_way",
    "ledger",
    "measure_model",
    "order_of_events",
    "over_training",
]
