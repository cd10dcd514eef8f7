"""A model with some heads replaced by their FFNs, and what that costs, head by head and cumulatively.

The FFN reads x at the attention layer's input and its ẑ replaces the head's z, so that the layer writes Σ over the
other heads of z W_O + Σ over the replaced ones of ẑ W_O + b_O. Patterns are still computed, and shown to listeners,
but a replaced head's no longer matters. A later head's FFN reads the stream as the earlier ones have left it.

**Costs.** *nonlinearity-in-attention*, Remark 4.1, offers the error of a head's FFN as "a possible selection standard
to determine which heads can be substituted". Here heads are replaced one by one, and more and more of them in the order
of their error, compared with the reverse order, random orders, and zero and mean ablation of the same heads.

The cost is the change of the mean next-token loss, in nats a token; for a model that sees later tokens, whose loss has
no meaning on unmasked text, the mean Kullback–Leibler divergence KL(p ‖ p̂) of its predictions from the full model's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, as_head, require_seed, require_whole
from aotlens.distill.heads.result import Distillation
from aotlens.distill.heads.scaling import group_by_layer
from aotlens.heads.reader import HeadReader, Hooks, Model, TokenSequences
from aotlens.results import Result, data_frame
from aotlens.statistics import rank_correlation

if TYPE_CHECKING:
    import pandas as pd


AnyModel = TypeVar("AnyModel", bound=Model)
#: ẑ `[batch, pos, d_head]` of a head from its layer's input x `[batch, pos, d_model]`.
Replacement = Callable[[Head, Float[Tensor, "batch pos d_model"]], Float[Tensor, "batch pos d_head"]]


def substitute(
    model: AnyModel,
    distillation: Distillation,
    heads: HeadLike | Iterable[HeadLike] | None = None,
    *,
    width: int | None = None,
    seed: int | None = None,
) -> AnyModel:
    """Return a copy of the model with the FFNs of `heads` (all that were distilled, for None) in the heads' places.

    It takes hooks, `run_with_cache` and everything else as the model does: a listener at `hook_z` sees ẑ, and
    `reset_hooks` leaves the FFNs in place. `width` is needed where several were distilled; `seed` None takes the one
    that did best on validation text. FFNs are no parameters: gradients flow through them to x, not into them.

    Raises `ValueError` for a width, seed or head that was not distilled, and for a distillation of another model (by
    its name, where both have one, or by its shape). Memory: a second model.
    """
    changed = copy.deepcopy(model)
    for name, function in replacement_hooks(changed, *_ffns(model, distillation, heads, width, seed)):
        assert isinstance(name, str)
        changed.hook_dict[name].add_hook(function, is_permanent=True)
    return changed


def substitution_hooks(
    model: Model,
    distillation: Distillation,
    heads: HeadLike | Iterable[HeadLike] | None = None,
    *,
    width: int | None = None,
    seed: int | None = None,
) -> Hooks:
    """Return the hooks that do the same as `substitute` for one run: `model.run_with_hooks(tokens,
    fwd_hooks=substitution_hooks(model, distillation))`."""
    return replacement_hooks(model, *_ffns(model, distillation, heads, width, seed))


def _ffns(
    model: Model,
    distillation: Distillation,
    heads: HeadLike | Iterable[HeadLike] | None,
    width: int | None,
    seed: int | None,
) -> tuple[Sequence[Head], Replacement]:
    reader = HeadReader.of(model)
    replaced = distillation.heads if heads is None else reader.require_heads(heads)
    width = distillation.hidden[distillation.width_index(width)]
    weights = distillation.ffns(width)
    if (weights.b_out.shape[2], distillation.mean_z.shape[1]) != (reader.d_head, reader.d_head) or max(
        distillation.heads
    ) >= (reader.n_layers, 0):
        raise ValueError(
            f"the distillation is of heads of size {weights.b_out.shape[2]} up to layer {max(distillation.heads)[0]}; "
            f"this model has size {reader.d_head} and layers 0–{reader.n_layers - 1}."
        )
    own = getattr(getattr(model, "card", None), "name", "") or ""
    if own and distillation.model_name and own != distillation.model_name:
        raise ValueError(
            f"the distillation is of {distillation.model_name}, and this model is {own}: another model's networks mean "
            "nothing here. If they are the same model, say so: dataclasses.replace(distillation, model_name='')."
        )
    places = {head: distillation.place(head) for head in replaced}
    seeds = {head: distillation.seed_index(head, width, seed) for head in replaced}

    def replace(head: Head, x: Tensor) -> Tensor:
        return weights(places[head], seeds[head], x)

    return replaced, replace


def replacement_hooks(model: Model, heads: Sequence[Head], replacement: Replacement) -> Hooks:
    """Return hooks that put `replacement(head, x)` in the place of each head's z."""
    reader = HeadReader.of(model)
    heads = reader.require_heads(heads)
    hooks: Hooks = []
    for layer, places in group_by_layer(heads).items():
        held: dict[str, Tensor] = {}

        def take(value: Tensor, hook: object, layer: int = layer, held: dict[str, Tensor] = held) -> None:
            held["x"] = reader.as_input(layer, value)

        def put(
            z: Tensor, hook: object, members: Sequence[Head] = heads[places], held: dict[str, Tensor] = held
        ) -> Tensor:
            x = held.pop("x")
            z = z.clone()
            for head in members:
                z[:, :, head[1]] = replacement(head, x).to(z.dtype)
            return z

        hooks += [(reader.input_name(layer), take), (reader.z_name(layer), put)]
    return hooks


def token_errors(
    model: Model,
    distillation: Distillation,
    tokens: TokenSequences,
    head: HeadLike,
    *,
    width: int | None = None,
    seed: int | None = None,
) -> tuple[Float[Tensor, "batch pos"], Float[Tensor, "batch pos"]]:
    """Return (‖y − ŷ‖², ‖y − ȳ‖²) of one head at every position: where its FFN fails, and by how much the head moves
    there.

    y is the head's result, or its z, as the distillation's target. `tokens` are ids `[batch, pos]`, a text, or texts of
    equally many tokens.
    """
    reader = HeadReader.of(model)
    layer, number = head = as_head(head, reader)
    x, z = reader.read(reader.require_ids(tokens), [layer])[layer]
    with torch.no_grad():
        own = z[:, :, number]
        guess = distillation.predict_z(head, x, width=width, seed=seed)
        differences: list[Any] = [own - guess, own - distillation.mean_z[distillation.place(head)].to(own)]
        if distillation.settings.target == "result":
            differences = [difference @ reader.W_O(layer)[number] for difference in differences]
        error, scale = (difference.square().sum(-1).cpu() for difference in differences)
    return error, scale


KINDS = ("ffn", "mean", "zero")


@dataclass(frozen=True, kw_only=True, eq=False)
class SubstitutionCosts(Result):
    """Costs in nats a token (see the module): of each head alone, and of the first n heads of an order together."""

    heads: tuple[Head, ...]
    width: int
    measure: str
    """`loss`: change of the next-token loss; `kl`: divergence of the predictions."""
    clean_loss: float | None
    """The loss of the full model; None for `kl`."""
    n_tokens: int
    alone: Float64[np.ndarray, "head kind"]
    """The cost of each kind of `KINDS`: the FFN, the training mean, or zero in the head's place."""
    error: Float64[np.ndarray, " head"]
    """The error of the head's FFN on held-out documents."""
    sizes: tuple[int, ...]
    """The numbers of heads that are replaced together."""
    by_error: Float64[np.ndarray, "kind size"]
    """The most FFN-like first."""
    reverse: Float64[np.ndarray, " size"]
    """FFNs, the least FFN-like first."""
    random: Float64[np.ndarray, "order size"]
    """FFNs, the heads in random orders."""
    by_cost: Float64[np.ndarray, " size"]
    """FFNs, by the cost of each alone: what an order that looks at the loss can do."""

    @property
    def headline(self) -> str:
        return f"all {len(self.heads)} heads as FFNs cost {self.by_error[0, -1]:.3f} nats a token"

    @property
    def rank_correlation(self) -> float:
        """Spearman's, between an FFN's error and the cost of having it alone: 1 if the error orders heads as the cost
        does. 0 for fewer than 3 heads."""
        correlation = rank_correlation(self.error, self.alone[:, 0])
        return 0.0 if len(self.heads) < 3 or math.isnan(correlation) else correlation

    def mean_cost(self, curve: Float64[np.ndarray, "*orders size"]) -> Float64[np.ndarray, "*orders"]:
        """Return a curve's mean over sizes from one head to all but all: what an order costs on the whole."""
        part = curve[..., :-1] if len(self.sizes) > 1 else curve
        return np.asarray(part.mean(-1))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head: its FFN's error, and the cost of each kind alone."""
        columns = {kind: self.alone[:, k] for k, kind in enumerate(KINDS)}
        layers, numbers = zip(*self.heads, strict=True)
        return data_frame({"layer": layers, "head": numbers, "error": self.error, **columns})

    def curve_frame(self) -> pd.DataFrame:
        """Return one row per order, kind and number of heads replaced."""
        curves = [("by error", kind, self.by_error[k]) for k, kind in enumerate(KINDS)]
        curves += [("reverse", "ffn", self.reverse), ("by cost alone", "ffn", self.by_cost)]
        curves += [(f"random {i}", "ffn", row) for i, row in enumerate(self.random)]
        rows = [
            {"order": order, "kind": kind, "heads": size, "cost": cost}
            for order, kind, costs in curves
            for size, cost in zip(self.sizes, costs.tolist(), strict=True)
        ]
        return data_frame(rows)


@torch.no_grad()
def substitution_costs(
    model: Model,
    distillation: Distillation,
    tokens: TokenSequences,
    *,
    width: int | None = None,
    sizes: Sequence[int] | None = None,
    n_random: int = 3,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> SubstitutionCosts:
    """Return costs on `tokens`, which should be held out (`aotlens.distill.held_out_windows`): ids
    `[batch, pos]`, a text, or texts of equally many tokens.

    Mean ablation takes the distillation's training means. `sizes` are the numbers of heads replaced together, all of
    them always among them; powers of two if not given. `progress(passes done, passes)` counts passes over `tokens`.

    Time: heads × 3 + sizes × (5 + n_random) passes over `tokens`. Memory: for `kl`, two batches of logits.
    """
    require_whole("n_random", n_random, 0)
    reader = HeadReader.of(model)
    tokens = reader.require_ids(tokens)
    width = distillation.hidden[distillation.width_index(width)]
    heads = distillation.heads
    wanted = _sizes(len(heads), sizes)
    means = {head: distillation.mean_z[place] for place, head in enumerate(heads)}

    def hooks(kind: str, members: Sequence[Head]) -> Hooks:
        if kind == "ffn":
            return substitution_hooks(model, distillation, members, width=width)
        constants = {head: means[head] if kind == "mean" else torch.zeros_like(means[head]) for head in members}
        return replacement_hooks(model, members, lambda head, x: constants[head].to(x))

    total = len(heads) * len(KINDS) + len(wanted) * (len(KINDS) + 2 + n_random)
    done = 0

    def cost(kind: str, members: Sequence[Head]) -> float:
        nonlocal done
        cost_nats = _cost(reader, tokens, hooks(kind, members), batch_size)
        done += 1
        if progress is not None:
            progress(done, total)
        return cost_nats - clean if reader.causal else cost_nats

    clean = _cost(reader, tokens, [], batch_size) if reader.causal else 0.0
    alone = np.array([[cost(kind, [head]) for kind in KINDS] for head in heads])
    error = distillation.mean_error(width)
    order = np.argsort(error, kind="stable")
    generator = np.random.default_rng(require_seed(seed))

    def curve(kind: str, places: np.ndarray) -> list[float]:
        return [cost(kind, [heads[place] for place in places[:size]]) for size in wanted]

    return SubstitutionCosts(
        heads=heads,
        width=width,
        measure="loss" if reader.causal else "kl",
        clean_loss=clean if reader.causal else None,
        n_tokens=tokens.numel(),
        alone=alone,
        error=error,
        sizes=wanted,
        by_error=np.array([curve(kind, order) for kind in KINDS]),
        reverse=np.array(curve("ffn", order[::-1])),
        random=np.array([curve("ffn", generator.permutation(len(heads))) for _ in range(n_random)]).reshape(
            n_random, len(wanted)
        ),
        by_cost=np.array(curve("ffn", np.argsort(alone[:, 0], kind="stable"))),
    )


def _sizes(n_heads: int, sizes: Sequence[int] | None) -> tuple[int, ...]:
    if sizes is None:
        sizes = [2**k for k in range(n_heads.bit_length())]
    if any(not 1 <= size <= n_heads for size in sizes):
        raise ValueError(f"sizes={tuple(sizes)}: expected numbers of heads from 1 to {n_heads}.")
    return tuple(sorted({*sizes, n_heads}))


def _cost(reader: HeadReader, tokens: Tensor, hooks: Hooks, batch_size: int) -> float:
    """Mean next-token loss with hooks, or mean KL from the run without."""
    total, n = 0.0, 0
    for start in range(0, len(tokens), batch_size):
        batch = tokens[start : start + batch_size].to(reader.device)
        log_p = _log_probabilities(reader, batch, hooks)
        if reader.causal:
            values = F.nll_loss(log_p[:, :-1].flatten(0, 1), batch[:, 1:].flatten().long(), reduction="none")
        else:
            clean = _log_probabilities(reader, batch, [])
            values = (clean.exp() * (clean - log_p)).sum(-1).flatten()
        total += values.double().sum().item()
        n += values.numel()
    return total / n


def _log_probabilities(reader: HeadReader, batch: Tensor, hooks: Hooks) -> Tensor:
    logits = reader.run(batch, hooks, "logits")
    return F.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=-1)
