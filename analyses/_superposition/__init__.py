"""Superposition: more features than dimensions (*structures* §7).

pentagon.py                five features in two neurons, with the paper's numbers
interference.py            N features in d dimensions, random or trained: how much they disturb each other
johnson_lindenstrauss.py   random projections: distortion of lengths and angles, and m against log N/ε²
"""

from analyses._superposition.interference import (
    Interference,
    feature_network,
    interference,
    polygon,
    random_features,
    train_features,
)
from analyses._superposition.johnson_lindenstrauss import (
    JohnsonLindenstrauss,
    Projection,
    johnson_lindenstrauss,
    random_projection,
)
from analyses._superposition.pentagon import Pentagon, pentagon

__all__ = [
    "Interference",
    "JohnsonLindenstrauss",
    "Pentagon",
    "Projection",
    "feature_network",
    "interference",
    "johnson_lindenstrauss",
    "pentagon",
    "polygon",
    "random_features",
    "random_projection",
    "train_features",
]
