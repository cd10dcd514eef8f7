"""A model without some of its heads, for whatever it is asked: patterns, losses, predictions, a continuation.

    with without(model, ["1.0", "1.3"], "mean", reference=windows):
        patterns = attention_patterns(model, text)
        text = model.generate(text, 30, seed=0)

What takes a head's place is explained in `aotlens.heads.ablation`. Here it never comes from the sequences that run
themselves but from `reference`, so that a text of which each next token is drawn has the same stand-in at every step.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import FROM_OTHERS, HeadLike, as_heads
from aotlens.data import Corpus, Encoding, spread_windows
from aotlens.heads.replacement import Batch, Replacement
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours


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
    """Switches any of a model's `heads` (by default all) off, as often as wanted: what stands in for them is kept.

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
        cfg = model.cfg
        every = [(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
        pairs = every if heads is None else as_heads(heads, cfg)
        others = Batch(x=torch.empty(1, 1)) if reference is None else Batch.of(model, reference)
        self._model, self._how = model, how
        self._replacement = Replacement(
            model, pairs, how, others[:1], None if reference is None else others, seed=seed, batch_size=batch_size
        )
        self._stand_ins = self._replacement.stand_ins(others[:1], slice(0, 1), {})

    @contextmanager
    def off(self, heads: HeadLike | Iterable[HeadLike]) -> Iterator[None]:
        """Leave `heads`, each of them one that is switched here, out of every run of the model inside; none is none.

        Raises `ValueError` as `without`, and for heads that were not prepared.
        """
        wanted = as_heads(heads, self._model.cfg, at_least=0)
        in_layer: dict[int, list[int]] = defaultdict(list)
        for layer, head in sorted(wanted):
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
                given = self._fitting(layer, activation)
                return self._replacement.put(layer, in_layer[layer], given, running.batch)(activation, hook)

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
