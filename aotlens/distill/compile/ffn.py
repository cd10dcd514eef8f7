"""Reading a feed-forward network, from modules or from a file: which modules are understood, and messages on others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from aotlens.results import Result
from aotlens.untrusted import boundary, require_regular

Activation = Literal["relu", "silu"]
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor | None]]

_ACTIVATIONS: dict[type[nn.Module], Activation] = {nn.ReLU: "relu", nn.SiLU: "silu"}
_FUNCTIONS = {"relu": torch.relu, "silu": F.silu}
_POINTS = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class FeedForward(Result):
    """f = affine ∘ σ ∘ … ∘ σ ∘ affine, in float64: h_0 = x, a_ℓ = h_{ℓ−1} W_ℓ + b_ℓ, h_ℓ = σ_ℓ(a_ℓ); f(x) = a_{L+1}.

    Rows are tokens, so `weights[ℓ]` is [input, output]: the transpose of `nn.Linear.weight` and of the paper's W_ℓ.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    """L + 1 matrices [input, output]."""
    biases: tuple[Float[Tensor, " _"], ...]
    """L + 1 vectors; zeros where the network has none."""
    activations: tuple[Activation, ...]
    """L of them: the depth."""

    @property
    def headline(self) -> str:
        return " → ".join(map(str, (self.d_in, *self.widths, self.d_out)))

    @property
    def d_in(self) -> int:
        """D, the width of the input."""
        return self.weights[0].shape[0]

    @property
    def d_out(self) -> int:
        """D', the width of the output."""
        return self.weights[-1].shape[1]

    @property
    def depth(self) -> int:
        """L, the number of hidden layers, and so of attention layers."""
        return len(self.activations)

    @property
    def widths(self) -> tuple[int, ...]:
        """W_1 … W_L, the hidden layers' widths."""
        return tuple(weight.shape[1] for weight in self.weights[:-1])

    def pre_activations(self, x: Float[Tensor, "n d_in"]) -> tuple[Float[Tensor, "n _"], ...]:
        """Return a_1 … a_{L+1}, the last of which is f(x). Raises `ValueError` for rows of another width."""
        if x.ndim != 2 or x.shape[1] != self.d_in:
            raise ValueError(f"expected rows [n, {self.d_in}], as the FFN reads, got {list(x.shape)}.")
        activations = [x @ self.weights[0] + self.biases[0]]
        for weight, bias, activation in zip(self.weights[1:], self.biases[1:], self.activations, strict=True):
            activations.append(_FUNCTIONS[activation](activations[-1]) @ weight + bias)
        return tuple(activations)

    def __call__(self, x: Float[Tensor, "n d_in"]) -> Float[Tensor, "n d_out"]:
        """The network's output f(x), in float64."""
        return self.pre_activations(x)[-1]


def read_ffn(ffn: nn.Module | Layers | FeedForward, activation: Activation | None = None) -> FeedForward:
    """Return the `FeedForward` that `ffn` is.

    `ffn` is an `nn.Sequential` (nested ones too) of `nn.Linear`, `nn.ReLU`, `nn.SiLU`, `nn.Identity` and inactive
    `nn.Dropout`; or pairs (W [input, output], b or None) with `activation` between them, applied as x @ W + b. An
    activation without a Linear before it, or at the end, gets an identity there. Weights are copied.

    Raises `ValueError` for anything else, with the module and the reason: a network that is read wrongly would be
    compiled wrongly. For that a module is also run, in float64 at a few random points, and refused if it differs from
    what was read.
    """
    if isinstance(ffn, FeedForward):
        return ffn
    if isinstance(ffn, str | Path | Mapping):
        kind = "a state dict" if isinstance(ffn, Mapping) else "a path"
        raise ValueError(
            f"ffn: expected an nn.Sequential, pairs (W, b) or a FeedForward, got {kind}; load_ffn(path, activation) "
            "reads a safetensors file of a state dict."
        )
    if isinstance(ffn, nn.Module):
        if activation is not None:
            raise ValueError("activation is for pairs (W, b); a module has activations of its own.")
        network = _alternate(list(_parts(ffn, "ffn")))
        _expect_same(ffn, network)
        return network
    if not (isinstance(ffn, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in ffn)):
        raise ValueError("ffn: expected pairs (W [input, output], b [output] or None), one a layer.")
    return _alternate(_from_pairs(ffn, activation))


_Part: TypeAlias = tuple[str, Tensor, Tensor] | tuple[str, Activation]


def _parts(module: nn.Module, name: str) -> Iterator[_Part]:
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    if any(hooks):
        raise ValueError(f"{name} ({type(module).__name__}) has forward hooks, which may change what it computes.")
    if "forward" in vars(module):
        raise ValueError(
            f"{name} ({type(module).__name__}) has a forward of its own, which may compute something else."
        )
    kind = type(module)  # exactly: a subclass may compute something else
    if kind is nn.Sequential:
        for key in module._modules:  # named_children() leaves out a module that stood there before
            yield from _parts(getattr(module, key), f"{name}.{key}")
    elif kind is nn.Linear:
        assert isinstance(module, nn.Linear)
        yield name, *_affine(module.weight.T, module.bias, name)
    elif kind in _ACTIVATIONS:
        yield name, _ACTIVATIONS[kind]
    elif kind is nn.Identity or (isinstance(module, nn.Dropout) and kind is nn.Dropout and not _drops(module)):
        return
    elif kind is nn.Dropout:
        raise ValueError(f"{name}: dropout in training is random, and a compiled network is not; call .eval() first.")
    else:
        raise ValueError(f"{name}: {kind.__name__} {_reason(module)}")


def _expect_same(module: nn.Module, read: FeedForward) -> None:
    """Refuse a module that computes something else than `read`, by more than both may round."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-2, 2, _POINTS, dtype=torch.float64)[:, None]
    x = torch.randn(_POINTS, read.d_in, generator=generator, dtype=torch.float64) * scales
    tensors = {name: tensor.detach().to("cpu", torch.float64) for name, tensor in module.named_parameters()}
    try:
        with torch.no_grad():
            out = torch.func.functional_call(module, tensors, (x.clone(),))
    except RuntimeError as error:
        raise ValueError(f"ffn: it cannot be run in float64, to see that it was read rightly ({error}).") from error
    # Every number on the way is at most `size`, and a rounding grows by the weights and by SiLU's slope, below 1.1.
    size, rounding = x.abs(), 2.0**-48
    for weight, bias in zip(read.weights, read.biases, strict=True):
        size = size @ weight.abs() + bias.abs()
        rounding = 1.1 * rounding + len(weight) * 2.0**-50
    difference = (out - read(x)).abs()
    if (size.isfinite() & ~(difference <= rounding * size + 1e-290)).any():
        raise ValueError(
            f"ffn: it was read as {_words(read)}, but what it computes differs from that by "
            f"{float(difference.max()):.2g} at a random point. If something was patched, give pairs (W, b) instead."
        )


def _words(read: FeedForward) -> str:
    names = [f"{weight.shape[0]} → {weight.shape[1]}" for weight in read.weights]
    for layer, activation in reversed(list(enumerate(read.activations))):
        names.insert(layer + 1, activation)
    return ", ".join(names)


def _drops(module: nn.Dropout) -> bool:
    return module.training and module.p > 0


def _reason(module: nn.Module) -> str:
    known = "nn.Sequential of nn.Linear, nn.ReLU and nn.SiLU"
    if type(module).__module__ == "torch.nn.modules.activation":
        return (
            "is not compiled: a head weighs its own token by sigmoid(x/η), which gives SiLU, and ReLU as η → 0; "
            f"expected {known}."
        )
    if isinstance(module, nn.Linear | nn.ReLU | nn.SiLU | nn.Sequential):
        return f"is a subclass that may compute something else (parametrised?); expected plain {known}."
    return f"is not compiled; expected {known}, or its layers' weights as pairs (W, b) with activation= between them."


def _affine(weight: Tensor, bias: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    if not weight.is_floating_point() or weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(f"{name}: expected a matrix of floats, got {list(weight.shape)} {weight.dtype}.")
    weight = weight.detach().to("cpu", torch.float64, copy=True).contiguous()
    if bias is None:
        bias = torch.zeros(weight.shape[1], dtype=torch.float64)
    elif bias.shape != weight.shape[1:]:
        raise ValueError(f"{name}: expected a bias [{weight.shape[1]}], got {list(bias.shape)}.")
    bias = bias.detach().to("cpu", torch.float64, copy=True)
    if not (weight.isfinite().all() and bias.isfinite().all()):
        raise ValueError(f"{name}: expected finite weights.")
    return weight, bias


def _from_pairs(pairs: Layers, activation: Activation | None) -> list[_Part]:
    if activation not in _FUNCTIONS:
        raise ValueError(
            f"activation={activation!r}: pairs (W, b) need 'relu' or 'silu'. A head gives SiLU, and ReLU in the limit."
        )
    parts: list[_Part] = []
    for i, (weight, bias) in enumerate(pairs):
        if i:
            parts.append((f"activation {i}", activation))
        parts.append((f"layer {i}", *_affine(weight, bias, f"layer {i}")))
    return parts


def _alternate(parts: list[_Part]) -> FeedForward:
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    activations: list[Activation] = []
    previous: str | None = None
    for part in parts:
        if len(part) == 3:
            name, weight, bias = part
            if len(weights) > len(activations):
                raise ValueError(f"{previous} and {name} are linear maps in a row, which are one: multiply them first.")
            if weights and weights[-1].shape[1] != weight.shape[0]:
                raise ValueError(
                    f"{name} reads {weight.shape[0]} numbers, but the layer before it writes {weights[-1].shape[1]}."
                )
            weights.append(weight)
            biases.append(bias)
            previous = name
        else:
            if not weights:
                _need_width(parts)
            _identity_if_missing(weights, biases, activations, parts)
            activations.append(part[1])
    if not activations:
        raise ValueError("expected at least one ReLU or SiLU; without any, the network is a linear map, not an FFN.")
    _identity_if_missing(weights, biases, activations, parts)
    return FeedForward(weights=tuple(weights), biases=tuple(biases), activations=tuple(activations))


def _need_width(parts: list[_Part]) -> None:
    if not any(len(part) == 3 for part in parts):
        raise ValueError("expected at least one nn.Linear: nothing says how wide this network is.")


def _identity_if_missing(
    weights: list[Tensor], biases: list[Tensor], activations: list[Activation], parts: list[_Part]
) -> None:
    if len(weights) > len(activations):
        return
    width = weights[-1].shape[1] if weights else next(part[1].shape[0] for part in parts if len(part) == 3)
    weights.append(torch.eye(width, dtype=torch.float64))
    biases.append(torch.zeros(width, dtype=torch.float64))


_NAME = re.compile(r"(?:(.*)\.)?(\d+)\.(weight|bias)")


def load_ffn(path: str | Path, activation: Activation) -> FeedForward:
    """Return the network in a safetensors file of an `nn.Sequential`'s state dict, with `activation` between its
    layers.

    Tensors are named `N.weight` [output, input] and `N.bias` [output], as `nn.Linear` stores them, with one common
    prefix or none; layers go by ascending N, with gaps where the activations stand, as `nn.Sequential` numbers them:

        safetensors.torch.save_file(ffn.state_dict(), "ffn.safetensors")

    **What a state dict cannot show.** An activation has no tensors: one after the last layer is not in the file, nor
    which activations there are, nor dropout or a module that stands twice. The network is taken to end with a Linear
    and to have `activation` between all of them. For another one give `read_ffn` the module itself.

    Raises `ValueError` for other names, for more than one prefix and for layers that do not fit together, and `OSError`
    for a file that cannot be read.
    """
    from safetensors.torch import load_file

    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; expected a safetensors file.")
    require_regular(path, "result")
    with boundary(path, "a safetensors file of a network"):
        tensors = load_file(path)
    layers: dict[int, dict[str, str]] = {}
    prefixes = set()
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{path}: tensor {name!r}; expected N.weight and N.bias, as an nn.Sequential has them.")
        if match[3] == "weight" and tensors[name].ndim != 2:
            raise ValueError(f"{path}: {name}: expected a matrix, got {list(tensors[name].shape)}.")
        prefixes.add(match[1])
        layers.setdefault(int(match[2]), {})[match[3]] = name
    if len(prefixes) > 1:
        names = ", ".join(sorted(map(repr, prefixes)))
        raise ValueError(f"{path}: tensors of several networks ({names}); expected those of one.")
    without = [number for number, parts in layers.items() if "weight" not in parts]
    if without or not layers:
        raise ValueError(f"{path}: expected weights" + (f"; layer {without[0]} has a bias only." if without else "."))
    pairs = [
        (tensors[parts["weight"]].mT, tensors[parts["bias"]] if "bias" in parts else None)
        for _, parts in sorted(layers.items())
    ]
    with boundary(path, "a network"):
        return read_ffn(pairs, activation)


def require_tensors(**named: object) -> None:
    """Raise `ValueError` for the first that is not a tensor, and say how to make one."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name}: expected a tensor, got {type(value).__name__}; torch.as_tensor makes one.")
