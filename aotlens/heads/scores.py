"""The usual calls of `attention_to`: motifs on repeated random tokens, places, any marked keys, prompts of
regression."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress, require_shape, require_whole
from aotlens.data import repeated_random_tokens
from aotlens.data.windows import probe_start
from aotlens.heads.attention_to import MotifScores, attention_to, scores_of
from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.motifs import PLACES, Motif, as_motifs
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.heads.tally import MotifTally
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result, table, top_head
from aotlens.statistics import as_clusters

if TYPE_CHECKING:
    import pandas as pd


class RandomRepeats(NamedTuple):
    """Random tokens of which some repeat, as `motif_scores` describes them."""

    tokens: Int64[Tensor, "batch pos"]
    start: int | None
    about: str


def random_repeats(
    reader: HeadReader,
    n_sequences: int = 16,
    half_length: int = 50,
    start: int | Literal["own"] | None = "own",
    seed: int = 0,
) -> RandomRepeats:
    """Draw the sequences that `motif_scores` reads without a text."""
    token = probe_start(reader.model.tokenizer) if start == "own" else start
    half_length = min(half_length, (reader.n_alike - (token is not None)) // 2)
    tokens = repeated_random_tokens(reader.d_vocab, n_sequences, half_length, seed, eot_id=token, distances=True)
    begin = "without a start token" if token is None else f"the start token {token}, then"
    about = (
        f"{n_sequences} sequences: {begin} {2 * half_length} random tokens, of which some repeat after "
        f"{half_length} on average (seed {seed})"
    )
    return RandomRepeats(tokens, token, about)


def motif_scores(
    model: Model,
    tokens: TokenSequences | None = None,
    motifs: Iterable[str | Motif] | str | Motif | None = None,
    *,
    n_sequences: int = 16,
    half_length: int = 50,
    start: int | Literal["own"] | None = "own",
    attention_mask: Tensor | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Score every head for `motifs` (all by default) on `tokens`, or on random tokens that come twice.

    Every score has its chance (`MotifScores.chance`; definitions in `aotlens.heads.attention_to`), with intervals
    of the excess over it. On random tokens, motifs that mean something on text alone are left out unless named.

    `tokens` are ids `[batch, pos]`, a text, or texts of equally many tokens; `clusters` names the document of each, so
    that intervals are over documents. The `n_sequences` random ones are the start token, then tokens drawn uniformly of
    which some repeat, `half_length` later on average (less where the context is shorter) and at another distance in
    each sequence (`aotlens.data.repeated_random_tokens` with `distances`), so that an interval over sequences is one
    over distances and a head that looks a fixed number of tokens back does no induction. `start` is the id of the start
    token, None for none; by default it is the tokenizer's, or 0 for a model without one. `MotifScores.start` and
    `.about` say what was used. The induction score is attention from the second occurrence of a token to what followed
    the first (Olsson et al. 2022, whose tokens all repeat at one distance).

    `attention_mask`, of the ids' shape, is True (or 1) at ids that are no padding. Sequences are read without it: those
    of one length together, and scores are means over the queries of all of them. Of several lengths there are no
    intervals or control, so that labels need the score and its excess over chance alone, and no offset that all have
    in common (`fixed_offset` and `mirror` are NaN).

    A head of the first layer sees tokens, not what came before them: where it has an induction score, it has it by
    where keys stand, or since tokens that repeat stand in a context that does.

    Definitions in `aotlens.heads.motifs`; cost, memory and progress as in `attention_to`.

    Raises `ValueError` for sequences shorter than 3 tokens or longer than the model's context, for a start token that
    is given next to `tokens` or that the model does not have, and for a model that does not read tokens.
    """
    require_whole("n_sequences", n_sequences, 1)
    reader = HeadReader.of(model, "motif scores")
    if attention_mask is not None:
        if tokens is None or start != "own":
            raise ValueError("attention_mask: expected it with ids, and no start token, which these hold themselves.")
        groups = [ids for _, ids in without_padding(reader, tokens, attention_mask)]
        options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
        if len(groups) == 1:
            return motif_scores(model, groups[0], motifs, clusters=clusters, **options)
        as_clusters(clusters, sum(map(len, groups)))
        others = min(map(len, groups)) > 1
        parts = [attention_to(model, ids, motifs, others=others, intervals=False, **options) for ids in groups]
        lengths = f"{groups[0].shape[1]} to {groups[-1].shape[1]} tokens"
        return pooled(parts, f"{sum(map(len, groups))} sequences of {lengths} that were given")
    if tokens is not None:
        if start != "own":
            raise ValueError("start: expected no start token beside tokens, which hold their own.")
        tokens = reader.require_ids(tokens)
        others = len(tokens) > 1
        token, about = None, f"{len(tokens)} sequences of {tokens.shape[-1]} tokens that were given"
    else:
        others = False
        if motifs is None:
            motifs = [motif for motif in as_motifs(None) if not motif.on_text]
        tokens, token, about = random_repeats(reader, n_sequences, half_length, start, seed)
    if tokens.shape[-1] < 3:
        raise ValueError(f"expected sequences of at least 3 tokens, got {tokens.shape[-1]}.")
    scores = attention_to(
        model, tokens, motifs, others=others, intervals=True, clusters=clusters, batch_size=batch_size,
        progress=progress,
    )  # fmt: skip
    return dataclasses.replace(scores, start=token, about=about)


def without_padding(
    reader: HeadReader, tokens: TokenSequences, attention_mask: Tensor
) -> list[tuple[Int64[Tensor, " _"], Int64[Tensor, "_ _"]]]:
    """Return the ids of a batch without padding, `[row, pos]` of each length, shortest first, with the numbers of their
    rows. Raises `ValueError` for a mask of another shape and for fewer than 3 tokens."""
    ids, real = torch.atleast_2d(torch.as_tensor(tokens)).cpu(), torch.atleast_2d(attention_mask).cpu().bool()
    require_shape("attention_mask", real, ids.shape)
    lengths = real.sum(1)
    if (shortest := int(lengths.min())) < 3:
        raise ValueError(f"expected sequences of at least 3 tokens without padding, got {shortest}.")
    groups = [(lengths == length).nonzero()[:, 0] for length in lengths.unique()]
    return [(rows, reader.require_ids(ids[rows][real[rows]].unflatten(0, (len(rows), -1)))) for rows in groups]


#: Motifs whose keys are places that only sequences of one length have in common.
_OFFSETS = ("fixed_offset", "mirror")


def pooled(parts: list[MotifScores], about: str) -> MotifScores:
    """The scores of all queries of several batches, in which each batch's mean counts as often as it has queries."""
    no_offset = np.isin(parts[0].motifs, _OFFSETS)
    n_queries = np.where(no_offset, 0, np.sum([part.n_queries for part in parts], 0))
    n_compared = np.where(no_offset, 0, np.sum([_compared_counts(part) for part in parts], 0))

    def mean(name: str, counts: list[Int64[np.ndarray, " motif"]], total: Int64[np.ndarray, " motif"]) -> Any:
        if any(getattr(part, name) is None for part in parts):
            return None
        weighted = [np.where(n[:, None, None] > 0, getattr(part, name) * n[:, None, None], 0.0)
                    for part, n in zip(parts, counts, strict=True)]  # fmt: skip
        divisor = np.where(total > 0, total, np.nan)[:, None, None]
        return np.sum(weighted, 0) / divisor

    of_queries, of_compared = [part.n_queries for part in parts], [_compared_counts(part) for part in parts]
    reasons = {
        name: why for part in parts for name, why in part.reasons.items() if all(name in p.reasons for p in parts)
    }
    for name in set(_OFFSETS) & set(parts[0].motifs):
        reasons[name] = "sequences of several lengths have no offsets in common"
    return dataclasses.replace(
        parts[0], values=mean("values", of_queries, n_queries), n_queries=n_queries, reasons=reasons, about=about,
        uniform=mean("uniform", of_queries, n_queries), chance=mean("chance", of_compared, n_compared),
        compared=mean("compared", of_compared, n_compared), n_compared=n_compared, best_offsets=None,
    )  # fmt: skip


def _compared_counts(scores: MotifScores) -> Int64[np.ndarray, " motif"]:
    return scores.n_queries if scores.n_compared is None else scores.n_compared


def attention_by_place(
    model: Model,
    tokens: TokenSequences,
    *,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Measure the mean attention of every head to each of `PLACES`, over sequences of one length; what is left of 1
    goes elsewhere.

    `tokens` are as in `attention_to`. Next and last token are NaN for a causal model, whose queries do not see them.
    Raises `ValueError` for fewer than 5 tokens and as `attention_to`.
    """
    tokens = HeadReader.of(model, "attention by place").require_ids(tokens)
    if tokens.shape[1] < 5:
        raise ValueError(
            "expected sequences of 5 tokens or more, so that both neighbours and both ends are apart, got "
            f"{list(tokens.shape)}."
        )
    return attention_to(model, tokens, PLACES, batch_size=batch_size, progress=progress)


@dataclass(frozen=True, kw_only=True, eq=False)
class TargetedAttention(Result):
    """Mean attention to the marked keys, `[n_layers, n_heads]`, 0 to 1 for softmax."""

    attention: Float64[np.ndarray, "layer head"]
    expected: Float64[np.ndarray, "layer head"]
    """The average attention at the same distances, whatever is there."""
    n_queries: int
    """Queries that have at least one marked key."""

    @property
    def headline(self) -> str:
        return f"most for its distances in {top_head(self.ratio)}, as a ratio"

    @property
    def ratio(self) -> Float64[np.ndarray, "layer head"]:
        """Attention over what its distances get: above 1 where the head looks for these keys."""
        return self.attention / self.expected

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, attention, expected, ratio."""
        return table(("layer", "head"), {name: getattr(self, name) for name in ("attention", "expected", "ratio")})


def targeted_attention(
    model: Model,
    tokens: TokenSequences,
    targets: Bool[Tensor, "batch query key"],
    *,
    batch_size: int = 8,
) -> TargetedAttention:
    """Measure every head's attention to `targets` on `tokens`; `targets[b, q, k]` marks key k for query q.

    Every query with a marked key counts, wherever it stands. Raises `ValueError` where shapes disagree, where no pair
    is marked, for a key after its query in a causal model, which does not see it, and as `attention_to`.
    """
    inputs = Inputs.of(HeadReader.of(model, "targeted attention"), tokens)
    require_shape("targets", targets, [len(inputs), inputs.n_pos, inputs.n_pos])
    if not inputs.later_keys and bool(targets.triu(1).any()):
        raise ValueError("targets: expected keys at or before their query, got one after it.")
    if not bool(targets.any()):
        raise ValueError("targets: expected at least one marked pair, got none; take longer or other text.")
    inputs = dataclasses.replace(inputs, marked=targets.cpu())
    scores = attention_to(model, inputs, _MARKED, intervals=False, by_distance=True, batch_size=batch_size)
    assert scores.expected is not None
    return TargetedAttention(
        attention=scores["marked"], expected=scores.expected[0], n_queries=int(scores.n_queries[0])
    )


def _marked(inputs: Inputs) -> Targets:
    keys = inputs.need(inputs.marked, "pairs that the caller marked")
    return Targets(keys=keys, queries=keys.any(-1))


_MARKED = Motif(name="marked", badge="mark", sentence="It attends to the keys that the caller chose.", mask=_marked)


@torch.no_grad()
def attention_in_prompts(
    model: AttentionOnlyTransformer, tokens: Float[Tensor, "prompt pos d"], *, batch_size: int = 64
) -> MotifScores:
    """Measure every head's mean attention to each motif of prompts (`motifs_of("prompts")`) on interleaved `tokens`,
    beside uniform attention's.

    Intervals of the excess are over prompts. Raises `ValueError` for a model that does not read vectors or whose
    pattern does not depend on what it reads, and for fewer than two points.
    """
    require_ours(model, "attention_in_prompts")
    if model.cfg.read_in != "vectors" or not model.cfg.has_query_key:
        raise ValueError(
            "attention in prompts: expected a model that reads vectors, with queries and keys; this one reads "
            f"{model.cfg.read_in}, its φ is {model.cfg.phi}."
        )
    if tokens.shape[1] < 3:
        raise ValueError(f"attention in prompts: expected x_1, y_1, x_2 at least, got {tokens.shape[1]} positions.")
    cfg = model.cfg
    reader = HeadReader(
        model=model, n_layers=cfg.n_layers, n_heads=cfg.n_heads, d_model=cfg.d_model, d_head=cfg.d_head,
        n_ctx=cfg.n_ctx, d_vocab=0, causal=not model.sees_later_keys, is_bridge=False,
    )  # fmt: skip
    inputs = Inputs(tokens=tokens.to(model.dtype), later_keys=model.sees_later_keys)
    tally = MotifTally(reader, inputs, as_motifs(None, "prompts"))
    tally.read(batch_size)
    about = f"{len(tokens)} prompts of {(tokens.shape[1] + 1) // 2} points"
    return dataclasses.replace(scores_of(tally, others=False, intervals=True), about=about)
