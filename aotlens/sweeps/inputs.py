"""The inputs that a sweep gives its analyses: text, images or prompts, as each model takes them.

The sweep's own process chooses them, once for each model, so that workers need no data; only a corpus that an analysis
reads by itself is opened where the cell runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.sweeps.plan import Data
from aotlens.untrusted import boundary, require_regular

if TYPE_CHECKING:
    from aotlens.data import Corpus, RegressionTask
    from aotlens.data.images import ImageData


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """The inputs of one model: sequences of tokens, images with their classes, or prompts with their labels."""

    inputs: np.ndarray
    """Ids `[window, pos]`, pixels `[image, channel, height, width]` (uint8) or vectors `[prompt, pos, d]`."""
    labels: np.ndarray | None = None
    """The number of each image's class, or labels `[prompt, point]`; text is its own."""
    classes: tuple[str, ...] = ()
    """Names of the classes of images."""

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256(repr(self.classes).encode())
        for array in (self.inputs, self.labels):
            if array is not None:
                digest.update(f"{array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Save them as a NumPy file, for the process of a cell."""
        arrays: dict[str, Any] = {"inputs": self.inputs, "classes": np.array(self.classes, dtype=str)}
        if self.labels is not None:
            arrays["labels"] = self.labels
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Inputs:
        """Load the inputs that `save` wrote."""
        require_regular(path, "result")
        with boundary(path, "a cell's inputs"), np.load(path, allow_pickle=False) as file:
            labels = file.get("labels")
            return cls(inputs=file["inputs"], labels=labels, classes=tuple(map(str, file["classes"])))

    def for_model(self, model: Any) -> dict[str, Any]:
        """Return `inputs` as the model reads them and `labels`, as tensors on its device, and images as an
        `ImageSet`."""
        import torch

        inputs = torch.from_numpy(self.inputs)
        labels = None if self.labels is None else torch.from_numpy(self.labels)
        given: dict[str, Any] = {"labels": None if labels is None else labels.to(model.device)}
        if reads(model) != "patches":
            return given | {"inputs": inputs.to(model.device)}
        from aotlens.data.images import ImageSet

        assert labels is not None
        given["image_set"] = ImageSet(images=inputs, labels=labels, classes=self.classes)
        return given | {"inputs": model.to_images(inputs), "labels": labels}


class Source:
    """The sweep's data: opened once, and chosen for each model."""

    def __init__(self, data: Data | None) -> None:
        self._data = data
        self._corpus: Corpus | None = None
        self._said: dict[str, str] | None = None
        self._images: dict[int | None, ImageData] = {}

    @property
    def corpus(self) -> dict[str, str]:
        """The place where a worker finds the corpus, and the hash that it must have."""
        from aotlens.data.sources import absolute_spec

        if self._said is None:
            corpus = self._open_corpus("an analysis reads a corpus")
            self._said = {"spec": absolute_spec(corpus.spec), "sha256": corpus.sha256()}
        return self._said

    def inputs(self, model: Any, name: str) -> Inputs:
        """Return the inputs of the model `name`. Raises `ValueError` where [data] has nothing of the kind."""
        kind = reads(model)
        if kind == "patches":
            return self._some_images(model, name)
        return self._prompts(model, name) if kind == "vectors" else self._windows(model, name)

    def _windows(self, model: Any, name: str) -> Inputs:
        """Choose windows of documents that the model was not trained on."""
        from aotlens.distill import held_out_windows

        assert self._data is not None
        corpus = self._open_corpus(f"{name} reads text")
        return Inputs(inputs=held_out_windows(model, corpus, self._data.tokens).cpu().numpy())

    def _some_images(self, model: Any, name: str) -> Inputs:
        """Choose images of the test set, of each class in turn."""
        from aotlens.data.images import open_images
        from aotlens.evaluate import images_of

        assert self._data is not None
        if self._data.images is None:
            raise ValueError(f"[data]: {name} reads images. Give images = 'npz:PATH', 'folder:PATH', 'digits' or so.")
        size = getattr(model.cfg, "image_size", None)
        if size not in self._images:
            self._images[size] = open_images(self._data.images, size=size)
        images = images_of(model, self._images[size])
        images = images.take(images.by_turns()[: self._data.n_images])
        return Inputs(inputs=images.images.numpy(), labels=images.labels.numpy(), classes=tuple(images.classes))

    def _prompts(self, model: Any, name: str) -> Inputs:
        """Draw prompts of the task that the model was trained on."""
        from aotlens.evaluate import points_of

        assert self._data is not None
        prompts = task_of(model, name).sample(self._data.n_prompts, points_of(model))
        return Inputs(inputs=prompts.tokens.numpy(), labels=prompts.targets.numpy())

    def _open_corpus(self, why: str) -> Corpus:
        from aotlens.data import open_corpus

        if self._data is None or self._data.corpus is None:
            raise ValueError(f"[data]: {why}. Give corpus = 'stdlib', 'file:PATH', 'dir:PATH' or so.")
        if self._corpus is None:
            self._corpus = open_corpus(self._data.corpus)
        return self._corpus


def reads(model: Any) -> str:
    """Return the kind of a model's input: tokens, patches or vectors; a bridge has no field that says so."""
    kind = getattr(model.cfg, "read_in", None)
    return kind or ("patches" if getattr(model.cfg, "is_visual_model", False) else "tokens")


def task_of(model: Any, name: str) -> RegressionTask:
    """Return the task of in-context regression of the model's card. Raises `ValueError` for a card that has none."""
    from aotlens.train import Recipe

    card = getattr(model, "card", None)
    recipe: Mapping[str, Any] = getattr(card, "recipe", None) or {}
    if "prompts" not in recipe:
        raise ValueError(
            f"{name}: its card says no task of in-context regression; give settings = {{ task = {{ d = 5 }} }} to "
            "analyses that take one."
        )
    prompts = Recipe.from_dict(dict(recipe)).prompts
    assert prompts is not None
    return prompts.task
