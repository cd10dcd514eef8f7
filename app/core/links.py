"""Addresses of other pages, by the pages' names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.core.address import Address


class Links:
    """Pages' addresses by the pages' names: how a page links to another without knowing it."""

    def __init__(self, addresses: Iterable[Address[Any]] = ()) -> None:
        self._addresses = {address.name: address for address in addresses}

    def __getitem__(self, page: str) -> Address[Any]:
        """Raises ValueError for a page that there isn't."""
        if page not in self._addresses:
            known = ", ".join(self._addresses) or "none"
            raise ValueError(f"There is no page {page!r} to link to. There are: {known}.")
        return self._addresses[page]

    def __iter__(self) -> Any:
        return iter(self._addresses.values())

    def to(self, page: str, **values: Any) -> str:
        """Return the address of a page with these fields."""
        return self[page].to(**values)
