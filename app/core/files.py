"""Results as files to download."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.files import csv_text
from app.core.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to download."""

    name: str
    content: bytes
    mime: str


def json_file(name: str, content: dict[str, Any]) -> File:
    """Return a JSON file for people and programs: indented, never NaN."""
    return text_file(name, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1), "application/json")


def csv_file(name: str, table: pd.DataFrame | Iterable[Mapping[str, Any]]) -> File:
    """Return a table as CSV, as `aotlens.files` writes it. Raises RequestError for a table without columns."""
    import pandas as pd

    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(list(table))
    if not len(frame.columns):
        raise RequestError("There is nothing in this table to save.")
    return text_file(name, csv_text(frame), "text/csv")


def text_file(name: str, content: str, mime: str) -> File:
    """Return a file of UTF-8."""
    return File(name=safe_name(name), content=content.encode("utf-8"), mime=mime)


def safe_name(name: str) -> str:
    """Return a name that every file system takes."""
    return re.sub(r"[^\w.\-]+", "_", name)
