"""The data of a distillation: its texts, the kinds of their tokens, and activations in pieces.

The model runs on a few windows at a time, and a piece is dropped after its use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.conventions import Head
from aotlens.data import Corpus, Encoding, Windows, hold_out, windows_with_documents
from aotlens.distill.heads.scaling import Scaling, group_by_layer
from aotlens.heads.inputs import special_ids, vocabulary
from aotlens.heads.reader import HeadReader

_TOKENS_AT_ONCE = 4096  # through the model


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Some tokens as columns, in the coordinates of training."""

    x: Float[Tensor, "layer d_model_1 tokens"]
    t: Float[Tensor, "head out tokens"]
    positions: Int64[Tensor, " tokens"]

    @property
    def n_tokens(self) -> int:
        return self.x.shape[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A model's distilled heads, to be read piece by piece."""

    reader: HeadReader
    heads: tuple[Head, ...]

    @property
    def layers(self) -> dict[int, slice]:
        return group_by_layer(self.heads)

    @property
    def dtype(self) -> torch.dtype:
        """The type of all training: the model's own, float32 at least."""
        return self.reader.dtype if self.reader.dtype == torch.float64 else torch.float32

    def bytes_per_token(self) -> int:
        """Return the bytes per token of a piece with all of the model's heads, and of what is read to make it.

        Not of the distilled heads alone: the size of a piece, and so the order of the text, must not depend on them.
        """
        reader = self.reader
        numbers = reader.n_layers * (reader.d_model + 1 + reader.n_heads * reader.d_head)
        return 2 * numbers * (8 if self.dtype == torch.float64 else 4)

    def raw(self, windows: Int64[Tensor, "windows pos"]) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer x `[tokens, d_model]` and z `[tokens, distilled heads, d_head]` of whole windows."""
        rows = max(1, _TOKENS_AT_ONCE // windows.shape[1])
        parts: dict[int, tuple[list[Tensor], list[Tensor]]] = {layer: ([], []) for layer in self.layers}
        for start in range(0, len(windows), rows):
            for layer, (x, z) in self.reader.read(windows[start : start + rows], list(self.layers)).items():
                numbers = [head for _, head in self.heads[self.layers[layer]]]
                if numbers != list(range(self.reader.n_heads)):
                    z = z[:, :, numbers]
                parts[layer][0].append(x.flatten(0, 1).to(self.dtype))
                parts[layer][1].append(z.flatten(0, 1).to(self.dtype))
        return [(torch.cat(xs), torch.cat(zs)) for xs, zs in parts.values()]

    def piece(
        self, windows: Int64[Tensor, "windows pos"], scaling: Scaling, order: Int64[Tensor, " tokens"] | None = None
    ) -> Piece:
        """Read whole windows, their tokens in `order` (as they stand, for None)."""
        raw = self.raw(windows)
        positions = torch.arange(windows.shape[1], device=self.reader.device).repeat(len(windows))
        if order is not None:
            order = order.to(self.reader.device)
            positions = positions[order]
        n, d_in = len(positions), self.reader.d_model + 1
        x = torch.empty(len(raw), d_in, n, dtype=self.dtype, device=self.reader.device)
        t = torch.empty(len(self.heads), scaling.basis.shape[2], n, dtype=self.dtype, device=self.reader.device)
        for layer, heads in enumerate(self.layers.values()):
            layer_x, layer_z = raw[layer]
            raw[layer] = (layer_x[:0], layer_z[:0])  # so that only one copy of the rest is held
            x[layer] = scaling.inputs(layer, layer_x if order is None else layer_x[order])
            t[heads] = scaling.targets(heads, layer_z if order is None else layer_z[order])
        return Piece(x=x, t=t, positions=positions)


def order_of_tokens(n_tokens: int, seed: int, number: int) -> Int64[Tensor, " tokens"]:
    """Return a random order of the tokens of piece `number`."""
    return torch.from_numpy(np.random.default_rng([seed, 29, number]).permutation(n_tokens))


def windows_of_piece(
    windows: Int64[Tensor, "windows pos"], n_windows: int, seed: int, number: int
) -> tuple[Int64[Tensor, "piece pos"], int]:
    """Return the windows of piece `number`, and how many of them were not in any piece before.

    All windows come in a random order, then all again in another, and so on.
    """
    wanted = np.arange(number * n_windows, (number + 1) * n_windows)
    rounds, places = wanted // len(windows), wanted % len(windows)
    indices = np.empty(len(wanted), dtype=np.int64)
    for turn in np.unique(rounds):
        order = np.random.default_rng([seed, 23, int(turn)]).permutation(len(windows))
        indices[rounds == turn] = order[places[rounds == turn]]
    return windows[torch.from_numpy(indices)], int((rounds == 0).sum())


_FEW = 30  # documents, of which a tenth by hash may be none
_LONGEST = 512  # tokens of a window, where the model could take more


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Windows to train on, to choose by, and to be judged by: the last from other documents."""

    train: Int64[Tensor, "train pos"]
    validation: Int64[Tensor, "validation pos"]
    held_out: Int64[Tensor, "held_out pos"]
    held_out_documents: tuple[str, ...]
    """Names; `()` where windows were given."""
    document_of: Int64[np.ndarray, " held_out"] | None = None
    """The document that each held-out window begins in; None where windows were given."""


Side = Callable[[int], Windows]


def sides(
    reader: HeadReader, corpus: Corpus, held_out: Collection[str] | float | None, sequence_length: int | None
) -> tuple[Side, Side, tuple[str, ...]]:
    """Return training and held-out text, each a function from a number of tokens to windows, and the held-out
    documents.

    None holds out those that the model's card kept from training where the corpus has some (`CheckpointInfo.held_out`),
    else a tenth: the last of few documents, the end of a single one. Raises `ValueError` for a length that the model
    does not take and for a model without a tokenizer.
    """
    length = min(reader.n_ctx, _LONGEST) if sequence_length is None else sequence_length
    if not 3 <= length <= reader.n_ctx:
        raise ValueError(f"sequence_length={length}: expected 3 to {reader.n_ctx} (the model's context).")
    encoding = Encoding.of(reader.model.tokenizer, causal=reader.causal)
    if held_out is None:
        card = getattr(reader.model, "card", None)
        named = () if card is None else card.held_out(corpus.names())
        held_out = named if 0 < len(named) < len(corpus.names()) else 0.1
        if held_out == 0.1 and 1 < len(corpus.names()) < _FEW:
            held_out = corpus.names()[-1:]
    corpus, split = hold_out(corpus, held_out)

    def windows(names: tuple[str, ...], n_tokens: int) -> Windows:
        return windows_with_documents(corpus, names, encoding, -(-n_tokens // length), length)

    return partial(windows, split.train), partial(windows, split.validation), split.validation


#: The classes of tokens, in this order everywhere. A token at position 0 is `first`, whatever it is.
CLASSES = ("first", "separator", "newline", "punctuation", "number", "word", "word part")


def classes_of(reader: HeadReader, windows: Int64[Tensor, "windows pos"]) -> Int64[Tensor, "windows pos"]:
    """Return the index in `CLASSES` of every token; every token but the first is a `word` for a model without a
    tokenizer.

    separator: special tokens; newline: whitespace only; word: begins with a space (in WordPiece, anything not beginning
    with ##); word part: what continues a word.
    """
    kinds = _table(reader)[windows]
    kinds[:, 0] = CLASSES.index("first")
    return kinds


def _table(reader: HeadReader) -> Int64[Tensor, " d_vocab"]:
    tokenizer: Any = reader.model.tokenizer
    table = torch.full((reader.d_vocab,), CLASSES.index("word"), dtype=torch.int64)
    if tokenizer is None:
        return table
    special, strings = special_ids(tokenizer), vocabulary(tokenizer, reader.d_vocab)
    wordpiece = any(text.startswith("##") for text in strings) and not any(text.startswith(" ") for text in strings)
    for index, text in enumerate(strings):
        if text:
            table[index] = CLASSES.index("separator" if index in special else _kind(text, wordpiece))
    return table


def _kind(text: str, wordpiece: bool) -> str:
    inner = text.removeprefix("##").strip()
    if not inner:
        return "newline"
    if inner[0].isdigit():
        return "number"
    if not any(character.isalnum() for character in inner):
        return "punctuation"
    if wordpiece:
        return "word part" if text.startswith("##") else "word"
    return "word" if text[:1].isspace() else "word part"
