"""Activations in pieces: the model runs on a few windows at a time, and a piece is forgotten when it has been used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.conventions import Head
from aotlens.distill.heads.scaling import Scaling, group_by_layer
from aotlens.heads.reader import HeadReader

_TOKENS_AT_ONCE = 4096  # through the model


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Some tokens as columns, in the coordinates of training."""

    x: Float[Tensor, "layer d_model_1 tokens"]
    t: Float[Tensor, "head out tokens"]
    positions: Int64[Tensor, " tokens"]

    @property
    def n_tokens(self) -> int:
        return self.x.shape[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A model's chosen heads, ready to be read piece by piece."""

    reader: HeadReader
    heads: tuple[Head, ...]

    @property
    def layers(self) -> dict[int, slice]:
        return group_by_layer(self.heads)

    @property
    def dtype(self) -> torch.dtype:
        """The type of all training: the model's own, float32 at least."""
        return self.reader.dtype if self.reader.dtype == torch.float64 else torch.float32

    def bytes_per_token(self) -> int:
        """Return the bytes per token of a piece with all of the model's heads, and of what is read to make it.

        Not of the chosen heads: the size of a piece, and so the order of the text, must not depend on them.
        """
        reader = self.reader
        numbers = reader.n_layers * (reader.d_model + 1 + reader.n_heads * reader.d_head)
        return 2 * numbers * (8 if self.dtype == torch.float64 else 4)

    def raw(self, windows: Int64[Tensor, "windows pos"]) -> list[tuple[Tensor, Tensor]]:
        """Return for each layer x `[tokens, d_model]` and z `[tokens, chosen heads, d_head]` of whole windows."""
        rows = max(1, _TOKENS_AT_ONCE // windows.shape[1])
        parts: dict[int, tuple[list[Tensor], list[Tensor]]] = {layer: ([], []) for layer in self.layers}
        for start in range(0, len(windows), rows):
            for layer, (x, z) in self.reader.read(windows[start : start + rows], list(self.layers)).items():
                chosen = [head for _, head in self.heads[self.layers[layer]]]
                if chosen != list(range(self.reader.n_heads)):
                    z = z[:, :, chosen]
                parts[layer][0].append(x.flatten(0, 1).to(self.dtype))
                parts[layer][1].append(z.flatten(0, 1).to(self.dtype))
        return [(torch.cat(xs), torch.cat(zs)) for xs, zs in parts.values()]

    def piece(
        self, windows: Int64[Tensor, "windows pos"], scaling: Scaling, order: Int64[Tensor, " tokens"] | None = None
    ) -> Piece:
        """Read whole windows, their tokens in `order` (as they stand, for None)."""
        raw = self.raw(windows)
        positions = torch.arange(windows.shape[1], device=self.reader.device).repeat(len(windows))
        if order is not None:
            order = order.to(self.reader.device)
            positions = positions[order]
        n, d_in = len(positions), self.reader.d_model + 1
        x = torch.empty(len(raw), d_in, n, dtype=self.dtype, device=self.reader.device)
        t = torch.empty(len(self.heads), scaling.basis.shape[2], n, dtype=self.dtype, device=self.reader.device)
        for layer, heads in enumerate(self.layers.values()):
            layer_x, layer_z = raw[layer]
            raw[layer] = (layer_x[:0], layer_z[:0])  # so that only one copy of the rest is held
            x[layer] = scaling.inputs(layer, layer_x if order is None else layer_x[order])
            t[heads] = scaling.targets(heads, layer_z if order is None else layer_z[order])
        return Piece(x=x, t=t, positions=positions)


def order_of_tokens(n_tokens: int, seed: int, number: int) -> Int64[Tensor, " tokens"]:
    """Return a random order of the tokens of piece `number`."""
    return torch.from_numpy(np.random.default_rng([seed, 29, number]).permutation(n_tokens))


def windows_of_piece(
    windows: Int64[Tensor, "windows pos"], n_windows: int, seed: int, number: int
) -> tuple[Int64[Tensor, "piece pos"], int]:
    """Return the windows of piece `number`, and how many of them were not in any piece before.

    All windows come in a random order, then all again in another, and so on.
    """
    wanted = np.arange(number * n_windows, (number + 1) * n_windows)
    rounds, places = wanted // len(windows), wanted % len(windows)
    chosen = np.empty(len(wanted), dtype=np.int64)
    for turn in np.unique(rounds):
        order = np.random.default_rng([seed, 23, int(turn)]).permutation(len(windows))
        chosen[rounds == turn] = order[places[rounds == turn]]
    return windows[torch.from_numpy(chosen)], int((rounds == 0).sum())
