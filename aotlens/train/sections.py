"""The sections of a recipe: what data to train on, and the stretches of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class CorpusRecipe:
    """What text to train on, and where a user gets it."""

    spec: str | None = None
    """`stdlib`, `file:PATH`, `dir:PATH` or `hf:NAME[:config[:field]]`; None where the command must give it."""
    name: str = ""
    """What to call it in the card; the spec where empty."""
    source: str = ""
    """Where a user gets it."""
    license: str = ""
    d_vocab: int = 4096
    """Size of the byte-level BPE trained on the training documents, or of `tokenizer`."""
    tokenizer: str = ""
    """`gpt2_bpe:FOLDER` for GPT-2's own, from `encoder.json` and `vocab.bpe` in a folder; `gpt2_bpe` where the command
    must name the folder. Empty: one is trained."""
    n_documents: int | None = None
    """Of a stream (`hf:`), the first so many documents; None is all."""
    validation: tuple[str, ...] | float = 0.05
    """Held-out documents, by name, or their share."""


@dataclass(frozen=True, kw_only=True)
class ImagesRecipe:
    """What images to train on, where a user gets them, and how they are changed for training."""

    spec: str | None = None
    """`digits`, `npz:PATH`, `folder:PATH`, `openml:NAME` or `hf:NAME[:config[:field]]`; None where the command must
    give it."""
    name: str = ""
    """What to call them in the card; the spec where empty."""
    source: str = ""
    """Where a user gets them."""
    license: str = ""
    classes: tuple[str, ...] = ()
    """Names of the classes, where the data have only their numbers; empty keeps the data's."""
    size: int | None = None
    """Scale the shorter side to so many pixels and cut out the middle square; None takes them as they are."""
    validation: float = 0.1
    """Share of every class of the training images that is held out; the test set stays for the end."""
    flip: bool = False
    """Mirror half of the images, left to right."""
    shift: int = 0
    """Move each image by up to so many pixels in both directions, over black."""
    crop: float | int | None = None
    """Scale a random part of each image to its whole size, of at least this share of its area; None takes the whole."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stretch of training with its own rows and its own schedule: linear warm-up, then a cosine."""

    tokens: int
    """Training tokens, rounded up to whole steps."""
    batch_size: int = 16
    """Rows a step, over all processes."""
    sequence_length: int = 256
    """Tokens a row, the start token included; 1 where images or something else are counted, of which a row is one."""
    learning_rate: float | int = 1e-3
    """At the end of the warm-up."""
    warmup_tokens: int = 100_000
    """Over which the learning rate rises; at most a tenth of the stage."""
    final_fraction: float | int = 0.1
    """Share of the learning rate that is left at the end of the cosine; 1 keeps it constant."""
    repeat_fraction: float | int = 0.0
    """Share of rows that are a repeated segment; 1 with random segments needs no text."""
    repeat_source: Literal["random", "text"] = "random"

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.warmup_tokens < 0:
            raise ValueError(
                f"stage: expected tokens ≥ 1 and warmup_tokens ≥ 0, got {self.tokens}, {self.warmup_tokens}."
            )
        if not 0 < self.learning_rate < 1 or not 0 <= self.final_fraction <= 1:
            raise ValueError(
                "stage: expected 0 < learning_rate < 1 and 0 ≤ final_fraction ≤ 1, got "
                f"{self.learning_rate} and {self.final_fraction}."
            )

    @property
    def n_steps(self) -> int:
        per_step = self.batch_size * self.sequence_length
        return -(-self.tokens // per_step)

    @property
    def warmup_steps(self) -> int:
        return -(-min(self.warmup_tokens, self.tokens // 10) // (self.batch_size * self.sequence_length))
