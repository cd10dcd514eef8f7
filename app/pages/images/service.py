"""Images through models: which are shown, what every head looks at, what patches say for a class. No Dash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.cache import Cache
from app.core.catalog import LoadedModel
from app.core.errors import RequestError
from app.core.inference import Heads
from app.core.switches import NEEDS, How
from app.pages.images.request import ImageRequest

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from aotlens.data.images import ImageData
    from aotlens.heads import HeadSwitches, ImageMaps
    from aotlens.paths import PatchContributions

NO_MODEL = (
    "No checkpoint here reads images. Train one (aotlens train --help), or start the app with --checkpoints DIR, a "
    "folder that has one."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The images that are shown: a person's own, then test images of the data."""

    asked: ImageRequest
    """As it could be met."""
    images: Tensor
    """uint8 `[image, channel, side, side]`, at the model's size."""
    labels: tuple[int | None, ...]
    """Numbers of classes of the data; None for a person's own."""
    indices: tuple[int, ...]
    """Which test images of the data they are, without a person's own."""
    names: tuple[str, ...]
    """Of the data's classes."""
    are_names_lent: bool
    """Whether the data have only numbers for names, and these are the model's, taken in its order."""
    n_all: int
    """Test images that could be shown: of the class that is asked for, or all."""

    @property
    def n_own(self) -> int:
        return len(self.asked.own)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a model does with the images that are shown, whole or with heads switched off."""

    maps: ImageMaps
    logits: np.ndarray
    """`[image, class]`."""
    probabilities: np.ndarray
    """`[image, class]`."""
    off: Heads
    how: How

    @property
    def n_bytes(self) -> int:
        return int(self.maps.pattern.nbytes + self.maps.value_norms.nbytes + self.logits.nbytes)


class ImageViews:
    """The page's results, each made once and kept for a while. Raises RequestError for what can be put right."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._batches: Cache[tuple[str, ImageRequest], Batch] = core.memory.cache(16)
        self._runs: Cache[tuple[str, ImageRequest, Heads, str], Run] = core.memory.cache()
        self._paths: Cache[tuple[str, ImageRequest, int], PatchContributions] = core.memory.cache(64)
        self._switches: Cache[tuple[int, str, str], HeadSwitches] = core.memory.cache(4)

    # ── which images ────────────────────────────────────────────────────────────────────────────────────────

    def load(self, checkpoint: str | None) -> tuple[str, LoadedModel]:
        """A model of images by its name, the first where none is named."""
        name = checkpoint or self.core.catalog.default_of_images()
        if name is None:
            raise RequestError(NO_MODEL)
        loaded = self.core.catalog.load(name)
        if not self.core.catalog.reads_images(self.core.catalog.info(name)):
            raise RequestError(
                f"{name} doesn't read images into classes; the page Heads shows models of text. Choose another here."
            )
        if loaded.model.image_processor is None:
            raise RequestError(
                f"{name} doesn't say how its pixels are to be scaled (it has no image_processor in config.json), so no "
                "image can be given to it. Train it with this version of aotlens, or choose another."
            )
        return name, loaded

    def batch(
        self, checkpoint: str | None, data: str | None, of: int | None, start: int, own: tuple[str, ...]
    ) -> Batch:
        """The images of a choice; a data set, class or first image that there isn't gives way to one that there is."""
        name, loaded = self.load(checkpoint)
        if data not in self.core.images.names:
            processor, size = loaded.model.image_processor, int(loaded.model.cfg.image_size or 0)
            data = self.core.images.fitting(processor.data, processor.classes, size)
        opened = self.data(data, loaded)
        of = of if of is not None and 0 <= of < len(opened.classes) else None
        n_all = len(opened.test.by_turns(of))
        start = min(max(start, 0), max(n_all - 1, 0))
        own = tuple(key for key in own if self.core.images.own.known(key))[: self.core.settings.own_images_shown]
        asked = ImageRequest(checkpoint=name, data=data, of=of, start=start, own=own)
        return self.of(asked)

    def of(self, asked: ImageRequest) -> Batch:
        """The images of what has been met already."""
        _, loaded = self.load(asked.checkpoint)
        return self._batches.get((loaded.key, asked), lambda: self._gather(asked, loaded))

    def data(self, data: str, loaded: LoadedModel) -> ImageData:
        """A data set at the model's size, with the model's names of the classes where it was trained on it, and where
        the data only number as many."""
        opened = self.core.images.open(data, int(loaded.model.cfg.image_size or 0))
        processor = loaded.model.image_processor
        theirs = self.core.images.is_called(data, processor.data) or self._numbers(data, opened)
        return opened.named(processor.classes) if theirs and len(processor.classes) == len(opened.classes) else opened

    def _numbers(self, data: str, opened: ImageData) -> bool:
        """Whether data that the server was given have no names for their classes but numbers."""
        return data in self.core.images.given and opened.classes == tuple(map(str, range(len(opened.classes))))

    def _gather(self, asked: ImageRequest, loaded: LoadedModel) -> Batch:
        import torch

        opened = self.data(asked.data, loaded)
        order = opened.test.by_turns(asked.of)
        here = order[asked.start : asked.start + self.n_fitting(loaded, self.core.settings.images_shown)]
        chosen = opened.test.take(here)
        size = int(loaded.model.cfg.image_size or 0)
        channels = max(chosen.images.shape[1], loaded.model.cfg.n_channels)
        own = [self.core.images.own.read(key, size, colour=channels == 3) for key in asked.own]
        as_they_are = self.core.images.open(asked.data, size)
        trained_on_them = self.core.images.is_called(asked.data, loaded.model.image_processor.data)
        images = torch.cat([*(one[None] for one in own), chosen.images.expand(-1, channels, -1, -1)])
        return Batch(
            asked=asked, images=images, labels=(*[None] * len(own), *chosen.labels.tolist()),
            indices=tuple(here.tolist()), names=opened.classes, n_all=len(order),
            are_names_lent=opened.classes != as_they_are.classes and not trained_on_them,
        )  # fmt: skip

    def n_fitting(self, loaded: LoadedModel, wanted: int) -> int:
        """So many images, or fewer of a model whose patterns are large; at least one."""
        cfg = loaded.model.cfg
        per_image = 4 * cfg.n_layers * cfg.n_heads * cfg.n_ctx * (cfg.n_ctx + 1)
        return max(1, min(wanted, self.core.settings.max_result_bytes // per_image))

    # ── what the model does with them ───────────────────────────────────────────────────────────────────────

    def run(self, asked: ImageRequest, off: Heads = (), how: How = "zero") -> Run:
        """Maps and predictions of all the images that are shown, without the heads that are off."""
        _, loaded = self.load(asked.checkpoint)
        off = tuple(sorted(set(off)))
        key = (loaded.key, asked, off, how if off else "")
        return self._runs.get(key, lambda: self._run(asked, loaded, off, how))

    def _run(self, asked: ImageRequest, loaded: LoadedModel, off: Heads, how: How) -> Run:
        import torch

        from aotlens.heads import image_maps

        batch = self.of(asked)
        with self._switched(asked, loaded, off, how) as model, torch.inference_mode():
            inputs = model.to_images(batch.images)
            maps = said(lambda: image_maps(model, inputs, max_bytes=2 * self.core.settings.max_result_bytes))
            logits = model(inputs).double().cpu()
        return Run(
            maps=maps, logits=logits.numpy(), probabilities=logits.softmax(-1).numpy(), off=off,
            how=how if off else "zero",
        )  # fmt: skip

    @contextmanager
    def _switched(self, asked: ImageRequest, loaded: LoadedModel, off: Heads, how: How) -> Iterator[Any]:
        """The model for one thread, without the heads `off`."""
        with loaded.exclusive:
            if not off:
                yield loaded.model
                return
            key = (id(loaded.model), how, asked.data if how in NEEDS else "")
            switches = self._switches.get(key, lambda: said(lambda: self._prepare(asked, loaded, how)))
            with switches.off(off):
                yield loaded.model

    def _prepare(self, asked: ImageRequest, loaded: LoadedModel, how: How) -> HeadSwitches:
        from aotlens.heads import HeadSwitches

        if how not in NEEDS:
            return HeadSwitches(loaded.model, how)
        return HeadSwitches(loaded.model, how, reference=loaded.model.to_images(self.reference(asked, loaded)))

    def reference(self, asked: ImageRequest, loaded: LoadedModel) -> Tensor:
        """Training images, classes in turn, on which it is seen what a head does elsewhere; test images of data that
        has no others."""
        opened = self.data(asked.data, loaded)
        others = opened.train if len(opened.train) else opened.test
        return others.images[others.by_turns()[: self.core.settings.reference_windows]]

    def contributions(self, asked: ImageRequest, image: int) -> PatchContributions:
        """What the patches of one image add to every class, along all paths of the whole model."""
        _, loaded = self.load(asked.checkpoint)
        return self._paths.get((loaded.key, asked, image), lambda: self._contribute(asked, image, loaded))

    def _contribute(self, asked: ImageRequest, image: int, loaded: LoadedModel) -> PatchContributions:
        from aotlens.paths import patch_contributions

        one = self.of(asked).images[image : image + 1]
        with loaded.exclusive:
            return said(lambda: patch_contributions(loaded.model, loaded.model.to_images(one)))

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────

    def classes(self, checkpoint: str) -> tuple[str, ...]:
        """The names of the model's classes."""
        names: tuple[str, ...] = self.load(checkpoint)[1].model.image_processor.classes
        return names

    def knows(self, batch: Batch) -> bool:
        """Whether the data's classes are the model's, so that a prediction is right or wrong."""
        return self.classes(batch.asked.checkpoint) == batch.names


def said(work: Any) -> Any:
    """What `work` gives; what is wrong with what was asked, for the person at the browser."""
    try:
        return work()
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(str(error)) from error
