"""The performance of a model of classes of images: accuracy, a table by class, calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch.nn.functional import log_softmax

from aotlens.conventions import Progress
from aotlens.data.images import ImageData, ImageSet
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.statistics import wilson_interval

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageEvaluation(Result):
    """The predictions of a model for labelled images, an image after the other."""

    classes: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""
    labels: Int64[np.ndarray, " image"]
    """The class of each image."""
    log_probabilities: Float64[np.ndarray, "image class_"]
    """log p(class | image), nats."""

    @property
    def headline(self) -> str:
        low, high = self.accuracy_interval
        return f"{self.accuracy:.2%} right (95% interval {low:.2%} to {high:.2%}), {self.loss:.3f} nats per image"

    @property
    def predicted(self) -> Int64[np.ndarray, " image"]:
        """The likeliest class of each image."""
        return self.log_probabilities.argmax(1)

    @property
    def right(self) -> np.ndarray:
        """Whether the likeliest class is the image's: bool `[image]`."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """Share of images whose class the model holds likeliest."""
        return float(self.right.mean())

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the accuracy; images vary, the trained model does not."""
        return wilson_interval(int(self.right.sum()), len(self.labels))

    @property
    def loss(self) -> float:
        """Mean −log p(class), in nats per image."""
        return float(-self.log_probabilities[np.arange(len(self.labels)), self.labels].mean())

    @property
    def confusion(self) -> Int64[np.ndarray, "class_ predicted"]:
        """The number of images of each class (rows) that the model takes for each class (columns)."""
        counts = np.zeros((len(self.classes), len(self.classes)), dtype=np.int64)
        np.add.at(counts, (self.labels, self.predicted), 1)
        return counts

    @property
    def calibration_error(self) -> float:
        """Σ over bins of confidence of their share of images · |accuracy − mean confidence| (Guo et al. 2017)."""
        table = self.calibration()
        return float((table["images"] / len(self.labels) * (table["accuracy"] - table["confidence"]).abs()).sum())

    def calibration(self, n_bins: int = 10) -> pd.DataFrame:
        """One row for each of `n_bins` equal bins of confidence, the probability of the likeliest class, with images.

        Columns: from, to, images, confidence (the mean in the bin), accuracy, low and high (Wilson's 95% interval).
        """
        import pandas as pd

        confidence = np.exp(self.log_probabilities.max(1))
        bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        rows = []
        for number in np.unique(bins):
            own = bins == number
            low, high = wilson_interval(int(self.right[own].sum()), int(own.sum()))
            rows.append(
                {
                    "from": number / n_bins,
                    "to": (number + 1) / n_bins,
                    "images": int(own.sum()),
                    "confidence": float(confidence[own].mean()),
                    "accuracy": float(self.right[own].mean()),
                    "low": low,
                    "high": high,
                }
            )
        return pd.DataFrame(rows)

    def to_frame(self) -> pd.DataFrame:
        """One row per class: its images, the share recognised with Wilson's 95% interval, the share of right answers
        among the images classified as it (NaN if there are none), and the class that it is most often mistaken for."""
        import pandas as pd

        counts = self.confusion
        rows = []
        for number, name in enumerate(self.classes):
            images, right, predicted = (
                int(counts[number].sum()),
                int(counts[number, number]),
                int(counts[:, number].sum()),
            )
            low, high = wilson_interval(right, images)
            others = counts[number].copy()
            others[number] = 0
            rows.append(
                {
                    "class": name,
                    "images": images,
                    "recall": right / images if images else np.nan,
                    "low": low,
                    "high": high,
                    "precision": right / predicted if predicted else np.nan,
                    "most often taken for": self.classes[int(others.argmax())] if others.any() else "",
                }
            )
        return pd.DataFrame(rows)


@torch.no_grad()
def evaluate_images(
    model: AttentionOnlyTransformer,
    images: ImageSet,
    *,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> ImageEvaluation:
    """Evaluate a model of classes, with its image processor, on labelled images.

    `progress(images done, images)` is called after each batch. Raises `ValueError` for a model without an image
    processor or of other classes, for no images, and for outputs that are not finite.
    """
    require_ours(model, "evaluate_images")
    if model.cfg.read_out != "classes" or model.cfg.pooling is None:
        raise ValueError(f"expected a model that writes one class an image, this one writes {model.cfg.read_out}.")
    processor = model.image_processor
    if processor is not None and tuple(processor.classes) != tuple(images.classes):
        raise ValueError(
            f"expected images of the model's classes, {', '.join(processor.classes)}, got {', '.join(images.classes)}."
        )
    if len(images) == 0:
        raise ValueError("expected at least one labelled image, got none.")
    parts = []
    for start in range(0, len(images), batch_size):
        logits = model(model.to_images(images.images[start : start + batch_size]))
        parts.append(log_softmax(logits.double(), dim=-1).cpu().numpy())
        if progress is not None:
            progress(min(start + batch_size, len(images)), len(images))
    log_probabilities = np.concatenate(parts)
    if not np.isfinite(log_probabilities).all():
        raise ValueError("the model's outputs for some image are not finite: some weight or activation is not.")
    return ImageEvaluation(
        classes=images.classes, labels=images.labels.numpy().copy(), log_probabilities=log_probabilities
    )


def images_of(
    model: AttentionOnlyTransformer, data: ImageData, split: Literal["test", "validation", "training"] = "test"
) -> ImageSet:
    """The images of `data` that a split names, for `evaluate_images`; classes that are only numbered get the model's
    names.

    The validation images are those that the training of `model` held out, and the training images the others, which
    needs the very data that its card names. Raises `ValueError` for other data or a card that does not say.
    """
    require_ours(model, "images_of")
    processor, card = model.image_processor, model.card
    if processor is not None and data.classes == tuple(map(str, range(len(processor.classes)))):
        data = data.named(processor.classes)
    if split == "test":
        return data.test
    share = getattr(card, "recipe", {}).get("images", {}).get("validation")
    if share is None or data.sha256() != card.corpus.get("sha256"):
        name = "" if processor is None else f", {processor.data}"
        trained_on = "a card that says how" if share is None else f"the data it was trained on{name}"
        raise ValueError(
            f"the {split} images are told apart as in the model's training: expected {trained_on}, got {data.spec}; "
            "the test images of any data may be evaluated."
        )
    train, validation = data.split(share)
    return train if split == "training" else validation


def class_share_loss(train: ImageSet, held_out: ImageSet) -> float:
    """Mean −log p(class) of held-out images, in nats, knowing only how often each class occurs among `train`.

    Each class counts once more than it occurs (Laplace), so that no class is impossible.
    """
    counts = torch.bincount(train.labels, minlength=len(train.classes)).double() + 1
    return float(-(counts / counts.sum()).log()[held_out.labels].mean())
