"""The helper for messages fails for a missing part, for silence, and lets another error through."""

from __future__ import annotations

import pytest

from tests.messages import refused, says


def test_each_part_must_be_there() -> None:
    with refused("d_head", 16, "(3, 4)") as caught:
        raise ValueError("d_head: expected 16, got (3, 4).")
    assert isinstance(caught.value, ValueError)
    with (
        pytest.raises(pytest.fail.Exception, match=r"'d_model', '17':\nd_head: expected 16"),
        refused("d_model", "expected", 17),
    ):
        raise ValueError("d_head: expected 16, got (3, 4).")


def test_silence_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), refused("d_head"):
        pass


def test_only_the_error_that_was_named_counts() -> None:
    with pytest.raises(KeyError), refused("d_head"):
        raise KeyError("d_head")
    with refused("d_head", error=KeyError):
        raise KeyError("d_head")
    with refused("d_head"):
        raise UnicodeError("d_head")  # a ValueError of another name


def test_parts_are_plain_and_their_case_counts() -> None:
    says("Layer 1.0 of [2]", "[2]", 1.0, "Layer")
    for part in ("layer", "Layer.*2"):
        with pytest.raises(pytest.fail.Exception):
            says("Layer 1.0 of [2]", part)
