"""The run of a model on some images, whole or with heads ablated: its maps and its logits, and what is read off them.

run = image_run(model, images, labels=labels)
run.wrong, run.to_frame()
ablated = image_run(model, images, ["1.3"], "mean", reference=others)
run.head((1, 2), image=3), run.layer(1), run.predictions(3, ablated)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, as_head, as_heads, head_name, require_choice, require_whole
from aotlens.heads.image_maps import ImageMaps, image_maps
from aotlens.heads.patch_grid import Query
from aotlens.heads.replacement import HeadSwitches
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerOnImages(Result):
    """Maps of every head of one layer on some images."""

    images: UInt8[np.ndarray, "image channel height width"]
    layer: int
    quantity: str
    """`"attention"` or `"value_weighted"`, as `ImageMaps` has them."""
    query: str
    """The query whose attention the maps show, in words."""
    values: Float[np.ndarray, "image head row column"]

    @property
    def headline(self) -> str:
        n_images, n_heads, rows, columns = self.values.shape
        return (
            f"{self.quantity.replace('_', '-')} of {n_heads} heads of layer {self.layer} to {rows} × {columns} patches "
            f"of {n_images} images; query: {self.query}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per patch: image, head, row, column, and the quantity."""
        return table(("image", "head", "row", "column"), {self.quantity: self.values})


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadOnImage(Result):
    """The maps of one head on one image."""

    image: UInt8[np.ndarray, "channel height width"]
    head: Head
    query: str
    """The query whose attention the maps show, in words."""
    attention: Float[np.ndarray, "row column"]
    value_weighted: Float[np.ndarray, "row column"]
    rollout: Float[np.ndarray, "row column"] | None
    """The rollout through all heads and layers; None for patterns with negative entries, which are no shares."""

    @property
    def maps(self) -> dict[str, np.ndarray]:
        """All maps by name."""
        named = {"attention": self.attention, "value_weighted": self.value_weighted}
        return named if self.rollout is None else {**named, "rollout": self.rollout}

    @property
    def headline(self) -> str:
        row, column = np.unravel_index(int(self.attention.argmax()), self.attention.shape)
        return (
            f"head {self.head[0]}.{self.head[1]} attends most to patch ({row}, {column}), "
            f"{self.attention.max():.3f}, of {self.attention.sum():.3f} to all patches; query: {self.query}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per patch: row, column, attention, value_weighted, and rollout if it exists."""
        return table(("row", "column"), self.maps)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPredictions(Result):
    """Logits and probabilities of all classes for one image, by the full model and with heads ablated."""

    classes: tuple[str, ...]
    logits: Float64[np.ndarray, " class"]
    probabilities: Float64[np.ndarray, " class"]
    ablated: Float64[np.ndarray, " class"] | None = None
    """Probabilities with heads ablated."""
    n_changed: int = 0
    """The number of images of the run whose predicted class the ablation changes."""
    n_images: int = 1
    """The number of images of the run."""
    truth: str | None = None
    """The image's class by name, if it is known."""

    def best(self, *, ablated: bool = False) -> tuple[str, float]:
        """Return the most probable class, and its probability."""
        values = self.ablated if ablated and self.ablated is not None else self.probabilities
        return self.classes[int(values.argmax())], float(values.max())

    @property
    def headline(self) -> str:
        prediction = "{} ({:.3f})".format(*self.best())
        return prediction if self.ablated is None else "{}; with heads ablated {} ({:.3f})".format(
            prediction, *self.best(ablated=True)
        )  # fmt: skip

    def sentences(self, ablated: str = "heads ablated") -> str:
        """Return the image's class and the model's prediction; with heads ablated, as `ablated` names them, both."""
        name, probability = self.best()
        truth = "" if self.truth is None else f"Its class is ‹{self.truth}›. "
        sentence = f"{truth}The full model predicts ‹{name}›, with probability {probability:.3f}."
        if self.ablated is None:
            return sentence
        other, lower = self.best(ablated=True)
        return (
            f"{sentence} With {ablated}: ‹{other}›, with probability {lower:.3f}. The prediction changes for "
            f"{self.n_changed} of {self.n_images} images."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a class: class, logit, probability, and probability_ablated where heads are ablated."""
        import pandas as pd

        columns = {"class": self.classes, "logit": self.logits, "probability": self.probabilities}
        return pd.DataFrame(columns | ({} if self.ablated is None else {"probability_ablated": self.ablated}))


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageRun(Result):
    """The maps of every head and the logits of every class on some images."""

    images: UInt8[np.ndarray, "image channel height width"]
    classes: tuple[str, ...]
    maps: ImageMaps
    logits: Float64[np.ndarray, "image class"]
    ablated: tuple[Head, ...] = ()
    """The heads that are ablated, none for the full model."""
    how: str = "zero"
    """The replacement of their outputs, as in `aotlens.heads.ablation`."""
    labels: Int64[np.ndarray, " image"] | None = None
    """The number of each image's class, −1 for an unknown one; None if they are not given."""
    label_names: tuple[str, ...] = ()
    """The names of these classes; by default the model's."""

    @property
    def truth(self) -> tuple[str | None, ...]:
        """Each image's class by name; None for an unknown one."""
        if self.labels is None:
            return (None,) * len(self.images)
        names = self.label_names or self.classes
        return tuple(None if label < 0 else names[label] for label in self.labels)

    @property
    def has_model_classes(self) -> bool:
        """Whether the images' classes are the model's, so that a prediction is right or wrong."""
        return self.label_names in ((), self.classes)

    @property
    def wrong(self) -> tuple[int, ...]:
        """The images whose predicted class is wrong, by number from 0."""
        pairs = enumerate(zip(self.truth, self.predicted, strict=True))
        wrong = (image for image, (name, best) in pairs if name is not None and name != self.classes[best])
        return tuple(wrong) if self.has_model_classes else ()

    @property
    def probabilities(self) -> Float64[np.ndarray, "image class"]:
        """The softmax of the logits."""
        return torch.from_numpy(self.logits).softmax(-1).numpy()

    @property
    def predicted(self) -> np.ndarray:
        """The number of the class with the largest logit, for each image."""
        return self.logits.argmax(1)

    @property
    def headline(self) -> str:
        names = ", ".join(map(head_name, self.ablated))
        return self.maps.headline + (f"; {names} ablated ({self.how})" if names else "")

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per image: image, class (if labels are given), predicted, probability."""
        import pandas as pd

        names = [self.classes[number] for number in self.predicted]
        truth = {} if self.labels is None else {"class": self.truth}
        columns = {"image": range(len(names)), **truth, "predicted": names, "probability": self.probabilities.max(1)}
        return pd.DataFrame(columns)

    def layer(self, layer: int, query: Query = None, quantity: str = "attention") -> LayerOnImages:
        """Return all maps of a layer's heads; `quantity` is `"attention"` or `"value_weighted"`, `query` as in
        `ImageMaps.attention`. Raises `ValueError` if layer, query or quantity do not exist."""
        require_choice("quantity", quantity, ("attention", "value_weighted"))
        require_whole("layer", layer, 0, self.maps.pattern.shape[1] - 1)
        values = getattr(self.maps, quantity)(query)[:, layer]
        name = self.maps.grid.query_name(query)
        return LayerOnImages(images=self.images, layer=layer, quantity=quantity, query=name, values=values)

    def head(self, head: HeadLike, image: int = 0, query: Query = None) -> HeadOnImage:
        """Return the maps of one head on one image. Raises `ValueError` if head, image or query
        do not exist."""
        require_whole("image", image, 0, len(self.images) - 1)
        layer, number = as_head(head, self.maps.pattern.shape[1:3])
        place = image, layer, number
        positive = bool((self.maps.pattern >= 0).all())
        return HeadOnImage(
            image=self.images[image], head=(layer, number), query=self.maps.grid.query_name(query),
            attention=self.maps.attention(query)[place], value_weighted=self.maps.value_weighted(query)[place],
            rollout=self.maps.rollout(query)[image] if positive else None,
        )  # fmt: skip

    def predictions(self, image: int = 0, ablated: ImageRun | None = None) -> ClassPredictions:
        """Return the model's predictions for one image; beside it the same of a run on the same images with heads
        ablated.

        Raises `ValueError` if the image does not exist."""
        require_whole("image", image, 0, len(self.images) - 1)
        other = None if ablated is None else ablated.probabilities[image]
        changed = 0 if ablated is None else int((ablated.predicted != self.predicted).sum())
        return ClassPredictions(
            classes=self.classes, logits=self.logits[image], probabilities=self.probabilities[image], ablated=other,
            n_changed=changed, n_images=len(self.images), truth=self.truth[image],
        )  # fmt: skip


def image_run(
    model: AttentionOnlyTransformer,
    images: UInt8[Tensor, "image channel height width"],
    ablated: HeadLike | Iterable[HeadLike] = (),
    how: str = "zero",
    *,
    labels: Int64[Tensor, " image"] | None = None,
    label_names: Sequence[str] = (),
    reference: UInt8[Tensor, "other channel height width"] | None = None,
    progress: Progress | None = None,
) -> ImageRun:
    """Compute the maps and the logits of `model` on `images`, pixels from 0 to 255, with the heads `ablated`.

    `how` says what their outputs are replaced with (`aotlens.heads.ablation`), `reference` are other images, from which
    means and other outputs are taken. `labels` are the numbers of the images' classes (−1 for an unknown one), named
    `label_names` if they are not the model's. `progress(done, total)` counts images. Time: two forward passes, and what
    the reference takes; memory: that of `image_maps`.

    Raises `ValueError` for a model that reads no images into classes, for one that does not say how pixels are scaled
    or what its classes are called, for labels that do not fit, and as `HeadSwitches` and `image_maps` do.
    """
    require_ours(model, "image_run")
    if model.cfg.read_out != "classes":
        raise ValueError(f"image_run: expected a model that reads out classes, got read_out={model.cfg.read_out!r}.")
    inputs = model.to_images(images)
    assert model.image_processor is not None
    classes = model.image_processor.classes
    if len(classes) != model.cfg.d_out:
        raise ValueError(
            f"image_run: expected a name for each of the model's {model.cfg.d_out} classes, its image processor has "
            f"{len(classes)}; give it model.image_processor = aotlens.data.images.ImageProcessor(…) with all of them."
        )
    names = tuple(label_names) or classes
    if labels is not None and (len(labels) != len(images) or max(labels.tolist(), default=-1) >= len(names)):
        raise ValueError(f"labels: expected a number below {len(names)} for each of {len(images)} images.")
    heads = as_heads(ablated, model.cfg, at_least=0)
    others = None if reference is None or not heads else model.to_images(reference)
    switched = HeadSwitches(model, how, reference=others).off(heads) if heads else nullcontext()
    with switched, torch.inference_mode():
        maps = image_maps(model, inputs, progress=progress)
        logits = model(inputs).double().cpu().numpy()
    return ImageRun(
        images=images.cpu().numpy(), classes=classes, maps=maps, logits=logits, ablated=heads, how=how,
        labels=None if labels is None else labels.cpu().numpy(), label_names=tuple(label_names),
    )  # fmt: skip
