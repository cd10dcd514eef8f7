"""The replacement by an ablation of a head's output z or of its pattern."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aotlens.conventions import ABLATIONS, FROM_OTHERS, Head, require_seed
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.models.weights import double

HOWS = tuple(ABLATIONS)
_PATTERNS = ("uniform", "fixed_pattern")
_MEANS = ("mean", "position_mean", "fixed_pattern")
_BY_POSITION = ("position_mean", "fixed_pattern", "resample")


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
        inputs: Tensor | str | list[str],
        attention_mask: Tensor | None = None,
        targets: Tensor | None = None,
    ) -> Batch:
        """Read a text, texts, one sequence or several, onto the model's device. Raises `ValueError` for no sequence."""
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

    def __getitem__(self, rows: slice) -> Batch:
        parts = (None if part is None else part[rows] for part in (self.attention_mask, self.targets))
        mask, targets = parts
        return Batch(x=self.x[rows], attention_mask=mask, targets=targets)


class Replacement:
    """Runs batches clean and with the heads replaced; `how` as at the head of `aotlens.heads.ablation`."""

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        heads: Sequence[Head],
        how: str,
        batch: Batch,
        reference: Batch | None,
        *,
        seed: int,
        batch_size: int,
    ) -> None:
        if how not in HOWS:
            raise ValueError(f"how={how!r}: expected one of {', '.join(map(repr, HOWS))}.")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: expected at least 1.")
        self.model, self.how, self.batch_size = model, how, batch_size
        self.in_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in heads:
            self.in_layer[layer].append(head)
        self.hook = hook_names.PATTERN if how in _PATTERNS else hook_names.Z
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

    def run(self, part: Batch, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the logits of `part`, which is `rows` of the batch: clean, and with the heads replaced."""
        clean, given, _ = self.clean(part, rows)
        return clean, self.replaced(part, given)

    def clean(
        self, part: Batch, rows: slice, *, streams: bool = False
    ) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
        """Return the clean logits of `part`, which is `rows` of the batch; by layer, what takes the place of its heads;
        and with `streams` the stream before it."""
        before = {hook_names.resid_pre(layer): layer for layer in self.in_layer} if streams else {}
        logits, own, cached = self._clean(part, listen=self.leaves_out, also=tuple(before))
        return logits, self.stand_ins(part, rows, own), {layer: cached[name] for name, layer in before.items()}

    def stand_ins(self, part: Batch, rows: slice, own: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return, by layer, what takes the place of the heads on `part`, which is `rows` of the batch; `own` is what
        they do there, where it is left out of a mean."""
        if self.how == "resample":
            donors = torch.from_numpy(self.donors[rows]).to(self.others.x.device)
            return self._clean(Batch(x=self.others.x[donors]), listen=True)[1]
        if self.how in _MEANS:
            return {layer: self._mean(layer, own.get(layer), part) for layer in self.in_layer}
        return {}

    def replaced(
        self,
        part: Batch,
        given: dict[int, Tensor],
        heads: Collection[Head] | None = None,
        *,
        start: tuple[int, Tensor] | None = None,
    ) -> Tensor:
        """Return the logits with `heads`, all or some of those that were named, replaced by what `clean` gave.

        `start`, a layer and the stream before it, leaves out the layers before.
        """
        hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]] = []
        for layer, numbers in self.in_layer.items():
            chosen = [number for number in numbers if heads is None or (layer, number) in heads]
            if chosen:
                put = self.put(layer, chosen, given.get(layer), part)
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
        for start in range(0, len(self.others), self.batch_size):
            part = self.others[start : start + self.batch_size]
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

    def _placed(self, given: Tensor, part: Batch) -> Tensor:
        """Return what stands at real positions, 0, 1, …, at those of padded sequences."""
        if self.how not in _BY_POSITION or part.attention_mask is None or not part.is_padded:
            return given
        mask = part.attention_mask.to(given.device)
        places, n_heads = (mask.long().cumsum(1) - 1).clamp(min=0), given.shape[1]
        wide = given.expand(len(mask), *given.shape[1:])
        placed = wide.gather(2, places[:, None, :, None].expand(-1, n_heads, -1, wide.shape[3]))
        if self.hook != hook_names.PATTERN:
            return placed
        keys = places[:, None, None].expand(-1, n_heads, placed.shape[2], -1)
        return placed.gather(3, keys) * mask[:, None, None]

    def put(self, layer: int, heads: list[int], given: Tensor | None, part: Batch) -> Callable[..., Tensor]:
        """Return a hook that replaces `heads` of a layer; `given` has all those of the layer that were named."""
        if given is not None and heads != self.in_layer[layer]:
            given = given[:, [self.in_layer[layer].index(head) for head in heads]]
        given = None if given is None else self._placed(given, part)

        def put(activation: Tensor, hook: object) -> Tensor:
            activation = activation.clone()
            by_head = activation if self.hook == hook_names.PATTERN else activation.transpose(1, 2)  # a view
            if self.how == "uniform":
                by_head[:, heads] = self._even(layer, activation, part)[:, heads]
            else:
                by_head[:, heads] = 0.0 if given is None else given.to(activation)
            return activation

        return put

    def _even(self, layer: int, pattern: Tensor, part: Batch) -> Tensor:
        """Each query's attention spread over the keys that it sees."""
        visible = self.model.visible_keys(pattern.shape[-1], part.attention_mask, pattern.device, layer)
        seen = torch.ones_like(pattern) if visible is None else visible.expand_as(pattern).to(pattern.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)
