"""An analysis by its name: the function, its inputs (text, images or prompts, as each model takes them), its table.

The sweep's own process chooses the inputs, once for each model, so that workers need no data; only a corpus that an
analysis reads by itself is opened where the cell runs.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import aotlens.views
from aotlens.results.exports import exports
from aotlens.sweeps.plan import Data
from aotlens.untrusted import boundary, require_regular

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import Corpus, RegressionTask
    from aotlens.data.images import ImageData


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """The inputs of one model: sequences of tokens, images with their classes, or prompts with their labels."""

    inputs: np.ndarray
    """Ids `[window, pos]`, pixels `[image, channel, height, width]` (uint8) or vectors `[prompt, pos, d]`."""
    labels: np.ndarray | None = None
    """The number of each image's class, or labels `[prompt, point]`; text is its own."""
    classes: tuple[str, ...] = ()
    """Names of the classes of images."""

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256(repr(self.classes).encode())
        for array in (self.inputs, self.labels):
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Save them as a NumPy file, for the process of a cell."""
        arrays: dict[str, Any] = {"inputs": self.inputs, "classes": np.array(self.classes, dtype=str)}
        if self.labels is not None:
            arrays["labels"] = self.labels
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Inputs:
        """Load the inputs that `save` wrote."""
        require_regular(path, "result")
        with boundary(path, "a cell's inputs"), np.load(path, allow_pickle=False) as file:
            labels = file.get("labels")
            return cls(inputs=file["inputs"], labels=labels, classes=tuple(map(str, file["classes"])))

    def for_model(self, model: Any) -> dict[str, Any]:
        """Return `inputs` as the model reads them and `labels`, as tensors on its device, and images as an
        `ImageSet`."""
        import torch

        inputs = torch.from_numpy(self.inputs)
        labels = None if self.labels is None else torch.from_numpy(self.labels)
        filled: dict[str, Any] = {"labels": None if labels is None else labels.to(model.device)}
        if _input_kind(model) != "patches":
            return filled | {"inputs": inputs.to(model.device)}
        from aotlens.data.images import ImageSet

        assert labels is not None
        filled["image_set"] = ImageSet(images=inputs, labels=labels, classes=self.classes)
        return filled | {"inputs": model.to_images(inputs), "labels": labels}


class Source:
    """The sweep's data: opened once, with the part that each model reads."""

    def __init__(self, data: Data | None) -> None:
        self._data = data
        self._corpus: Corpus | None = None
        self._said: dict[str, str] | None = None
        self._images: dict[int | None, ImageData] = {}

    @property
    def corpus(self) -> dict[str, str]:
        """The place where a worker finds the corpus, and the hash that it must have."""
        from aotlens.data.sources import absolute_spec

        if self._said is None:
            corpus = self._open_corpus("an analysis reads a corpus")
            self._said = {"spec": absolute_spec(corpus.spec), "sha256": corpus.sha256()}
        return self._said

    def inputs(self, model: Any, name: str) -> Inputs:
        """Return the inputs of the model `name`. Raises `ValueError` where [data] has nothing of the kind."""
        kind = _input_kind(model)
        if kind == "patches":
            return self._some_images(model, name)
        return self._prompts(model, name) if kind == "vectors" else self._windows(model, name)

    def _windows(self, model: Any, name: str) -> Inputs:
        """Choose windows of documents that the model was not trained on."""
        from aotlens.distill import held_out_windows

        assert self._data is not None
        corpus = self._open_corpus(f"{name} reads text")
        return Inputs(inputs=held_out_windows(model, corpus, self._data.tokens).cpu().numpy())

    def _some_images(self, model: Any, name: str) -> Inputs:
        """Choose images of the test set, of each class in turn."""
        from aotlens.data.images import open_images
        from aotlens.evaluate import images_of

        assert self._data is not None
        if self._data.images is None:
            raise ValueError(f"[data]: {name} reads images. Give images = 'npz:PATH', 'folder:PATH', 'digits' or so.")
        size = getattr(model.cfg, "image_size", None)
        if size not in self._images:
            self._images[size] = open_images(self._data.images, size=size)
        images = images_of(model, self._images[size])
        images = images.take(images.by_turns()[: self._data.n_images])
        return Inputs(inputs=images.images.numpy(), labels=images.labels.numpy(), classes=tuple(images.classes))

    def _prompts(self, model: Any, name: str) -> Inputs:
        """Draw prompts of the task that the model was trained on."""
        from aotlens.evaluate import points_of

        assert self._data is not None
        prompts = task_of(model, name).sample(self._data.n_prompts, points_of(model))
        return Inputs(inputs=prompts.tokens.numpy(), labels=prompts.targets.numpy())

    def _open_corpus(self, why: str) -> Corpus:
        from aotlens.data import open_corpus

        if self._data is None or self._data.corpus is None:
            raise ValueError(f"[data]: {why}. Give corpus = 'stdlib', 'file:PATH', 'dir:PATH' or so.")
        if self._corpus is None:
            self._corpus = open_corpus(self._data.corpus)
        return self._corpus


def _input_kind(model: Any) -> str:
    """tokens, patches or vectors; a bridge has no field that says so."""
    kind = getattr(model.cfg, "read_in", None)
    return kind or ("patches" if getattr(model.cfg, "is_visual_model", False) else "tokens")


def task_of(model: Any, name: str) -> RegressionTask:
    """Return the task of in-context regression of the model's card. Raises `ValueError` for a card that has none."""
    from aotlens.train import Recipe

    card = getattr(model, "card", None)
    recipe: Mapping[str, Any] = getattr(card, "recipe", None) or {}
    if "prompts" not in recipe:
        raise ValueError(
            f"{name}: its card says no task of in-context regression; give settings = {{ task = {{ d = 5 }} }} to "
            "analyses that take one."
        )
    prompts = Recipe.from_dict(dict(recipe)).prompts
    assert prompts is not None
    return prompts.task


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
#: Labels in place of next tokens, which models of images and of vectors need with their inputs.
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
        return {f"{family.name}.{view.name}": family.analysis(view) for family in families for view in family.views}
    home = import_module(f"aotlens.{package}")
    functions = {name: getattr(home, name) for name in exports()[home.__name__]}
    return {
        name: analysis
        for name, analysis in functions.items()
        if inspect.isfunction(analysis) and next(iter(inspect.signature(analysis).parameters), "") == "model"
    }


def check(name: str, settings: Mapping[str, Any], seed: int | None, has_data: bool) -> None:
    """Raise `ValueError`, before any work, for settings that the analysis does not take, or lacks."""
    if name == METRICS:
        if settings or seed is not None:
            raise ValueError(f"{METRICS}: reads the checkpoint's card, and takes no settings and no seeds.")
        return
    parameters = dict(list(inspect.signature(function(name)).parameters.items())[1:])
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = sorted(set(settings) - parameters.keys())
    if unknown:
        raise ValueError(f"{name}: unknown settings {', '.join(unknown)}; it takes {', '.join(parameters)}.")
    if seed is not None and "seed" not in parameters:
        raise ValueError(f"{name}: it takes no seed: it draws nothing.")
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [name for name in required if name not in settings]
    filled = reads(name, settings)
    if not has_data and filled:
        raise ValueError(
            f"{name}: reads {filled[0]}. Give the sweep a section [data] with corpus = '...', or images = '...'."
        )
    missing = [name for name in missing if name not in (*filled, TASK)]
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

    def is_filled(name: str) -> bool:
        if name not in parameters:
            return False
        unsaid = DATA if parameters[name].default is inspect.Parameter.empty else None
        return settings.get(name, unsaid) == DATA

    filled = next((name for name in (*INPUTS, CORPUS) if is_filled(name)), None)
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
    """Run the analysis of a model, and return it as a table. Raises `ValueError` for a result without a table,
    and whatever it raises."""
    if name == METRICS:
        card = getattr(model, "card", None)
        if card is None or not card.metrics:
            raise ValueError("metrics: these weights have no card with figures.")
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


def _filled(name: str, settings: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the sweep's data are; `inputs` are those of `Inputs.for_model`. Text has no labels."""
    first, *others = reads(name, settings)
    takes_set = "ImageSet" in str(inspect.signature(function(name)).parameters[first].annotation)
    arguments = {first: inputs["image_set"] if takes_set and "image_set" in inputs else inputs["inputs"]}
    return arguments | {name: inputs["labels"] for name in others if inputs["labels"] is not None}


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
        if all(isinstance(value, numbers.Real) for value in result.values()):
            return pd.DataFrame({str(name): [value] for name, value in result.items()})
        tables = {str(name): as_table(value) for name, value in result.items()}
        return pd.concat([table.assign(of=name) for name, table in tables.items()], ignore_index=True)
    if dataclasses.is_dataclass(result):
        values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        row = {name: value for name, value in values.items() if isinstance(value, numbers.Real | str)}
        if row:
            return pd.DataFrame([row])
    raise ValueError(f"its result, {type(result).__name__}, is no table and no number; a sweep keeps tables.")
