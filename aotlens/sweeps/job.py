"""A cell as it travels to a worker, and what comes back: nothing but numbers, texts and bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aotlens.files import contents_hash

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.sweeps.inputs import Inputs

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell: all that decides its result (`identity`), how it is called, and what a worker needs to run it."""

    label: dict[str, Any]
    """The labels of it in the table: model, analysis, seed and settings."""
    identity: dict[str, Any]
    source: dict[str, Any]
    """The model: `{"checkpoint": name or folder}` or `{"recipe": …, "corpus": …}`."""
    analysis: str | None = None
    """The name of the analysis; None trains the recipe of `source`."""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    threads: int = 1
    device: str = "cpu"
    time_limit: float | None = None
    """Seconds after which the cell is ended; it decides nothing of a result."""
    inputs: Inputs | None = None
    """The part of the sweep's data that the analysis reads."""
    corpus: dict[str, str] | None = None
    """`{"spec": …, "sha256": …}` of a corpus that the analysis reads itself."""
    archive: bytes | None = None
    """The checkpoint of a training of this sweep, as .tar."""

    @property
    def key(self) -> str:
        return key_of(self.identity)

    def described(self) -> dict[str, Any]:
        """Return the description for the process of the cell, as JSON; `inputs` and `archive` lie beside it."""
        names = ("identity", "source", "analysis", "settings", "seed", "threads", "device", "corpus")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a cell: a table or the archive of a checkpoint; or why there is none."""

    key: str
    label: dict[str, Any]
    identity: dict[str, Any]
    error: str | None = None
    log: str = ""
    """The end of what a failed cell printed."""
    seconds: float = 0.0
    device: str = ""
    columns: dict[str, Any] | None = None
    """The table's columns, as `packed` makes them."""
    archive: bytes | None = field(default=None, repr=False)


def key_of(identity: dict[str, Any]) -> str:
    """Return a cell's name: SHA-256 of its identity, 20 digits of it."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


def packed(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a table as JSON that keeps every bit: types by name, and floats as Python prints them.

    What is missing is null; an infinity is a text. `unpacked` undoes it.
    """
    columns: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        columns[str(name)] = {"dtype": str(column.dtype), "values": [_plain(value) for value in column.tolist()]}
    return columns


def unpacked(columns: dict[str, Any]) -> pd.DataFrame:
    """Return the table that was `packed`."""
    import numpy as np
    import pandas as pd

    by_column = {}
    for name, column in columns.items():
        values, dtype = column["values"], column["dtype"]
        if dtype.startswith("float"):
            by_column[name] = np.array([np.nan if value is None else float(value) for value in values], dtype=dtype)
        else:
            by_column[name] = pd.Series(values, dtype="object" if dtype in ("str", "object", "category") else dtype)
    return pd.DataFrame(by_column)


def fingerprint(model: Any) -> str:
    """Return SHA-256 over what decides a model's results: two checkpoints of one name may hold other weights.

    Those are its weights, configuration (but for the device), tokenizer, image processor and the counts of tokens.
    """
    from aotlens.models import AttentionOnlyTransformer

    cfg = model.cfg.to_dict() if isinstance(model, AttentionOnlyTransformer) else vars(model.cfg)  # of a bridge
    cfg = {name: repr(value) for name, value in cfg.items() if name != "device"}
    tokenizer = getattr(getattr(model, "tokenizer", None), "to_json", str)()
    about = {"cfg": cfg, "tokenizer": tokenizer, "image_processor": repr(getattr(model, "image_processor", None))}
    counts = getattr(model, "unigram_counts", None)
    return contents_hash(model.state_dict() | ({} if counts is None else {"unigram_counts": counts}), about)


def _plain(value: Any) -> Any:
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
