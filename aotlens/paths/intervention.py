"""A prompt without one head or one path: the model run again, beside what the frozen expansion says of it.

Removing a path s → h_1 → … → h_k → logits is path patching (Wang et al. 2022; Goldowsky-Dill et al. 2023) with nothing
in the place of the source: with x_l the model's own stream before layer l, h_1 reads x_{l_1} − s, h_2 reads
x_{l_2} − (h_1(x_{l_1}) − h_1(x_{l_1} − s)), and so on; what h_k then lacks is taken off the final stream. Every head
on the path computes its norm, queries, keys, pattern and values anew, as does the read-out its norm; all others keep
what they wrote. With patterns and scales frozen, each difference is linear, and what is missing at the end is exactly
the path's contribution. Forward and linear therefore differ by what goes through patterns and norm scales.

MLPs are held for linear and run anew for forward, as by Wang et al.: what the stream lacks on its way from one head of
the path to the next, and to the end, passes every MLP that it comes by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head
from aotlens.data import IGNORED
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.paths.path import Path
from aotlens.paths.target import checked_outputs, place_of
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.paths.expansion import PathExpansion

_Hooks: TypeAlias = list[tuple[str | Callable[..., Any], Callable[..., Any]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervention(Result):
    """The logits of one prompt with everything, and without a head or a path."""

    without: Head | Path
    next_tokens: Int[Tensor, " pos"] | None
    """The prediction of the model at each position, −100 at the last; None for a model that predicts no next token."""
    clean: Float[Tensor, "pos out"]
    """The outputs of the model as it is."""
    forward: Float[Tensor, "pos out"]
    """The outputs of a forward pass without it."""
    linear: Float[Tensor, "pos out"]
    """The model's own minus its paths' contribution: patterns, norm scales and outputs of MLPs frozen."""

    @property
    def headline(self) -> str:
        return f"the largest change of a logit is {float((self.forward - self.clean).abs().max()):.3f}"

    def to_frame(self, position: int, target: int | tuple[int, int], targets: Tensor | None = None) -> pd.DataFrame:
        """Return one row a quantity, by name: unit, clean, forward, linear.

        `target` is the output whose logit is looked at, or (token, versus); `targets` are the labels that losses are of
        instead of the next tokens, ids `[pos]` (−100 is ignored) or one class. "logit" is the target's, or the
        difference; "probability" the (first) target's; "loss" is that of the label at `position` and "mean_loss" that
        of all labels, nats; they are missing where there is no label.

        Raises `ValueError` for a missing position or output, for an output minus itself, and for targets
        that are not ids, one for each position.
        """
        ids = checked_outputs(target, self.clean.shape[1])
        position = place_of("position", position, len(self.clean))
        streams = (self.clean, self.forward, self.linear)
        rows: list[tuple[object, ...]] = []
        sign = torch.tensor([1.0, -1.0][: len(ids)], dtype=self.clean.dtype, device=self.clean.device)
        rows.append(("logit", "logits", *(float(x[position, list(ids)] @ sign) for x in streams)))
        rows.append(("probability", "probability", *(float(x[position].softmax(-1)[ids[0]]) for x in streams)))
        labels = self.next_tokens if targets is None else self._labels(targets)
        if labels is not None and bool((labels != IGNORED).any()):
            losses = [F.cross_entropy(x, labels, reduction="none") for x in streams]
            if labels[position] != IGNORED:
                rows.append(("loss", "nats", *(float(loss[position]) for loss in losses)))
            rows.append(("mean_loss", "nats", *(float(loss[labels != IGNORED].mean()) for loss in losses)))
        return data_frame(rows, columns=["quantity", "unit", "clean", "forward", "linear"]).set_index("quantity")

    def _labels(self, targets: Tensor) -> Tensor:
        labels, (n, n_out) = targets.reshape(-1).to(self.clean.device), self.clean.shape
        counted = labels[labels != IGNORED]
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        if not whole or len(labels) != n or not bool(((counted >= 0) & (counted < n_out)).all()):
            raise ValueError(
                f"targets: expected {n} labels 0 to {n_out - 1} (or −100 to ignore one), got {list(targets.shape)} of "
                f"{targets.dtype}."
            )
        return labels.long()


@torch.no_grad()
def without_head(expansion: PathExpansion, head: HeadLike) -> Intervention:
    """Zero a head's output z at every position; linear: minus all paths through it. b_O stays.

    One forward pass; hooks the model, and leaves no hook behind. Raises `ValueError` for a head that the model does not
    have, and for a model that writes vectors.
    """
    model, inputs = _model_of(expansion)
    layer, index = head = as_head(head, expansion)

    def silence(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, :, index] = 0
        return z

    forward = model.run_with_hooks(inputs, fwd_hooks=[(hook_names.attn(layer, hook_names.Z), silence)])
    return _intervention(expansion, head, forward, expansion.through(head))


@torch.no_grad()
def without_path(expansion: PathExpansion, path: Path) -> Intervention:
    """Remove one path; see the head of this module. A path of split sources is removed from its position alone.

    Of a bias path, Σ b_O of the layers before its first head leaves the stream and that head's own bias its values.
    One forward pass of two rows for each head and one more, and another in a model with MLPs; hooks the model, and
    leaves no hook behind. Raises `ValueError` as `without_head` does.
    """
    model, inputs = _model_of(expansion)
    if model.cfg.parallel:
        raise ValueError(
            "without_path: this model's MLPs read the stream beside attention (parallel=True), and the intervention "
            "takes a path out of what they read after it; without_head takes whole heads out."
        )
    contribution = expansion.logits(path)  # checks the path
    frozen = expansion.frozen
    biases = path.source == "bias"
    ones = expansion.source("bias", path.source_position)
    source = expansion.source(path.start, path.source_position)
    removed = source if path.start in frozen.sources else torch.zeros_like(frozen.embedded)
    heads, streams = dict(path.heads), _before_mlps(model, inputs)
    for layer in range(expansion.n_layers):
        if layer in heads:
            first = (layer, heads[layer]) == path.heads[0]
            own = ones * frozen.v_bias[layer, heads[layer]] if biases and first else None
            removed = _missing(model, inputs, (layer, heads[layer]), removed, own)
        elif biases and (not path.heads or layer < path.heads[0][0]):
            removed = removed + ones * frozen.b_O[layer]
        if layer in streams:
            removed = removed + _missing_of_mlp(model, layer, streams[layer], removed)
        if layer == path.source_layer:
            removed = source
    last = hook_names.resid_post(expansion.n_layers - 1)
    forward = model.run_with_hooks(inputs, fwd_hooks=[(last, lambda x, hook: x - removed.to(x.dtype))])
    if biases and not path.heads:
        forward = forward - (frozen.pool @ ones * frozen.out_bias).to(forward.dtype)
    return _intervention(expansion, path, forward, contribution)


def _missing(
    model: AttentionOnlyTransformer, inputs: Tensor, head: Head, removed: Tensor, own_bias: Tensor | None
) -> Tensor:
    """The part of a head's output `[pos, d_model]` that is gone when it reads the stream without `removed`: row 0 − row
    1 of a pass."""
    layer, index = head
    seen: list[Tensor] = []

    def take(x: Tensor, hook: object) -> Tensor:
        return torch.stack([x[0], x[1] - removed.to(x.dtype)])

    def take_bias(v: Tensor, hook: object) -> Tensor:
        assert own_bias is not None
        v = v.clone()
        v[1, :, index] -= own_bias.to(v.dtype)
        return v

    hooks: _Hooks = [
        (hook_names.resid_pre(layer), take),
        (hook_names.attn(layer, hook_names.Z), lambda z, hook: seen.append(z[:, :, index])),
    ]
    if own_bias is not None:
        hooks.append((hook_names.attn(layer, hook_names.V), take_bias))
    model.run_with_hooks(torch.cat([inputs, inputs]), return_type=None, fwd_hooks=hooks)
    z = seen[0]
    return (z[0] - z[1]) @ model.of_head("W_O", (layer, index))


def _before_mlps(model: AttentionOnlyTransformer, inputs: Tensor) -> dict[int, Float[Tensor, "pos d_model"]]:
    """The model's own stream before each MLP, by layer; nothing for an attention-only model."""
    if model.cfg.attn_only:
        return {}
    names = [hook_names.resid_mid(layer) for layer in range(model.cfg.n_layers)]
    _, cache = model.run_with_cache(inputs, return_type=None, names_filter=names, return_cache_object=False)
    return {layer: cache[name][0] for layer, name in enumerate(names)}


def _missing_of_mlp(
    model: AttentionOnlyTransformer, layer: int, x: Float[Tensor, "pos d_model"], removed: Float[Tensor, "pos d_model"]
) -> Float[Tensor, "pos d_model"]:
    """Return the part of an MLP's output that is gone when it reads the stream without `removed`."""
    block = model.blocks[layer]
    assert block.mlp is not None
    clean, lesser = block.mlp(block.ln2(torch.stack([x, x - removed.to(x.dtype)])))
    return clean - lesser


def _model_of(expansion: PathExpansion) -> tuple[AttentionOnlyTransformer, Tensor]:
    model = expansion.model
    if model.cfg.read_out == "vectors":
        raise ValueError(
            "intervention: expected a model that writes logits, of tokens or classes; this one's are vectors."
        )
    return model, expansion.inputs


def _intervention(
    expansion: PathExpansion, without: Head | Path, forward: Tensor, contribution: Tensor
) -> Intervention:
    clean, model = expansion.frozen.logits, expansion.model
    next_tokens = None
    if (model.cfg.read_in, model.cfg.read_out) == ("tokens", "tokens") and not model.sees_later_keys:
        next_tokens = torch.tensor([*expansion.tokens[1:], IGNORED], device=clean.device)
    return Intervention(
        without=without,
        next_tokens=next_tokens,
        clean=clean,
        forward=forward.reshape(clean.shape).to(clean.dtype),
        linear=clean - contribution,
    )
