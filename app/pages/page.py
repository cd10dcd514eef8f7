"""What a page is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import Dash

from app.services import Services


@dataclass(frozen=True, kw_only=True)
class Page:
    """A view: where it is, what it looks like for an address's query, and its callbacks."""

    name: str
    path: str
    layout: Callable[[Services, str | None], Any]
    register: Callable[[Dash, Services], None]
