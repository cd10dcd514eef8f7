"""The Images page's address: a model, its images, one image, a head and a query, and the heads that are ablated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from aotlens.views.image_captions import HOWS
from app.core import address
from app.core.address_checks import Unfit
from app.core.own_images import is_key

if TYPE_CHECKING:
    from app.core import Core

View = Literal["attention", "weighted"]
HeadOrder = Literal["consistent", "number"]
Tab = Literal["maps", "paths", "predictions", "consistency"]


def _checkpoint(core: Core, state: Any, name: str) -> None:
    known = [info.name for info in core.catalog.list() if core.catalog.reads_images(info)]
    if name not in known:
        raise Unfit(f"a checkpoint that reads images ({', '.join(known) or 'there are none'})", next(iter(known), None))


def _data(core: Core, state: Any, name: str) -> None:
    if name not in core.images.names:
        raise Unfit(f"one of {', '.join(core.images.names)}")


def _own(core: Core, state: Any, value: tuple[str, ...]) -> None:
    known = tuple(key for key in value if is_key(key) and core.images.own.known(key))
    if known != value:
        raise Unfit("the keys of images that are kept here: not all of them are, or they have been removed", known)


def _shape(core: Core, state: Any) -> tuple[int, int] | None:
    return core.catalog.shape(state.checkpoint or core.catalog.default_of_images())


def _layer(core: Core, state: Any, value: int) -> None:
    shape = _shape(core, state)
    if shape is not None and value >= shape[0]:
        raise Unfit(f"a layer from 0 to {shape[0] - 1}", shape[0] - 1)


def _head(core: Core, state: Any, value: int) -> None:
    shape = _shape(core, state)
    if shape is not None and value >= shape[1]:
        raise Unfit(f"a head from 0 to {shape[1] - 1}", 0)


def _heads(core: Core, state: Any, value: tuple[tuple[int, int], ...]) -> None:
    shape = _shape(core, state)
    there = value if shape is None else tuple(head for head in value if head[0] < shape[0] and head[1] < shape[1])
    if shape is not None and there != value:
        raise Unfit(f"heads of {shape[0]} layers of {shape[1]} heads, the first of which is 0.0", there)


def _patch(core: Core, state: Any, value: tuple[int, int]) -> None:
    model = core.catalog.config(state.checkpoint or core.catalog.default_of_images())
    side = int(model.get("image_size") or 0) // int(model.get("patch_size") or 1)
    if model and not (value[0] < side and value[1] < side):
        raise Unfit(f"the row and the column of a patch, each from 0 to {side - 1}, as 1.3")


@dataclass(frozen=True, kw_only=True)
class ImagesState:
    """Everything that the Images page shows."""

    checkpoint: str | None = address.text(check=_checkpoint)
    """The checkpoint; None: the first that reads images."""
    data: str | None = address.text(check=_data)
    """The data; None: what the checkpoint was trained on, where it is at hand."""
    of: int | None = address.whole(most=99_999)
    """The number of the class whose images are shown; None: all."""
    start: int = address.whole(0)
    """The first of the test images that are shown, counted among those of the class."""
    own: tuple[str, ...] = address.texts(most=8, longest=22, check=_own)
    """Keys of a person's own images, which are shown first."""
    image: int = address.whole(0, most=99)
    """The image whose maps are shown, counted among those shown."""
    layer: int = address.whole(0, check=_layer)
    head: int = address.whole(0, check=_head)
    patch: tuple[int, int] | None = address.pair(check=_patch, expected="a row and a column of patches, as 1.3")
    """The patch whose attention the maps show; None: [CLS], or the mean over patches."""
    view: View = address.choice(get_args(View), "attention")
    order: HeadOrder = address.choice(get_args(HeadOrder), "consistent")
    """The order in which a layer's heads stand."""
    target: int | None = address.whole(most=99_999)
    """The class whose logit is taken apart; None: the predicted one."""
    off: tuple[tuple[int, int], ...] = address.pairs(most=1024, check=_heads, expected="layers and heads, as 1.0,1.3")
    """The heads that are ablated."""
    how: str = address.choice(tuple(HOWS), "zero")
    """The replacement of their outputs."""
    tab: Tab = address.choice(get_args(Tab), "maps")


ADDRESS = address.Address("images", ImagesState)
