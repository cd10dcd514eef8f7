"""One declaration per analysis: its call, figure, table, sentences; read by pages, commands, reports and sweeps.

    from aotlens.views import regression

    values = regression.FAMILY.parse("regression-5d-mhsa", nonzero=2)
    scores = regression.SUPPORT.result(values)
    print(regression.SUPPORT.caption(values, scores))
    print(regression.SUPPORT.python(values))

calls.py        calls of the library as values, run and printed
view.py         what a view is
family.py       views with the same parameters
parameters.py   parameters, declared once for pages, commands and sweeps (kinds.py: what a value may be)
regression.py   in-context regression (regression_choice.py)
atlas.py        what every head of a checkpoint does
circuits.py     a head's QK and OV circuits; circuit_choice.py, circuit_captions.py: which, and what is said of it
compare.py      two runs side by side (compare_choice.py, compare_captions.py)
denoising.py    in-context denoising
distillation.py heads as feed-forward networks (distillation_choice.py)
exhaustive.py   every input of a small task
heads.py        heads on a text, in the full model and under ablation
head_maps.py    maps of all heads and of one
images.py       heads on images, and what patches add to a class (image_captions.py)
lens.py         what the stream says at each layer
nonlinearity.py a feed-forward network compiled into attention (nonlinearity_choice.py, nonlinearity_captions.py)
patching.py     activations of one prompt in the run of another (patching_captions.py)
paths.py        logits as sums over paths (path_choice.py)
scores.py       attention scores as sums over pairs of paths
subspaces.py    subspace denoising
sufficient.py   heads that do a task by themselves
training.py     a training run over its snapshots
trigrams.py     skip-trigrams, checked against text (trigram_choice.py, trigram_captions.py)
universality.py heads that recur across models
"""

from __future__ import annotations

from importlib import import_module

from aotlens.views.calls import Call, Load, Part, Workshop, call, make
from aotlens.views.family import Family
from aotlens.views.kinds import Parameter
from aotlens.views.parameters import Limit, OfCheckpoint, OfCheckpoints, OfNone, OfPrompt, OfResult
from aotlens.views.view import About, Values, View, pass_cost

__all__ = [
    "FAMILIES",
    "About",
    "Call",
    "Family",
    "Limit",
    "Load",
    "OfCheckpoint",
    "OfCheckpoints",
    "OfNone",
    "OfPrompt",
    "OfResult",
    "Parameter",
    "Part",
    "Values",
    "View",
    "Workshop",
    "call",
    "family",
    "make",
    "pass_cost",
]

#: The modules here that have a `FAMILY`, each by its family's name: to list them costs no import.
FAMILIES = (
    "atlas", "circuits", "compare", "denoising", "distillation", "exhaustive", "heads", "images", "lens",
    "nonlinearity", "patching", "paths", "regression", "subspaces", "sufficient", "training", "trigrams",
    "universality",
)  # fmt: skip


def family(name: str) -> Family:
    """Return the family of that name. Raises ValueError where there is none."""
    if name not in FAMILIES:
        raise ValueError(f"{name!r}: expected one of {', '.join(FAMILIES)}.")
    opened: Family = import_module(f"aotlens.views.{name}").FAMILY
    return opened
