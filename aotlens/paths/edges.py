"""One edge between two heads taken out: what is frozen in a score or a virtual head, checked by what is not.

The receiver reads the stream three times, for queries, keys and values. Here one of the three, of that head alone, is
computed from the stream less r, the source's result less what replaces it, at all positions; layers up to the receiver
keep their clean outputs, MLPs too, and everything after it runs again. This is direct path patching (Wang et al. 2022;
TransformerLens's `get_act_patch_direct_path` with `how="resample"`).

With the receiver's norm "recomputed", its scale is that of the stream less r. "frozen" keeps the clean 1/s, and r is
still centred and gained: then clean − patched is exactly the term of r. For a query or key, `how="zero"` takes off the
raw score what `by_head_pair` has for pairs whose last head on that side is the source; for a value, the result loses
P (C r / s · V) W_O, whose read-out with the clean final scale is `by_virtual_head`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, as_head
from aotlens.heads.replacement import Batch, Replacement
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.results import Result

_HOOKS = {"q": hook_names.Q, "k": hook_names.K, "v": hook_names.V}
_Edge: TypeAlias = tuple[Head, Head]


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgePatch(Result):
    """A prompt with one direct edge between two heads taken out of the receiver's queries, keys or values."""

    source: Head
    destination: Head
    side: Literal["q", "k", "v"]
    how: str
    norm: Literal["recomputed", "frozen"]
    clean_scores: Float[Tensor, "query key"] | None
    """The receiver's, nats, −∞ where hidden; None for a φ without scores."""
    patched_scores: Float[Tensor, "query key"] | None
    clean_pattern: Float[Tensor, "query key"]
    patched_pattern: Float[Tensor, "query key"]
    clean_result: Float[Tensor, "pos d_model"]
    """The output of the receiver, without b_O."""
    patched_result: Float[Tensor, "pos d_model"]
    clean: Float[Tensor, "*pos out"]
    """The model's own logits."""
    patched: Float[Tensor, "*pos out"]
    """The model's logits with everything after the receiver run again."""

    @property
    def headline(self) -> str:
        edge = "{}.{} → {}.{}".format(*self.source, *self.destination)
        change = float((self.patched - self.clean).abs().max())
        return f"without {edge} ({self.side}) the largest change of a logit is {change:.3f}"


@torch.no_grad()
def patch_edge(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    source_head: HeadLike,
    destination_head: HeadLike,
    side: str = "q",
    how: str = "zero",
    *,
    norm: str = "recomputed",
    reference: Tensor | str | list[str] | None = None,
    seed: int = 0,
) -> EdgePatch:
    """Take the direct edge from one head to a later one out of the receiver's `side`, "q", "k" or "v", on one prompt.

    `how` says what takes the place of the source's result, and `reference` where it comes from, as in
    `aotlens.heads.ablate`; `norm` is "recomputed" or "frozen", as at the head of this module. Two forward passes (three
    with a `how` that takes other sequences); leaves no hook behind.

    Raises `ValueError` for heads that are not in increasing layers, another side, how or norm, a batch, queries or keys
    of a model that has none, and as `ablate` does.
    """
    (patch,) = patch_edges(
        model, tokens, [(source_head, destination_head)], side, how, norm=norm, reference=reference, seed=seed
    )
    return patch


@torch.no_grad()
def patch_edges(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    edges: Iterable[tuple[HeadLike, HeadLike]] | None = None,
    side: str = "q",
    how: str = "zero",
    *,
    norm: str = "recomputed",
    reference: Tensor | str | list[str] | None = None,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> tuple[EdgePatch, ...]:
    """Apply `patch_edge` to many edges, each by itself, or (None) to all pairs of heads in different layers.

    Edges into one layer run in batches of `batch_size` rows, from that layer on. `progress(done, total)` counts edges.
    Memory: the logits of each edge. Raises `ValueError` as `patch_edge` does.
    """
    require_ours(model, "patch_edge", without=("norm_after", "norm_output"))
    _check(model, side, norm)
    inputs = model.to_prompt(tokens, "patch_edge")
    pairs = _checked_edges(model, edges)
    clean = _Clean(model, inputs, pairs, Replaced(model, inputs, how, reference, seed))
    patches: dict[int, EdgePatch] = {}
    by_layer: dict[int, list[int]] = {}
    for i, (_, (layer, _)) in enumerate(pairs):
        by_layer.setdefault(layer, []).append(i)
    for layer, numbers in by_layer.items():
        for start in range(0, len(numbers), batch_size):
            part = numbers[start : start + batch_size]
            results = clean.without(layer, [pairs[i] for i in part], side, norm)
            patches.update(zip(part, (EdgePatch(how=how, **fields) for fields in results), strict=True))
            if progress is not None:
                progress(len(patches), len(pairs))
    return tuple(patches[i] for i in range(len(pairs)))


class Replaced:
    """The z of heads with what takes its place."""

    def __init__(self, model: AttentionOnlyTransformer, inputs: Tensor, how: str, reference: Any, seed: int) -> None:
        self.model, self.how, self.seed = model, how, seed
        self.batch = Batch(x=inputs)
        self.others = None if reference is None else Batch.of(model, reference)

    def z(self, layer: int, heads: Sequence[int], stream: Tensor) -> Tensor:
        """Return `[pos, head, d_head]` of a layer with these heads replaced, given the clean stream before it."""
        options: dict[str, Any] = {"seed": self.seed, "batch_size": 1}
        places = [(layer, head) for head in heads]
        replacement = Replacement(self.model, places, self.how, self.batch, self.others, **options)
        given = replacement.stand_ins(self.batch, slice(0, 1), {})
        seen: list[Tensor] = []
        put = replacement.put(layer, list(heads), given.get(layer), self.batch)
        hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]] = [
            (hook_names.attn(layer, replacement.hook), put),
            (hook_names.attn(layer, hook_names.Z), lambda z, hook: seen.append(z[0])),
        ]
        start: dict[str, Any] = {"start_at_layer": layer, "resid_pre": stream}
        self.model.run_with_hooks(self.batch.x, return_type=None, fwd_hooks=hooks, **start)
        return seen[0]


class _Clean:
    """The clean pass, and what every source loses."""

    def __init__(self, model: AttentionOnlyTransformer, inputs: Tensor, pairs: Sequence[_Edge], by: Replaced) -> None:
        self.model, self.inputs = model, inputs
        sources: dict[int, list[int]] = {}
        for (layer, head), _ in pairs:
            if head not in sources.setdefault(layer, []):
                sources[layer].append(head)
        names = {hook_names.attn(layer, hook_names.Z) for layer in sources}
        names |= {hook_names.resid_pre(layer) for layer in sources}
        for _, (layer, _) in pairs:
            names |= {hook_names.resid_pre(layer), hook_names.norm_scale(layer), hook_names.attn(layer, hook_names.Z)}
            names |= {hook_names.attn(layer, name) for name in (hook_names.SCORES, hook_names.PATTERN)}
        self.logits, self.cache = model.run_with_cache(
            inputs, names_filter=lambda name: name in names, return_cache_object=False
        )
        self.lost: dict[Head, Tensor] = {}
        for layer, heads in sources.items():
            replaced = by.z(layer, heads, self.cache[hook_names.resid_pre(layer)])
            z = self.cache[hook_names.attn(layer, hook_names.Z)][0]
            for head in heads:
                self.lost[layer, head] = (z[:, head] - replaced[:, head]) @ model.of_head("W_O", (layer, head))

    def without(self, layer: int, pairs: Sequence[_Edge], side: Any, norm: Any) -> Iterable[dict[str, Any]]:
        """The fields of each edge into `layer`, each a row of one batch."""
        model, block, n = self.model, self.model.blocks[layer], len(pairs)
        stream = self.cache[hook_names.resid_pre(layer)]
        lost = torch.stack([self.lost[source] for source, _ in pairs])
        if norm == "frozen":
            scale = self.cache.get(hook_names.norm_scale(layer), 1.0)
            read = block.ln1(stream) - folded_norm(model, layer).read(lost, scale).to(stream.dtype)
        else:
            read = block.ln1(stream - lost)
        if side != "v" and model.cfg.positions == "qk":
            read = read + model.W_pos[: stream.shape[1]]
        heads = [head for _, (_, head) in pairs]
        weight, bias = getattr(block.attn, f"W_{side.upper()}")[heads], getattr(block.attn, f"b_{side.upper()}")
        new = read @ weight
        (new,) = block.attn.clipped(new if bias is None else new + bias[heads][:, None])

        def put(activation: Tensor, hook: object) -> Tensor:
            activation = activation.clone()
            activation[range(n), :, heads] = new
            return activation

        seen: dict[str, Tensor] = {}
        hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]] = [(hook_names.attn(layer, _HOOKS[side]), put)]
        for name in (hook_names.SCORES, hook_names.PATTERN, hook_names.Z):
            hooks.append((hook_names.attn(layer, name), lambda x, hook, name=name: seen.update({name: x})))
        rows = self.inputs.expand(n, *self.inputs.shape[1:])
        start: dict[str, Any] = {"start_at_layer": layer, "resid_pre": stream.expand(n, -1, -1)}
        logits = model.run_with_hooks(rows, fwd_hooks=hooks, **start)
        own = {name: self.cache.get(hook_names.attn(layer, name)) for name in (hook_names.SCORES, hook_names.PATTERN)}
        own_z = self.cache[hook_names.attn(layer, hook_names.Z)][0]
        for row, (source, (_, head)) in enumerate(pairs):
            scores = own[hook_names.SCORES]
            yield {
                "source": source,
                "destination": (layer, head),
                "side": side,
                "norm": norm,
                "clean_scores": None if scores is None else scores[0, head],
                "patched_scores": None if scores is None else seen[hook_names.SCORES][row, head],
                "clean_pattern": own[hook_names.PATTERN][0, head],
                "patched_pattern": seen[hook_names.PATTERN][row, head],
                "clean_result": own_z[:, head] @ block.attn.W_O[head],
                "patched_result": seen[hook_names.Z][row, :, head] @ block.attn.W_O[head],
                "clean": self.logits[0],
                "patched": logits[row],
            }


def _check(model: AttentionOnlyTransformer, side: str, norm: str) -> None:
    if side not in _HOOKS:
        raise ValueError(f"side={side!r}: expected 'q', 'k' or 'v'.")
    if norm not in ("recomputed", "frozen"):
        raise ValueError(f"norm={norm!r}: expected 'recomputed' or 'frozen'.")
    if side != "v" and not model.cfg.has_query_key:
        raise ValueError(f"side={side!r}: a model with phi={model.cfg.phi!r} has no queries or keys; use side='v'.")


def _checked_edges(model: AttentionOnlyTransformer, edges: Iterable[tuple[HeadLike, HeadLike]] | None) -> list[_Edge]:
    if edges is None:
        n_layers, heads = model.cfg.n_layers, range(model.cfg.n_heads)
        layers = [(earlier, later) for later in range(n_layers) for earlier in range(later)]
        return [((earlier, a), (later, b)) for earlier, later in layers for a in heads for b in heads]
    pairs = [(as_head(source, model.cfg), as_head(destination, model.cfg)) for source, destination in edges]
    for source, destination in pairs:
        if source[0] >= destination[0]:
            raise ValueError(
                f"patch_edge: expected a source in an earlier layer than its destination, got {source} → {destination}."
            )
    return pairs
