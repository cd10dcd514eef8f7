"""A sweep's folder, and its cells as they travel to a worker and come back: nothing but numbers, texts and bytes.

plan.json            the cells, with a label each
cells/KEY.json       one cell's outcome, written whole
checkpoints/KEY/     a training's checkpoint
results.csv, results.parquet
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.files import contents_hash, replacing_file, write_csv
from aotlens.untrusted import boundary, read_regular, strict_json

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.sweeps.calling import Inputs


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
        """Return the description for the process of the cell, as JSON; `inputs` and `archive` lie next to it."""
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


#: The fields of a cell's record, and their types.
_FIELDS: dict[str, Any] = {
    "identity": dict,
    "label": dict,
    "error": str | None,
    "log": str,
    "seconds": int | float,
    "device": str,
    "columns": dict | None,
}


class Store:
    """The folder of one sweep. Its files are whole at every moment, so a killed sweep goes on from them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save_plan(self, jobs: Iterable[Job], waiting: int) -> None:
        """Save what this sweep has to do: a label for each cell's key, and how many cells wait for a training."""
        cells = {job.key: job.label for job in jobs}
        _write(self.folder / "plan.json", {"schema_version": SCHEMA_VERSION, "cells": cells, "waiting": waiting})

    def plan(self) -> tuple[dict[str, dict[str, Any]], int]:
        """Return labels by key, and the number of cells that wait for a training. Raises `ValueError` for a folder of
        none."""
        path = self.folder / "plan.json"
        if not path.is_file():
            raise ValueError(f"{self.folder}: no sweep was run here. Run it first: aotlens sweep SWEEP.toml")
        plan = _read(path) or {}
        cells, waiting = plan.get("cells"), plan.get("waiting")
        if not isinstance(cells, dict) or not isinstance(waiting, int):
            raise ValueError(f"{path}: damaged, or of another version. Run the sweep again, which writes it anew.")
        return cells, waiting

    def save(self, outcome: Outcome) -> None:
        """Keep a cell; a training's checkpoint is laid down before its record, so that a record means it is there."""
        if outcome.archive is not None:
            self._unpack(outcome)
        record = {"schema_version": SCHEMA_VERSION, **{name: getattr(outcome, name) for name in _FIELDS}}
        _write(self.folder / "cells" / f"{outcome.key}.json", record)

    def outcome(self, key: str) -> Outcome | None:
        """Return a cell that has ended, well or not; None for one that has not, or whose record is damaged or
        another's."""
        record = _read(self.folder / "cells" / f"{key}.json")
        if record is None or not _is_outcome(record, key):
            return None
        return Outcome(key=key, **{name: record[name] for name in _FIELDS})

    def is_done(self, key: str) -> bool:
        """Return whether a cell need not be run: it has ended well, and what it has trained, if it has, is still
        there."""
        outcome = self.outcome(key)
        if outcome is None or outcome.error is not None:
            return False
        return outcome.columns is not None or self._checkpoints(key) != []

    def checkpoint(self, key: str) -> Path:
        """Return the folder of a training's checkpoint."""
        return self._checkpoints(key)[0]

    def _checkpoints(self, key: str) -> list[Path]:
        folder = self.folder / "checkpoints" / key
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def _unpack(self, outcome: Outcome) -> None:
        from aotlens.checkpoints import import_checkpoint

        target = self.folder / "checkpoints" / outcome.key
        if self._checkpoints(outcome.key):  # of a sweep that was killed between the checkpoint and its record
            return
        archive = self.folder / f".{outcome.key}.tar"
        with replacing_file(archive) as unfinished:
            unfinished.write_bytes(outcome.archive or b"")
        unpacked_in = self.folder / f".{outcome.key}"
        shutil.rmtree(unpacked_in, ignore_errors=True)  # of a sweep that was killed meanwhile
        try:
            import_checkpoint(archive, into=unpacked_in)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(unpacked_in, target)
        finally:
            archive.unlink(missing_ok=True)

    def table(self, keys: Iterable[str]) -> pd.DataFrame:
        """Return one table of all that is done, the rows of every cell's table: what the cell was, then its figures.

        Columns that an analysis has not are missing in its rows.
        """
        import pandas as pd

        tables = []
        for key in keys:
            outcome = self.outcome(key)
            if outcome is None or outcome.error is not None or outcome.columns is None:
                continue
            path = self.folder / "cells" / f"{key}.json"
            with boundary(path, "the result of a cell", "Delete it, and run the sweep again."):
                table = _whole_numbers_kept(unpacked(outcome.columns))
            texts = {name: _as_text(value) for name, value in outcome.label.items()}
            label = _whole_numbers_kept(pd.DataFrame({"cell": key, **texts}, index=table.index))
            clashes = {name: f"result.{name}" for name in table.columns if name in label.columns}
            tables.append(pd.concat([label, table.rename(columns=clashes)], axis=1))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def write_table(self, frame: pd.DataFrame) -> tuple[Path, ...]:
        """Write results.csv and, with pyarrow, results.parquet, where columns of several types are text."""
        paths = [self.folder / "results.csv"]
        with replacing_file(paths[0]) as unfinished:
            write_csv(frame, unfinished)
        try:
            import pyarrow  # noqa: F401 (pandas writes by it)
        except ImportError:
            return tuple(paths)
        plain = frame.copy()
        for name in plain.columns:
            types = {type(value) for value in plain[name].dropna()}
            as_it_is = types <= {str} or types <= {bool}  # whole numbers among objects may be beyond 64 bits
            if plain[name].dtype == object and not as_it_is:
                plain[name] = plain[name].map(lambda value: value if value is None or value != value else str(value))
        paths.append(self.folder / "results.parquet")
        with replacing_file(paths[1]) as unfinished:
            plain.to_parquet(unfinished, index=False)
        return tuple(paths)


def _is_outcome(record: dict[str, Any], key: str) -> bool:
    """Whether a record is whole, and that of the cell by whose name its file is called."""
    kinds = [isinstance(record.get(name), kind) for name, kind in _FIELDS.items()]
    return all(kinds) and key_of(record["identity"]) == key


def _whole_numbers_kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers in a type that stays whole next to rows that have no such column."""
    return frame.astype(dict.fromkeys(frame.select_dtypes("integer").columns, "Int64"))


def _as_text(value: Any) -> Any:
    """A setting as one entry of a table: lists and tables as JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _write(path: Path, content: dict[str, Any]) -> None:
    with replacing_file(path) as unfinished:
        unfinished.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    """The record in a file; None for none, and for one that is damaged or of another version."""
    try:
        content = strict_json(read_regular(path, kind="record"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        return None
    return content
