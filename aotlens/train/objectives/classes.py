"""The objective of images: the class of each. Validation images choose, test images are read once, at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from aotlens.data.images import ImageProcessor, ImageSampler, ImageSet, open_images
from aotlens.data.sources import portable_spec
from aotlens.evaluate import class_share_loss, evaluate_images
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.objectives.objective import Batch, Objective

if TYPE_CHECKING:
    from aotlens.train.recipe import Recipe

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


class Classes(Objective[ImageTrainingData]):
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
        cls,
        recipe: Recipe,
        spec: str | None = None,
        *,
        home: Path | None = None,
        announce: Callable[[str], None] = lambda message: None,
    ) -> ImageTrainingData:
        """Open the images and hold out the recipe's share of every class, whatever the run's seed the same ones.

        Raises `ValueError` for images of another size, other channels or other classes than the model's.
        """
        section = recipe.images
        assert section is not None
        chosen = section.spec if spec is None else spec
        if chosen is None:
            source = f" They are to be had from: {section.source}." if section.source else ""
            raise ValueError(f"this recipe needs images; give them with --data, e.g. --data npz:PATH.{source}")
        announce(f"reading {chosen}")
        data = open_images(chosen, size=section.size)
        data = data.named(section.classes) if section.classes else data
        cfg = cls.model_config(recipe)
        channels, height, width = data.train.images.shape[1:]
        shape, expected = (channels, height, width, len(data.classes)), (
            cfg.n_channels, cfg.image_size, cfg.image_size, cfg.d_out
        )  # fmt: skip
        if shape != expected:
            raise ValueError(
                f"recipe {recipe.name!r}: the model reads {cfg.n_channels} × {cfg.image_size} × {cfg.image_size} "
                f"pixels in {cfg.d_out} classes, but {chosen} has {channels} × {height} × {width} in "
                f"{len(data.classes)}; make n_channels, image_size and d_out of [model] fit, or set size in [images]."
            )
        train, validation = data.split(section.validation)
        name = section.name or portable_spec(chosen)
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
