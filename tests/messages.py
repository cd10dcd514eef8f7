"""What a message must say: names, what was expected and what was found, whatever the words around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def says(text: str, *parts: object) -> None:
    """Asserts that the text contains each part as `str` writes it, in that case; no part is a regular expression."""
    __tracebackhide__ = True
    missing = [str(part) for part in parts if str(part) not in text]
    if missing:
        pytest.fail(f"It does not say {', '.join(map(repr, missing))}:\n{text}")


@contextmanager
def refused(*parts: object, error: type[BaseException] = ValueError) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Asserts that the block raises this error (or a subclass) and that its message contains each part.

    After the block, the value of the `with` statement holds the error as `pytest.raises` gives it.
    """
    __tracebackhide__ = True
    with pytest.raises(error) as caught:
        yield caught
    says(str(caught.value), *parts)
