"""Images through models: which images are shown, and where views of them are computed. No Dash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from aotlens.views import Call, pass_cost
from aotlens.views.images import LAYER, ImagesParameters
from app.core import Core
from app.core.catalog import GET_ONE, LoadedModel
from app.core.errors import RequestError
from app.core.jobs import Jobs
from app.core.workshop import AppWorkshop
from app.pages.images.address import ImagesState

if TYPE_CHECKING:
    from aotlens.data.images import ChosenImages, ImageData
    from aotlens.heads import ImageRun

NO_MODEL = f"No checkpoint here reads images. {GET_ONE}"

#: The model's result on the images, with the heads ablated.
_RUN = replace(LAYER, call=lambda chosen: chosen.run)


@dataclass(frozen=True, kw_only=True)
class ImageRequest(ImagesParameters):
    """The request that is shown, as it could be met."""

    names: tuple[str, ...]
    """The names of the data's classes."""
    are_names_lent: bool
    """Whether the data have only numbers for names, and these are the model's, taken in its order."""
    trained_on: str
    """The data of the model, by its card."""

    @property
    def is_known(self) -> bool:
        """Whether the data's classes are the model's, so that a prediction is right or wrong."""
        return self.names == self.classes


class Images:
    """The page's choices and results, each made once and kept for a while. Raises RequestError for what can be put
    right."""

    def __init__(self, core: Core) -> None:
        self.core, self.workshop = core, _Workshop(core, core.settings.n_views)
        self.jobs = Jobs(core.settings.n_views, memory=core.memory, seconds=core.settings.job_seconds)

    def load(self, checkpoint: str | None) -> tuple[str, LoadedModel]:
        """Return a model of images by its name, the first where none is named."""
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

    def values(
        self, form: Mapping[str, Any], head: Any = None, patch: Any = None, view: str = "attention"
    ) -> ImageRequest:  # fmt: skip
        """Read a form; a data set, class, image, head or patch that is not there gives way to one that is."""
        name, loaded = self.load(form.get("checkpoint"))
        cfg, processor, settings = loaded.model.cfg, loaded.model.image_processor, self.core.settings
        known, size = self.core.images.names, int(cfg.image_size or 0)
        data = form.get("data")
        if data not in known:
            data = self.core.images.fitting(processor.data, processor.classes, size)
        opened = self.core.images.open(data, size)
        names = self._names(data, opened, processor)
        of = _number(form.get("of"), len(names))
        n_all = len(opened.test) if of is None else int((opened.test.labels == of).sum())
        start = min(max(int(form.get("start") or 0), 0), max(n_all - 1, 0))
        own = tuple(key for key in form.get("own") or () if self.core.images.own.known(key))[
            : settings.own_images_shown
        ]
        n_shown = self._fitting(cfg, settings.images_shown)
        n_images = len(own) + min(n_shown, n_all - start)
        side = size // int(cfg.patch_size or 1)
        off = {(int(layer), int(number)) for layer, number in form.get("off") or ()}
        layer, number = map(int, head or (0, 0))
        trained_here = self.core.images.is_called(data, processor.data)
        return ImageRequest(
            checkpoint=name, model=cfg.to_dict(), data=self.core.images.spec(data), called=data,
            stamp=known.index(data) + 1, of=of, start=start, n_shown=n_shown, own=own, n_images=n_images,
            image=min(max(int(form.get("image") or 0), 0), n_images - 1),
            head=(min(layer, cfg.n_layers - 1), min(number, cfg.n_heads - 1)),
            patch=tuple(map(int, patch)) if patch and max(patch) < side else None, quantity=view,
            target=_number(form.get("target"), len(processor.classes)),
            ablated=tuple(sorted(each for each in off if each[0] < cfg.n_layers and each[1] < cfg.n_heads)),
            how=form.get("how") or "zero", n_reference=settings.reference_windows,
            n_measured=self._fitting(cfg, settings.consistency_images, passes=0), classes=tuple(processor.classes),
            names=names, are_names_lent=names != opened.classes and not trained_here, trained_on=processor.data,
        )  # fmt: skip

    def of_address(self, state: ImagesState) -> ImageRequest:
        """Return the request that an address says."""
        fields = asdict(state)
        return self.values(fields, (state.layer, state.head), state.patch, state.view)

    def _names(self, data: str, opened: ImageData, processor: Any) -> tuple[str, ...]:
        """Name the data's classes: the model's where it was trained on them, and where they only number as many."""
        numbered = data in self.core.images.given and opened.classes == tuple(map(str, range(len(opened.classes))))
        theirs = self.core.images.is_called(data, processor.data) or numbered
        return tuple(processor.classes) if theirs and len(processor.classes) == len(opened.classes) else opened.classes

    def _fitting(self, cfg: Any, wanted: int, passes: int = 2) -> int:
        """Return the number `wanted`, or fewer of a model with large patterns or long passes; at least one."""
        settings = self.core.settings
        fits = [wanted, settings.max_result_bytes // (4 * cfg.n_layers * cfg.n_heads * cfg.n_ctx * (cfg.n_ctx + 1))]
        if passes:
            fits.append(int(settings.max_operations / (passes * pass_cost(cfg.to_dict(), cfg.n_ctx))))
        return max(1, min(fits))

    def chosen(self, request: ImageRequest) -> ChosenImages:
        """Return the images that are shown."""
        try:
            images: ChosenImages = request.images.run(self.workshop)
        except ValueError as error:
            raise RequestError(str(error)) from error
        return images

    def run(self, request: ImageRequest, *, full: bool = False) -> ImageRun:
        """Return what the model makes of them, with the heads ablated or in `full`."""
        run: ImageRun = self.workshop.result(_RUN, replace(request, ablated=()) if full else request)
        return run

    def labels(self, request: ImageRequest) -> list[str | None]:
        """Return the class of each image by name; None for a person's own."""
        return [request.names[label] if label >= 0 else None for label in self.chosen(request).labels.tolist()]


def _number(value: Any, n: int) -> int | None:
    """A number below `n`, as a choice has it; None for nothing, and for one that there is not."""
    return int(value) if value is not None and 0 <= int(value) < n else None


class _Workshop(AppWorkshop):
    """Data sets are those that the app has by name: a browser never names a path."""

    def __init__(self, core: Core, kept: int) -> None:
        super().__init__(core, kept)
        self._images = core.images

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """A data set, or what has been kept of a call."""
        if node.function == "aotlens.data.images.open_images":
            images = self._images
            return images.open(images.names[node.stamp - 1], (node.options or {})["size"])
        return super().call(node, work)
