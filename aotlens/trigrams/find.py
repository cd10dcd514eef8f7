"""`skip_trigrams`: a head's best triples over the whole vocabulary; selected and random triples, scored in the same
way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer
from torch import Tensor

from aotlens.conventions import HeadLike, glyphs, require_choice, require_seed, require_whole
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.trigrams.background import (
    background_distribution,
    log_background,
    log_background_bound,
    relative_positions,
)
from aotlens.trigrams.factors import (
    Background,
    HeadCircuits,
    HeadFactors,
    competition,
    head_circuits,
    normaliser_of,
    restrict,
)
from aotlens.trigrams.search import Problem, Triples, best_triples
from aotlens.trigrams.table import TrigramTable
from aotlens.trigrams.text import token_strings

#: Token ids, or strings that are one token each.
Tokens: TypeAlias = Iterable[int | str] | Integer[np.ndarray, " tokens"]
#: Some 100 bytes each.
_MOST_ROWS = 10_000_000
_SCORES = ("effect", "sum", "product")


@torch.no_grad()
def skip_trigrams(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    *,
    k: int = 1000,
    score: str = "effect",
    largest: bool = True,
    sources: Tokens | None = None,
    destinations: Tokens | None = None,
    outs: Tokens | None = None,
    min_count: float | int = 0,
    background: Background | Literal["uniform"] = None,
    distance: int | np.integer | str | None = None,
    normaliser: Float64[np.ndarray, " d_vocab"] | None = None,
) -> TrigramTable:
    """Return the k best `[source] … [destination] → [out]` of a head over all V³ triples (*structures* §5, Table 1):
    exact.

    With q[d, s] the score of destination d for source s (tokens × tokens, biases included: b_Q · k[s] depends on the
    source; what depends on the destination alone cancels), w[s, o] the OV circuit and u the background:

        qk         z = q[d, s] − log Σ_b u_b e^{q[d, b]}      nats
        attention  1 / (1 + n·e^{−z})                         the source against n tokens of background, n = n_ctx // 2
        ov         w[s, o] − mean over o' of w[s, o']         logits
        effect     attention × ov                             logits

    A QK row means nothing by itself, since softmax ignores a constant per destination; z is free of that. "Against the
    background" takes every other token's e^q at its expectation: no sampling, and no text.

    `distance=δ` (1 … n) brings positions in: attention = 1 / (1 + C_δ e^{−z}), C_δ = Σ_{δ'≠δ, 0≤δ'≤n} e^{p_δ' − p_δ},
    p_δ the mean score of a position for the position δ before it; `"mean"` averages attention over δ = 1 … n. Cross
    terms of tokens and positions are left out. Rotary positions make q itself one of a distance: z = q_δ[d, s] −
    log mean over δ' ≠ δ of Σ_b u_b e^{q_δ'[d, b]}, δ' from 0 to n, with nothing left out (`"mean"` is refused there).

    `score` is what ranks: `"effect"`; `"sum"`, z + ov, the logarithm of how strongly a token is looked for times how
    strongly it is written (odds multiplied, whatever the context's length); or `"product"`, z × ov over z > 0, which
    asks that both be large and never lets a small one be made up for. `largest=False` gives the lowest, lowest first:
    what the head suppresses. Ties go by source, destination, out; scores that are equal in exact arithmetic only may
    differ by float64 rounding, some 1e-15 of their size, and are no ties then. Filters are token ids or strings of one
    token; `min_count` admits, on the sides that have no filter of their own, only tokens with at least that in
    `background`: a score says nothing of how often its tokens occur, and rare ones, whose vectors training has hardly
    touched, crowd the top.

    `background` is counts or probabilities of tokens, by default the training counts stored with the checkpoint;
    `"uniform"` gives every token the same.
    `normaliser` is log Σ_b u_b e^{q[d, b]} where it is known (`log_background`); the ranking is exact for the
    normaliser used, whose float32 rounding is some 1e-6 of the largest scores. Where attention underflows to 0 (z below
    −745), the zeros stand in order of the sign of ov first.

    The numbers are the model's own where the circuits are exact (layer 0, no norm; see `aotlens.circuits`), otherwise
    `relative` says what is not, an `attn_mask` included, which attention here does not know. A model with
    `phi="thresholded_softmax"` is read before its threshold.

    Time: the products of the two circuits once each; the normaliser is bounded first, and worked out only for the
    destinations where it matters (a lowest sum needs all of it: QK a second time with an exp an entry).
    With rotary positions and a distance N takes n products with an exp an entry.
    Memory: the circuits' factors a few times over and tiles; never V × V. Raises `ValueError` for an invalid head,
    token, score or distance, for a model without tokens or softmax, and without background.
    """
    require_ours(model, "skip_trigrams", without=(*NOT_LINEAR, "score_cap"))
    require_choice("score", score, _SCORES)
    k = require_whole("k", k, 1, _MOST_ROWS)
    if isinstance(background, str):
        if background != "uniform":
            raise ValueError(f"background={background!r}: expected counts, probabilities, 'uniform' or None.")
        background = np.ones(model.cfg.d_vocab or 0)
    circuits = head_circuits(model, head, distance)
    common = frequent_tokens(model, min_count, background).tolist() if min_count else None
    filters = [
        common if tokens is None else token_ids(model, tokens, name)
        for tokens, name in ((sources, "sources"), (destinations, "destinations"), (outs, "outs"))
    ]
    log_c = competition(model, circuits, distance, background)
    excess: Callable[[np.ndarray], np.ndarray] | None = None
    if normaliser is not None:
        if np.shape(normaliser) != (model.cfg.d_vocab,) or not np.isfinite(normaliser).all():
            raise ValueError(
                f"normaliser: expected {model.cfg.d_vocab} finite numbers, as log_background gives them, got shape "
                f"{list(np.shape(normaliser))}" + ("." if np.isfinite(normaliser).all() else " with some that are not.")
            )
    else:
        distribution = background_distribution(model, background)
        # A lowest sum wants the smallest z, of which a lower bound of N says nothing.
        if circuits.distance is not None or (score == "sum" and not largest):
            normaliser = normaliser_of(model, circuits, background)
        else:
            normaliser = log_background_bound(circuits.qk, distribution)
            excess = _Excess(circuits, distribution, normaliser)
    factors = restrict(circuits.factors(normaliser, log_c), *filters)
    triples = _best(factors, k, score, largest, excess)
    ids = (factors.sources[triples.source], factors.destinations[triples.destination], factors.outs[triples.out])
    return _table(model, circuits, factors, ids, triples.z, triples.ov, score=score, largest=largest, distance=distance)


@torch.no_grad()
def score_triples(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    sources: Tokens,
    destinations: Tokens,
    outs: Tokens,
    *,
    background: Background = None,
    distance: int | np.integer | str | None = None,
) -> TrigramTable:
    """Return the numbers of `skip_trigrams` for selected triples, in their order: row i is the i-th of
    each.

    Raises `ValueError` for sequences of different lengths and for what `skip_trigrams` refuses.
    """
    require_ours(model, "score_triples", without=(*NOT_LINEAR, "score_cap"))
    source, destination, out = (
        np.array(token_ids(model, tokens, "tokens"), dtype=np.int64) for tokens in (sources, destinations, outs)
    )
    if not len(source) == len(destination) == len(out):
        got = [len(source), len(destination), len(out)]
        raise ValueError(f"expected as many sources as destinations and outs, got {got}.")
    circuits = head_circuits(model, head, distance)
    log_c = competition(model, circuits, distance, background)
    factors = circuits.factors(normaliser_of(model, circuits, background), log_c)

    def rows(factor: Tensor, ids: np.ndarray) -> Tensor:
        return factor[torch.from_numpy(ids).to(factor.device)].cpu().double()

    z = (rows(factors.key, source) * rows(factors.query, destination)).sum(1).numpy()
    ov = (rows(factors.value, source) * rows(factors.out, out)).sum(1).numpy()
    ids = (source, destination, out)
    return _table(model, circuits, factors, ids, z, ov, score=None, largest=True, distance=distance)


def frequent_tokens(
    model: AttentionOnlyTransformer, min_count: float | int, background: Background = None
) -> Int64[np.ndarray, " tokens"]:
    """Return ids of the tokens with at least `min_count` in `background`, by default the checkpoint's training counts.

    Raises `ValueError` where there are no counts, and where no token has as many.
    """
    require_ours(model, "frequent_tokens")
    background_distribution(model, background)  # raises
    counts = model.unigram_counts if background is None else background
    values = counts.cpu().double().numpy() if isinstance(counts, Tensor) else np.asarray(counts, dtype=np.float64)
    frequent = np.flatnonzero(values >= min_count)
    if not len(frequent):
        raise ValueError(f"min_count={min_count:,}: no token has as many; the most frequent has {values.max():,.6g}.")
    return frequent


def tokens_like(
    model: AttentionOnlyTransformer, text: str, role: str = "token", *, most: int | None = None
) -> list[int]:
    """Return ids of the first `most` tokens (None: all) that contain `text`, whatever its case, or with `=` before it
    are it.

    Tokens are compared as `aotlens.conventions.glyphs` writes them: · is a space, ⏎ a line end. Raises `ValueError`,
    which calls them `role`, where there is none, and for a model without a tokenizer.
    """
    require_ours(model, "tokens_like")
    if model.tokenizer is None:
        raise ValueError("tokens_like: this model has no tokenizer, so its tokens have no text.")
    strings = model.tokenizer.str_tokens(range(model.cfg.d_vocab or 0))
    ids = [number for number, token in enumerate(strings) if is_like(glyphs(token), text)]
    if not ids:
        raise ValueError(
            f"No token matches the {role} {text!r}: try a part of it. · stands for a space, ⏎ for a line end."
        )
    return ids[:most]


def is_like(token: str, text: str) -> bool:
    """Return whether a token, written with glyphs, contains `text` or, with `=`, is it."""
    return token == glyphs(text[1:]) if text.startswith("=") else glyphs(text).casefold() in token.casefold()


def token_ids(model: AttentionOnlyTransformer, tokens: Tokens, name: str) -> list[int]:
    """Return token ids from ids or strings. Raises `ValueError` for none, for ids out of range, and for longer
    strings."""
    if isinstance(tokens, str):
        tokens = [tokens]
    ids = [model.to_single_token(token) if isinstance(token, str) else _index(token, name) for token in tokens]
    d_vocab = model.cfg.d_vocab or 0
    if not ids:
        raise ValueError(f"{name}: expected at least one token, got none; None means all.")
    wrong = [token for token in ids if not 0 <= token < d_vocab]
    if wrong:
        raise ValueError(f"{name}: expected token ids 0 to {d_vocab - 1}, got {wrong[0]}.")
    return ids


def _index(token: object, name: str) -> int:
    if not isinstance(token, int | np.integer) or isinstance(token, bool):
        raise ValueError(f"{name}: expected token ids or strings, got {token!r}.")
    return int(token)


class _Excess:
    """N of a destination less the lower bound that its query holds, worked out when it is first asked for."""

    def __init__(self, circuits: HeadCircuits, distribution: np.ndarray, bound: np.ndarray) -> None:
        self._circuits, self._distribution = circuits, distribution
        # As the factor holds it.
        self._bound = bound if circuits.qk.A.dtype == torch.float64 else bound.astype(np.float32).astype(np.float64)
        self._known = np.full(len(bound), np.nan)

    def __call__(self, destinations: np.ndarray) -> np.ndarray:
        unknown = destinations[np.isnan(self._known[destinations])]
        if len(unknown):
            exact = log_background(self._circuits.qk, self._distribution, unknown)
            self._known[unknown] = np.maximum(exact - self._bound[unknown], 0.0)
        return self._known[destinations]


def _best(
    factors: HeadFactors, k: int, score: str, largest: bool, excess: Callable[[np.ndarray], np.ndarray] | None
) -> Triples:
    """The lowest scores are the highest of the same with signs turned: ov for products, both for a sum."""
    sign = 1.0 if largest else -1.0
    z_sign = sign if score == "sum" else 1.0
    triples = best_triples(
        Problem(
            query=factors.query,
            key=factors.key * z_sign,
            value=factors.value,
            out=factors.out * sign,
            x=factors.attention if score == "effect" else lambda z: z,
            product=score != "sum",
            positive_z=score == "product",
            excess=None if excess is None else lambda rows: excess(factors.destinations[rows]),
        ),
        k,
    )
    return triples._replace(z=triples.z * z_sign, ov=triples.ov * sign)


def _table(
    model: AttentionOnlyTransformer,
    circuits: HeadCircuits,
    factors: HeadFactors,
    ids: tuple[np.ndarray, np.ndarray, np.ndarray],
    z: np.ndarray,
    ov: np.ndarray,
    *,
    score: str | None,
    largest: bool,
    distance: int | np.integer | str | None,
) -> TrigramTable:
    source, destination, out = ids
    reasons = [circuits.relative, "" if distance is None else relative_positions(model, circuits.head[0])]

    attention = factors.attention(z)
    effect = attention * ov
    return TrigramTable(
        layer=circuits.head[0],
        head=circuits.head[1],
        source=source,
        destination=destination,
        out=out,
        source_token=token_strings(model, source),
        destination_token=token_strings(model, destination),
        out_token=token_strings(model, out),
        qk=z,
        attention=attention,
        ov=ov,
        upwards=np.where(effect == 0, largest, effect > 0),
        score=score,
        largest=largest,
        distance=int(distance) if isinstance(distance, np.integer) else distance,
        n_background=circuits.n_background,
        relative=" ".join(reason for reason in reasons if reason),
    )


_NEIGHBOURS, _FEWEST = 20, 5
_FACTOR = 1.5


def matched_random(
    model: AttentionOnlyTransformer,
    table: TrigramTable,
    n: int = 1000,
    *,
    seed: int = 0,
    background: Background = None,
) -> TrigramTable:
    """Return `n` random triples matched to `table`'s rows for token frequency, scored by its head.

    Each is drawn for a row of the table, taken at random: source, destination and out are each replaced, independently,
    by one of the 20 tokens nearest in log frequency (the token itself among them), those more than 1.5 times as
    frequent or as rare left out unless they are among the nearest 5. What the three have to do with each other is lost;
    how common they are is not. (The most frequent tokens of all have few neighbours, and rarer ones.) Rows stand in the
    order drawn, and text is asked of each what it is asked of the row that it was drawn for (`upwards`).

    Raises `ValueError` for an empty table, and where there are no counts.
    """
    require_ours(model, "matched_random", without=(*NOT_LINEAR, "score_cap"))
    if not len(table):
        raise ValueError("matched_random: expected a table with rows, got an empty one.")
    generator = np.random.default_rng(require_seed(seed))
    distribution = background_distribution(model, background)
    rows = generator.integers(0, len(table), n)
    source, destination, out = (
        _nearby(distribution, ids[rows], generator) for ids in (table.source, table.destination, table.out)
    )
    random = score_triples(
        model, (table.layer, table.head), source, destination, out, background=background, distance=table.distance
    )
    return replace(random, upwards=table.upwards[rows], largest=table.largest)


def _nearby(
    distribution: Float64[np.ndarray, " d_vocab"], ids: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    n = len(distribution)
    order = np.argsort(-distribution, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    # Tokens that never occur count as half as frequent as the rarest that do.
    level = np.log(np.maximum(distribution, distribution[distribution > 0].min() / 2))[order]
    width = min(_NEIGHBOURS, n)
    around = rank[ids][:, None] + np.arange(1 - width, width)  # the nearest `width` are among these
    apart = np.abs(level[np.clip(around, 0, n - 1)] - level[rank[ids]][:, None])
    apart[(around < 0) | (around >= n)] = np.inf
    # Ties go to the nearer in rank, so that tokens of one frequency are not drawn from one side.
    beside = np.abs(np.arange(1 - width, width))
    nearest = np.lexsort((np.broadcast_to(beside, apart.shape), apart), axis=1)[:, :width]
    among = np.take_along_axis(apart, nearest, axis=1)
    few = min(_FEWEST, width)
    allowed = np.maximum((among <= np.log(_FACTOR)).sum(1), few)
    drawn = (generator.random(len(ids)) * allowed).astype(np.int64)
    return order[around[np.arange(len(ids)), nearest[np.arange(len(ids)), drawn]]]
