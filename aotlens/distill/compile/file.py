"""A feed-forward network from a file."""

from __future__ import annotations

import re
from pathlib import Path

from aotlens.distill.compile.ffn import Activation, FeedForward, read_ffn
from aotlens.untrusted import boundary, require_regular

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
