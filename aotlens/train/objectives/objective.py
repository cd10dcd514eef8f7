"""The objective of a run: its data, its batches, its model and its measures, in one object that the loop asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig

if TYPE_CHECKING:
    from aotlens.train.recipe import Recipe

Data = TypeVar("Data")
Batch = tuple[Tensor, Tensor | None]
"""Rows, and the targets of the model's loss; None where each next token is the target."""

_SEED_STRIDE = 1_000_003  # between the batch seeds of a run's stages


class Objective(ABC, Generic[Data]):
    """A recipe and the data that `prepare` made for it.

    The loss is the model's own, `model(rows, return_type="loss", targets=targets)`: an objective says by rows and
    targets what counts. The words for cards are `aotlens.checkpoints.units.OBJECTIVE_WORDS`, by the same name.
    """

    section: str
    """The recipe's section that says where the data is: the name of a field of `Recipe`."""
    autocast: bool = True
    """Whether passes may run in bfloat16: always on CUDA, on a CPU where the recipe says so."""

    def __init__(self, recipe: Recipe, data: Data) -> None:
        self.recipe = recipe
        self.data = data

    # The methods of a recipe, before any data is read.

    @classmethod
    @abstractmethod
    def check(cls, recipe: Recipe) -> None:
        """Raise `ValueError` for a recipe whose model or stages do not fit the objective."""

    @classmethod
    def model_config(cls, recipe: Recipe) -> ModelConfig:
        """Return the model as far as the recipe tells it."""
        return recipe.model_config()

    @classmethod
    @abstractmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        """Return rows of the last stage that cost what real ones cost, for a dry run."""

    @classmethod
    @abstractmethod
    def prepare(
        cls,
        recipe: Recipe,
        spec: str | None = None,
        *,
        home: Path | None = None,
        announce: Callable[[str], None] = lambda message: None,
    ) -> Data:
        """Open the data (`spec` on the command line wins over the recipe's); raises `ValueError` for what is wrong."""

    # The methods with its data.

    def check_data(self) -> None:
        """Raise `ValueError`, before training, for data that cannot be trained or measured on."""
        for stage in range(len(self.recipe.stages)):
            self.batch(stage, 0)

    @abstractmethod
    def make_model(self) -> AttentionOnlyTransformer:
        """Return the model with its initial weights, and with what it needs to read and to be read (its tokenizer)."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what a resumed run must share with the one that was stopped, beside the recipe: the data's hash."""

    @abstractmethod
    def batch(self, stage: int, step: int) -> Batch:
        """Return the rows and targets of a step within a stage, over all processes: a pure function of (seed, stage,
        step)."""

    @abstractmethod
    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Measure the model on held-out data while training goes on, the loss (`OBJECTIVE_WORDS`) among the figures."""

    @abstractmethod
    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return the figures of the finished checkpoint's card."""

    @abstractmethod
    def corpus(self) -> dict[str, Any]:
        """Return the data for the card: name, where it is had, license, hash, what was held out; never a local path."""

    def stage_seed(self, stage: int) -> int:
        """Return the seed of a stage's batches."""
        return self.recipe.seed + _SEED_STRIDE * (stage + 1)
