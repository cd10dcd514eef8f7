"""The images whose maps a report shows: those that were given, or the first of aotlens that fits; a prompt's maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from aotlens.data.images import open_images
from aotlens.heads.patterns import patterns_and_logits
from aotlens.plots import data_uri, picture
from aotlens.report.subject import Subject, require_images
from aotlens.widget import Strip

#: Classes that the model names for an image, at most.
N_CLASSES = 3


def image_prompts(subject: Subject) -> list[Prompt]:
    """Return a prompt for each image. Raises `ValueError` for a model of which no picture can be shown, and where the
    maps of so many images, heads and patches are too large for one file."""
    if subject.text is not None:
        raise ValueError("--text: this model reads images, not text; --image takes one.")
    require_images(subject.model)
    cfg = subject.model.cfg
    images = [(f"{given.name}, its middle square as the model sees it,", given.pixels) for given in subject.images]
    images = images or [_bundled(subject)]
    n_pos = (cfg.image_size // cfg.patch_size) ** 2 + cfg.n_before
    n_bytes = len(images) * cfg.n_layers * cfg.n_heads * n_pos**2
    if n_bytes > MAX_MAP_BYTES:
        raise ValueError(
            f"Maps of {len(images)} image{'s' if len(images) > 1 else ''} with {n_pos} positions and "
            f"{cfg.n_layers * cfg.n_heads} heads are {n_bytes:,} entries, and one file carries at most "
            f"{MAX_MAP_BYTES:,}" + ("; give fewer images." if len(images) > 1 else ".")
        )
    return [_prompt(subject, name, pixels) for name, pixels in images]


def _prompt(subject: Subject, name: str, pixels: UInt8[Tensor, "channel size size"]) -> Prompt:
    model = subject.model
    patterns, outputs = patterns_and_logits(model, pixels)
    strip = Strip(
        columns=model.cfg.image_size // model.cfg.patch_size,
        n_before=model.cfg.n_before,
        picture=data_uri(picture(pixels.numpy(), cell=model.cfg.image_size)),
    )
    return Prompt(
        pattern=patterns.pattern, visible=patterns.visible, strip=strip,
        str_tokens=tuple(token.replace(" ", "") for token in patterns.str_tokens),
        about=f"{name} patch by patch (row, column).{_taken_for(model, outputs)}",
    )  # fmt: skip


def _taken_for(model: object, outputs: Float[Tensor, " outputs"]) -> str:
    """The likeliest classes with their probabilities, as a sentence; nothing for a model that names no classes."""
    classes = model.image_processor.classes  # type: ignore[attr-defined]
    if len(classes) != outputs.numel():
        return ""
    shares = outputs.detach().float().softmax(-1).cpu()
    best = torch.topk(shares, min(N_CLASSES, len(classes)))
    named = [f"{classes[place]} ({share:.1%})" for share, place in zip(best.values, best.indices.tolist(), strict=True)]
    return f" The model takes it for {named[0]}" + (f", or {', '.join(named[1:])}." if named[1:] else ".")


def _bundled(subject: Subject) -> tuple[str, UInt8[Tensor, "channel height width"]]:
    """The first test image of the digits or of the sample of Fashion-MNIST, whichever the model was trained on."""
    cfg = subject.model.cfg
    spec = "digits" if str(subject.model.image_processor.data) == "digits" else "fashion-sample"
    data = open_images(spec)
    image = data.test.images[0]
    expected = (cfg.n_channels, cfg.image_size, cfg.image_size)
    if tuple(image.shape) != expected:
        raise ValueError(
            f"This model reads images of {' × '.join(map(str, expected))} pixels, and none of that size "
            "comes with aotlens; --image takes one of any size."
        )
    return f"The first test image of {spec}, of class {data.test.classes[int(data.test.labels[0])]},", image


#: Bytes of all heads' maps on all prompts, at most, so that the file stays within its 5 MB.
MAX_MAP_BYTES = 1_600_000
"""A byte is an entry: 144 heads of 105 tokens."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """The patterns of every head on one prompt, and what is said above them."""

    pattern: Float[np.ndarray, "layer head query key"]
    str_tokens: tuple[str, ...]
    visible: Bool[np.ndarray, "mask query key"]
    about: str
    strip: Strip | None = None
