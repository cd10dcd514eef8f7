"""The plan of a sweep, from TOML: models × seeds × settings × analyses.

    threads = 1                                # of every cell
    device = "auto"

    [data]                                     # for analyses that read text, images or prompts
    corpus = "dir:PATH"
    tokens = 8192
    images = "npz:PATH"
    n_images = 100

    [[models]]
    checkpoints = ["novels-1l-mhsa", "novels-2l-mhsa"]

    [[models]]                                 # trained first, once for each seed and each value of the grid
    recipe = "tiny.toml"
    corpus = "stdlib"
    seeds = [0, 1, 2]
    grid = { learning_rate = [1e-3, 3e-3] }

    [[analyses]]                               # a function of aotlens that takes a model
    name = "heads.motif_scores"
    seeds = [0, 1]
    settings = { n_sequences = 4 }
    grid = { half_length = [25, 50] }

    [[analyses]]                               # the figures on the checkpoint's card
    name = "metrics"

Every combination is a cell. Unknown keys are refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotlens.untrusted import boundary, check_plain, read_regular, strict_toml

#: The options of `aotlens train` that a training's grid may change.
TRAINING_OPTIONS = ("learning_rate", "tokens")
#: A grid is crossed in memory.
MOST_CELLS = 100_000
_LONGEST = 366 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data of analyses: text for models of text, images for models of images, prompts of in-context regression."""

    corpus: str | None = None
    """The corpus as `aotlens.data.open_corpus` takes it; read are the documents that a model was not trained on."""
    tokens: int = 16_384
    """The number of tokens, approximately, in windows."""
    images: str | None = None
    """The images as `aotlens.data.images.open_images` takes them; read is the test set."""
    n_images: int = 200
    """The number of images, of each class in turn."""
    n_prompts: int = 64
    """Prompts that are drawn for a model of in-context regression, of the task on its card."""

    def __post_init__(self) -> None:
        for name in ("tokens", "n_images", "n_prompts"):
            _require(getattr(self, name) > 0, f"[data] {name}", "a whole number above 0", getattr(self, name))


@dataclass(frozen=True, kw_only=True)
class Models:
    """Checkpoints by name or path, or a recipe that is trained once for each seed and each combination of `grid`."""

    checkpoints: tuple[str, ...] = ()
    recipe: str | None = None
    corpus: str | None = None
    """The corpus, or images, in place of the recipe's own."""
    seeds: tuple[int, ...] = ()
    """The seeds of training; () is the recipe's own."""
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = "[[models]]"
        if bool(self.checkpoints) == (self.recipe is not None):
            raise ValueError(f"{where}: expected either checkpoints = [...] or recipe = '...', got {_said(self)}.")
        _require(all(seed >= 0 for seed in self.seeds), f"{where} seeds", "whole numbers of at least 0", self.seeds)
        if self.checkpoints and (self.seeds or self.grid or self.corpus):
            raise ValueError(
                f"{where}: seeds, grid and corpus are of a recipe's training; of checkpoints, give them to an analysis."
            )
        unknown = sorted(set(self.grid) - set(TRAINING_OPTIONS))
        if unknown:
            raise ValueError(f"{where} grid: expected some of {', '.join(TRAINING_OPTIONS)}, got {', '.join(unknown)}.")

    def trainings(self) -> Iterator[dict[str, Any]]:
        """Yield the options of each training: `seed` (None is the recipe's own) and one value of each entry of the
        grid."""
        for seed in self.seeds or (None,):
            for options in combinations(self.grid):
                yield {"seed": seed, **options}


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A function of the library that takes a model, by name, with its settings; `metrics` reads the card."""

    name: str
    seeds: tuple[int, ...] = ()
    """The seeds for functions that take one; () is their own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Lists of settings: every combination is a cell."""

    def __post_init__(self) -> None:
        _require(all(seed >= 0 for seed in self.seeds), f"{self.name} seeds", "whole numbers of at least 0", self.seeds)
        both = sorted(set(self.settings) & set(self.grid))
        if both:
            raise ValueError(f"{self.name}: {', '.join(both)} stand in settings and in grid; give each once.")
        try:
            json.dumps([dict(self.settings), dict(self.grid)], allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{self.name}: expected settings of numbers, texts, lists and tables ({error}).") from None
        if "seed" in {*self.settings, *self.grid}:
            raise ValueError(f"{self.name}: give seeds = [...] of the analysis in place of a setting seed.")

    def calls(self) -> Iterator[tuple[int | None, dict[str, Any]]]:
        """Yield the seed (None is the function's own) and the settings of each call."""
        for seed in self.seeds or (None,):
            for settings in combinations(self.grid):
                yield seed, {**self.settings, **settings}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A grid of runs: every model under every analysis."""

    models: tuple[Models, ...]
    analyses: tuple[Analysis, ...]
    data: Data | None = None
    threads: int = 1
    """The threads of each cell: sums differ in their last bits between one thread and two."""
    device: str = "auto"
    time_limit: float | int | None = None
    """Seconds of a cell; one that takes longer is ended, and failed."""

    def __post_init__(self) -> None:
        _require(bool(self.models), "[[models]]", "at least one", self.models)
        _require(bool(self.analyses), "[[analyses]]", "at least one", self.analyses)
        _require(1 <= self.threads <= 1024, "threads", "1 to 1,024", self.threads)
        limit = self.time_limit
        _require(limit is None or 0 < limit <= _LONGEST, "time_limit", "seconds, above 0 and at most a year", limit)
        _require(self.n_cells <= MOST_CELLS, "the grid", f"at most {MOST_CELLS:,} cells", f"{self.n_cells:,}")

    @property
    def n_cells(self) -> int:
        """Trainings, and every call of an analysis on every model."""
        trainings = sum(_n_choices(models) for models in self.models if models.recipe is not None)
        checkpoints = len({name for models in self.models for name in models.checkpoints})
        return trainings + (trainings + checkpoints) * sum(_n_choices(analysis) for analysis in self.analyses)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "sweep") -> Sweep:
        """Build and check. Raises `ValueError` that names unknown, missing or misfitting keys."""
        sections: dict[str, Any] = dict(values)
        try:
            check_plain(sections, "")
            for name, section in (("models", Models), ("analyses", Analysis)):
                tables = sections.get(name, [])
                _require(isinstance(tables, list), name, f"tables, each begun by [[{name}]]", tables)
                sections[name] = tuple(_made(section, table, f"[[{name}]]") for table in tables)
            if "data" in sections:
                sections["data"] = _made(Data, sections["data"], "[data]")
            sweep: Sweep = _made(cls, sections, "the top of the file")
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        return sweep


def load_sweep(path: str | Path) -> Sweep:
    """Load a sweep from a TOML file. Raises `ValueError`, which names the file, for what is no sweep."""
    path = Path(path)
    with boundary(path, "a sweep"):
        return Sweep.from_dict(strict_toml(read_regular(path, kind="settings")), where=f"sweep {path}")


def _n_choices(varied: Models | Analysis) -> int:
    return max(1, len(varied.seeds)) * math.prod(map(len, varied.grid.values()))


def combinations(grid: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Yield every choice of one value for each name; one empty choice of an empty grid."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _made(cls: Any, values: Any, where: str) -> Any:
    """The dataclass of a table of TOML, whose values have the types of its fields; lists become tuples."""
    _require(isinstance(values, dict), where, "a table of keys", values)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - fields.keys())
    if unknown:
        raise ValueError(f"{where}: unknown keys {', '.join(unknown)}; known: {', '.join(fields)}.")
    needed = [name for name, field in fields.items() if _is_needed(field) and name not in values]
    if needed:
        raise ValueError(f"{where}: missing keys {', '.join(needed)}.")
    arguments = dict(values)
    for name, value in arguments.items():
        expected, fits = _KEYS[name]
        _require(fits(value), f"{where} {name}", expected, value)
        arguments[name] = tuple(value) if isinstance(value, list) else value
    if "grid" in arguments:
        arguments["grid"] = {name: tuple(values) for name, values in arguments["grid"].items()}
    return cls(**arguments)


def _is_needed(declared: dataclasses.Field[Any]) -> bool:
    return declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING


def _require(holds: bool, where: str, expected: str, got: Any) -> None:
    if not holds:
        raise ValueError(f"{where}: expected {expected}, got {got!r}.")


def _said(models: Models) -> str:
    present = [name for name in ("checkpoints", "recipe") if getattr(models, name)]
    return " and ".join(present) or "neither"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _grid(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(values, list) and values for values in value.values())


#: The type of each key's value in TOML: in words, and as a check.
_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "models": ("tables, each begun by [[models]]", _list_of(lambda models: isinstance(models, Models))),
    "analyses": ("tables, each begun by [[analyses]]", _list_of(lambda analysis: isinstance(analysis, Analysis))),
    "data": ("a table [data]", lambda value: isinstance(value, Data)),
    "threads": ("a whole number", _whole),
    "time_limit": ("a number of seconds", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "device": ("auto, cpu, cuda, cuda:N or mps", _text),
    "corpus": ("the name of a corpus, as 'stdlib' or 'dir:PATH'", _text),
    "tokens": ("a whole number", _whole),
    "images": ("the name of images, as 'digits' or 'npz:PATH'", _text),
    "n_images": ("a whole number", _whole),
    "n_prompts": ("a whole number", _whole),
    "checkpoints": ("a list of names or folders", _list_of(_text)),
    "recipe": ("a recipe's name, or a TOML file", _text),
    "seeds": ("a list of whole numbers", _list_of(_whole)),
    "name": ("a name, as 'heads.motif_scores'", _text),
    "settings": ("a table of keys", lambda value: isinstance(value, dict)),
    "grid": ("a table of lists of values", _grid),
}
