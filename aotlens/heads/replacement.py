"""The replacement of an output z or pattern of heads (`aotlens.heads.ablation` says by what), and runs without heads:

    with without(model, ["1.0", "1.3"], "mean", reference=windows):
        patterns = attention_patterns(model, text)
        text = model.generate(text, 30, seed=0)

`without` never takes a replacement from the sequences that run but from `reference`, so that a text of which each next
token is drawn has the same one at every step.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import (
    ABLATIONS,
    FROM_OTHERS,
    Head,
    HeadLike,
    Progress,
    all_heads,
    as_heads,
    require_choice,
    require_seed,
    require_whole,
    slices,
)
from aotlens.data import Corpus, Encoding, spread_windows
from aotlens.heads.inputs import Batch
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.weights import double

HOWS = tuple(ABLATIONS)
_PATTERNS = ("uniform", "fixed_pattern")
_MEANS = ("mean", "position_mean", "fixed_pattern")
_BY_POSITION = ("position_mean", "fixed_pattern", "resample")


class Replacement:
    """Runs batches clean and with the heads replaced; `how` as at the head of `aotlens.heads.ablation`."""

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        heads: Sequence[Head],
        how: str,
        batch: Batch,
        reference: Tensor | str | list[str] | Batch | None,
        *,
        seed: int,
        batch_size: int,
    ) -> None:
        require_choice("how", how, HOWS)
        self.model, self.how, self.batch = model, how, batch
        self.batch_size = require_whole("batch_size", batch_size, 1)
        self.in_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in heads:
            self.in_layer[layer].append(head)
        self.hook = hook_names.PATTERN if how in _PATTERNS else hook_names.Z
        reference = None if reference is None else Batch.of(model, reference)
        self.others = batch if reference is None else reference
        self.leaves_out = how in _MEANS and reference is None
        self._check(batch, reference)
        self.sums: dict[int, Tensor] = {}  # [head, position or 1, inner], float64 on the CPU
        self.count: Tensor | float = 0.0  # of positions, or [position]
        if how in _MEANS:
            self._add_up()
        generator = np.random.default_rng(require_seed(seed))
        if how == "resample" and reference is not None:
            self.donors = generator.integers(0, len(reference), len(batch))
        elif how == "resample":  # one cycle through all: nobody gets their own, everybody gives once
            order = generator.permutation(len(batch))
            self.donors = np.empty(len(batch), dtype=np.int64)
            self.donors[order] = np.roll(order, 1)

    def _check(self, batch: Batch, reference: Batch | None) -> None:
        if self.how not in FROM_OTHERS:
            return
        if reference is None and len(batch) < 2:
            raise ValueError(
                f"how={self.how!r}: a single sequence has no others to take a mean or a z from; give several, or "
                "reference=sequences."
            )
        if self.how not in _BY_POSITION:
            return
        if (reference is not None and reference.is_padded) or (batch.is_padded and self.model.sees_later_keys):
            raise ValueError(f"how={self.how!r}: expected sequences of one length, without padding.")
        if batch.is_padded:  # in a causal model the first positions are the same whatever follows
            assert batch.attention_mask is not None
            longest = int(batch.attention_mask.sum(1).max())
            if reference is None and self.how == "resample":
                raise ValueError("how='resample': of padded sequences, expected reference=, sequences without padding.")
            if reference is not None and reference.x.shape[1] < longest:
                raise ValueError(
                    f"reference: expected sequences of at least {longest} positions, the longest of the input, since "
                    f"how={self.how!r} compares positions; got {reference.x.shape[1]}."
                )
            return
        if self.others.x.shape[1:] != batch.x.shape[1:]:
            raise ValueError(
                f"reference: expected sequences of shape {list(batch.x.shape[1:])}, as those of the input, since "
                f"how={self.how!r} compares positions; got {list(self.others.x.shape[1:])}."
            )

    def parts(self, progress: Progress | None = None) -> Iterator[tuple[slice, Batch]]:
        """Yield the rows of each part of the batch, and the part. `progress(done, total)` counts sequences."""
        for rows in slices(len(self.batch), self.batch_size, progress=progress):
            yield rows, self.batch[rows]

    def run(self, part: Batch, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the logits of `part`, which is `rows` of the batch: clean, and with the heads replaced."""
        logits, stand_ins, _ = self.clean(part, rows)
        return logits, self.replaced(part, stand_ins)

    def clean(
        self, part: Batch, rows: slice, *, streams: bool = False
    ) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
        """Return the clean logits of `part`, which is `rows` of the batch; by layer the replacement of its heads; and
        with `streams` the stream before it."""
        before = {hook_names.resid_pre(layer): layer for layer in self.in_layer} if streams else {}
        logits, own, cached = self._clean(part, listen=self.leaves_out, also=tuple(before))
        return logits, self.stand_ins(part, rows, own), {layer: cached[name] for name, layer in before.items()}

    def stand_ins(self, part: Batch, rows: slice, own: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return, by layer, the replacement of the heads on `part`, which is `rows` of the batch; `own` is what they do
        there, where it is left out of a mean."""
        if self.how == "resample":
            donors = torch.from_numpy(self.donors[rows]).to(self.others.x.device)
            return self._clean(Batch(x=self.others.x[donors]), listen=True)[1]
        if self.how in _MEANS:
            return {layer: self._mean(layer, own.get(layer), part) for layer in self.in_layer}
        return {}

    def replaced(
        self,
        part: Batch,
        stand_ins: dict[int, Tensor],
        heads: Collection[Head] | None = None,
        *,
        start: tuple[int, Tensor] | None = None,
    ) -> Tensor:
        """Return the logits with some of the heads (None: all) replaced by what `clean` returned.

        `start`, a layer and the stream before it, leaves out the layers before.
        """
        hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]] = []
        for layer, numbers in self.in_layer.items():
            if numbers := [number for number in numbers if heads is None or (layer, number) in heads]:
                put = self.put(layer, numbers, stand_ins.get(layer), part)
                hooks.append((hook_names.attn(layer, self.hook), put))
        options: dict[str, Any] = {} if start is None else {"start_at_layer": start[0], "resid_pre": start[1]}
        return self.model.run_with_hooks(part.x, attention_mask=part.attention_mask, fwd_hooks=hooks, **options)

    def _clean(
        self, part: Batch, listen: bool, also: tuple[str, ...] = ()
    ) -> tuple[Tensor, dict[int, Tensor], dict[str, Tensor]]:
        """Return logits; heads' z or patterns by layer, `[sequence, head, position, inner]`; and hooks by name."""
        names = {hook_names.attn(layer, self.hook): layer for layer in self.in_layer} if listen else {}
        logits, cache = self.model.run_with_cache(
            part.x, attention_mask=part.attention_mask, names_filter=[*names, *also], return_cache_object=False
        )
        activations = {}
        for name, layer in names.items():
            value = cache[name] if self.hook == hook_names.PATTERN else cache[name].transpose(1, 2)
            activations[layer] = value[:, self.in_layer[layer]]
        return logits, activations, {name: cache[name] for name in also}

    def _own_sums(self, activation: Tensor, part: Batch) -> tuple[Tensor, Tensor]:
        """Each sequence's part in the sums, by real positions (their sum for `"mean"`), and how many it is there."""
        wide = double(activation)
        real = torch.ones(len(wide), wide.shape[2], dtype=torch.float64)
        if part.attention_mask is not None and part.is_padded:
            mask = part.attention_mask.cpu()
            order = mask.byte().argsort(dim=1, descending=True, stable=True)  # real positions first
            real = mask.gather(1, order).double()
            wide = wide.gather(2, order[:, None, :, None].expand_as(wide)) * real[:, None, :, None]
            if self.hook == hook_names.PATTERN:
                wide = wide.gather(3, order[:, None, None].expand_as(wide)) * real[:, None, None]
        if self.how == "mean":
            return wide.sum(2, keepdim=True), real.sum(1, keepdim=True)
        return wide, real

    def _add_up(self) -> None:
        for rows in slices(len(self.others), self.batch_size):
            part = self.others[rows]
            for layer, activation in self._clean(part, listen=True)[1].items():
                sums, counts = self._own_sums(activation, part)
                self.sums[layer] = self.sums.get(layer, 0.0) + sums.sum(0)
            self.count = self.count + counts.sum(0)

    def _mean(self, layer: int, own: Tensor | None, part: Batch) -> Tensor:
        assert isinstance(self.count, Tensor)
        if own is None:
            return (self.sums[layer] / self.count[:, None])[None]
        sums, counts = self._own_sums(own, part)
        others = self.count - counts
        if bool(((others == 0) & (counts > 0)).any()):
            raise ValueError(
                f"how={self.how!r}: the longest sequence reaches positions that no other one has; give "
                "reference=sequences of its length."
            )
        return (self.sums[layer] - sums) / others.clamp(min=1)[:, None, :, None]

    def _placed(self, stand_in: Tensor, part: Batch) -> Tensor:
        """Move a replacement from positions 0, 1, … to the real positions of padded sequences."""
        if self.how not in _BY_POSITION or part.attention_mask is None or not part.is_padded:
            return stand_in
        mask = part.attention_mask.to(stand_in.device)
        places, n_heads = (mask.long().cumsum(1) - 1).clamp(min=0), stand_in.shape[1]
        wide = stand_in.expand(len(mask), *stand_in.shape[1:])
        placed = wide.gather(2, places[:, None, :, None].expand(-1, n_heads, -1, wide.shape[3]))
        if self.hook != hook_names.PATTERN:
            return placed
        keys = places[:, None, None].expand(-1, n_heads, placed.shape[2], -1)
        return placed.gather(3, keys) * mask[:, None, None]

    def put(self, layer: int, heads: list[int], stand_in: Tensor | None, part: Batch) -> Callable[..., Tensor]:
        """Return a hook that replaces `heads` of a layer; `stand_in` is for all of its heads in `in_layer`."""
        if stand_in is not None:
            if heads != self.in_layer[layer]:
                stand_in = stand_in[:, [self.in_layer[layer].index(head) for head in heads]]
            stand_in = self._placed(stand_in, part)

        def put(activation: Tensor, hook: object) -> Tensor:
            activation = activation.clone()
            by_head = activation if self.hook == hook_names.PATTERN else activation.transpose(1, 2)  # a view
            if self.how == "uniform":
                by_head[:, heads] = self._uniform(layer, activation, part)[:, heads]
            else:
                by_head[:, heads] = 0.0 if stand_in is None else stand_in.to(activation)
            return activation

        return put

    def _uniform(self, layer: int, pattern: Tensor, part: Batch) -> Tensor:
        visible = self.model.visible_keys(pattern.shape[-1], part.attention_mask, pattern.device, layer)
        seen = torch.ones_like(pattern) if visible is None else visible.expand_as(pattern).to(pattern.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)


@contextmanager
def without(
    model: AttentionOnlyTransformer,
    heads: HeadLike | Iterable[HeadLike],
    how: str = "zero",
    *,
    reference: Tensor | str | list[str] | None = None,
    seed: int = 0,
    batch_size: int = 8,
) -> Iterator[None]:
    """Leave `heads` out of every run of `model` inside, as `ablate` does with this `how` and `reference`.

    On sequences of the reference's length the logits are those of `ablate`; shorter ones take its first positions,
    which in a causal model are the same whatever follows (`"mean"`, `"zero"` and `"uniform"` take any length). By
    `"resample"`, every sequence gets the z of the same other sequence, which `seed` chooses.

    Runs in other threads keep all their heads. Cost: the runs of the reference, once; then a run costs what it costs
    whole. Raises `ValueError` as `ablate` does, where `how` needs a reference and none is given, and inside for a
    sequence that is longer than the reference's.
    """
    require_ours(model, "without")
    pairs = as_heads(heads, model.cfg)
    switches = HeadSwitches(model, how, reference=reference, heads=pairs, seed=seed, batch_size=batch_size)
    with switches.off(pairs):
        yield


def reference_windows(
    model: AttentionOnlyTransformer, text: str, corpus: Corpus, n_windows: int = 32
) -> Int64[Tensor, "windows pos"]:
    """Return windows of a corpus as long as a text, a `reference` for that text: of the documents held out from the
    model's training, if there are some.

    Raises `ValueError` for a text that the model does not read, and for a corpus without a window of that length.
    """
    require_ours(model, "reference_windows")
    names = corpus.names()
    held_out = () if model.card is None else model.card.held_out(names)
    encoding = Encoding.of(model.tokenizer, causal=not model.sees_later_keys)
    return spread_windows(corpus, held_out or names, encoding, n_windows, model.to_tokens(text).shape[1])


def reference_length(how: str, n_pos: int, n_new: int = 0) -> int:
    """Return the positions that a reference's sequences need for a prompt of `n_pos` tokens that `n_new` follow."""
    return n_pos if how == "mean" else n_pos + n_new


class HeadSwitches:
    """Ablates any of a model's `heads` (by default all), as often as wanted: their replacements are computed once.

    The arguments are those of `without`. Memory: by `"mean"` a vector `[d_head]` a head, by `"position_mean"` and
    `"resample"` `[pos, d_head]`, by `"fixed_pattern"` `[pos, pos]`, in float64.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: AttentionOnlyTransformer,
        how: str = "zero",
        *,
        reference: Tensor | str | list[str] | None = None,
        heads: HeadLike | Iterable[HeadLike] | None = None,
        seed: int = 0,
        batch_size: int = 8,
    ) -> None:
        require_ours(model, "HeadSwitches")
        if how in FROM_OTHERS and reference is None:
            raise ValueError(
                f"how={how!r}: expected reference=, sequences from which to take what replaces a head's output."
            )
        pairs = all_heads(model.cfg) if heads is None else as_heads(heads, model.cfg)
        others = None if reference is None else Batch.of(model, reference)
        first = Batch(x=torch.empty(1, 1)) if others is None else others[:1]
        self._model, self._how = model, how
        self._replacement = Replacement(model, pairs, how, first, others, seed=seed, batch_size=batch_size)
        self._stand_ins = self._replacement.stand_ins(first, slice(0, 1), {})

    @contextmanager
    def off(self, heads: HeadLike | Iterable[HeadLike]) -> Iterator[None]:
        """Leave `heads`, some of those that these switches were made for or none, out of every run of the model inside.

        Raises `ValueError` as `without`, and for other heads.
        """
        in_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in sorted(as_heads(heads, self._model.cfg, at_least=0)):
            if head not in self._replacement.in_layer.get(layer, ()):
                raise ValueError(f"head {layer}.{head}: expected one of the heads that these switches were made for.")
            in_layer[layer].append(head)
        running = threading.local()

        def begin(*args: Any, **options: Any) -> None:
            batch = Batch.of(self._model, args[0] if args else options["x"], options.get("attention_mask"))
            by_position = self._how in FROM_OTHERS and self._how != "mean"
            if batch.is_padded and by_position and self._model.sees_later_keys:
                raise ValueError(f"how={self._how!r}: expected sequences of one length, without padding.")
            running.batch = batch

        def put(layer: int) -> Callable[..., Tensor]:
            def replace(activation: Tensor, hook: object) -> Tensor:
                stand_in = self._fitting(layer, activation)
                return self._replacement.put(layer, in_layer[layer], stand_in, running.batch)(activation, hook)

            return replace

        hooks = [(hook_names.attn(layer, self._replacement.hook), put(layer)) for layer in in_layer]
        with self._model.hooks(fwd_hooks=hooks, before_call=begin):
            yield

    def _fitting(self, layer: int, activation: Tensor) -> Tensor | None:
        """A layer's stand-ins `[1, head, pos or 1, inner]` at the positions of `activation`."""
        stand_in = self._stand_ins.get(layer)
        if stand_in is None or self._how == "mean":
            return stand_in
        by_pattern = self._replacement.hook == hook_names.PATTERN
        n_pos, known = activation.shape[-1] if by_pattern else activation.shape[1], stand_in.shape[2]
        if n_pos > known or (self._model.sees_later_keys and n_pos != known):
            expected = f"of {n_pos}" if self._model.sees_later_keys else f"of at least {n_pos}"
            raise ValueError(
                f"how={self._how!r}: expected reference sequences {expected} positions, as many as run, since it "
                f"compares positions; got {known}."
            )
        return stand_in[:, :, :n_pos, :n_pos] if by_pattern else stand_in[:, :, :n_pos]
