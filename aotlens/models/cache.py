"""The activations of a run at the hook points: the hooks that keep them, and the cache in which they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from aotlens.models import hook_names
from aotlens.models.device import resolve_device

if TYPE_CHECKING:
    import transformer_lens

#: A function of (tensor, hook), which returns a tensor or None; what cannot be called gets an error that says so.
HookFunction: TypeAlias = Any
NamedHook: TypeAlias = tuple[str, HookFunction]
#: One position, (stop,), (start, stop), (start, stop, step), a slice, or a list, array or tensor of positions.
PosSlice: TypeAlias = Any
#: A hook point's name, or its short one with the layer: `("pattern", 0)`, `("resid_post", -1)`, `("scale", 0, "ln1")`.
CacheKey: TypeAlias = str | tuple[str] | tuple[str, int | None] | tuple[str, int | None, str | None]


class ActivationCache(Mapping[Any, Tensor]):
    """The activations of one run by the names of their hook points, as `run_with_cache` gives them.

    `cache["pattern", 0]`, `cache["resid_post", -1]` (of the last layer) and `cache["embed"]` are short for
    `cache["blocks.0.attn.hook_pattern"]` and so on (`aotlens.models.hook_names.activation`); `cache_dict` has the full
    names alone. With `has_batch_dim` each activation begins with the batch.

    `to_transformer_lens()` gives TransformerLens's cache, whose methods decompose the residual stream.
    """

    def __init__(self, cache_dict: dict[str, Tensor], model: Any, has_batch_dim: bool = True) -> None:
        self.cache_dict = cache_dict
        self.model = model
        self.has_batch_dim = has_batch_dim

    def __getitem__(self, key: CacheKey) -> Tensor:
        """The activation of a hook point; raises `KeyError` for one that was not cached."""
        if key in self.cache_dict:
            return self.cache_dict[key]  # type: ignore[index]
        if not isinstance(key, str | tuple):
            raise KeyError(f"{key!r}: expected a hook point's name, or a short one and a layer, as ('pattern', 0).")
        name, layer, part = (*([key] if isinstance(key, str) else key), None, None)[:3]
        n_layers = self.model.cfg.n_layers
        if layer is not None and not -n_layers <= layer < n_layers:
            raise KeyError(f"{key!r}: expected a layer from {-n_layers} to {n_layers - 1}.")
        layer = None if layer is None else layer % n_layers
        full_name = hook_names.activation(str(name), layer, part)
        try:
            return self.cache_dict[full_name]
        except KeyError:
            raise KeyError(f"{full_name} is not in this cache; cache.keys() lists what is.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.cache_dict)

    def __len__(self) -> int:
        return len(self.cache_dict)

    # A cache is itself: to compare all tensors one by one is nothing that == should start.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"ActivationCache with keys {list(self.cache_dict)}"

    def to(self, device: str | torch.device) -> ActivationCache:
        """Move every activation to a device, and give the cache back. Raises `ValueError` for one that is not there."""
        target = resolve_device(device)
        self.cache_dict = {name: value.to(target) for name, value in self.cache_dict.items()}
        return self

    def remove_batch_dim(self) -> ActivationCache:
        """Take the batch dimension off, and give the cache back; without one it stays as it is.

        Raises `ValueError` for a batch of more than one.
        """
        if self.has_batch_dim:
            self.cache_dict = {name: without_batch(name, value) for name, value in self.cache_dict.items()}
            self.has_batch_dim = False
        return self

    def to_transformer_lens(self) -> transformer_lens.ActivationCache:
        """Return TransformerLens's `ActivationCache` of the same tensors and model: `decompose_resid`,
        `accumulated_resid`, `stack_head_results`, `logit_attrs`, `logit_lens` and its other methods. It imports
        TransformerLens."""
        from transformer_lens import ActivationCache as TransformerLensCache

        return TransformerLensCache(dict(self.cache_dict), self.model, self.has_batch_dim)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"ActivationCache has no {name!r}; TransformerLens's cache may: cache.to_transformer_lens().{name}"
            )


def caching_hooks(
    names: list[str],
    incl_bwd: bool,
    device: str | torch.device | None,
    remove_batch_dim: bool,
    pos_slice: PosSlice,
) -> tuple[dict[str, Tensor], list[NamedHook], list[NamedHook]]:
    """Return a dictionary, and the forward and backward hooks that fill it, as `HookedRootModule.run_with_cache`
    describes."""
    cache: dict[str, Tensor] = {}
    target = None if device is None else resolve_device(device)
    positions = _positions(pos_slice)

    def save(tensor: Tensor, hook: Any, suffix: str) -> None:
        value = tensor.detach().to(target)
        if remove_batch_dim:
            value = without_batch(hook.name, value)
        dimension = 3 if hook.name.endswith(hook_names.PER_HEAD) else 2  # counted from the right
        if positions is not None and value.ndim >= dimension:
            value = value[(..., positions, *[slice(None)] * (dimension - 1))]
        cache[hook.name + suffix] = value

    forward = [(name, partial(save, suffix="")) for name in names]
    backward = [(name, partial(save, suffix="_grad")) for name in names if incl_bwd]
    return cache, forward, backward


def run_backward(output: Any) -> None:
    """Run `output.backward()`. Raises `ValueError` for an output that is not one number with a gradient."""
    if isinstance(output, Tensor) and output.numel() == 1 and output.requires_grad:
        output.backward()
        return
    got = f"{list(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
    raise ValueError(
        f"incl_bwd: expected one number with a gradient as the model's output, got {got}; use return_type='loss', with "
        "gradients enabled and weights that require them."
    )


def without_batch(name: str, value: Tensor) -> Tensor:
    """Return the only row of an activation. Raises `ValueError` for more."""
    if value.ndim and len(value) != 1:
        raise ValueError(f"remove_batch_dim: expected a batch of one, got {len(value)} rows at {name}.")
    return value[0] if value.ndim else value


def _positions(pos_slice: PosSlice) -> Any:
    """Return the index of the positions' dimension; None keeps all."""
    if pos_slice is None or isinstance(pos_slice, slice):
        return pos_slice
    if isinstance(pos_slice, tuple):
        return slice(*pos_slice)
    try:
        positions = torch.as_tensor(pos_slice)
    except (TypeError, ValueError, RuntimeError):
        positions = torch.empty(())  # of no integers: refused below
    if positions.ndim > 1 or positions.is_floating_point():
        raise ValueError(f"pos_slice: expected positions, a tuple as of slice(), or None, got {pos_slice!r}.")
    return positions if positions.ndim else positions[None]
