"""The sections of a recipe: what data to train on, and the stretches of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aotlens.conventions import require_between
from aotlens.data import Curriculum, RegressionTask

#: `announce(message)`, which the preparation of data calls as it goes.
Announce: TypeAlias = Callable[[str], None]


def silent(message: str) -> None:
    """Announce nothing."""


@dataclass(frozen=True, kw_only=True)
class CorpusRecipe:
    """The text to train on, and where a user gets it."""

    spec: str | None = None
    """`stdlib`, `file:PATH`, `dir:PATH` or `hf:NAME[:config[:field]]`; None where the command must give it."""
    name: str = ""
    """The name for it in the card; the spec where empty."""
    source: str = ""
    """The place where a user gets it."""
    license: str = ""
    d_vocab: int = 4096
    """Size of the byte-level BPE trained on the training documents, or of `tokenizer`."""
    tokenizer: str = ""
    """`gpt2_bpe:FOLDER` for GPT-2's own, from `encoder.json` and `vocab.bpe` in a folder; `gpt2_bpe` where the command
    must name the folder. Empty: one is trained."""
    n_documents: int | None = None
    """The number of first documents of a stream (`hf:`); None is all."""
    validation: tuple[str, ...] | float = 0.05
    """Held-out documents, by name, or their share."""


@dataclass(frozen=True, kw_only=True)
class ImagesRecipe:
    """The images to train on, where a user gets them, and how they are changed for training."""

    spec: str | None = None
    """`digits`, `npz:PATH`, `folder:PATH`, `openml:NAME` or `hf:NAME[:config[:field]]`; None where the command must
    give it."""
    name: str = ""
    """The name for them in the card; the spec where empty."""
    source: str = ""
    """The place where a user gets them."""
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
class PromptsRecipe:
    """The prompts of in-context regression to train on (`aotlens.data.RegressionTask`), and how they grow."""

    d: int = 20
    """Width of an input."""
    n_nonzero: int | None = None
    """Weights that are not zero; None is all."""
    noise_std: float | int = 0.0
    """The standard deviation of the noise of the labels."""
    points: int = 41
    """Points of a prompt, the last one's label aside."""
    dims_start: int | None = None
    """Coordinates of the inputs that are not zero at first; None is all."""
    points_start: int | None = None
    """Points at first; None is all."""
    dims_step: int = 1
    points_step: int = 2
    grow_every: int = 2000
    """Training steps from one growth to the next."""

    @property
    def task(self) -> RegressionTask:
        """The distribution of the full prompts."""
        return RegressionTask(d=self.d, n_nonzero=self.n_nonzero, noise_std=self.noise_std)

    @property
    def curriculum(self) -> Curriculum:
        """The curriculum by which prompts grow to it; without the starts one that stays where it is."""
        return Curriculum(
            dims_start=self.d if self.dims_start is None else self.dims_start,
            dims_end=self.d,
            dims_step=self.dims_step,
            points_start=self.points if self.points_start is None else self.points_start,
            points_end=self.points,
            points_step=self.points_step,
            every=self.grow_every,
        )

    # A card's facts about data; these are drawn, and nobody has to get them.
    spec = None
    license = "none is needed: they are random numbers"
    source = "drawn as they are needed (aotlens.data.RegressionTask)"

    @property
    def name(self) -> str:
        """The task in words."""
        kind = "linear" if self.n_nonzero is None else f"{self.n_nonzero}-sparse linear"
        return f"{kind} regression in context, d = {self.d}"


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
    """The learning rate at the end of the warm-up."""
    warmup_tokens: int = 100_000
    """The tokens over which the learning rate rises; at most a tenth of the stage."""
    final_fraction: float | int = 0.1
    """Share of the learning rate that is left at the end of the cosine; 1 keeps it constant."""
    repeat_fraction: float | int = 0.0
    """Share of rows that are a repeated segment; 1 with random segments needs no text."""
    repeat_source: Literal["random", "text"] = "random"

    def __post_init__(self) -> None:
        require_between("stage: tokens", self.tokens, 1)
        require_between("stage: warmup_tokens", self.warmup_tokens, 0)
        require_between("stage: learning_rate", self.learning_rate, above=0, below=1)
        require_between("stage: final_fraction", self.final_fraction, 0, 1)

    @property
    def n_steps(self) -> int:
        per_step = self.batch_size * self.sequence_length
        return -(-self.tokens // per_step)

    @property
    def warmup_steps(self) -> int:
        return -(-min(self.warmup_tokens, self.tokens // 10) // (self.batch_size * self.sequence_length))
