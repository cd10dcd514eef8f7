"""What one prompt's prediction loses without a head, a path, or one edge between two heads.

**Edges.** The result checks what is frozen in a score or a virtual head by what is not. The receiver reads the stream
three times, for queries, keys and values. Here one of the three, of that head alone, is computed from the stream less
r, the source's result less what replaces it, at all positions; layers up to the receiver keep their clean outputs, MLPs
too, and everything after it runs again. This is direct path patching (Wang et al. 2022; TransformerLens's
`get_act_patch_direct_path` with `how="resample"`).

With the receiver's norm "recomputed", its scale is that of the stream less r. "frozen" keeps the clean 1/s, and r is
still centred and gained: then clean − patched is exactly the term of r. For a query or key, `how="zero"` takes off the
raw score what `by_head_pair` has for pairs whose last head on that side is the source; for a value, the result loses
P (C r / s · V) W_O, whose read-out with the clean final scale is `by_virtual_head`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, as_head, require_choice, signed
from aotlens.heads.inputs import Batch
from aotlens.heads.replacement import Replacement
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.paths.expansion import PathExpansion
from aotlens.paths.intervention import without_head, without_path
from aotlens.paths.path import Path, end_words
from aotlens.paths.target import Target
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

_LIKELIEST = 5
_QUANTITIES = {
    "logit": "{end}",
    "probability": "probability of {first}",
    "loss": "loss on {next}, which came",
    "mean_loss": "mean loss of the whole text",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RemovalEffect(Result):
    """A logit, its token's probability, and losses: of the model, and without a head or a path in two ways.

    One entry a quantity; see `Intervention` for what `forward` and `linear` are.
    """

    without: str
    """The part that is missing: head 1.0, or a path as a sentence."""
    position: int
    target: int | tuple[int, int]
    quantities: tuple[str, ...]
    """logit, probability, loss, mean_loss: those that there are."""
    names: tuple[str, ...]
    """The quantities with the tokens that they are of."""
    units: tuple[str, ...]
    """The unit of each quantity: logits, probability or nats."""
    clean: Float64[np.ndarray, " quantity"]
    forward: Float64[np.ndarray, " quantity"]
    linear: Float64[np.ndarray, " quantity"]
    before: tuple[tuple[str, float], ...]
    """The likeliest outputs of the model at the position, and their probabilities."""
    after: tuple[tuple[str, float], ...]
    """The predictions of a forward pass without it."""

    @property
    def reversed(self) -> bool:
        """Whether the logit moves the other way in a forward pass than by the linear estimate, either by .005 logits or
        more: patterns of later heads, or scales of norms, outweigh the term itself."""
        forward, linear = float(self.forward[0] - self.clean[0]), float(self.linear[0] - self.clean[0])
        return forward * linear < 0 and min(abs(forward), abs(linear)) >= 0.005

    @property
    def headline(self) -> str:
        logits = f"without {self.without}: {self.names[0]} {self.clean[0]:+.3f} → {self.forward[0]:+.3f} logits"
        return f"{logits}, {self.linear[0]:+.3f} by the linear estimate"

    def sentences(self) -> str:
        """Return the logit without it; and why the forward pass and the linear estimate have different signs."""
        if not self.reversed:
            return super().sentences()
        own, change = self.clean[0] - self.linear[0], self.forward[0] - self.clean[0]
        return (
            f"{super().sentences()} It adds {signed(own)} itself, and without it the logit "
            f"{'rises' if change > 0 else 'falls'} by {abs(change):.3f} all the same: later heads look elsewhere "
            "without it, and norms rescale, which the linear estimate holds as they were."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a quantity: quantity, name, unit, clean, forward, linear."""
        columns = ("clean", "forward", "linear")
        labels = {"quantity": self.quantities, "name": self.names, "unit": self.units}
        return data_frame(labels | {name: getattr(self, name) for name in columns})


@torch.no_grad()
def effect_without(
    expansion: PathExpansion, removed: HeadLike | Path, position: int = -1, target: Target = None
) -> RemovalEffect:
    """Run the prompt without a head (`without_head`) or a path (`without_path`), and say what that does at `position`.

    `target` is an output, or (token, versus), the first's logit minus the second's, or None for the model's first
    choice. Raises `ValueError` as these do, and for a missing position or output.
    """
    place, target = expansion.aimed(position, target)
    if isinstance(removed, Path):
        run, name = without_path(expansion, removed), expansion.describe(removed, target)
    else:
        run = without_head(expansion, removed)
        layer, head = run.without  # type: ignore[misc]
        name = f"head {layer}.{head}"
    frame = run.to_frame(place, target)
    fields = {
        "end": end_words(expansion.model, target),
        "first": expansion.token_name(target[0] if isinstance(target, tuple) else target),
        "next": expansion.token_name(expansion.tokens[place + 1]) if place + 1 < len(expansion.tokens) else "",
    }

    def likeliest(logits: torch.Tensor) -> tuple[tuple[str, float], ...]:
        best = logits.softmax(-1).topk(min(_LIKELIEST, logits.numel()))
        tokens = [expansion.output_text(token) for token in best.indices.tolist()]
        return tuple(zip(tokens, best.values.tolist(), strict=True))

    return RemovalEffect(
        without=name, position=place, target=target, quantities=tuple(frame.index), units=tuple(frame["unit"]),
        names=tuple(_QUANTITIES[quantity].format(**fields) for quantity in frame.index),
        before=likeliest(run.clean[place]), after=likeliest(run.forward[place]),
        **{name: frame[name].to_numpy(dtype=float, copy=True) for name in ("clean", "forward", "linear")},
    )  # fmt: skip


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
    require_choice("side", side, _HOOKS)
    require_choice("norm", norm, ("recomputed", "frozen"))
    if side != "v" and not model.cfg.has_query_key:
        raise ValueError(f"side={side!r}: a model with phi={model.cfg.phi!r} has no queries or keys; use side='v'.")
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
        stand_ins = replacement.stand_ins(self.batch, slice(0, 1), {})
        seen: list[Tensor] = []
        put = replacement.put(layer, list(heads), stand_ins.get(layer), self.batch)
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
