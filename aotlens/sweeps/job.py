"""A cell as it travels to a worker, and what comes back: nothing but numbers, texts and bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aotlens.files import contents_hash

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell: all that decides its result (`identity`), how it is called, and what a worker needs to run it."""

    label: dict[str, Any]
    """What the table says of it: model, analysis, seed and settings."""
    identity: dict[str, Any]
    source: dict[str, Any]
    """The model: `{"checkpoint": name or folder}` or `{"recipe": …, "corpus": …}`."""
    analysis: str | None = None
    """None trains the recipe of `source`."""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    threads: int = 1
    device: str = "cpu"
    tokens: np.ndarray | None = None
    """Windows `[window, pos]` that the analysis reads."""
    corpus: dict[str, str] | None = None
    """`{"spec": …, "sha256": …}` of a corpus that the analysis reads itself."""
    archive: bytes | None = None
    """The checkpoint of a training of this sweep, as .tar."""

    @property
    def key(self) -> str:
        """The cell's name: SHA-256 of its identity, 20 digits of it."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:20]

    def described(self) -> dict[str, Any]:
        """What the process of the cell is told, as JSON; `tokens` and `archive` lie beside it."""
        names = ("identity", "source", "analysis", "settings", "seed", "threads", "device", "corpus")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cell: a table or the archive of a checkpoint; or why there is none."""

    key: str
    label: dict[str, Any]
    identity: dict[str, Any]
    error: str | None = None
    log: str = ""
    """The end of what a failed cell printed."""
    seconds: float = 0.0
    device: str = ""
    columns: dict[str, Any] | None = None
    """As `packed` makes them."""
    archive: bytes | None = field(default=None, repr=False)


def packed(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table as JSON that keeps every bit: types by name, and floats as Python prints them.

    What is missing is null; an infinity is a text. `unpacked` undoes it.
    """
    columns: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        columns[str(name)] = {"dtype": str(column.dtype), "values": [_plain(value) for value in column.tolist()]}
    return columns


def unpacked(columns: dict[str, Any]) -> pd.DataFrame:
    """The table that was `packed`."""
    import numpy as np
    import pandas as pd

    made = {}
    for name, column in columns.items():
        values, dtype = column["values"], column["dtype"]
        if dtype.startswith("float"):
            made[name] = np.array([np.nan if value is None else float(value) for value in values], dtype=dtype)
        else:
            made[name] = pd.Series(values, dtype="object" if dtype in ("str", "object", "category") else dtype)
    return pd.DataFrame(made)


def fingerprint(model: Any) -> str:
    """SHA-256 over a model's weights and configuration: two checkpoints of one name may hold other weights."""
    state = {name: tensor for name, tensor in model.state_dict().items()}
    return contents_hash(state, {"cfg": repr(getattr(model, "cfg", None))})


def _plain(value: Any) -> Any:
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
