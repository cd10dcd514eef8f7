"""Inputs: what motifs and head scores may read, with a score when it is measured, and batches as a model takes them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.data import SymbolTokenizer, Tokenizer
from aotlens.heads.patch_grid import PatchGrid
from aotlens.heads.reader import HeadReader, Rows, TokenSequences
from aotlens.models import AttentionOnlyTransformer

if TYPE_CHECKING:
    from aotlens.data import PromptPairs


Known = TypeVar("Known")
#: The kind of inputs that a motif is about.
Reads: TypeAlias = Literal["tokens", "images", "prompts"]


class Missing(ValueError):
    """A motif needs something of the inputs that is not known; the message says what and why."""


class Targets(NamedTuple):
    """The keys that a motif would have each query attend to."""

    keys: Bool[Tensor, "batch query key"]
    queries: Bool[Tensor, "batch query"]
    """The queries that count: attention is averaged over these."""


class KeyClasses(NamedTuple):
    """The classes of keys that are alike to a motif of content: its target is the class that a query asks for."""

    keys: Int64[Tensor, "batch key"]
    """The class of each key; −1 for a key of none."""
    queries: Int64[Tensor, "batch query"]
    """The class that each query asks for."""
    own: bool
    """Whether the key at the query's own position may be among its targets."""

    def targets(self) -> Bool[Tensor, "batch query key"]:
        """Return the keys of the class that a query asks for, at or before it."""
        return self._asked_for().tril(0 if self.own else -1)

    def _asked_for(self) -> Bool[Tensor, "batch query key"]:
        return (self.queries[:, :, None] == self.keys[:, None, :]).tril()

    def matched(self) -> Float[Tensor, "batch query key"]:
        """Return weights for which Σ attention · weight is what the m targets of a query would get by chance: the mean
        share of the *other* classes that have as many of the keys that it sees, n, times m ÷ n. (n is m, or m + 1 where
        the query's own key is of the class and no target.) Rows of 0 for queries without such a class."""
        seen = (self.keys >= 0)[:, None, :].expand(-1, self.keys.shape[1], -1).tril()
        alike = (self.keys[:, :, None] == self.keys[:, None, :]).float()  # [batch, key, other]
        size = seen.float() @ alike  # how many of the keys that the query sees are of this key's class
        asked_for = self._asked_for()
        others = (seen & ~asked_for & (size == asked_for.sum(-1, keepdim=True))).float()
        return others * (self.targets().sum(-1, keepdim=True) / others.sum(-1, keepdim=True).clamp(min=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Sequences of one length, without padding, or images, or prompts of in-context regression. What is not known of
    them is None: ask with `need`."""

    tokens: Rows
    """Ids; the images of a model that reads patches; the interleaved vectors `[prompt, pos, d]` of prompts."""
    later_keys: bool = False
    """Whether queries see keys after them, as in BERT."""
    special_ids: frozenset[int] | None = None
    """Ids of the tokens that separate texts (`special_ids`)."""
    vocabulary: tuple[str, ...] | None = None
    """The string of each token id."""
    marked: Bool[Tensor, "batch query key"] | None = None
    """(query, key) pairs that the caller chose."""
    grid: PatchGrid | None = None
    """The patches of images; None for tokens."""

    @classmethod
    def of(cls, reader: HeadReader, tokens: TokenSequences | Tensor) -> Inputs:
        """Collect what is known of `tokens`, or images, in the model behind `reader`, with its tokenizer where it has
        one.

        Raises `ValueError` as `HeadReader.require_ids`, or `require_images`.
        """
        if reader.grid is not None:
            images = tokens if isinstance(tokens, Tensor) else torch.empty(0)
            return cls(tokens=reader.require_images(images), later_keys=not reader.causal, grid=reader.grid)
        tokenizer = reader.model.tokenizer
        return cls(
            tokens=reader.require_ids(tokens),
            later_keys=not reader.causal,
            special_ids=None if tokenizer is None else special_ids(tokenizer),
            vocabulary=None if tokenizer is None else vocabulary(tokenizer, reader.d_vocab),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Int64[Tensor, " row"]) -> Inputs:
        marked = None if self.marked is None else self.marked[rows]
        return dataclasses.replace(self, tokens=self.tokens[rows], marked=marked)

    @property
    def n_pos(self) -> int:
        """Positions of each sequence, or image."""
        return self.tokens.shape[1] if self.grid is None else self.grid.n_pos

    @property
    def starts(self) -> bool:
        """Whether a start token stands at position 0: a special one, or one token in all sequences and nowhere else; of
        images [CLS]."""
        if self.kind != "tokens":
            return self.grid is not None and self.grid.n_before > 0
        first = self.tokens[:, 0]
        if self.special_ids is not None and set(first.tolist()) <= self.special_ids:
            return True
        return bool((first == first[0]).all()) and not bool((self.tokens[:, 1:] == first[0]).any())

    @property
    def kind(self) -> Reads:
        """The kind of inputs that were read."""
        if self.grid is not None:
            return "images"
        return "prompts" if self.tokens.is_floating_point() else "tokens"

    def need(self, value: Known | None, what: str) -> Known:
        """Return `value`, one of the fields that may be None. Raises `Missing`, naming it as `what`, where it is."""
        if value is None:
            raise Missing(f"it needs {what}, which these inputs lack (a model without a tokenizer has none)")
        return value

    def targets(self, keys: Bool[Tensor, "*batch query key"]) -> Targets:
        """Return `keys` as far as their query sees them, for the queries that have one and stand apart from both ends.

        These are positions i ≥ 2, and i ≤ n − 3 where later keys are seen, so that the previous, the query's own, the
        next, the first and the last position that a query sees are different ones. Of images every patch counts, and
        [CLS] does not; of prompts every position counts, since x_1 and y_1 are an example as the others are.
        """
        keys = keys if self.later_keys else keys.tril()
        keys = keys.expand(len(self), self.n_pos, self.n_pos)
        position = torch.arange(self.n_pos)
        if self.grid is not None:
            return Targets(keys=keys, queries=keys.any(-1) & (position >= self.grid.n_before))
        if self.kind == "prompts":
            return Targets(keys=keys, queries=keys.any(-1))
        apart = (position >= 2) & (position < self.n_pos - (2 if self.later_keys else 0))
        return Targets(keys=keys, queries=keys.any(-1) & apart)


#: The least share of queries, and the fewest of them, that see a key at an offset which may be a head's.
LEAST_SEEN, FEWEST_SEEN = 1 / 4, 4


def distant_offsets(inputs: Inputs) -> list[int]:
    """List offsets from two tokens back, as far as a quarter of all queries, and four at least, see such a key; as far
    ahead if later keys are visible.

    Key 0 is no target, so that attention to the first position is none to an offset. An offset that few queries see is
    no habit: a head that mirrors positions looks some distance back from one query each.
    """
    seen = max(FEWEST_SEEN, math.ceil(inputs.n_pos * LEAST_SEEN))
    back = list(range(-2, -(inputs.n_pos - 1 - seen) - 1, -1))
    return back + [-offset for offset in back] if inputs.later_keys else back


def mirrors(inputs: Inputs) -> list[int]:
    """List the c of which key n − 1 − i + c is visible, key 0 aside, from a quarter of all queries i, and four at
    least."""
    seen = max(FEWEST_SEEN, math.ceil(inputs.n_pos * LEAST_SEEN))
    query = torch.arange(inputs.n_pos)
    key = inputs.n_pos - 1 - query + torch.arange(1 - inputs.n_pos, inputs.n_pos)[:, None]
    visible = (key > 0) & (key < inputs.n_pos) & (torch.tensor(inputs.later_keys) | (key <= query))
    return [int(c) - inputs.n_pos + 1 for c in (visible.sum(1) >= seen).nonzero()]


def special_ids(tokenizer: Any) -> frozenset[int]:
    """List the ids of the tokens that begin, end, separate or pad texts; a mask and an unknown word stand for words
    instead."""
    if isinstance(tokenizer, Tokenizer | SymbolTokenizer):
        return frozenset() if tokenizer.eot_id is None else frozenset({tokenizer.eot_id})
    separating = {getattr(tokenizer, f"{kind}_token_id", None) for kind in ("bos", "eos", "cls", "sep", "pad")}
    words = {tokenizer.mask_token_id, tokenizer.unk_token_id} - separating  # GPT-2's unknown is its end of text
    return frozenset(set(tokenizer.all_special_ids) - words)


def vocabulary(tokenizer: Any, d_vocab: int) -> tuple[str, ...]:
    """Return the string of each of `d_vocab` ids, with spaces and line ends as they are; "" for ids without a token."""
    if isinstance(tokenizer, Tokenizer | SymbolTokenizer):
        strings = list(tokenizer.str_tokens(range(min(tokenizer.d_vocab, d_vocab))))
    else:
        raw = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), d_vocab)))
        strings = [str(token).replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n") for token in raw]
    return (*strings, *[""] * (d_vocab - len(strings)))


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Sequences as the model takes them."""

    x: Tensor
    attention_mask: Tensor | None = None
    targets: Tensor | None = None

    @classmethod
    def of(
        cls,
        model: AttentionOnlyTransformer,
        inputs: Tensor | str | list[str] | Batch,
        attention_mask: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Batch:
        """Read a text, texts, one sequence or several, onto the model's device. Raises `ValueError` for no sequence."""
        if isinstance(inputs, Batch):
            return inputs
        x, text_mask = model.to_batch(inputs)
        if isinstance(inputs, Tensor) and inputs.ndim < x.ndim:  # one sequence, and so are its targets
            targets = targets if targets is None else targets[None]
        mask = text_mask if attention_mask is None else attention_mask.to(model.device).bool()
        for name, value in (("targets", targets), ("attention_mask", mask)):
            if value is not None and (value.ndim == 0 or len(value) != len(x)):
                raise ValueError(f"{name}: expected a row for each of {len(x)} sequences, got {list(value.shape)}.")
        if not len(x):
            raise ValueError(f"expected at least one sequence, got {list(x.shape)}.")
        return cls(x=x, attention_mask=mask, targets=None if targets is None else targets.to(model.device))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def is_padded(self) -> bool:
        """Whether some positions are padding."""
        return self.attention_mask is not None and not bool(self.attention_mask.all())

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        def of(part: Tensor) -> Tensor:
            return part[rows.to(part.device) if isinstance(rows, Tensor) else rows]

        mask, targets = (part if part is None else of(part) for part in (self.attention_mask, self.targets))
        return Batch(x=of(self.x), attention_mask=mask, targets=targets)


class MeasuredScore(NamedTuple):
    """A score of every head, beside its chance."""

    values: Float64[np.ndarray, "layer head"]
    chance: Float64[np.ndarray, "layer head"]
    """The score under the null that its declaration names."""
    n: int
    """The number of queries, tokens or pairs that each value is a mean over."""
    excess: Float64[np.ndarray, "unit layer head"] | None = None
    """values − chance, summed over the queries of each sequence, word or pair; None if it has no such units."""
    counts: Float64[np.ndarray, " unit"] | None = None
    """The queries of each unit; None: one each."""
    clusters: Int64[np.ndarray, " unit"] | None = None
    """The document of each unit, if it is known."""
    attends: Bool[np.ndarray, "layer head"] | None = None
    """Whether each head attends to what the score is about, by the rule of labels; None if the score does not say."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreInputs:
    """Everything that a score may read. Its methods raise `Missing`, with the reason, for what is not there."""

    reader: HeadReader
    tokens: Int64[Tensor, "batch pos"] | None = None
    """Sequences of a text, of one length, without padding."""
    pairs: PromptPairs | None = None
    seed: int = 0
    clusters: Int64[np.ndarray, " batch"] | None = None
    """The document of each sequence of the text, if it is known."""

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads."""
        return self.reader.n_layers, self.reader.n_heads

    def text(self) -> Int64[Tensor, "batch pos"]:
        """Return the sequences of the text."""
        if self.tokens is None:
            raise Missing("it needs a text, and none was given")
        return self.tokens

    def batches(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Split sequences into batches of eight."""
        return tokens.split(8)

    @torch.no_grad()
    def activations(self, ids: Int64[Tensor, " pos"], names: Iterable[str]) -> dict[str, Tensor]:
        """Run one sequence, and return the activations of these hook points, without the batch dimension."""
        activations: dict[str, Tensor] = {}

        def keep(value: Tensor, hook: Any) -> None:
            activations[hook.name] = value[0].detach()

        self.reader.run(ids[None], [(name, keep) for name in names])
        return activations

    def by_head(self, v: Float[Tensor, "pos kv *rest"]) -> Float[Tensor, "pos head *rest"]:
        """Return the values of every head, or their norms; grouped keys serve heads in turn."""
        return v.repeat_interleave(self.reader.n_heads // v.shape[1], 1)

    def model_with_circuits(self) -> AttentionOnlyTransformer:
        """Return the model, whose outputs are logits of tokens that heads add to directly."""
        if self.reader.is_bridge:
            raise Missing("it reads weights of a model of aotlens; this one is of TransformerLens")
        if self.reader.no_circuits:
            raise Missing(self.reader.no_circuits.rstrip("."))
        model: Any = self.reader.model
        if model.cfg.read_out != "tokens":
            raise Missing(f"the model writes {model.cfg.read_out}, not tokens")
        return model  # type: ignore[no-any-return]

    def special_ids(self) -> list[int]:
        """List the ids of tokens that separate texts; none without a tokenizer."""
        tokenizer = self.reader.model.tokenizer
        return [] if tokenizer is None else sorted(special_ids(tokenizer))
