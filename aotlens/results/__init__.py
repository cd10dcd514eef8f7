"""The common base of all results of analyses: a result says in a line what it is, how large, and what it shows.

    >>> aotlens.heads.motif_scores(model)
    MotifScores(motifs of 11, values [11, 2, 4], ...): induction is highest in head 1.0 (0.948)

In a notebook the table of `to_frame()` stands below that line, where a result is a table. `aotlens.plot(result)` gives
its figure; results know no plots. `result.save(path)` keeps it, and `aotlens.results.load(path)` reads it again.

Where a sentence belongs: what follows from the result alone is `Result.sentences()`, by default its headline as a
sentence, and every caption, command and report prints it. What also needs the parameters (the checkpoint's name, the
text that was read) is the `caption` of the view that declares the analysis (`aotlens.views`).

saved.py         the one file format of results
stored_files.py  results that are stored for a checkpoint: where, and of which weights
exports.py       what packages export, and which types a file may hold
"""

from __future__ import annotations

import dataclasses
import html
import inspect
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.results.saved import load, save
from aotlens.results.stored_files import belongs_to, find_stored, save_stored, stored, stored_path

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

#: The most characters that a result prints.
MAX_CHARACTERS = 400

_MAX_FIELD = 48
_MAX_ROWS = 12


def data_frame(data: Any = None, **options: Any) -> pd.DataFrame:
    """Return a table as `pandas.DataFrame` does; pandas is imported here, at the first table, since that takes long."""
    import pandas as pd

    return pd.DataFrame(data, **options)


def _version() -> str:
    from aotlens import __version__

    return __version__


class Result:
    """The base of the frozen dataclasses that analyses return."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:  # or `dataclass` writes one that prints every array
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def save(self, path: str | Path, *, compact: bool = False) -> None:
        """Write the result to `path` (NAME.safetensors), whole or not at all: `aotlens.results.load(path)` reads it.

        `compact` rounds float64 to float32. Raises `ValueError` for a path that holds something else, and for a result
        that holds a model (`aotlens.results.saved.save` says what else), `OSError` for a full disk.
        """
        save(self, path, compact=compact)

    @property
    def headline(self) -> str:
        """The result's main figures in some words; empty where no figure stands out."""
        return ""

    def sentences(self) -> str:
        """Return the answer in one to four sentences: the headline as a sentence, where a class does not say more."""
        return f"{self.headline[:1].upper()}{self.headline[1:].removesuffix('.')}."

    @property
    def finding(self) -> str:
        """The answer: `sentences()`."""
        return self.sentences()

    def __repr__(self) -> str:
        return describe(self, self.headline)

    def _repr_html_(self) -> str | None:
        """The table below the line for a notebook; None, which shows the line alone, where there is no table."""
        frame = self._table()
        if frame is None:
            return None
        return f"<p>{html.escape(repr(self))}</p>{frame.to_html(max_rows=_MAX_ROWS, max_cols=20, border=0)}"

    def _table(self) -> pd.DataFrame | None:
        """Return the table that a notebook shows: `to_frame()`, unless there is none or it asks for arguments."""
        to_frame = getattr(self, "to_frame", None)
        if to_frame is None:
            return None
        parameters = inspect.signature(to_frame).parameters.values()
        return None if any(parameter.default is parameter.empty for parameter in parameters) else to_frame()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OfCheckpoint(Result):
    """The base of results that are kept with where they come from; what is not known is empty."""

    checkpoint: str
    """The checkpoint's name."""
    weights_sha256: str = ""
    """The hash of that checkpoint's weights: another of the same name is not the one."""
    corpus: str = ""
    """The text that was read, in words."""
    documents: tuple[str, ...] = ()
    """The documents of it that were held out from the model's training; empty where the model's card names none."""
    command: str = ""
    """The command that made it."""
    version: str = dataclasses.field(default_factory=_version)
    """The version of the aotlens that made it."""

    def belongs_to(self, info: Any) -> bool:
        """Return whether this comes from the weights of a `CheckpointInfo`, or, if it does not have their hash, from a
        checkpoint of its name."""
        return belongs_to(self, info)


def describe(result: Any, headline: str = "") -> str:
    """Return `Type(field size, …): headline` of a dataclass or named tuple, in at most `MAX_CHARACTERS` characters."""
    names = getattr(result, "_fields", None) or [field.name for field in dataclasses.fields(result) if field.repr]
    fields = [f"{name} {_size(getattr(result, name))}" for name in names if getattr(result, name) is not None]
    name = type(result).__name__
    ending = f"): {headline}" if headline else ")"
    text = f"{name}({', '.join(fields)}{ending}"
    while len(text) > MAX_CHARACTERS and fields:
        fields.pop()
        text = f"{name}({', '.join([*fields, '…'])}{ending}"
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def top_head(values: np.ndarray, heads: Sequence[tuple[int, int]] | None = None) -> str:
    """Return the head with the largest value, `head 1.4 (0.83)`; values are `[layer, head]`, or one for each of
    `heads`."""
    import numpy as np

    if not np.isfinite(values).any():
        return "no head (not measured)"
    best = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
    layer, head = divmod(best, values.shape[-1]) if heads is None else heads[best]
    return f"head {layer}.{head} ({values.flat[best]:.3g})"


def table(axes: Sequence[str], columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with one row per entry of arrays with these axes, such as `("layer", "head")`: the index along
    each axis, then a column per array."""
    import numpy as np
    import pandas as pd

    index = np.indices(np.shape(next(iter(columns.values()))))
    places = {axis: index[number].ravel() for number, axis in enumerate(axes)}
    return pd.DataFrame({**places, **{name: np.ravel(values) for name, values in columns.items()}})


def _size(value: Any) -> str:
    """A number or a short text as it is; of everything larger, how much there is."""
    if isinstance(value, bool | int) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if getattr(value, "shape", None) is not None:
        return str(list(value.shape))
    if not isinstance(value, str | tuple | list) and (
        dataclasses.is_dataclass(value) or not isinstance(value, Collection)
    ):
        return type(value).__name__
    if isinstance(value, Mapping) and any(hasattr(item, "shape") for item in value.values()):
        return f"of {len(value)}"
    if not isinstance(value, str) and len(value) > 12:
        return f"of {len(value)}"
    plain = all(isinstance(item, str | int | float | tuple) for item in value)
    text = repr(value) if isinstance(value, str) or plain else f"of {len(value)}"
    if len(text) <= _MAX_FIELD:
        return text
    return f"{text[: _MAX_FIELD - 2]}…'" if isinstance(value, str) else f"of {len(value)}"
