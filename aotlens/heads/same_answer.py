"""The same-answer control: attention to the same keys, from the same position, with another token at the query.

What a head would find, the answer, stands where it stood; the reason to look there is gone. A head that compares tokens
looks elsewhere then. One that looks a fixed distance back, one that compares the tokens before (t_{i−1} = t_{j−2}), and
one that always attends to some token look at the same keys, though on repeated tokens all of them score as induction.
A head of positions, in turn, keeps its attention, also if the two tokens before the query are others.

    before   Σ pattern[q, k] over the motif's keys k of queries q     pattern: on the sequence
    after    Σ pattern'[q, k] over the same pairs                     pattern': with other tokens at q
    lost     1 − Σ w · after ÷ Σ w · before over queries; w = 1 of motifs with `asks`, before + after of the others

The latter are weighted by attention, so that a query at which the head rests, or does something else, does not count: a
head that looks for the last two tokens where they stood before, and rests if they did not, looks a fixed distance back
on sequences that repeat at one distance, at a third of its queries. The weights are the same if before and after change
places: weighted by `before` alone, a head that attends to itself at some tokens only would lose attention with any
other token, by regression to the mean.

Other tokens, from those before them, so that a head which compares tokens has something else to find, stand at some
queries: in half of the sequences one alone (for motifs with `asks`), and in the others the end of a copy of an earlier
stretch, of `DEPTH` tokens and the query's (early ones: of one token over and over), so that heads which compare any of
these, or several at once, find another key too: a head that compares tokens attends to its own, or to one a fixed
distance back, if no other one is the same. Keys of a motif of content that has `asks` count if neither they nor the
`NEAR` tokens before them were replaced; of one that has not they are those of the sequence as it is read. Cost: two
forward passes over at most `MOST_SEQUENCES` sequences, spread evenly, and more of few or short ones, with other
positions replaced in each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.data.windows import spread
from aotlens.heads.inputs import Inputs, Missing, Targets
from aotlens.heads.motifs import Motif
from aotlens.heads.reader import HeadReader

#: The most sequences that are read; the sequences up to which each is read twice, and the tokens below which several
#: times, at most so often.
MOST_SEQUENCES, FEW_SEQUENCES, FEW_TOKENS, MOST_VERSIONS = 64, 32, 400, 8
#: The most tokens before a query that are replaced with it, and the tokens before a key that are not.
DEPTH, NEAR = 6, 4
#: The positions below which a sequence has one query that is replaced alone.
SHORT = 32
#: The fewest queries at which a motif and its simpler habit have other keys.
FEWEST_APART = 4
#: Groups of query tokens, by id.
TOKEN_GROUPS = 64


class SameAnswer(NamedTuple):
    """Sums of attention by unit, and the queries that they are over; and two means that tell habits apart."""

    before: Float64[Tensor, "unit motif layer head"]
    after: Float64[Tensor, "unit motif layer head"]
    """Of motifs without `asks` such that 1 − after ÷ before, summed over units, is the share that is lost."""
    counts: Float64[Tensor, "unit motif"]
    by_token: Float64[Tensor, "2 token motif layer head"]
    """Mean attention before and after by the token of the query, in groups of tokens, of motifs with `asks`, 0 without
    queries: a random head over three symbols may well prefer two of them to others. Tokens count alike, so that a
    frequent one does not decide."""
    runner_up: Float64[Tensor, "motif layer head"]
    """The largest attention to another key than a place's, a start token aside; NaN for other motifs."""
    apart: Float64[Tensor, "motif layer head"]
    """Attention to the motif's keys where its simpler habit has others; NaN without one, or with too few queries."""
    by_frequency: Float64[Tensor, "motif layer head"]
    """Attention to what motifs with classes and without `asks` would ask for at random, by how often they do; NaN for
    other motifs."""


class Replaced(NamedTuple):
    """Sequences with other tokens."""

    tokens: Int64[Tensor, "batch pos"]
    alone: Bool[Tensor, "batch pos"]
    """Queries with another token."""
    together: Bool[Tensor, "batch pos"]
    """Queries that have another token, as those before them have."""


def with_other_tokens(inputs: Inputs, generator: np.random.Generator, *, version: int = 0) -> Replaced:
    """Replace tokens at some positions that count as queries: with those before them in every other sequence, the odd
    ones in an even version. Tokens in front of what the caller marked are no other ones. A short
    sequence has one single query, and those of others are a short or a longer way apart: else those of a text that
    repeats at that distance would all have a replaced token near their keys."""
    ids = inputs.tokens.numpy()
    tokens, queries = ids.copy(), np.zeros((2, *ids.shape), dtype=bool)
    end, everywhere = ids.shape[1] - (2 if inputs.later_keys else 0), np.unique(ids[:, 1:])
    kept = np.isin(ids, [*(inputs.special_ids or ())])
    for row, own in enumerate(ids):
        together = (row + version) % 2
        farther = 0
        if not together:
            farther = end if end < SHORT else (NEAR + 2) * int(generator.integers(3) == 0)
        place = 2 + int(generator.integers(min(2 * DEPTH if together else 3 + 2 * farther, max(end - 2, 1))))
        while place < end:
            before = tokens[row, 1:place]  # as it is now, so that what is drawn has another occurrence
            usable = (before != own[place]) & ~kept[row, 1:place] & (before != own[0])
            if inputs.marked is not None:
                usable &= ~inputs.marked[row, place, 2 : place + 1].numpy()
            others = before[usable] if usable.any() else everywhere[everywhere != own[place]]
            first = max(1, place - 2 * DEPTH) if together else place
            stretch = others[generator.integers(len(others), size=1)] if len(others) else own[place : place + 1]
            if together and place > 2 * DEPTH:
                copied = _earlier_stretch(tokens[row], own, kept[row], place, generator)
                if copied is not None:
                    stretch, first = copied, place - DEPTH
            tokens[row, first : place + 1] = np.where(kept[row, first : place + 1], own[first : place + 1], stretch)
            queries[together, row, place] = True
            place += 3 + int(generator.integers(3)) + (DEPTH if together else NEAR + farther)
            place = max(place, 2 * DEPTH + 1) if together else place
    queries &= tokens != ids
    return Replaced(*map(torch.from_numpy, (tokens, *queries)))


def _earlier_stretch(
    tokens: Int64[np.ndarray, " pos"],
    own: Int64[np.ndarray, " pos"],
    kept: Bool[np.ndarray, " pos"],
    place: int,
    generator: np.random.Generator,
) -> Int64[np.ndarray, " replaced"] | None:
    """Draw a stretch of `tokens`, as they are now, before the one that ends at `place`, and as long: of those without
    special tokens that end in another token than the query's own, one that differs from `own` in the most places. None
    if there is none."""
    ends = np.arange(DEPTH + 1, place - DEPTH)
    stretches = ends[:, None] + np.arange(-DEPTH, 1)
    allowed = (tokens[ends] != own[place]) & ~kept[stretches].any(1)
    if not allowed.any():
        return None
    n_other = (tokens[stretches] != own[place - DEPTH : place + 1]).sum(1)
    best = np.flatnonzero(allowed & (n_other == n_other[allowed].max()))
    drawn: Int64[np.ndarray, " replaced"] = tokens[stretches[best[generator.integers(len(best))]]]
    return drawn


@torch.no_grad()
def same_answer(
    reader: HeadReader,
    inputs: Inputs,
    motifs: Sequence[Motif],
    best_offsets: Mapping[str, Int64[Tensor, "layer head"]],
    units: Int64[Tensor, " sequence"],
    *,
    batch_size: int = 8,
) -> SameAnswer:
    """Measure attention to the keys of `motifs` before and after other tokens stand at some queries.

    `best_offsets` are those of the motifs of offsets, `units` the unit of each sequence.
    """
    generator = np.random.default_rng(0)
    places = spread(len(inputs), MOST_SEQUENCES)
    habits = Habits(reader, inputs[places], motifs, best_offsets)
    tally = _Tally(reader, motifs, int(units.max()) + 1)
    n_versions = min(MOST_VERSIONS, max(2 if len(places) <= FEW_SEQUENCES else 1, FEW_TOKENS // inputs.n_pos))
    for some in places.split(batch_size):
        batch = inputs[some]
        others = [with_other_tokens(batch, generator, version=version) for version in range(n_versions)]
        versions = [_Version(batch, other, motifs, best_offsets) for other in others]
        before: dict[tuple[_Version, int], Tensor] = {}

        def read(layer: int, pattern: Float[Tensor, "batch head query key"]) -> None:
            habits.add(layer, pattern, batch)  # noqa: B023
            for version in versions:  # noqa: B023
                before[version, layer] = version.attention(layer, pattern, version.keys)  # noqa: B023

        reader.listen_to_patterns(batch.tokens, read)
        for version in versions:
            of_rows = units[some][version.rows[:, 0]]
            groups = batch.tokens[tuple(version.rows.T)] % TOKEN_GROUPS
            tally.count(version.counted.T.double(), of_rows, groups)

            def compare(layer: int, pattern: Float[Tensor, "batch head query key"]) -> None:
                attention = version.attention(layer, pattern, version.keys_after)  # noqa: B023
                tally.add(layer, before[version, layer], attention, of_rows, groups)  # noqa: B023

            reader.listen_to_patterns(version.tokens, compare)
    sums = tally.as_attention()
    return SameAnswer(
        before=sums[0], after=sums[1], counts=tally.counts, by_token=tally.by_group(), runner_up=habits.runner_up,
        apart=habits.apart, by_frequency=habits.by_frequency,
    )  # fmt: skip


class _Version:
    """A batch with other tokens at some queries, whose rows of the pattern are read."""

    def __init__(
        self,
        batch: Inputs,
        other: Replaced,
        motifs: Sequence[Motif],
        best_offsets: Mapping[str, Int64[Tensor, "layer head"]],
    ) -> None:
        self.tokens, self.motifs, self.best_offsets = other.tokens, motifs, best_offsets
        self.rows = (other.alone | other.together).nonzero()
        """The sequence and position of each query that is read `[row, 2]`."""
        sequences, queries = self.rows.T
        self.keys = torch.stack([_pairs(motif, batch, other)[sequences, queries] for motif in motifs])
        """The keys of each motif before `[motif, row, key]`."""
        self.keys_after = self.keys.clone()
        read = dataclasses.replace(batch, tokens=other.tokens)
        for place, motif in enumerate(motifs):
            if motif.asks is False and not motif.by_position:
                after = _pairs(motif, read, other)[sequences, queries]
                both = (self.keys[place].any(-1) & after.any(-1))[:, None]
                self.keys[place], self.keys_after[place] = self.keys[place] & both, after & both
        self.together = other.together[sequences, queries]
        of_offsets = torch.tensor([motif.name in best_offsets for motif in motifs])[:, None]
        self.counted = torch.where(of_offsets, self.together, self.keys.any(-1))
        """The rows that see a key of each motif `[motif, row]`; of a motif of offsets those that are replaced."""

    def attention(
        self, layer: int, pattern: Float[Tensor, "batch head query key"], keys: Bool[Tensor, "motif row key"]
    ) -> Float64[Tensor, "row motif head"]:
        """Return the attention of each row to the keys of each motif; of a motif of offsets to each head's best."""
        sequences, queries = self.rows.to(pattern.device).T
        rows = pattern[sequences, :, queries]  # [row, head, key]
        attention = torch.einsum("rhk,mrk->rmh", rows, keys.to(rows)).double().cpu()
        for place, motif in enumerate(self.motifs):
            if motif.name in self.best_offsets:
                n_pos = pattern.shape[-1]
                at = _keys_at(self.best_offsets[motif.name][layer], n_pos, motif)[:, self.rows[:, 1]].T
                to_key = rows.gather(-1, at.clamp(0, n_pos - 1)[..., None].to(rows.device))[..., 0].double().cpu()
                attention[:, place] = to_key * ((at > 0) & (at < n_pos) & self.together[:, None])
        return attention


class _Tally:
    """The sums of attention before and after, by unit and by the token of the query."""

    def __init__(self, reader: HeadReader, motifs: Sequence[Motif], n_units: int) -> None:
        heads = (reader.n_layers, reader.n_heads)
        self.asks = torch.tensor([bool(motif.asks_token) for motif in motifs])
        self.sums = torch.zeros(2, n_units, len(motifs), *heads, dtype=torch.float64)
        self.total = torch.zeros(len(motifs), *heads, dtype=torch.float64)
        """Attention before, whatever the weights of `sums`."""
        self.counts = torch.zeros(n_units, len(motifs), dtype=torch.float64)
        self.by_token = torch.zeros(2, TOKEN_GROUPS, len(motifs), *heads, dtype=torch.float64)
        self.of_groups = torch.zeros(TOKEN_GROUPS, len(motifs), dtype=torch.float64)

    def count(
        self, counted: Float64[Tensor, "row motif"], units: Int64[Tensor, " row"], groups: Int64[Tensor, " row"]
    ) -> None:
        """Count the rows of each unit, and of each group of tokens."""
        self.counts.index_add_(0, units, counted)
        self.of_groups.index_add_(0, groups, counted)

    def by_group(self) -> Float64[Tensor, "2 token motif layer head"]:
        """Return the mean attention before and after by the group of the query's token."""
        return self.by_token / self.of_groups.clamp(min=1)[..., None, None]

    def add(
        self,
        layer: int,
        before: Float64[Tensor, "row motif head"],
        after: Float64[Tensor, "row motif head"],
        units: Int64[Tensor, " row"],
        groups: Int64[Tensor, " row"],
    ) -> None:
        """Add rows of a layer, by the unit of each and the group of its token."""
        self.total[:, layer] += before.sum(0)
        weights = torch.where(self.asks[:, None], 1.0, before + after)
        for side, attention in enumerate((before, after)):
            self.sums[side][:, :, layer].index_add_(0, units, attention * weights)
            self.by_token[side][:, :, layer].index_add_(0, groups, attention * self.asks[:, None])

    def as_attention(self) -> Float64[Tensor, "2 unit motif layer head"]:
        """Return the sums, scaled so that those before add up to attention, whatever their weights."""
        weighted = self.sums[0].sum(0)
        return self.sums * torch.where(
            weighted > 0, self.total / weighted.clamp(min=torch.finfo(weighted.dtype).tiny), 1.0
        )


class Habits:
    """What tells a motif from a simpler one, over the sequences as they are."""

    def __init__(
        self,
        reader: HeadReader,
        inputs: Inputs,
        motifs: Sequence[Motif],
        best_offsets: Mapping[str, Int64[Tensor, "layer head"]],
    ) -> None:
        self.motifs, self.best_offsets, self.starts = motifs, best_offsets, inputs.starts
        self.sums = torch.zeros(3, len(motifs), reader.n_layers, reader.n_heads, dtype=torch.float64)
        self.counts = torch.zeros(3, len(motifs), reader.n_layers, 1, dtype=torch.float64)
        #: How often the queries that count ask for each class, by motif.
        self.frequencies: dict[int, Float64[Tensor, " class"]] = {}
        for place, motif in enumerate(motifs):
            if motif.classes is not None and motif.asks_token is None and (pairs := _targets(motif, inputs)):
                keys, asked_for, _ = motif.classes(inputs)
                n_classes = int(keys.max()) + 1
                self.frequencies[place] = torch.bincount(asked_for[pairs.queries], minlength=n_classes).double()

    def add(self, layer: int, pattern: Float[Tensor, "batch head query key"], batch: Inputs) -> None:
        """Add the patterns of a batch."""
        for place, motif in enumerate(self.motifs):
            if motif.place and (motif.offsets is None or motif.name in self.best_offsets):
                keys, queries = self._place(motif, layer, pattern, batch)
                if self.starts:
                    keys = keys | (torch.arange(batch.n_pos) == 0)
                largest = pattern.masked_fill(keys.to(pattern.device), 0.0).amax(-1).double().cpu()
                self.sums[0, place, layer] += (largest * queries).sum((0, 2))
                self.counts[0, place, layer] += queries.expand(len(batch), -1, -1)[:, 0].sum()
            if motif.simpler is not None and (pairs := _targets(motif, batch)) is not None:
                keys = pairs.keys & pairs.queries[..., None]
                other = motif.simpler(batch).keys
                counted = keys & ~(keys & other).any(-1, keepdim=True)
                attention = torch.einsum("bhqk,bqk->h", pattern, counted.to(pattern))
                self.sums[1, place, layer] += attention.double().cpu()
                self.counts[1, place, layer] += counted.any(-1).sum()
            if place in self.frequencies and (pairs := _targets(motif, batch)) is not None:
                weights = self._shares(place, motif, batch) * pairs.queries[..., None]
                attention = torch.einsum("bhqk,bqk->h", pattern, weights.to(pattern))
                self.sums[2, place, layer] += attention.double().cpu()
                self.counts[2, place, layer] += pairs.queries.sum()

    def _shares(self, place: int, motif: Motif, batch: Inputs) -> Float64[Tensor, "batch query key"]:
        """How often queries ask for the class of each key, as a share of the classes that a query sees."""
        assert motif.classes is not None
        keys, _, own = motif.classes(batch)
        share = torch.where(keys >= 0, self.frequencies[place][keys.clamp(min=0)], 0.0)
        is_first = (keys[:, :, None] == keys[:, None, :]).tril(-1).any(-1).logical_not()
        seen = torch.ones(batch.n_pos, batch.n_pos, dtype=torch.float64).tril(0 if own else -1)
        total = (share * is_first) @ seen.T  # [batch, query]
        return seen * share[:, None, :] / total.clamp(min=torch.finfo(torch.float64).tiny)[..., None]

    def _place(
        self, motif: Motif, layer: int, pattern: Float[Tensor, "batch head query key"], batch: Inputs
    ) -> tuple[Bool[Tensor, "#batch #head query key"], Bool[Tensor, "#batch #head query"]]:
        if motif.offsets is not None:
            keys = _keys_at(self.best_offsets[motif.name][layer], batch.n_pos, motif)[None, :, :, None]
            pairs = keys == torch.arange(batch.n_pos)
            pairs = pairs & (torch.arange(batch.n_pos) > 0)
            pairs = pairs if batch.later_keys else pairs.tril()
            return pairs, pairs.any(-1).all(1, keepdim=True)
        targets = _targets(motif, batch)
        if targets is None:
            none = torch.zeros(1, 1, batch.n_pos, batch.n_pos, dtype=torch.bool)
            return none, none[..., 0]
        return targets.keys[:1, None], targets.queries[:1, None]

    @property
    def runner_up(self) -> Float64[Tensor, "motif layer head"]:
        return torch.where(self.counts[0] > 0, self.sums[0] / self.counts[0].clamp(min=1), torch.nan)

    @property
    def by_frequency(self) -> Float64[Tensor, "motif layer head"]:
        return torch.where(self.counts[2] > 0, self.sums[2] / self.counts[2].clamp(min=1), torch.nan)

    @property
    def apart(self) -> Float64[Tensor, "motif layer head"]:
        return torch.where(self.counts[1] >= FEWEST_APART, self.sums[1] / self.counts[1].clamp(min=1), torch.nan)


def _targets(motif: Motif, batch: Inputs) -> Targets | None:
    try:
        return motif.targets(batch)
    except Missing:
        return None


def _pairs(motif: Motif, batch: Inputs, other: Replaced) -> Bool[Tensor, "batch query key"]:
    """The pairs of a motif whose queries have another token and whose keys, if those of the query's token, do not."""
    none = torch.zeros(len(batch), batch.n_pos, batch.n_pos, dtype=torch.bool)
    targets = _targets(motif, batch)
    if targets is None:
        return none
    pairs = targets.keys & (targets.queries & (other.alone if motif.asks_token else other.together))[..., None]
    if motif.by_position or motif.asks is False:
        return pairs
    near = other.tokens != batch.tokens
    for _ in range(NEAR):
        near[:, 1:] |= near[:, :-1].clone()
    return pairs & ~near[:, None, :]


def _keys_at(offsets: Int64[Tensor, " head"], n_pos: int, motif: Motif) -> Int64[Tensor, "head query"]:
    """The key of each query at each head's offset, which may lie outside the sequence."""
    query = torch.arange(n_pos)
    return (query.flip(0) if motif.mirrored else query) + offsets[:, None]
