"""The contribution of each patch of an image to the logit of a class, along all paths.

With patterns and norm scales frozen on an image (`aotlens.paths.frozen`), a class's logit is linear in what enters the
stream. With g `[pos, d_model]` its gradient there, over all paths through heads and past them,

    patch k       (pixels of patch k · W) · g[k]                    W is the read-in `[pixels of a patch, d_model]`
    [CLS]         the learned vector · g[0]
    positions     Σ_k W_pos[k] · g[k], where positions are added to the stream; elsewhere they shape patterns alone
    MLPs          Σ_l Σ_k (what the MLP of layer l writes at position k) · its gradient there; 0 without MLPs
    biases        of the read-in, of values and outputs of heads, of norms and of the read-out
    logit         patches + [CLS] + positions + MLPs + biases, exactly

for [CLS] and for mean pooling alike. A logit's own level says nothing, since softmax is invariant to a constant: above
the mean over classes it says what speaks for this class rather than for any. What stands outside the patches is the
same for every image as far as patterns and scales are, but for MLPs: these have read the patches, and nothing linear
tells from which of them they wrote what they did. `share_outside` says how much of the logit a map of the patches
leaves out; in a model with MLPs it can be most of it. A patch whose pixels are all 0 *as the model gets them* adds 0: 0
is a grey where the mean of pixels was taken off, and black where nothing was.

Frozen patterns leave out what a patch does by changing where heads look; `aotlens.paths.patch_curves` runs the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

from aotlens.conventions import Progress, minus, require_whole
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.loss import relative_rounding
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import Frozen, freeze, root_gradient, total_gradients
from aotlens.paths.target import checked_outputs
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: Classes that are taken apart unless some are named.
MOST_CLASSES = 100

_TERMS = ("patches", "class_token", "positions", "mlps", "biases", "logits")


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitParts(Result):
    """The terms of some logits, in logits: `total` is the sum, `logits` the model's own."""

    patches: Float64[np.ndarray, "image class row column"]
    class_token: Float64[np.ndarray, "image class"]
    """The term of [CLS]; 0 without one."""
    positions: Float64[np.ndarray, "image class"]
    """0 where positions are not added to the stream."""
    mlps: Float64[np.ndarray, "image class"]
    """The contribution of the outputs of MLPs, whatever these have read; 0 for an attention-only model."""
    biases: Float64[np.ndarray, "image class"]
    logits: Float64[np.ndarray, "image class"]
    rounding: Float64[np.ndarray, " image"] | None = None
    """The logit of each image up to which the model's type does not tell it from 0; None if not known."""

    @property
    def headline(self) -> str:
        largest = float(np.abs(self.total - self.logits).max())
        return f"sum of paths − model: at most {largest:.2g} logits, of logits up to {np.abs(self.logits).max():.3g}"

    @property
    def outside(self) -> Float64[np.ndarray, "image class"]:
        """The contribution that comes from no patch by heads alone: [CLS], positions, MLPs and biases."""
        return self.class_token + self.positions + self.mlps + self.biases

    @property
    def total(self) -> Float64[np.ndarray, "image class"]:
        """Patches + [CLS] + positions + MLPs + biases."""
        return self.patches.sum((-2, -1)) + self.outside

    @property
    def share_outside(self) -> Float64[np.ndarray, "image class"]:
        """`outside` ÷ the logit: 0 where patches are all there is, 1 where they cancel, above 1 or below 0 where one of
        the two pulls against the logit; NaN for a logit that is no larger than its rounding."""
        known = np.abs(self.logits) > (0.0 if self.rounding is None else self.rounding[:, None])
        return np.divide(self.outside, self.logits, out=np.full(self.logits.shape, np.nan), where=known)

    def part(self, images: slice, classes: slice) -> LogitParts:
        """Return the parts of some images and classes."""
        rounding = None if self.rounding is None else self.rounding[images]
        return LogitParts(**{name: getattr(self, name)[images, classes] for name in _TERMS}, rounding=rounding)

    def __sub__(self, other: LogitParts) -> LogitParts:
        """The terms of the difference of two logits."""
        terms = {name: getattr(self, name) - getattr(other, name) for name in _TERMS}
        return LogitParts(**terms, rounding=self.rounding)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPatches(Result):
    """The terms of the logit of one class on one image, as numbers and a map of its patches."""

    number: int
    """The number of the class."""
    logit: LogitParts
    above_mean: LogitParts
    """The terms of the logit above the mean over classes; both are of one image and one class."""

    @property
    def patches(self) -> Float64[np.ndarray, "row column"]:
        """The contribution of each patch to the logit above the mean over classes."""
        return self.above_mean.patches[0, 0]

    @property
    def headline(self) -> str:
        return (
            f"patches add {self.patches.sum():+.3f} to class {self.number} above the mean over classes, of "
            f"{self.above_mean.total[0, 0]:+.3f}"
        )

    def sentences(self, name: str | None = None) -> str:
        """Return the terms of the logit, in numbers that add up to it; `name` is the class's, if it is known."""
        terms, above = (
            {term: minus(getattr(parts, term)[0, 0].sum(), "+.3f") for term in (*_TERMS[:-1], "total")}
            for parts in (self.logit, self.above_mean)
        )
        mlps = f"MLPs {terms['mlps']}, " if float(self.logit.mlps[0, 0].sum()) else ""
        share = float(self.above_mean.share_outside[0, 0])
        outside = "That is rounding."
        if share == share:
            outside = f"The share of what does not come from patches is {share:.0%}."
        return (
            f"Logit of ‹{self.number if name is None else name}›: {terms['total']} = patches {terms['patches']}, [CLS] "
            f"{terms['class_token']}, positions {terms['positions']}, {mlps}biases {terms['biases']}. Above the mean "
            f"over all classes it is {above['total']}, of which the map shows the patches’ part, {above['patches']}."
            f" {outside}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a patch: row, column, logit (what it adds to it), above_mean."""
        rows, columns = np.indices(self.patches.shape)
        named = {"row": rows, "column": columns, "logit": self.logit.patches[0, 0], "above_mean": self.patches}
        return data_frame({name: values.ravel() for name, values in named.items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchContributions(Result):
    """The terms of class logits on some images."""

    classes: tuple[int, ...]
    """The numbers of the classes whose logits were taken apart."""
    logit: LogitParts
    mean: LogitParts
    """The terms of the mean over all classes: its only class."""
    predicted: Int64[np.ndarray, " image"]
    """The class that the model chooses, among all."""

    @property
    def above_mean(self) -> LogitParts:
        """The terms of the logits above the mean over classes."""
        return self.logit - self.mean

    @property
    def headline(self) -> str:
        shares = self.above_mean.share_outside
        known = shares[np.isfinite(shares)]
        outside = (
            f"of a logit above the mean over classes {np.median(known):.0%} come from outside the patches (median)"
            if len(known)
            else "no logit differs from the mean over classes by more than rounding"
        )
        return f"{len(self.predicted)} images, {len(self.classes)} classes; {outside}; {self.logit.headline}"

    def place(self, number: int) -> int:
        """Return the index of a class among `classes`. Raises `ValueError` for one whose logit was not taken apart."""
        if number not in self.classes:
            raise ValueError(f"class {number}: its logit was not taken apart; there are {self.classes}.")
        return self.classes.index(number)

    def on_image(self, image: int = 0, number: int | None = None) -> ClassPatches:
        """Return the terms of one class on one image; None: of the class that the model chooses.

        Raises `ValueError` for a missing image, and a class whose logit was not taken apart.
        """
        require_whole("image", image, 0, len(self.predicted) - 1)
        number = int(self.predicted[image]) if number is None else number
        rows, places = slice(image, image + 1), slice(self.place(number), self.place(number) + 1)
        return ClassPatches(
            number=number, logit=self.logit.part(rows, places), above_mean=self.above_mean.part(rows, places)
        )

    def of_class(self, numbers: Iterable[int] | None = None) -> Float64[np.ndarray, "image row column"]:
        """Return the contribution of patches to one class of each image, above the mean; by default the one the model
        chooses.

        Raises `ValueError` for a class whose logit was not taken apart.
        """
        numbers = self.predicted.tolist() if numbers is None else list(numbers)
        return np.stack([self.above_mean.patches[image, self.place(number)] for image, number in enumerate(numbers)])

    def to_frame(self) -> pd.DataFrame:
        """Return one row an image and class: image, class, logit, and above the mean over classes: above_mean, patches,
        class_token, positions, mlps, biases, share_outside."""
        parts = self.above_mean
        images, places = (each.ravel() for each in np.indices(parts.logits.shape))
        columns = {
            "image": images, "class": np.array(self.classes)[places], "logit": self.logit.logits.ravel(),
            "above_mean": parts.logits.ravel(), "patches": parts.patches.sum((-2, -1)).ravel(),
        }  # fmt: skip
        for name in ("class_token", "positions", "mlps", "biases", "share_outside"):
            columns[name] = getattr(parts, name).ravel()
        return data_frame(columns)


@torch.no_grad()
def patch_contributions(
    model: AttentionOnlyTransformer,
    images: Shaped[Tensor, "*image channel height width"],
    classes: int | Iterable[int] | None = None,
    *,
    progress: Progress | None = None,
) -> PatchContributions:
    """Compute every patch's contribution to the logits of `classes` (numbers; None: all, up to 100) on `images`, or
    one.

    Patterns and scales are frozen on each image; definitions at the head of this module. Time for an image: a forward
    pass on the hooked path, and as much backwards for every class and one more. `progress(done, total)` counts images.

    Raises `ValueError` for a model that is not ours, reads no images or reads no classes out of an image as a whole,
    for a missing class, and above 100 unless they are named.
    """
    require_ours(model, "patch contributions", without=NOT_LINEAR)
    reader = HeadReader.of(model, "patch contributions", images=True)
    if model.cfg.read_out != "classes" or model.cfg.pooling is None:
        raise ValueError(
            "patch contributions: expected a model that reads classes out of an image as a whole (read_out='classes' "
            f"with pooling), got read_out={model.cfg.read_out!r}, pooling={model.cfg.pooling!r}."
        )
    batch = reader.require_images(images)
    numbers = _classes(classes, model.cfg.d_out or 0)
    parts = []
    for index, image in enumerate(batch):
        parts.append(_of_image(model, freeze(model, image), numbers, reader))
        if progress is not None:
            progress(index + 1, len(batch))
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    predicted, rounding = stacked.pop("predicted").astype(np.int64), stacked.pop("rounding")
    return PatchContributions(
        classes=numbers,
        logit=LogitParts(**{name: values[:, :-1] for name, values in stacked.items()}, rounding=rounding),
        mean=LogitParts(**{name: values[:, -1:] for name, values in stacked.items()}, rounding=rounding),
        predicted=predicted,
    )


def _classes(classes: int | Iterable[int] | None, n_classes: int) -> tuple[int, ...]:
    if classes is None:
        if n_classes > MOST_CLASSES:
            raise ValueError(
                f"patch contributions: {n_classes} classes are more than {MOST_CLASSES}; name some, as classes=[3, 7]."
            )
        return tuple(range(n_classes))
    listed = [classes] if isinstance(classes, int) else list(classes)
    return tuple(dict.fromkeys(checked_outputs(number, n_classes)[0] for number in listed))


def _of_image(
    model: AttentionOnlyTransformer, frozen: Frozen, classes: tuple[int, ...], reader: HeadReader
) -> dict[str, np.ndarray]:
    """The terms of `classes` and, last, of the mean over all classes."""
    assert reader.grid is not None
    n_before, n_classes = reader.grid.n_before, frozen.R.shape[1]
    weights = torch.cat([torch.eye(n_classes)[list(classes)], torch.full((1, n_classes), 1 / n_classes)]).to(frozen.R)
    streams, heads = total_gradients(frozen, root_gradient(frozen, 0, weights @ frozen.R.T))
    g, embedded = streams[0], frozen.sources["input"]
    bias = getattr(model.embed, "b", None)
    read_in_bias = torch.zeros_like(embedded[0]) if bias is None else bias.detach().to(embedded)
    patches = (g[:, n_before:] * (embedded[n_before:] - read_in_bias)).sum(-1)
    biases = weights @ frozen.out_bias + (g[:, n_before:] @ read_in_bias).sum(-1)
    biases = biases + torch.einsum("lcpd,ld->c", streams[1:], frozen.b_O)
    biases = biases + torch.einsum("lchpk,lhk->c", heads, frozen.v_bias)
    position, none = frozen.sources.get("position"), torch.zeros_like(biases)
    terms = {
        "patches": patches.unflatten(-1, (reader.grid.rows, reader.grid.columns)),
        "class_token": (g[:, :n_before] * embedded[:n_before]).sum((-2, -1)),
        "positions": none if position is None else (g * position).sum((-2, -1)),
        "mlps": none if frozen.mlps is None else torch.einsum("lcpd,lpd->c", streams[1:], frozen.mlps),
        "biases": biases,
        "logits": weights @ frozen.logits[0],
        "predicted": frozen.logits[0].argmax(),
        "rounding": relative_rounding(model.dtype) * frozen.logits[0].abs().max(),
    }
    return {name: values.double().cpu().numpy() for name, values in terms.items()}
