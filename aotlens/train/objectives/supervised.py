"""Objectives with labels: the class of each image, and the label of every input of a prompt from the examples before
it.

Of images, validation images choose, and test images are read once, at the end.

Prompts of in-context regression are drawn anew at every step (`aotlens.data.regression`), so that nothing is read and
nothing held out: the model is measured on prompts of other seeds. The loss is the squared error; a card's figures are
divided by the zero predictor's.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aotlens.data import Curriculum, RegressionTask
from aotlens.data.images import ImageProcessor, ImageSampler, ImageSet, open_images
from aotlens.data.sources import portable_spec
from aotlens.evaluate import class_share_loss, evaluate_images
from aotlens.evaluate.regression import N_PROMPTS, regression_errors
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.recipe import Batch, Objective, Recipe
from aotlens.train.sections import Announce, silent

_RUNNING_IMAGES = 2000  # of the validation images, while training goes on


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageTrainingData:
    """Images in three sets, and how a model is fed with them."""

    train: ImageSet
    validation: ImageSet
    test: ImageSet
    processor: ImageProcessor
    sha256: str
    """The hash of the training images before the split, and of the test images."""


class Classes(Objective[ImageTrainingData], name="classes"):
    """The class of each image."""

    section = "images"

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        cfg = cls.model_config(recipe)
        if (cfg.read_in, cfg.read_out) != ("patches", "classes") or cfg.pooling is None:
            raise ValueError(
                f"recipe {recipe.name!r}: objective = 'classes' needs a model with read_in = 'patches', read_out = "
                f"'classes' and a pooling, got {cfg.read_in!r}, {cfg.read_out!r} and {cfg.pooling!r}."
            )

    @classmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        cfg = cls.model_config(recipe)
        assert cfg.image_size is not None and cfg.d_out is not None
        images = torch.randn(n_rows, cfg.n_channels, cfg.image_size, cfg.image_size)
        return images, torch.randint(cfg.d_out, (n_rows,))

    @classmethod
    def prepare(
        cls, recipe: Recipe, spec: str | None = None, *, home: Path | None = None, announce: Announce = silent
    ) -> ImageTrainingData:
        """Open the images and hold out the recipe's share of every class, whatever the run's seed the same ones.

        Raises `ValueError` for images of another size, other channels or other classes than the model's.
        """
        section = recipe.images
        assert section is not None
        source = section.spec if spec is None else spec
        if source is None:
            origin = f" They are to be had from: {section.source}." if section.source else ""
            raise ValueError(f"this recipe needs images; give them with --data, e.g. --data npz:PATH.{origin}")
        announce(f"reading {source}")
        data = open_images(source, size=section.size)
        data = data.named(section.classes) if section.classes else data
        cfg = cls.model_config(recipe)
        channels, height, width = data.train.images.shape[1:]
        shape, expected = (channels, height, width, len(data.classes)), (
            cfg.n_channels, cfg.image_size, cfg.image_size, cfg.d_out
        )  # fmt: skip
        if shape != expected:
            raise ValueError(
                f"recipe {recipe.name!r}: the model reads {cfg.n_channels} × {cfg.image_size} × {cfg.image_size} "
                f"pixels in {cfg.d_out} classes, but {source} has {channels} × {height} × {width} in "
                f"{len(data.classes)}; make n_channels, image_size and d_out of [model] fit, or set size in [images]."
            )
        train, validation = data.split(section.validation)
        name = section.name or portable_spec(source)
        return ImageTrainingData(
            train=train,
            validation=validation,
            test=data.test,
            processor=ImageProcessor.of(train, name),
            sha256=data.sha256(),
        )

    def make_model(self) -> AttentionOnlyTransformer:
        model = AttentionOnlyTransformer(self.recipe.model_config())
        model.image_processor = self.data.processor
        return model

    def identity(self) -> dict[str, Any]:
        return {"images sha256": self.data.sha256, "training images": len(self.data.train)}

    def batch(self, stage: int, step: int) -> Batch:
        images, labels = self._samplers[stage].batch(step)
        return self.data.processor.encode(images), labels

    @functools.cached_property
    def _samplers(self) -> list[ImageSampler]:
        section = self.recipe.images
        assert section is not None
        return [
            ImageSampler(
                images=self.data.train,
                batch_size=own.batch_size,
                seed=self.stage_seed(stage),
                flip=section.flip,
                shift=section.shift,
                crop=section.crop,
            )
            for stage, own in enumerate(self.recipe.stages)
        ]

    @functools.cached_property
    def _running_images(self) -> ImageSet:
        return _spread(self.data.validation, _RUNNING_IMAGES)

    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Return loss, in nats an image, and share right of (at most some 2,000) validation images."""
        evaluation = evaluate_images(model, self._running_images)
        return {"validation_loss": evaluation.loss, "validation_accuracy": evaluation.accuracy}

    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return losses and accuracies of all validation images and, for the first time, of the test images.

        `class_share_loss` is what the shares of the classes among the training images lose on the validation images;
        `test_accuracy_low` and `test_accuracy_high` are Wilson's 95% interval.
        """
        held_out = _spread(self.data.validation, self.recipe.validation_tokens)
        validation, test = (evaluate_images(model, images) for images in (held_out, self.data.test))
        low, high = test.accuracy_interval
        return {
            "validation_loss": validation.loss,
            "class_share_loss": class_share_loss(self.data.train, held_out),
            "validation_accuracy": validation.accuracy,
            "validation_images": len(held_out),
            "test_loss": test.loss,
            "test_accuracy": test.accuracy,
            "test_accuracy_low": low,
            "test_accuracy_high": high,
            "test_images": len(self.data.test),
        }

    def corpus(self) -> dict[str, Any]:
        return {"sha256": self.data.sha256}


def _spread(images: ImageSet, most: int | None) -> ImageSet:
    """Take at most so many images, evenly spread, since they may be sorted by class."""
    if most is None or len(images) <= most:
        return images
    return images.take(torch.linspace(0, len(images) - 1, most).round().long())


_RUNNING_PROMPTS = 256
_RUNNING_SEED, _FINAL_SEED = 1, 0  # batches have seeds above a million (`Objective.stage_seed`)


class Regression(Objective[RegressionTask], name="regression"):
    """The label of every input."""

    section = "prompts"
    autocast = False  # squared errors of 0.001 of the labels' are below bfloat16's rounding

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        section, cfg = recipe.prompts, cls.model_config(recipe)
        assert section is not None
        expected = ("vectors", "vectors", section.d, 1)
        if (cfg.read_in, cfg.read_out, cfg.d_in, cfg.d_out) != expected or cfg.sees_later_keys:
            raise ValueError(
                f"recipe {recipe.name!r}: objective = 'regression' in {section.d} dimensions needs a causal model with "
                f"read_in = 'vectors', d_in = {section.d}, read_out = 'vectors', d_out = 1; got {cfg.read_in!r}, "
                f"{cfg.d_in}, {cfg.read_out!r}, {cfg.d_out}{' and one that sees later keys' * cfg.sees_later_keys}."
            )
        if cfg.n_ctx < 2 * section.points - 1:
            raise ValueError(
                f"recipe {recipe.name!r}: prompts of {section.points} points are {2 * section.points - 1} positions, "
                f"but the model's n_ctx is {cfg.n_ctx}; raise it, or lower points."
            )

    @classmethod
    def random_batch(cls, recipe: Recipe, n_rows: int) -> Batch:
        assert recipe.prompts is not None
        prompts = recipe.prompts.task.sample(n_rows, recipe.prompts.points)
        return prompts.tokens, prompts.targets

    @classmethod
    def prepare(
        cls, recipe: Recipe, spec: str | None = None, *, home: Path | None = None, announce: Announce = silent
    ) -> RegressionTask:
        """Return the recipe's task. Raises `ValueError` for data given on the command line."""
        if spec is not None:
            raise ValueError(f"recipe {recipe.name!r}: prompts are drawn, not read; leave out --data {spec}.")
        assert recipe.prompts is not None
        return recipe.prompts.task

    def make_model(self) -> AttentionOnlyTransformer:
        return AttentionOnlyTransformer(self.recipe.model_config())

    def identity(self) -> dict[str, Any]:
        return {}

    def batch(self, stage: int, step: int) -> Batch:
        done = sum(earlier.n_steps for earlier in self.recipe.stages[:stage])
        n_dims, n_points = self._curriculum.at(done + step)
        task = dataclasses.replace(self.data, n_dims=n_dims)
        prompts = task.sample(self.recipe.stages[stage].batch_size, n_points, self.stage_seed(stage), step)
        return prompts.tokens, prompts.targets

    @functools.cached_property
    def _curriculum(self) -> Curriculum:
        assert self.recipe.prompts is not None
        return self.recipe.prompts.curriculum

    def running_metrics(self, model: AttentionOnlyTransformer) -> dict[str, float]:
        """Return the error on 256 prompts, mean over all numbers of examples, and after 2d of them."""
        errors = self._errors(model, _RUNNING_PROMPTS, _RUNNING_SEED).mean
        return {"regression_error": float(errors.mean()), **self._after(errors)}

    def final_metrics(self, model: AttentionOnlyTransformer) -> dict[str, Any]:
        """Return the error on 1,280 prompts, ÷ the zero predictor's: mean over all numbers of examples, and least
        squares'; after d and 2d examples; and each.

        That of least squares is the closed form mean max(0, 1 − i/d), where labels have no noise; it then has none.
        """
        assert self.recipe.prompts is not None
        result = self._errors(model, N_PROMPTS, _FINAL_SEED)
        metrics: dict[str, Any] = {"regression_error": float(result.mean.mean())}
        if not self.data.noise_std:
            examples = np.arange(len(result.mean))
            metrics["least_squares_error"] = float(np.maximum(0.0, 1 - examples / self.data.d).mean())
        metrics |= self._after(result.mean)
        last = min(2 * self.data.d, len(result.mean) - 1)
        low, high = result.bands[last]
        return metrics | {
            "error_after_2d_low": float(low),
            "error_after_2d_high": float(high),
            "prompts": len(result.errors),
            "error_by_examples": [round(float(error), 5) for error in result.mean],
        }

    def _errors(self, model: AttentionOnlyTransformer, n_prompts: int, seed: int) -> Any:
        assert self.recipe.prompts is not None
        return regression_errors(
            model, self.data, n_prompts=n_prompts, n_points=self.recipe.prompts.points, seed=seed, name=self.recipe.name
        )

    def _after(self, errors: np.ndarray) -> dict[str, float]:
        """Return the errors after d and 2d examples, or as many as there are."""
        d, last = self.data.d, len(errors) - 1
        return {"error_after_d": float(errors[min(d, last)]), "error_after_2d": float(errors[min(2 * d, last)])}

    def corpus(self) -> dict[str, Any]:
        """Return the data for the card, with the hash of the first step's tokens: whether prompts are drawn alike
        elsewhere."""
        tokens, _ = self.batch(0, 0)
        return {"sha256": hashlib.sha256(tokens.numpy().tobytes()).hexdigest()}
