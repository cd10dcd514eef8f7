"""Results as files to download."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to download."""

    name: str
    content: bytes
    mime: str


def json_file(name: str, content: dict[str, Any]) -> File:
    """A JSON file for people and programs: indented, never NaN."""
    return text_file(name, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1), "application/json")


def text_file(name: str, content: str, mime: str) -> File:
    """A file of UTF-8."""
    return File(name=safe_name(name), content=content.encode("utf-8"), mime=mime)


def safe_name(name: str) -> str:
    """A name that every file system takes."""
    return re.sub(r"[^\w.\-]+", "_", name)
