"""An analysis by its name: which function it is, what it is given, and its result as a table."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import numbers
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import aotlens.views
from aotlens.results.exports import exports

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import Corpus
    from aotlens.sweeps.inputs import Inputs

#: The packages whose functions may be swept.
PACKAGES = ("circuits", "heads", "trigrams", "paths", "distill", "denoise", "evaluate")
#: Views, as `views.sufficient.heads`: their parameters are the settings.
VIEWS = "views"
#: The figures of a checkpoint's card, which no function computes.
METRICS = "metrics"
#: Parameters that the sweep's [data] fill: required ones, and those that a setting calls `DATA`.
DATA = "data"
INPUTS = ("tokens", "inputs", "windows", "images")
LABELS = "labels"
CORPUS = "corpus"
#: Labels in place of next tokens, which models of images and of vectors need beside their inputs.
TARGETS = "targets"
#: The task of in-context regression, which the model's card has.
TASK = "task"


def names() -> list[str]:
    """Return every analysis by name: public functions of the library that take a model first, and views of a
    checkpoint."""
    return [METRICS, *(f"{package}.{name}" for package in (*PACKAGES, VIEWS) for name in _functions(package))]


def function(name: str) -> Callable[..., Any]:
    """Return the function of that name. Raises `ValueError`, with names that are near, for one that is not there."""
    package, _, own = name.partition(".")
    if package in (*PACKAGES, VIEWS) and own in (functions := _functions(package)):
        return functions[own]
    known = names()
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
    raise ValueError(
        f"no analysis {name!r}: expected {METRICS}, or a function of aotlens that takes a model, as {', '.join(near)}."
    )


def _functions(package: str) -> dict[str, Callable[..., Any]]:
    if package == VIEWS:
        families = [family for family in map(aotlens.views.family, aotlens.views.FAMILIES) if family.reads is not None]
        return {f"{each.name}.{view.name}": each.analysis(view) for each in families for view in each.views}
    home = import_module(f"aotlens.{package}")
    each = {name: getattr(home, name) for name in exports()[home.__name__]}
    return {
        name: analysis
        for name, analysis in each.items()
        if inspect.isfunction(analysis) and next(iter(inspect.signature(analysis).parameters), "") == "model"
    }


def check(name: str, settings: Mapping[str, Any], seed: int | None, has_data: bool) -> None:
    """Raise `ValueError`, before any work, for settings that the analysis does not take, or lacks."""
    if name == METRICS:
        if settings or seed is not None:
            raise ValueError(f"{METRICS}: reads the checkpoint's card, and takes no settings and no seeds.")
        return
    parameters = dict(list(inspect.signature(function(name)).parameters.items())[1:])
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    unknown = sorted(set(settings) - parameters.keys())
    if unknown:
        raise ValueError(f"{name}: unknown settings {', '.join(unknown)}; it takes {', '.join(parameters)}.")
    if seed is not None and "seed" not in parameters:
        raise ValueError(f"{name}: seeds given, and it takes no seed: it draws nothing.")
    missing = [each.name for each in parameters.values() if each.default is each.empty and each.name not in settings]
    filled = reads(name, settings)
    if not has_data and filled:
        raise ValueError(
            f"{name}: reads {filled[0]}. Give the sweep a section [data] with corpus = '...', or images = '...'."
        )
    missing = [each for each in missing if each not in (*filled, TASK)]
    if missing:
        raise ValueError(f"{name}: missing settings {', '.join(missing)}.")


def reads(name: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters that the sweep's data fill, if any: one of `INPUTS` or `CORPUS`, and `LABELS` or `TARGETS`
    of it.

    Inputs are a required parameter that no setting gives, or an optional one whose setting is "data".
    """
    if name == METRICS:
        return ()
    parameters = inspect.signature(function(name)).parameters

    def is_filled(each: str) -> bool:
        if each not in parameters:
            return False
        unsaid = DATA if parameters[each].default is inspect.Parameter.empty else None
        return settings.get(each, unsaid) == DATA

    filled = next((each for each in (*INPUTS, CORPUS) if is_filled(each)), None)
    if filled is None or filled == CORPUS:
        return () if filled is None else (filled,)
    has_targets = TARGETS in parameters and parameters[TARGETS].default is None and TARGETS not in settings
    return (filled, *([LABELS] if is_filled(LABELS) else []), *([TARGETS] if has_targets else []))


def wants_task(name: str, settings: Mapping[str, Any]) -> bool:
    """Return whether the analysis is of in-context regression, and no setting says of which task."""
    if name == METRICS or name.startswith(f"{VIEWS}."):
        return False
    return TASK in inspect.signature(function(name)).parameters and TASK not in settings


def call(
    name: str,
    model: Any,
    settings: Mapping[str, Any],
    seed: int | None,
    inputs: Inputs | None = None,
    corpus: Corpus | None = None,
) -> pd.DataFrame:
    """Run the analysis of a model, and return it as a table. Raises `ValueError` for a result that is none, and
    whatever it raises."""
    if name == METRICS:
        card = getattr(model, "card", None)
        if card is None or not card.metrics:
            raise ValueError("metrics: there is no card with figures beside these weights.")
        return as_table({key: value for key, value in card.metrics.items() if isinstance(value, numbers.Real)})
    arguments = dict(settings)
    if corpus is not None:
        arguments[CORPUS] = corpus
    if inputs is not None:
        arguments |= _filled(name, settings, inputs.for_model(model))
    if seed is not None:
        arguments["seed"] = seed
    if isinstance(arguments.get(TASK), Mapping):
        from aotlens.data import RegressionTask

        arguments[TASK] = RegressionTask(**arguments[TASK])
    return as_table(function(name)(model, **arguments))


def _filled(name: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the sweep's data are; `given` is as `Inputs.for_model` has it. Text has no labels."""
    first, *others = reads(name, settings)
    takes_set = "ImageSet" in str(inspect.signature(function(name)).parameters[first].annotation)
    arguments = {first: given["image_set"] if takes_set and "image_set" in given else given["inputs"]}
    return arguments | {each: given["labels"] for each in others if given["labels"] is not None}


def as_table(result: Any) -> pd.DataFrame:
    """Return a result as rows: its `to_frame()`; a number, or a result's numbers, as one row; named results below each
    other.

    Raises `ValueError` for what holds no table and no number.
    """
    import pandas as pd

    to_frame = getattr(result, "to_frame", None)
    if to_frame is not None:
        frame = to_frame()
        return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    if isinstance(result, numbers.Real):
        return pd.DataFrame({"value": [result]})
    if isinstance(result, Mapping) and result:
        if all(isinstance(each, numbers.Real) for each in result.values()):
            return pd.DataFrame({str(name): [value] for name, value in result.items()})
        tables = {str(name): as_table(each) for name, each in result.items()}
        return pd.concat([table.assign(of=name) for name, table in tables.items()], ignore_index=True)
    if dataclasses.is_dataclass(result):
        values = {each.name: getattr(result, each.name) for each in dataclasses.fields(result)}
        row = {name: value for name, value in values.items() if isinstance(value, numbers.Real | str)}
        if row:
            return pd.DataFrame([row])
    raise ValueError(f"its result, {type(result).__name__}, is no table and no number; a sweep keeps tables.")
