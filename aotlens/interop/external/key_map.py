"""Other people's names and shapes as ours, by a map from theirs to ours.

    {"layers.*.attn.c_attn.weight": "blocks.*.attn.W_QKV.T", "layers.*.attn.mask": None, …}

`*` stands for one part of a name between dots, `{layer}` for a number, each the same on both sides. `{head}` stands for
a head's number on their side alone: heads that are stored apart are stacked in its order
(`"layers.{layer}.heads.{head}.W_Q.weight": "blocks.{layer}.attn.W_Q.T"`). None leaves a tensor out. Names that are ours
already need no line. A target is a name of our state dict, and may be followed by

    .T      theirs is `[out, in]`, as `torch.nn.Linear` has it; ours is `[in, out]`
    _QKV    (`attn.W_QKV`, `attn.b_QKV`) theirs are queries, keys and values side by side, all heads of each in turn
    [a:b]   at the end: only rows a to b of theirs become ours, as in Python, without negative numbers:
            `pos_embed.W_pos[2:]` where their first position is row 2 (OPT)

Heads may be apart, `[head, d_model, d_head]`, or side by side, `[d_model, head · d_head]`: the shape tells. So it does
of a convolution that reads patches, `[d_model, channel, row, column]`, of dimensions of 1 before all others, and of an
embedding `[d_model, d_vocab]`, as code of 2022 has it, unless it is square.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.conventions import listed
from aotlens.models import ModelConfig
from aotlens.models.count import build_on_meta

KeyMap = Mapping[str, str | None]
_Rule = tuple[re.Pattern[str], str, str | None]
_SLICE = re.compile(r"([^\[\]]+)\[(\d{0,9}):(\d{0,9})\]", re.ASCII)
#: What the places of a pattern match.
_PLACES = {"*": "([^.]+)", "{layer}": "(?P<layer>[0-9]{1,9})", "{head}": "(?P<head>[0-9]{1,9})"}


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """Tensors in float32 by our names, and what was left out on the way."""

    state: dict[str, Tensor]
    dropped: tuple[str, ...]
    """Names that the map leaves out."""
    absent: tuple[str, ...]
    """Our names that the source lacks: read as zero biases, or as gains of 1."""


def renamed(
    tensors: Mapping[str, Tensor], key_map: KeyMap, cfg: ModelConfig, where: object, may_lack: Iterable[str] = ("b",)
) -> Renamed:
    """Return the state dict of the model that `cfg` describes. Each tensor is copied once, so that no file stays open.

    A tensor may be absent where the last part of its name begins with one of `may_lack`: biases, and gains ("w") of
    norms that were folded away.

    Raises `ValueError`, beginning with `where`, for tensors that nobody knows, that are missing, given twice,
    misshapen, or not finite.
    """
    expected = {name: tensor.shape for name, tensor in build_on_meta(cfg).state_dict().items()}
    rules = [(_pattern(theirs), theirs, ours) for theirs, ours in key_map.items()]
    targets = {name: _target(name, rules) for name in tensors}
    dropped = sorted(name for name, target in targets.items() if target is None)
    state: dict[str, Tensor] = {}
    heads: dict[str, list[int | None]] = {}  # by our name; None for all heads at once
    unknown = []
    for name, target in targets.items():
        if target is None:
            continue
        (name_of_ours, head), place = target, f"{where}: {name}"
        rows, marked = _rows(tensors[name], name_of_ours, place)
        for ours, tensor in _parts(rows, marked, place):
            key, plain = ours.removesuffix(".T"), not ours.endswith(".T")
            if key not in expected:
                unknown.append(name if ours == name else f"{name} (as {ours})")
                continue
            stored, shape = heads.setdefault(key, []), expected[key]
            if head in stored or (stored and None in (head, *stored)):
                raise ValueError(f"{where}: {key} is given twice, the second time by {name}.")
            stored.append(head)
            if head is None:
                plain &= key != "embed.W_E" or not plain or not _is_turned(tensor, shape, rules, place, name)
                state[key] = _shaped(tensor, shape, plain, place, key)
                continue
            n_heads = shape[0] if ".attn." in key and len(shape) > 1 else 0
            if head >= n_heads:
                raise ValueError(f"{place}: it is head {head} of {key}, which has {n_heads} heads, numbered from 0.")
            whole = state.setdefault(key, torch.empty(shape, dtype=torch.float32))
            whole[head] = _shaped(tensor, shape[1:], plain, place, key)
    if unknown:
        raise ValueError(
            f"{where}: unknown tensors {listed(unknown, 12)}. Does the configuration describe this model? key_map= "
            'says what other names mean ({"theirs": "ours"}), and None leaves a tensor out; on the command line '
            "--key-map FILE.json, with null."
        )
    gaps = {
        key: [head for head in range(expected[key][0]) if head not in stored]
        for key, stored in heads.items() if None not in stored and len(stored) < expected[key][0]
    }  # fmt: skip
    if gaps:
        parts = (f"head {', '.join(map(str, missing[:8]))} of {key}" for key, missing in gaps.items())
        raise ValueError(
            f"{where}: missing {listed(parts, 12)}. Does the map name all heads, and n_heads the right number?"
        )
    absent = sorted(expected.keys() - state.keys())
    missing = [name for name in absent if not name.rsplit(".", 1)[-1].startswith(tuple(may_lack))]
    if missing:
        raise ValueError(f"{where}: missing tensors {listed(missing, 12)}; found {listed(sorted(tensors), 12)}.")
    for name in absent:
        state[name] = torch.full(expected[name], 1.0 if name.endswith(".w") else 0.0)
    return Renamed(state=state, dropped=tuple(dropped), absent=tuple(absent))


def _pattern(theirs: str) -> re.Pattern[str]:
    if any(theirs.count(place) > 1 for place in ("{layer}", "{head}")):
        raise ValueError(f"key_map: {theirs!r}: expected {{layer}} and {{head}} at most once each.")
    parts = re.split(r"(\*|\{layer\}|\{head\})", theirs)
    return re.compile("".join(_PLACES.get(part, re.escape(part)) for part in parts))


def _target(name: str, rules: list[_Rule]) -> tuple[str, int | None] | None:
    """Return our name of their tensor, with its marks, and its head (None: all heads); None leaves it out."""
    for pattern, theirs, ours in rules:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        if ours is None:
            return None
        if any(ours.count(place) != theirs.count(place) for place in ("*", "{layer}")) or "{head}" in ours:
            raise ValueError(
                f"key_map: {theirs!r} → {ours!r}: expected as many * and {{layer}} on both sides, {{head}} on theirs."
            )
        named = match.groupdict()
        ours = ours.replace("{layer}", named.get("layer", ""))
        for index, part in enumerate(match.groups(), 1):
            if index not in pattern.groupindex.values():
                ours = ours.replace("*", part, 1)
        return ours, int(named["head"]) if "head" in named else None
    return name, None


def _is_turned(tensor: Tensor, shape: torch.Size, rules: list[_Rule], where: str, name: str) -> bool:
    """Return whether an embedding is `[d_model, d_vocab]`, with a warning; ValueError if ambiguous."""
    turns = any(ours and ours.endswith(".T") for *_, ours in rules)
    if tensor.shape == shape == shape[::-1] and turns and not any(rule[0].fullmatch(name) for rule in rules):
        raise ValueError(
            f"{where} is {list(shape)}, which does not tell whether it is [d_vocab, d_model] or, as in code of 2022, "
            '[d_model, d_vocab]. Say "embed.W_E": "embed.W_E" in the key_map, or "embed.W_E.T" for the latter.'
        )
    turned = tensor.shape != shape and tensor.shape == shape[::-1]
    if turned:
        warnings.warn(f"{where} is [d_model, d_vocab], as in code of 2022: read transposed.", stacklevel=5)
    return turned


def _rows(tensor: Tensor, target: str, where: str) -> tuple[Tensor, str]:
    """The rows of a tensor that its target asks for, and the target without them. Raises `ValueError` for none."""
    if not target.endswith("]"):
        return tensor, target
    match = _SLICE.fullmatch(target)
    if match is None:
        raise ValueError(f"{where}: key_map: {target}: expected rows behind our name as [2:], [:64] or [2:66].")
    name, first, last = match.groups()
    n_rows = len(tensor) if tensor.ndim else 0
    start, stop = int(first or 0), int(last or n_rows)
    if not start < stop <= n_rows:
        raise ValueError(f"{where}: key_map: {target}: expected some of {n_rows} rows.")
    return tensor[start:stop], name


def _parts(tensor: Tensor, target: str, where: str) -> list[tuple[str, Tensor]]:
    """A tensor, or the three that stand side by side in it."""
    if "_QKV" not in target:
        return [(target, tensor)]
    side = 0 if target.endswith(".T") or tensor.ndim == 1 else tensor.ndim - 1
    if tensor.ndim == 0 or tensor.shape[side] % 3:
        raise ValueError(f"{where}: expected queries, keys and values side by side, found {list(tensor.shape)}.")
    return [
        (target.replace("_QKV", f"_{part}"), chunk) for part, chunk in zip("QKV", tensor.chunk(3, side), strict=True)
    ]


def _shaped(tensor: Tensor, shape: torch.Size, plain: bool, where: str, name: str) -> Tensor:
    """A copy in float32 and in our shape. Raises `ValueError` where it does not fit or is not finite."""
    flat = _flat(tensor, len(shape))
    ours = _view(flat if plain else flat.mT, shape) if flat.ndim >= 2 or plain else None
    if ours is None:
        theirs = f"{list(tensor.shape)}" + ("" if plain else ", transposed")
        raise ValueError(f"{where}: expected {list(shape)}, found {theirs}.{_advice(tensor, shape, name)}")
    if not tensor.is_floating_point():
        raise ValueError(f"{where}: expected floating-point numbers, found {tensor.dtype}.")
    copied = torch.empty(shape, dtype=torch.float32)
    copied.copy_(ours)
    if copied.numel() and not all(bound.isfinite() for bound in copied.aminmax()):  # no mask of the weights' size
        raise ValueError(f"{where} holds numbers that are not finite.")
    return copied


def _advice(tensor: Tensor, shape: torch.Size, name: str) -> str:
    """Return the advice for positions of which theirs has some more: a first position in a later row."""
    more = len(tensor) - shape[0] if tensor.ndim == len(shape) == 2 and tensor.shape[1] == shape[1] else 0
    if name != "pos_embed.W_pos" or more <= 0:
        return ""
    return f' Where their first position is row {more} (OPT\'s is row 2), the map says "{name}[{more}:]".'


def _flat(tensor: Tensor, n_dims: int) -> Tensor:
    """A convolution as a matrix that reads a patch; without dimensions of 1 before `n_dims` others."""
    if tensor.ndim == 4 and n_dims == 2:
        return tensor.flatten(1)
    while tensor.ndim > n_dims and len(tensor) == 1:
        tensor = tensor[0]
    return tensor


def _view(tensor: Tensor, shape: torch.Size) -> Tensor | None:
    """A view of `tensor` in `shape`: itself, or all heads side by side as heads apart; None for another shape."""
    if tensor.shape == shape:
        return tensor
    if len(shape) == 3 and tensor.ndim == 2:
        heads, rows, columns = shape
        if tensor.shape == (rows, heads * columns):
            return tensor.unflatten(1, (heads, columns)).transpose(0, 1)  # what reads the stream
        if tensor.shape == (heads * rows, columns):
            return tensor.unflatten(0, (heads, rows))  # what writes it
        return None
    if len(shape) == 2 and tensor.shape == (shape[0] * shape[1],):
        return tensor.unflatten(0, tuple(shape))
    return None
