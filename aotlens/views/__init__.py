"""One declaration per analysis: its call, figure, table, sentences; read by pages, commands, reports and sweeps.

    from aotlens.views import regression

    values = regression.FAMILY.parse("regression-5d-mhsa", nonzero=2)
    scores = regression.SUPPORT.result(values)
    print(regression.SUPPORT.caption(values, scores))
    print(regression.SUPPORT.python(values))

calls.py        calls of the library as values, run and printed
view.py         what a view is
family.py       views with the same parameters
parameters.py   parameters, declared once for pages, commands and sweeps (kinds.py: the types of values)
atlas.py        what every head of a checkpoint does
circuits.py     a head's QK and OV circuits (circuit_parameters.py)
compare.py      two runs side by side
denoising.py    in-context denoising
distillation.py heads as feed-forward networks (distillation_parameters.py)
exhaustive.py   every input of a small task
heads.py        heads on a text, in the full model and under ablation
images.py       heads on images, and what patches add to a class
lens.py         what the stream says at each layer
nonlinearity.py a feed-forward network compiled into attention
patching.py     activations of one prompt in the run of another
paths.py        logits as sums over paths, and attention scores as sums over pairs of paths (scores.py)
regression.py   in-context regression
subspaces.py    subspace denoising
sufficient.py   heads that do a task by themselves
training.py     a training run over its snapshots
trigrams.py     skip-trigrams, checked against text (trigram_parameters.py)
universality.py heads that recur across models
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from aotlens.views.calls import Call, Load, Part, Workshop, call, make
from aotlens.views.family import Family
from aotlens.views.kinds import Parameter
from aotlens.views.parameters import Limit, OfCheckpoint, OfCheckpoints, OfNone, OfPrompt, OfResult
from aotlens.views.view import Values, View, pass_cost

_SHARED = ("calls", "circuit_parameters", "distillation_parameters", "family", "kinds", "parameters", "scores",
           "trigram_parameters", "view")  # fmt: skip
#: The modules here that have a `FAMILY`, each by its family's name: to list them costs no import.
FAMILIES = tuple(sorted(module.name for module in iter_modules(__path__) if module.name not in _SHARED))


def family(name: str) -> Family:
    """Return the family of that name. Raises ValueError for an unknown one."""
    if name not in FAMILIES:
        raise ValueError(f"{name!r}: expected one of {', '.join(FAMILIES)}.")
    opened: Family = import_module(f"aotlens.views.{name}").FAMILY
    return opened
