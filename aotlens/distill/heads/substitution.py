"""A model with some heads replaced by their FFNs, and the hooks that do it.

The FFN reads x at the attention layer's input and its ẑ replaces the head's z, so that the layer writes Σ over the
other heads of z W_O + Σ over the replaced ones of ẑ W_O + b_O. Patterns are still computed, and shown to listeners,
but a replaced head's no longer matters. A later head's FFN reads the stream as the earlier ones have left it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head
from aotlens.distill.heads.result import Distillation
from aotlens.distill.heads.scaling import group_by_layer
from aotlens.heads.reader import HeadReader, Hooks, Model, TokenSequences

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
    chosen = distillation.heads if heads is None else reader.require_heads(heads)
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
    places = {head: distillation.place(head) for head in chosen}
    seeds = {head: distillation.seed_index(head, width, seed) for head in chosen}

    def replace(head: Head, x: Tensor) -> Tensor:
        return weights(places[head], seeds[head], x)

    return chosen, replace


def replacement_hooks(model: Model, heads: Sequence[Head], replacement: Replacement) -> Hooks:
    """Return hooks that put `replacement(head, x)` in the place of each head's z."""
    reader = HeadReader.of(model)
    chosen = reader.require_heads(heads)
    hooks: Hooks = []
    for layer, places in group_by_layer(chosen).items():
        held: dict[str, Tensor] = {}

        def take(value: Tensor, hook: object, layer: int = layer, held: dict[str, Tensor] = held) -> None:
            held["x"] = reader.as_input(layer, value)

        def put(
            z: Tensor, hook: object, members: Sequence[Head] = chosen[places], held: dict[str, Tensor] = held
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
