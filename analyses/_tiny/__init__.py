"""Tiny attention-only networks on synthetic vectors, many trained at once (*nonlinearity*, Appendix D).

layers.py             attention with one number a head, stacked over runs
approximation.py      networks that learn a random FFN (Figures 4 to 6)
recall.py             networks that recall masked tokens (Figures 7 to 9)

Heads have size 1, as there. A run is one network with its own seed; runs that differ in seed, heads or layers share
every tensor operation, which is what makes hundreds of them affordable.
"""

from __future__ import annotations

from analyses._tiny.approximation import Approximation, approximate_ffn
from analyses._tiny.recall import MODELS, Recall, heads_needed, recall_data, train_recall

__all__ = [
    "MODELS",
    "Approximation",
    "Recall",
    "approximate_ffn",
    "heads_needed",
    "recall_data",
    "train_recall",
]
