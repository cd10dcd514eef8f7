"""The subject of a report: a model with its card, its atlas, a prompt, and the heads that are looked at closely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from aotlens.checkpoints import CheckpointInfo, find_checkpoint, is_external, load
from aotlens.conventions import Head, HeadLike, Progress, all_heads, as_heads, head_name
from aotlens.data import Corpus, open_corpus
from aotlens.data.images import decode_image
from aotlens.heads import Atlas, AtlasRecord, atlas
from aotlens.results import find_stored

#: Heads whose circuits and skip-trigrams are listed, unless some are named.
N_HEADS = 8
#: Images whose maps one file shows, at most.
MAX_IMAGES = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenImage:
    """A user's picture, as the model sees it."""

    name: str
    """The name of its file, without the folder."""
    pixels: UInt8[Tensor, "channel size size"]
    """Its middle square at the model's size and in the model's colours, before normalisation."""


@dataclass(kw_only=True, eq=False)
class Subject:
    """Made by `Subject.of`; what takes time is computed when a section asks for it, and once."""

    model: Any
    """The model, of aotlens, or a `TransformerBridge`."""
    info: CheckpointInfo
    corpus: Corpus | None
    text: str | None
    """The user's prompt."""
    images: tuple[GivenImage, ...]
    """The user's pictures; without any the report takes a bundled one."""
    named_heads: tuple[Head, ...]
    """The user's heads; without any the report selects some."""
    n_tokens: int
    """The number of the corpus's tokens that are read."""
    progress: Progress | None = None
    why_no_atlas: str = ""
    """The reason why the corpus gave no atlas."""

    @classmethod
    def of(
        cls,
        checkpoint: str | Path | Any,
        *,
        corpus: Corpus | str | None = None,
        text: str | None = None,
        images: Iterable[str | Path] = (),
        heads: Iterable[HeadLike] | None = None,
        n_tokens: int = 30_000,
        device: str = "auto",
        folders: Iterable[str | Path] = (),
        progress: Progress | None = None,
    ) -> Subject:
        """Return the subject of a checkpoint, by name or path, or of a model. Raises `ValueError` for an unknown
        checkpoint, head or corpus, and for images that are not readable or that the model does not read."""
        if isinstance(checkpoint, str | Path):
            known = None if is_external(checkpoint, folders) else find_checkpoint(checkpoint, folders)
            model: Any = load(checkpoint, device, folders=folders)
            info = known or _info(model, Path(checkpoint).name)
        else:
            model = checkpoint
            info = _info(model, "a model")
        source = open_corpus(corpus) if isinstance(corpus, str) else corpus
        named = () if heads is None else tuple(as_heads(list(heads), model.cfg))
        return cls(
            model=model, info=info, corpus=source, text=text, images=_given_images(model, info.name, images),
            named_heads=named, n_tokens=n_tokens, progress=progress,
        )  # fmt: skip

    @property
    def reads(self) -> str:
        """The kind of the model's input: tokens, patches or vectors."""
        return _reads(self.model)

    @property
    def is_bridge(self) -> bool:
        """Whether it is a TransformerLens bridge, of which only patterns are read."""
        return _is_bridge(self.model)

    @property
    def has_mlps(self) -> bool:
        """Whether the model has MLPs, which analyses of heads alone leave out."""
        return not getattr(self.model.cfg, "attn_only", True)

    @cached_property
    def stored(self) -> AtlasRecord | None:
        """The bundled atlas of these weights; None if there is none."""
        try:
            record: AtlasRecord | None = find_stored("atlas", self.info)
            return record
        except ValueError:
            return None

    @cached_property
    def atlas(self) -> Atlas | None:
        """The stored atlas, else one of the corpus; None without either: `why_no_atlas`."""
        if self.stored is not None:
            return self.stored.atlas
        if self.corpus is None or self.reads != "tokens":
            return None
        try:
            return atlas(self.model, self.corpus, n_tokens=self.n_tokens, progress=self.progress)
        except ValueError as error:  # a text that is too short, say: other sections do without
            self.why_no_atlas = str(error)
            return None

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The heads that are looked at closely: those named, or those without which the model loses most."""
        if self.named_heads:
            return self.named_heads
        heads = all_heads(self.model.cfg)
        if len(heads) <= N_HEADS:
            return heads
        order = self._importance
        return tuple(heads[:N_HEADS] if order is None else sorted(heads[i] for i in np.argsort(-order)[:N_HEADS]))

    @property
    def why_heads(self) -> str:
        """The rule by which heads were selected, as a sentence."""
        if self.named_heads:
            return "The heads below were named."
        n_heads = self.model.cfg.n_layers * self.model.cfg.n_heads
        if n_heads <= N_HEADS:
            return "All heads are below."
        if self._importance is None:
            return f"The first {N_HEADS} of {n_heads} heads are below; --heads names others."
        return (
            f"Of {n_heads} heads, the {N_HEADS} without each of which the model's loss rises most are "
            "below; --heads names "
            "others."
        )

    @property
    def _importance(self) -> np.ndarray | None:
        """The increase of the loss without each head, in order of layer and head, where the atlas has measured it."""
        ablations = {} if self.atlas is None else self.atlas.ablations
        if not ablations:
            return None
        return np.asarray(ablations.get("position_mean", next(iter(ablations.values()))).changes)

    @property
    def counts(self) -> Tensor | None:
        """The count of each token in the training text; None if the checkpoint does not store it."""
        counts = getattr(self.model, "unigram_counts", None)
        return None if counts is None or not float(counts.sum()) > 0 else counts.cpu()

    def held_out(self) -> tuple[str, ...] | None:
        """Return documents of the corpus that the model was not trained on; None, for all, if none is known."""
        assert self.corpus is not None
        return self.info.held_out(self.corpus.names()) or None


def _info(model: Any, name: str) -> CheckpointInfo:
    """The model's own card, or as much as is known without one."""
    return getattr(model, "card", None) or CheckpointInfo(name=name)


def _is_bridge(model: Any) -> bool:
    return type(model).__name__ == "TransformerBridge"


def _reads(model: Any) -> str:
    if not _is_bridge(model):
        return model.cfg.read_in
    return "patches" if getattr(model.cfg, "is_visual_model", False) else "tokens"


def require_images(model: Any) -> None:
    """Raise `ValueError`, in a sentence, for a model of images of which no picture can be shown."""
    if _is_bridge(model):
        raise ValueError("Maps of an image are of aotlens's own models; this one is of TransformerLens.")
    if model.image_processor is None:
        raise ValueError(
            "This model reads images, and says nothing of the pixels that it takes: no picture can be shown."
        )


def _given_images(model: Any, name: str, files: Iterable[str | Path]) -> tuple[GivenImage, ...]:
    """The files as the model sees them, in their order."""
    paths = [Path(file) for file in files]
    if not paths:
        return ()
    if _reads(model) != "patches":
        raise ValueError(f"--image: {name} reads {_reads(model)}, not images.")
    require_images(model)
    if len(paths) > MAX_IMAGES:
        raise ValueError(f"--image: expected at most {MAX_IMAGES} images for one file, got {len(paths)}.")
    size, colour = model.cfg.image_size, model.cfg.n_channels > 1
    return tuple(GivenImage(name=path.name, pixels=decode_image(path, size=size, colour=colour)) for path in paths)


def named(heads: Sequence[Head]) -> str:
    """List heads by name: `0.3, 1.0`."""
    return ", ".join(map(head_name, heads))
