"""What a message has to contain: names, what was expected, what was found. Its sentences may be rewritten freely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refused(
    *parts: object, error: type[Exception] | tuple[type[Exception], ...] = ValueError
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect `error`, with each of `parts` in its message."""
    __tracebackhide__ = True
    with pytest.raises(error) as caught:
        yield caught
    says(str(caught.value), *parts)


def says(text: str, *parts: object) -> None:
    """Assert that each of `parts` stands in a text: a message, a caption, what a command printed."""
    __tracebackhide__ = True
    missing = [str(part) for part in parts if str(part) not in text]
    assert not missing, f"expected {', '.join(map(repr, missing))} in: {text}"
