"""Models and baselines of in-context regression beside each other, on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.denoise.regression.baselines import ESTIMATORS
from aotlens.evaluate import RegressionErrors
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RegressionComparison(Result):
    """Errors of models, then of baselines, on the same prompts of one task. Raises `ValueError` for none, and where
    tasks differ."""

    errors: Sequence[RegressionErrors]

    def __post_init__(self) -> None:
        """Checks that there is something to compare."""
        tasks = {each.task for each in self.errors}
        if len(tasks) != 1:
            raise ValueError(f"RegressionComparison: expected errors on one task, got {len(tasks)} tasks.")

    @property
    def baselines(self) -> tuple[str, ...]:
        """The names of what was not trained."""
        return tuple(each.name for each in self.errors if each.name in ESTIMATORS)

    @property
    def examples(self) -> int:
        """Examples after which errors are said: 2d, or as many as the shortest prompt has."""
        return min(2 * self.errors[0].task.d, *(len(each.mean) - 1 for each in self.errors))

    @property
    def headline(self) -> str:
        n_examples = self.examples
        return f"after {n_examples} examples " + ", ".join(
            f"{each.name} {each.mean[n_examples]:.3g}" for each in self.errors
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row an estimator and a number of examples: examples, error, low, high, name."""
        import pandas as pd

        return pd.concat([each.to_frame().assign(name=each.name) for each in self.errors], ignore_index=True)
