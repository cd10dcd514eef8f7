"""What the Images page's tabs show: an image, a head, a query, heads that are off, as the browser sends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.core.inference import Heads
from app.core.switches import How
from app.pages.images.request import ImageRequest
from app.pages.images.service import Batch, ImageViews, Run


@dataclass(frozen=True, kw_only=True)
class Picked:
    """One image and one head of what is shown."""

    asked: ImageRequest
    image: int
    layer: int
    head: int
    patch: tuple[int, int] | None
    off: Heads
    how: How
    target: int | None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Picked:
        """What images.js puts together, within what is shown."""
        return cls(
            asked=ImageRequest.from_dict(data),
            image=min(int(data["image"] or 0), data["n"] - 1),
            layer=min(int(data["layer"] or 0), data["layers"] - 1),
            head=min(int(data["head"] or 0), data["heads"] - 1),
            patch=query_of(data["patch"], data),
            off=pairs_of(data["off"], data),
            how=data["how"],
            target=None if data["target"] is None else int(data["target"]),
        )

    def runs(self, service: ImageViews) -> tuple[Batch, Run, Run]:
        """The images, the run without the heads that are off, and the whole model's."""
        return service.of(self.asked), service.run(self.asked, self.off, self.how), service.run(self.asked)

    def class_of(self, service: ImageViews) -> int:
        """The class whose logit is taken apart: the chosen one, or the one that the whole model predicts."""
        logits = service.run(self.asked).logits[self.image]
        if self.target is not None and 0 <= self.target < len(logits):
            return self.target
        return int(logits.argmax())


def pairs_of(off: Any, shown: Mapping[str, Any]) -> Heads:
    """Heads as the browser sends them, those that the model has."""
    pairs = ((int(layer), int(head)) for layer, head in off or ())
    return tuple(pair for pair in pairs if pair[0] < shown["layers"] and pair[1] < shown["heads"])


def query_of(patch: Any, shown: Mapping[str, Any]) -> tuple[int, int] | None:
    """The query patch as the browser sends it; None where there is none, or the images have no such patch."""
    if not patch or patch[0] >= shown["rows"] or patch[1] >= shown["columns"]:
        return None
    return int(patch[0]), int(patch[1])
