"""`--check-shapes` refuses what annotations forbid, whichever way a function is defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from tests.checker import checked


@checked
def product(x: Float[np.ndarray, "a b"], y: Float[np.ndarray, " b"], scale: float = 1) -> Float[np.ndarray, " a"]:
    return scale * (x @ y) if scale else x


@checked
@dataclass(frozen=True)
class Rows:
    values: Float[np.ndarray, "a b"]
    weights: Float[np.ndarray, " b"]
    after: Later | None = None


class Later: ...


def closure(number: object) -> Callable[..., int]:
    @checked
    def inner(x: Float[np.ndarray, "a a"], result: int = number) -> int:  # type: ignore[assignment]
        return result

    return inner


def test_what_annotations_forbid_is_refused() -> None:
    x, y = np.ones((2, 3)), np.ones(3)
    assert product(x, y, 2).tolist() == [6, 6] and Rows(x, y, Later()).after
    assert closure(7)(np.ones((2, 2))) == 7 and closure(8)(np.ones((3, 3))) == 8, "each with its own default"
    for call in (
        lambda: product(x, np.ones(2)),
        lambda: product(x, y, 0),
        lambda: product(x, y, "2"),
        lambda: Rows(x, np.ones(2)),
        lambda: Rows(x, y, "now"),
        lambda: closure("seven")(np.ones((2, 2))),
        lambda: closure(7)(x),
    ):
        with pytest.raises(TypeCheckError):
            call()
    with pytest.raises(TypeError, match=r"product.* 'y'"):
        product(x)
