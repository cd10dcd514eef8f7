"""Text as windows of a model's context, cut in one of three ways, and the token that each begins with.

`windows_of_documents`   every token once, anew at each document: to count what stands in a text
`spread_windows`         as many as are wanted, spread evenly over a corpus, of which only those are encoded: to measure
                         a model on text, and to distil; `windows_with_documents` says which document each is from
`validation_windows`     a token file without overlap, or some of its windows, spread evenly: to validate in training
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.data.corpus import Corpus
from aotlens.data.sampler import require_length, with_start
from aotlens.data.symbols import SymbolTokenizer
from aotlens.data.token_file import TokenFile
from aotlens.data.tokenizer import Tokenizer
from aotlens.statistics import LEAST_CLUSTERS

#: Windows of one document in a stratum: within it, what a document is about is taken to be the same.
WINDOWS_A_STRATUM = 8
_CHARACTERS_A_TOKEN = 6  # read per token at first; English has some 4


def start_id(tokenizer: Any) -> int | None:
    """Return the token that a text begins with; None without such a token, or without a tokenizer.

    Ours has one token that begins and separates texts, symbols may have none.
    """
    return _first_id(tokenizer, "eot_id", "cls_token_id", "bos_token_id")


def probe_start(tokenizer: Any) -> int | None:
    """Return the first token of a random row: the start token, none where the tokenizer has none, 0 without one."""
    return 0 if tokenizer is None else start_id(tokenizer)


def _first_id(tokenizer: Any, *kinds: str) -> int | None:
    return next((index for kind in kinds if (index := getattr(tokenizer, kind, None)) is not None), None)


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of a model's text, with its first and last tokens."""

    encode: Callable[[str], list[int]]
    start: int
    separator: int
    end: int | None
    """The last token of every window, or None."""

    @classmethod
    def of(cls, tokenizer: Any, *, causal: bool = True) -> Encoding:
        """Return the encoding of `tokenizer`, ours or Hugging Face's. Windows end with a separator where the model is
        not `causal`.

        Raises `ValueError` for no tokenizer (None), and for one without a start or a separator token.
        """
        if tokenizer is None:
            raise ValueError("text needs a model with a tokenizer; give token ids instead.")
        is_ours = isinstance(tokenizer, Tokenizer | SymbolTokenizer)

        def encode(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        start = start_id(tokenizer)
        separator = start if is_ours else _first_id(tokenizer, "sep_token_id", "eos_token_id")
        if start is None or separator is None:
            raise ValueError("this tokenizer has no start or no separator token; give token ids instead.")
        end = None if causal or is_ours else separator
        return cls(encode=tokenizer.encode if is_ours else encode, start=start, separator=separator, end=end)


def spread(n: int, wanted: int) -> Int64[Tensor, " places"]:
    """Return up to `wanted` of the places 0, …, n − 1, evenly: the i-th of w is ⌊i·n/w⌋."""
    wanted = min(n, wanted)
    return torch.arange(wanted) * n // wanted


def windows_of_documents(
    blocks: Iterable[Int64[np.ndarray, " tokens"]], separator: int | None, width: int
) -> Iterator[tuple[Int64[np.ndarray, " tokens"], int, int]]:
    """Yield every token of a text once: windows of `width` ids, with the running numbers of their stratum and document.

    The text comes in blocks of ids of any size; each separator begins a document (None: it is one). Windows begin anew
    at each document, so its last may be shorter. No window holds a start token or a separator. A stratum is
    `WINDOWS_A_STRATUM` (8) consecutive windows of one document, and at the document's end up to 7 more.
    """
    stratum, n_documents = -1, 0
    for _, pieces in groupby(_by_document(blocks, separator), key=itemgetter(0)):
        held = np.empty(0, dtype=np.int64)
        known = False  # whether the document has had a window
        for _, ids in pieces:
            held = np.concatenate([held, ids])
            # A stratum is whole once another one follows it: what is left at the end joins the last.
            whole = max(len(held) // (width * WINDOWS_A_STRATUM) - 1, 0) * WINDOWS_A_STRATUM
            for i in range(whole):
                stratum += i % WINDOWS_A_STRATUM == 0
                yield held[i * width : (i + 1) * width], stratum, n_documents
            held, known = held[whole * width :], known or whole > 0
        n = -(-len(held) // width)
        for i in range(n):
            stratum += i == 0 or (i % WINDOWS_A_STRATUM == 0 and n - i >= WINDOWS_A_STRATUM)
            yield held[i * width : (i + 1) * width], stratum, n_documents
        n_documents += known or n > 0


def _by_document(blocks: Iterable[np.ndarray], separator: int | None) -> Iterator[tuple[int, np.ndarray]]:
    """The document's running number and some of its ids, in order."""
    document = 0
    for ids in blocks:
        separators = np.flatnonzero(ids == (-1 if separator is None else separator))
        for i, part in enumerate(np.split(ids, separators)):
            document += i > 0
            yield document, part[int(i > 0) :]


class Windows(NamedTuple):
    """Windows of a corpus and where each is from."""

    ids: Int64[Tensor, "windows pos"]
    documents: Int64[np.ndarray, " windows"]
    """The place, among the documents that were read, of the one that a window begins in: the clusters of an interval
    over windows (`aotlens.statistics.ratio_intervals`)."""


def spread_windows(
    corpus: Corpus, names: tuple[str, ...], encoding: Encoding, n_windows: int, length: int
) -> Int64[Tensor, "windows pos"]:
    """Return the windows of `windows_with_documents`, without their documents."""
    return windows_with_documents(corpus, names, encoding, n_windows, length).ids


def windows_with_documents(
    corpus: Corpus, names: tuple[str, ...], encoding: Encoding, n_windows: int, length: int
) -> Windows:
    """Cut up to `n_windows` windows, whose beginnings are spread evenly over the documents' characters.

    A window is the start token and `length − 1` tokens (of a model that sees later tokens: `length − 2`, and the
    separator). It begins at a space or line end and runs on into the next document, after a separator, where its own
    ends. Only what is read is encoded. There are fewer where the text is too short for that many without much overlap.
    Raises `ValueError` where it is too short for one.
    """
    width = length - 1 - (encoding.end is not None)
    if n_windows < 1 or width < 1:
        raise ValueError(f"expected at least one window of text beside its start and end, got {n_windows} of {length}.")
    total = sum(len(document.text) + 1 for document in corpus.documents(names))
    stride = max(total / n_windows, _characters_a_token(corpus, names, encoding) * width)
    rows: list[tuple[int, list[int]]] = []
    open_rows: list[tuple[int, list[int]]] = []
    offset, following = 0, 0  # characters before this document; the next window's number
    for place, document in enumerate(corpus.documents(names)):
        text = document.text
        for _, row in open_rows:
            row.append(encoding.separator)
            row.extend(_first_tokens(encoding, text, 0, width - len(row)))
        while following * stride < offset + len(text) and following < n_windows:
            beginning = _next_space(text, max(0, int(following * stride) - offset))
            open_rows.append((place, _first_tokens(encoding, text, beginning, width)))
            following += 1
        rows += [(begun, row[:width]) for begun, row in open_rows if len(row) >= width]
        open_rows = [(begun, row) for begun, row in open_rows if len(row) < width]
        offset += len(text) + 1
    if not rows:
        part = "" if len(names) == len(corpus.names()) else f" in the part that is read, {', '.join(names[:3])}"
        raise ValueError(
            f"{corpus.spec}: expected text for a window of {length} tokens, got {total:,} characters{part}; choose a "
            "longer text."
        )
    ids = torch.tensor([row for _, row in rows], dtype=torch.int64)
    parts = [torch.full((len(ids), 1), encoding.start, dtype=torch.int64), ids]
    if encoding.end is not None:
        parts.append(torch.full((len(ids), 1), encoding.end, dtype=torch.int64))
    return Windows(torch.cat(parts, dim=1), np.array([begun for begun, _ in rows], dtype=np.int64))


def _characters_a_token(corpus: Corpus, names: tuple[str, ...], encoding: Encoding) -> float:
    """Return the characters per token on the beginning of the first document."""
    for document in corpus.documents(names):
        if document.text:
            beginning = document.text[:20_000]
            return len(beginning) / max(1, len(encoding.encode(beginning)))
    return 1.0


def _next_space(text: str, start: int) -> int:
    if start == 0:
        return 0
    breaks = [position for position in (text.find(" ", start), text.find("\n", start)) if position >= 0]
    return min(breaks, default=len(text))


def _first_tokens(encoding: Encoding, text: str, start: int, n: int) -> list[int]:
    """The first `n` tokens of `text[at:]`, or all; encodes no more of it than it must."""
    characters = _CHARACTERS_A_TOKEN * n + 64
    while True:
        end = min(len(text), start + characters)
        ids = encoding.encode(text[start:end])
        if end == len(text):
            return ids[:n]
        if len(ids) > n:  # the last token may be half a word
            return ids[:n]
        characters *= 2


def validation_windows(
    tokens: TokenFile, sequence_length: int, max_windows: int | None = None
) -> Int64[Tensor, "windows pos"]:
    """Cut a token file into windows without overlap: each the separator and `sequence_length - 1` tokens.

    The file's leading separator is skipped, and what is left over at the end is dropped. With
    `max_windows`, that many (n) are taken, spread evenly over all there are (`spread`).
    Raises ValueError for a file shorter than one window.
    """
    require_whole("sequence_length", sequence_length, 2)
    if max_windows is not None:
        require_whole("max_windows", max_windows, 1, 2**31)
    require_length(tokens, sequence_length)
    width = sequence_length - 1
    available = (len(tokens) - 1) // width
    first = 1 + spread(available, max_windows or available).numpy() * width
    filled = np.asarray(tokens.tokens)[first[:, None] + np.arange(width)].astype(np.int64)
    if int(filled.max()) >= tokens.d_vocab:
        raise ValueError(
            f"{tokens.path}: expected token ids below d_vocab = {tokens.d_vocab}, got {int(filled.max())}; "
            "build the file again"
        )
    return torch.from_numpy(with_start(filled, tokens.eot_id))


def held_out_rows(n: int, share: float, clusters: Int64[np.ndarray, " row"] | None, seed: int) -> Bool[Tensor, " row"]:
    """Draw the rows (sequences, pairs), of n, that are kept out of a search, from `seed`: whole clusters where both
    sides get `LEAST_CLUSTERS` or more, as near to `share` of the rows as they come."""
    units, least = (torch.arange(n), 0) if clusters is None else (torch.from_numpy(clusters), LEAST_CLUSTERS)
    sizes = units.bincount()
    if share and len(sizes) < 2 * least:
        return held_out_rows(n, share, None, seed)
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(require_seed(seed)))
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), sizes[order].cumsum(0)])
    count = int((bounds - round(share * n)).abs().argmin())
    return torch.isin(units, order[: min(max(count, least), len(sizes) - least) if share else 0])
