"""The sums over every head's patterns, motif by motif and sequence by sequence, in one pass of the model.

Sequences are kept apart as the units of intervals, or their documents, where these are known: up to `MAX_UNITS` of
them, and more in as many groups (number n in group n mod `MAX_UNITS`), so that memory does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress, slices
from aotlens.heads.inputs import Inputs, Missing
from aotlens.heads.label_rule import units_of_labels
from aotlens.heads.motifs import Motif
from aotlens.heads.reader import HeadReader

MAX_UNITS = 1024
Add = Callable[[int, Float[Tensor, "batch head query key"]], None]


class MotifTally:
    """Give patterns batch by batch (`batch`), then `finish`; `own`, `even`, `others` and `counts` are what scores are
    made of, by unit and motif.

    `others` adds up what each head's mean pattern over the other sequences would score, for motifs of content;
    `by_distance` the attention at each distance. Memory: `[unit, motif, layer, head]` in float64, and for `others` a
    pattern of every head.
    """

    own: Float64[Tensor, "unit motif layer head"]
    """Attention to the motif's keys, summed over queries (a score of the pattern: summed over sequences)."""
    even: Float64[Tensor, "unit motif layer head"]
    """The attention to these keys of uniform attention over the keys that a query sees."""
    others: Float64[Tensor, "unit motif layer head"] | None
    """The attention to these keys of the head's mean pattern over the other sequences; of motifs with classes
    `compared` − `matched` of it, and 0 for motifs of position."""
    counts: Float64[Tensor, "unit motif"]
    """The number of queries (sequences, for a score of the pattern and for offsets)."""
    with_classes: list[int]
    """The motifs that have `classes`; the next three are of these."""
    compared: Float64[Tensor, "unit class_motif layer head"]
    """`own`, over the queries that see another class of as many keys."""
    matched: Float64[Tensor, "unit class_motif layer head"]
    """The mean attention of these queries to such classes."""
    compared_counts: Float64[Tensor, "unit class_motif"]
    """The number of these queries."""
    best_offsets: dict[str, Int64[Tensor, "layer head"]]
    """The offset (key − query) that each head attends to most, of each motif of offsets."""
    reasons: dict[str, str]
    """The reason why a motif has no queries, by its name."""

    def __init__(
        self,
        reader: HeadReader,
        inputs: Inputs,
        motifs: Sequence[Motif],
        *,
        others: bool = False,
        by_distance: bool = False,
        clusters: Int64[np.ndarray, " sequence"] | None = None,
    ) -> None:
        self.reader, self.inputs, self.motifs = reader, inputs, tuple(motifs)
        self.few_documents = clusters is not None and units_of_labels(clusters) is None
        clusters = units_of_labels(clusters)
        self.clustered = clusters is not None
        self.units = (torch.arange(len(inputs)) if clusters is None else torch.from_numpy(clusters)) % MAX_UNITS
        self.n_units = int(self.units.max()) + 1 if len(inputs) else 0
        self.reasons, self.best_offsets, self.others = {}, {}, None
        heads, n_pos = (reader.n_layers, reader.n_heads), inputs.n_pos
        visible = reader.visible_keys(n_pos).double()
        #: Uniform attention, one pattern for all heads or one a head.
        self.even_pattern = visible / visible.sum(-1, keepdim=True).clamp(min=1)
        self.own = torch.zeros(self.n_units, len(self.motifs), *heads, dtype=torch.float64)
        self.even = torch.zeros_like(self.own)
        self.counts = torch.zeros(self.n_units, len(self.motifs), dtype=torch.float64)
        self.with_classes = [index for index, motif in enumerate(self.motifs) if motif.classes is not None]
        self.compared = torch.zeros(self.n_units, len(self.with_classes), *heads, dtype=torch.float64)
        self.matched = torch.zeros_like(self.compared)
        self.compared_counts = torch.zeros(self.n_units, len(self.with_classes), dtype=torch.float64)
        self.content = [
            index for index, motif in enumerate(self.motifs) if motif.mask is not None and not motif.by_position
        ]
        self.total: Tensor | None = None
        if others and (self.content or self.with_classes) and len(inputs) > 1:
            exact = torch.float32 if reader.device.type == "mps" else torch.float64  # MPS has no float64
            self.total = torch.zeros(*heads, n_pos, n_pos, dtype=exact, device=reader.device)
        self.offsets = {
            index: torch.tensor(list(motif.offsets(inputs)), dtype=torch.long)
            for index, motif in enumerate(self.motifs)
            if motif.offsets is not None and inputs.kind in motif.reads
        }
        #: Offsets are chosen on every other sequence and scored on the rest; of one sequence both on itself.
        self.chosen_on = {index: torch.zeros(len(offsets), *heads) for index, offsets in self.offsets.items()}
        self.at_offset = {
            index: torch.zeros(self.n_units, len(offsets), *heads) for index, offsets in self.offsets.items()
        }
        self.by_distance = by_distance
        self.at_distance = torch.zeros(*heads, 2 * n_pos - 1, dtype=torch.float64)
        self.targets_at_distance = torch.zeros(len(self.motifs), 2 * n_pos - 1, dtype=torch.float64)

    def batch(self, batch: Inputs, first: int) -> Add:
        """Return what `HeadReader.listen_to_patterns` calls for `batch`, whose first sequence is number `first`."""
        masks, counts = self._masks(batch, range(len(self.motifs)))
        units = self.units[first : first + len(batch)]
        self.counts.index_add_(0, units, counts.T.double())
        pairs = masks.flatten(2)  # [motif, batch, query · key]
        matched = self._matched(batch, masks)
        self.compared_counts.index_add_(0, units, matched[0].any(-1).sum(-1).T.double())
        matched = [pair.flatten(2) for pair in matched]
        even = torch.einsum("mbp,hp->bmh", pairs.float(), self.even_pattern.flatten(1).float()).double()
        for index, motif in enumerate(self.motifs):
            if motif.score is not None:
                even[:, index] = motif.score(self.even_pattern[None]).double()
        self.even.index_add_(0, units, even[:, :, None].expand(-1, -1, *self.own.shape[2:]).contiguous())
        if self.by_distance:
            self.targets_at_distance += by_distance(masks.float()).double().sum(1)
        weights: Tensor | None = None

        def add(layer: int, pattern: Tensor) -> None:
            nonlocal weights
            if weights is None:
                weights = torch.cat([pairs.float(), *matched]).permute(1, 2, 0).to(pattern)  # [batch, query · key, …]
            sums = torch.bmm(pattern.flatten(2), weights).transpose(1, 2).double().cpu()
            sums, compared, shares = sums.split([len(pairs), *map(len, matched)], 1)  # each [batch, motif, head]
            self.compared[:, :, layer].index_add_(0, units, compared)
            self.matched[:, :, layer].index_add_(0, units, shares)
            for index, motif in enumerate(self.motifs):
                if motif.score is not None:
                    sums[:, index] = motif.score(pattern).double().cpu()
            self.own[:, :, layer].index_add_(0, units, sums)
            if self.by_distance or self.offsets:
                self._add_distances(layer, pattern, units, first)
            if self.total is not None:
                self.total[layer] += pattern.sum(0).to(self.total)

        return add

    def _matched(
        self, batch: Inputs, masks: Bool[Tensor, "motif batch query key"]
    ) -> list[Float[Tensor, "class_motif batch query key"]]:
        """Return for each motif with classes its targets, for queries that see another class of as many keys, and the
        weights that take such classes' mean share."""
        targets, weights = torch.zeros(2, len(self.with_classes), len(batch), batch.n_pos, batch.n_pos)
        for place, index in enumerate(self.with_classes):
            classes = self.motifs[index].classes
            if classes is None or not masks[index].any():
                continue
            matched = classes(batch).matched()
            queries = (masks[index].any(-1) & (matched > 0).any(-1))[..., None]
            targets[place], weights[place] = masks[index] & queries, matched * queries
        return [targets, weights]

    def _add_distances(
        self, layer: int, pattern: Float[Tensor, "batch head query key"], units: Tensor, first: int
    ) -> None:
        attention = by_distance(pattern)
        if self.by_distance:
            self.at_distance[layer] += attention.sum(0).double().cpu()
        for index in self.offsets:
            at_offsets = self._at_offsets(index, pattern, attention).transpose(1, 2).float().cpu()
            chooses = (torch.arange(first, first + len(at_offsets)) % 2 == 0) & (len(self.inputs) > 1)
            scored = ~chooses
            self.chosen_on[index][:, layer] += at_offsets[chooses if len(self.inputs) > 1 else scored].sum(0)
            self.at_offset[index][:, :, layer].index_add_(0, units[scored], at_offsets[scored])

    def _at_offsets(
        self,
        index: int,
        pattern: Float[Tensor, "*rows query key"],
        attention: Float[Tensor, "*rows distance"] | None = None,
    ) -> Float[Tensor, "*rows offset"]:
        """Attention at each offset of a motif, summed over queries, without that to key 0. `attention` is that at each
        distance, if it is known."""
        offsets = self.offsets[index]
        if self.motifs[index].mirrored:
            pattern, attention = pattern.flip(-2), None
        if attention is None:
            attention = by_distance(pattern)
        to_first = torch.where(offsets <= 0, 1.0, 0.0).to(pattern) * pattern[..., offsets.clamp(max=0).abs(), 0]
        return attention[..., (offsets + self.inputs.n_pos - 1).to(attention.device)] - to_first

    def _masks(
        self, batch: Inputs, indices: Sequence[int]
    ) -> tuple[Bool[Tensor, "motif batch query key"], Int64[Tensor, "motif batch"]]:
        """The pairs of some motifs, and how many queries of each sequence count; notes why a motif has none."""
        masks = torch.zeros(len(indices), len(batch), batch.n_pos, batch.n_pos, dtype=torch.bool)
        counts = torch.zeros(len(indices), len(batch), dtype=torch.int64)
        for place, index in enumerate(indices):
            motif = self.motifs[index]
            if batch.kind not in motif.reads:
                self.reasons[motif.name] = f"it is about {' and '.join(motif.reads)}, and this model reads {batch.kind}"
                continue
            try:
                targets = motif.targets(batch)
            except Missing as error:
                self.reasons[motif.name] = str(error)
                continue
            if targets is None:
                counts[place] = int(motif.score is not None)
                continue
            keys, queries = targets
            masks[place] = keys & queries[..., None]
            counts[place] = queries.sum(-1)
        return masks, counts

    def read(self, batch_size: int = 8, progress: Progress | None = None) -> None:
        """Run all sequences, and finish. `progress(done, total)` counts sequences."""
        for rows in slices(len(self.inputs), batch_size, progress=progress):
            batch = self.inputs[rows]
            self.reader.listen_to_patterns(batch.tokens, self.batch(batch, rows.start))
        self.finish(batch_size)

    def finish(self, batch_size: int = 8) -> None:
        """Find, after the last batch, each head's best offset, and what mean patterns would score."""
        for index, offsets in self.offsets.items():
            if len(offsets):
                self._choose_offset(index, offsets)
            else:
                self.reasons[self.motifs[index].name] = f"sequences of {self.inputs.n_pos} tokens are too short for one"
        if self.total is not None:
            self.others, of_content = torch.zeros_like(self.own), [*self.content, *self.with_classes]
            for start in range(0, len(self.inputs), batch_size):
                batch = self.inputs[start : start + batch_size]
                masks = self._masks(batch, range(len(self.motifs)))[0]
                targets, weights = self._matched(batch, masks)
                pairs = torch.cat([masks[self.content].float(), targets - weights]).flatten(2).to(self.total.device)
                sums = torch.einsum("mbp,lhp->bmlh", pairs, self.total.flatten(2).float()).double().cpu()
                units = self.units[start : start + len(batch)]
                for place, index in enumerate(of_content):
                    self.others[:, index].index_add_(0, units, sums[:, place])
            own = torch.cat([self.own[:, self.content], self.compared - self.matched], 1)
            self.others[:, of_content] = (self.others[:, of_content] - own) / (len(self.inputs) - 1)
        for motif, n in zip(self.motifs, self.counts.sum(0).tolist(), strict=True):
            if n == 0:
                self.reasons.setdefault(motif.name, "no query of these sequences sees such a key")

    def _choose_offset(self, index: int, offsets: Int64[Tensor, " offset"]) -> None:
        """The offset with the most attention of the queries that see such a key, over the sequences that choose."""
        seen = torch.ones(self.inputs.n_pos, self.inputs.n_pos, dtype=torch.float64)
        n_queries = self._at_offsets(index, seen if self.inputs.later_keys else seen.tril())
        choice = (self.chosen_on[index].double() / n_queries[:, None, None]).argmax(0)  # of [offset, layer, head]
        share = self.at_offset[index].double() / n_queries[:, None, None]  # [unit, offset, layer, head]
        even = self._at_offsets(index, self.even_pattern) / n_queries  # [head, offset]
        even = even.expand(choice.shape[1], -1).gather(1, choice.T).T  # [layer, head]
        scored = self.units[1::2] if len(self.inputs) > 1 else self.units
        n_sequences = torch.bincount(scored, minlength=self.n_units).double()
        self.counts[:, index] = n_sequences
        self.own[:, index] = share.gather(1, choice.expand(len(share), 1, -1, -1))[:, 0]
        self.even[:, index] = even * n_sequences[:, None, None]
        self.best_offsets[self.motifs[index].name] = offsets[choice]


def by_distance(pairs: Float[Tensor, "*rows query key"]) -> Float[Tensor, "*rows distance"]:
    """Sum over the pairs at each distance: place key − query + n − 1 of 2n − 1."""
    n_pos = pairs.shape[-1]
    # Each row, moved right by n − 1 − query: a padded row is one longer than the row of the view that it becomes.
    rows = torch.nn.functional.pad(pairs.flip(-2), (0, n_pos)).flatten(-2)[..., : n_pos * (2 * n_pos - 1)]
    return rows.unflatten(-1, (n_pos, 2 * n_pos - 1)).sum(-2)
