"""The texts that a distillation is trained on, chosen by and judged by."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from aotlens.data import Corpus, Encoding, Windows, hold_out, windows_with_documents
from aotlens.heads.reader import HeadReader

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
