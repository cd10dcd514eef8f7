"""The helpers that hold messages by their parts fail where a part, the error or its kind is missing."""

from __future__ import annotations

import pytest

from tests.messages import refused, says


def test_every_part_has_to_be_there() -> None:
    with refused("n_heads", 3, "expected"):
        raise ValueError("n_heads: expected 2, got 3.")
    with pytest.raises(AssertionError, match="'four', '5'"), refused("n_heads", "four", 5):
        raise ValueError("n_heads: expected 2, got 3.")


def test_the_error_has_to_be_raised_and_of_its_kind() -> None:
    with pytest.raises(pytest.fail.Exception), refused("n_heads"):
        pass
    with pytest.raises(TypeError), refused("n_heads"):
        raise TypeError("n_heads")
    with refused("n_heads", error=(TypeError, KeyError)):
        raise TypeError("n_heads")


def test_text_is_held_by_its_parts() -> None:
    says("2 of 12 heads", 2, "heads")
    with pytest.raises(AssertionError, match="'13'"):
        says("2 of 12 heads", 13)
