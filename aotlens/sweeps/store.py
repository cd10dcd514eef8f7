"""A sweep's folder: what is planned, every cell as it ends, the checkpoints that were trained, the table.

plan.json            the cells, with a label each
cells/KEY.json       one cell's outcome, written whole
checkpoints/KEY/     a training's checkpoint
results.csv, results.parquet
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.files import replacing_file
from aotlens.sweeps.job import SCHEMA_VERSION, Job, Outcome, unpacked

if TYPE_CHECKING:
    import pandas as pd


class Store:
    """The folder of one sweep. Its files are whole at every moment, so a killed sweep goes on from them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save_plan(self, jobs: Iterable[Job], waiting: int) -> None:
        """What this sweep has to do: a label for each cell's key, and how many cells wait for a training."""
        cells = {job.key: job.label for job in jobs}
        _write(self.folder / "plan.json", {"schema_version": SCHEMA_VERSION, "cells": cells, "waiting": waiting})

    def plan(self) -> tuple[dict[str, dict[str, Any]], int]:
        """Labels by key, and the number of cells that wait for a training. Raises `ValueError` for a folder of none."""
        said = _read(self.folder / "plan.json")
        if said is None:
            raise ValueError(f"{self.folder}: no sweep was run here. Run it first: aotlens sweep SWEEP.toml")
        return said["cells"], int(said["waiting"])

    def save(self, outcome: Outcome) -> None:
        """Keep a cell; a training's checkpoint is laid down before its record, so that a record means it is there."""
        if outcome.archive is not None:
            self._unpack(outcome)
        record = {
            "schema_version": SCHEMA_VERSION,
            "identity": outcome.identity,
            "label": outcome.label,
            "error": outcome.error,
            "log": outcome.log,
            "seconds": outcome.seconds,
            "device": outcome.device,
            "columns": outcome.columns,
        }
        _write(self.folder / "cells" / f"{outcome.key}.json", record)

    def outcome(self, key: str) -> Outcome | None:
        """A cell that has ended, well or not; None for one that has not, or whose record is of another version."""
        record = _read(self.folder / "cells" / f"{key}.json")
        if record is None:
            return None
        del record["schema_version"]
        return Outcome(key=key, **record)

    def is_done(self, key: str) -> bool:
        outcome = self.outcome(key)
        return outcome is not None and outcome.error is None

    def checkpoint(self, key: str) -> Path:
        """The folder of a training's checkpoint."""
        return next((self.folder / "checkpoints" / key).iterdir())

    def _unpack(self, outcome: Outcome) -> None:
        from aotlens.checkpoints import import_checkpoint

        target = self.folder / "checkpoints" / outcome.key
        if target.exists():  # of a sweep that was killed between the checkpoint and its record
            return
        archive = self.folder / f".{outcome.key}.tar"
        with replacing_file(archive) as unfinished:
            unfinished.write_bytes(outcome.archive or b"")
        unpacked_in = self.folder / f".{outcome.key}"
        try:
            import_checkpoint(archive, into=unpacked_in)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(unpacked_in, target)
        finally:
            archive.unlink(missing_ok=True)

    def table(self, keys: Iterable[str]) -> pd.DataFrame:
        """One table of all that is done, a row a row of a cell's table: what the cell was, then its figures.

        Columns that an analysis has not are missing in its rows.
        """
        import pandas as pd

        tables = []
        for key in keys:
            outcome = self.outcome(key)
            if outcome is None or outcome.error is not None or outcome.columns is None:
                continue
            table = _whole_numbers_kept(unpacked(outcome.columns))
            said = {name: _as_text(value) for name, value in outcome.label.items()}
            label = _whole_numbers_kept(pd.DataFrame({"cell": key, **said}, index=table.index))
            clashes = {name: f"result.{name}" for name in table.columns if name in label.columns}
            tables.append(pd.concat([label, table.rename(columns=clashes)], axis=1))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def write_table(self, frame: pd.DataFrame) -> tuple[Path, ...]:
        """Write results.csv and, with pyarrow, results.parquet, where a column of several types is text."""
        paths = [self.folder / "results.csv"]
        with replacing_file(paths[0]) as unfinished:
            frame.to_csv(unfinished, index=False)
        try:
            import pyarrow  # noqa: F401 (pandas writes by it)
        except ImportError:
            return tuple(paths)
        plain = frame.copy()
        for name in plain.columns:
            types = {type(value) for value in plain[name].dropna()}
            if plain[name].dtype == object and len(types) > 1:
                plain[name] = plain[name].map(lambda value: value if value is None or value != value else str(value))
        paths.append(self.folder / "results.parquet")
        with replacing_file(paths[1]) as unfinished:
            plain.to_parquet(unfinished, index=False)
        return tuple(paths)


def _whole_numbers_kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers in a type that stays whole beside rows that have no such column."""
    return frame.astype(dict.fromkeys(frame.select_dtypes("integer").columns, "Int64"))


def _as_text(value: Any) -> Any:
    """A setting as one entry of a table: lists and tables as JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _write(path: Path, content: dict[str, Any]) -> None:
    with replacing_file(path) as unfinished:
        unfinished.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a record of a sweep, found what cannot be read ({error}).") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        return None
    return content
