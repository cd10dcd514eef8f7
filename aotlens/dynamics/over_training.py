"""An analysis of every snapshot of a training run: one result with an axis `step`."""

from __future__ import annotations

import hashlib
import inspect
import json
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import joblib
import numpy as np
from jaxtyping import Int64
from torch import Tensor

from aotlens.checkpoints import Run, load, user_folder
from aotlens.checkpoints.snapshots import about_snapshot
from aotlens.conventions import Progress, require_choice
from aotlens.results import Result
from aotlens.results.saved import load as load_result
from aotlens.results.saved import save as save_result

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.dynamics.events import ChangePoint

#: Changes when what is kept of an analysis is no longer what it would give now.
_CACHE_VERSION = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class OverTraining(Result):
    """The results of an analysis of each snapshot of a run."""

    run: str
    """Name of the run."""
    analysis: str
    """Name of the analysis."""
    steps: Int64[np.ndarray, " step"]
    """Updates that each model had had."""
    tokens: Int64[np.ndarray, " step"] | None
    """Training tokens that each had seen; None where the run does not say."""
    results: tuple[Any, ...]
    """The results, one for each step: a number, a mapping of numbers or arrays by name, or a result."""

    @property
    def headline(self) -> str:
        return f"{self.analysis} at {len(self.steps)} steps from {self.steps[0]} to {self.steps[-1]}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `self[name]` takes: fields or keys whose values are numbers or arrays of numbers."""
        return tuple(name for name, value in _fields(self.results[0]).items() if _is_numeric(value))

    @property
    def events(self) -> dict[str, ChangePoint]:
        """Change points by name, where the results say of what (`Measures.events`)."""
        events: Callable[[OverTraining], dict[str, ChangePoint]] | None
        events = getattr(self.results[0], "events", None)
        return {} if events is None else events(self)

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a field over training, `[step, ...]`. Raises `ValueError` for an unknown name."""
        require_choice("field", name, self.names)
        return np.stack([np.asarray(_fields(each)[name], dtype=np.float64) for each in self.results])

    def curves(self, name: str | None = None) -> dict[str, np.ndarray]:
        """Return curves `[step]` by label: those of every number, or the entries of the array `name` (`copying 1.0` for
        an index of layer and head). `motif_scores/induction` takes one of the things that an array is of (the results'
        `axes`)."""
        if name is None:
            fields = _fields(self.results[0])
            single = [each for each in self.names if np.ndim(fields[each]) == 0]
            if not single:
                return self.curves(self.names[0])
            return {each: self[each] for each in single}
        array, _, label = name.partition("/")
        values = self[array]
        if label:
            labels = getattr(self.results[0], "axes", {}).get(array, ())
            if label not in labels:
                raise ValueError(f"{name!r}: expected {array} alone, or one of {', '.join(labels) or 'nothing else'}.")
            name, values = label, values[:, labels.index(label)]
        if values.ndim == 1:
            return {name: values}
        places = np.ndindex(*values.shape[1:])
        return {f"{name} {'.'.join(map(str, place))}": values[(slice(None), *place)] for place in places}

    def to_frame(self) -> pd.DataFrame:
        """Return the tables of all steps below each other, with columns `step` and `tokens` before their own; where the
        results have no table, a row per step and a column per number."""
        import pandas as pd

        tables = []
        for place, result in enumerate(self.results):
            frame = result.to_frame() if hasattr(result, "to_frame") else pd.DataFrame([_scalars(result)])
            about = {"step": self.steps[place]} | ({} if self.tokens is None else {"tokens": self.tokens[place]})
            for column, (name, value) in enumerate(about.items()):
                frame.insert(column, name, value)
            tables.append(frame)
        return pd.concat(tables, ignore_index=True)


def over_training(
    run: Run,
    analysis: Callable[..., Any],
    *,
    steps: Iterable[int] | None = None,
    cache: str | Path | Literal["auto"] | None = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> OverTraining:
    """Run `analysis(model, **settings)` of the model at every step of a run, or at `steps` of it.

    `analysis` gives a number, a mapping of names to numbers or arrays, or a result that can be saved. What it gave is
    kept by weights, analysis and settings in `cache` (a folder; `"auto"`: `$AOTLENS_HOME/over_training`), so that a
    second call costs nothing and a killed one goes on; None keeps nothing. Nor is anything kept of what is no function
    with a name in a module (a partial, a method, a lambda), or of an external run. The function's own source is part of
    the key, and not that of what it calls.

    Steps run through `joblib`: on several processes or a Dask cluster inside `with joblib.parallel_config(…)`, where
    the run's folder is on a disk that all of them read. `progress(done, total)` counts steps.

    Raises `ValueError`, which names the step, for whatever the analysis refuses, and for no steps.
    """
    numbers = list(run.steps) if steps is None else sorted({int(step) for step in steps})
    if not numbers:
        raise ValueError("steps: expected at least one step of the run, got none.")
    folder = user_folder("over_training") if cache == "auto" else None if cache is None else Path(cache)
    name = _name(analysis)
    jobs = []
    for step in numbers:
        cached = _kept_at(run, step, name, analysis, settings, folder)
        jobs.append(joblib.delayed(_at_step)(run.source(step), step, str(run.device), analysis, settings, cached))
    results = []
    for result in joblib.Parallel(return_as="generator", prefer="threads")(jobs):
        results.append(result)
        if progress is not None:
            progress(len(results), len(numbers))
    return OverTraining(
        run=run.name,
        analysis=name.rpartition(".")[2],
        steps=np.array(numbers, dtype=np.int64),
        tokens=None if run.is_external else np.array([run.tokens(step) for step in numbers], dtype=np.int64),
        results=tuple(results),
    )


def _at_step(
    source: Path, step: int, device: str, analysis: Callable[..., Any], settings: dict[str, Any], cached: Path | None
) -> Any:
    if cached is not None and cached.is_file():
        return load_result(cached, what=f"what was kept of step {step}")
    try:
        result = analysis(load(source, device), **settings)
        if isinstance(result, Mapping):  # an array of no dimensions is a number, which is read again as one
            result = {name: value.item() if _is_scalar(value) else value for name, value in result.items()}
        if not _fields(result) or not any(_is_numeric(value) for value in _fields(result).values()):
            raise ValueError(f"expected numbers by name or a result with some, got a {type(result).__name__}.")
        if cached is not None:
            save_result(result, cached)
    except ValueError as error:
        raise ValueError(f"step {step}: {error}") from error
    return result


def _name(analysis: Callable[..., Any]) -> str:
    return f"{getattr(analysis, '__module__', '')}.{getattr(analysis, '__qualname__', type(analysis).__qualname__)}"


def _kept_at(
    run: Run, step: int, name: str, analysis: Callable[..., Any], settings: Mapping[str, Any], folder: Path | None
) -> Path | None:
    """Return the path of a step's result; None if it is not kept: a function without a name could be any function."""
    # What a partial, a method or an object holds is not in its name.
    is_plain = inspect.isfunction(analysis) and "<" not in name and not name.startswith("__main__.")
    if folder is None or run.is_external or not is_plain:
        return None
    from aotlens import __version__

    try:
        source = inspect.getsource(analysis)
    except (OSError, TypeError):
        source = ""
    plain = {
        key: value.detach().cpu().numpy() if isinstance(value, Tensor) else value for key, value in settings.items()
    }
    about = [_CACHE_VERSION, __version__, about_snapshot(run.folder, step)[1], name, source, joblib.hash(plain)]
    return folder / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]}.safetensors"


def _fields(result: Any) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, numbers.Number):
        return {"value": result}
    return {name: getattr(result, name) for name in getattr(result, "__dataclass_fields__", {})}


def _scalars(result: Any) -> dict[str, Any]:
    return {name: value for name, value in _fields(result).items() if _is_numeric(value) and np.ndim(value) == 0}


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0 and _is_numeric(value)


def _is_numeric(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(np.issubdtype(value.dtype, np.number) or value.dtype == bool)
    return isinstance(value, numbers.Real)
