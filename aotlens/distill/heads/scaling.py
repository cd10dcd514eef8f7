"""Coordinates of training, and predictors in closed form: means, the best linear map and the best maps of each rank.

**Coordinates.** Inputs are whitened, and outputs are in the head's own d_head dimensions.
Inputs of a layer become x̃ = (x − mean) M with covariance I, on a first piece of text. That changes no FFN's error
(M is folded into its first layer afterwards) but makes every direction equally quick to learn.

A head's result y = z W_O lies in the row space of W_O. With W_O = U S Vᵀ,

    ‖y − ŷ‖ = ‖t − t̂‖,   t = z U S,   ŷ = t̂ Vᵀ

so an FFN that predicts t, d_head numbers instead of d_model, has exactly the error of one that predicts y; what it
wrote outside the row space could only add to the error. With `target="z"`, t = z. Either way t is shifted and divided
by one number, so that its mean is 0 and its mean square 1; and the FFN's output is given in z, so that it can replace
the head's: ẑ = t̂ S⁻¹ Uᵀ.

**Closed forms**, from one pass: the training mean, the mean at each position, and the best linear map, which minimises
Σ‖t − B x̃‖² over the training tokens: B = (Σ t x̃ᵀ)(Σ x̃ x̃ᵀ)⁻¹, x̃ with a last 1 (hidden = 0). In whitened coordinates
the matrix to invert is all but the identity, so the sums lose no digits.

**Reduced-rank regression**: the best affine map of rank r, and a network of r ReLU units that is that map. Of all C of
rank r, Σ‖t − C x̃ − c‖² over training tokens is least for C = P Pᵀ B: B is the best map of any rank, and P `[out, r]`
holds the first eigenvectors of B Σ Bᵀ, Σ the covariance of x̃ (Izenman 1975). As a network, with the rows of Pᵀ B
divided by their lengths s,

    W₁ = [Pᵀ B / s, β],   W₂ = [P s, c − P s β]          relu(v + β) = v + β while v ≥ −β

so units whose biases β exceed all that they meet are linear. A network of w units can thus always do what the best map
of rank w does; training by gradients may not find that, least for heads that are almost linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head
from aotlens.heads.reader import HeadReader

_ROUNDING = 25  # times the spacing of the activations' type: what varies by less, relative to the largest, is rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """Float64 and on the device of the model; `layer` counts the layers that have a distilled head, `head` those
    heads."""

    x_mean: Float[Tensor, "layer d_model"]
    whiten: Float[Tensor, "layer d_model d_model"]
    """Columns of zeros where the input does not vary."""
    basis: Float[Tensor, "head d_head out"]
    """U S, or I: from z to t."""
    back: Float[Tensor, "head out d_head"]
    """S⁻¹ Uᵀ, or I: from t to z."""
    t_mean: Float[Tensor, "head out"]
    scale: Float[Tensor, " head"]
    """0 where a head writes a constant, up to rounding: its targets are then 0."""
    warm: Float[Tensor, "head d_model out"]
    """The best linear map from x̃ to t on the first piece of text: where FFNs' first layers begin to look."""

    def inputs(self, layer: int, x: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "d_model_1 tokens"]:
        """Return x̃ as columns, with a last row of ones for biases."""
        dtype = x.dtype
        shifted = x - self.x_mean[layer].to(dtype)
        out = torch.ones(x.shape[1] + 1, len(x), dtype=dtype, device=x.device)
        torch.mm(self.whiten[layer].to(dtype).T, shifted.T, out=out[:-1])
        return out

    def targets(self, heads: slice, z: Float[Tensor, "tokens head d_head"]) -> Float[Tensor, "head out tokens"]:
        """Return t of the heads of one layer, as columns."""
        dtype = z.dtype
        t = torch.bmm(self.basis[heads].transpose(1, 2).to(dtype), z.permute(1, 2, 0))
        return (t - self.t_mean[heads, :, None].to(dtype)) * _inverse(self.scale[heads])[:, None, None].to(dtype)

    def to_z(self, head: int, t: Float[Tensor, "... out"]) -> Float[Tensor, "... d_head"]:
        """Map the coordinates of training to z."""
        return (t * self.scale[head] + self.t_mean[head]) @ self.back[head]

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def group_by_layer(heads: Sequence[Head]) -> dict[int, slice]:
    """Return model layer → where its heads stand in `heads`, which are in order."""
    layers: dict[int, slice] = {}
    for place, (layer, _) in enumerate(heads):
        start = layers[layer].start if layer in layers else place
        layers[layer] = slice(start, place + 1)
    return layers


def fit_scaling(
    reader: HeadReader,
    heads: Sequence[Head],
    target: str,
    inputs: Sequence[Float[Tensor, "tokens d_model"]],
    zs: Sequence[Float[Tensor, "tokens _head d_head"]],
) -> Scaling:
    """Fit the scaling from a first piece of text: one x and one z (of the distilled heads) per layer."""
    x_means, whitens, bases, backs, means, scales, warms = ([] for _ in range(7))
    for (layer, place), x, z in zip(group_by_layer(heads).items(), inputs, zs, strict=True):
        rounding = _ROUNDING * torch.finfo(x.dtype).eps
        x, z = x.double(), z.double()
        mean = x.mean(0)
        shifted = x - mean
        variances, directions = torch.linalg.eigh(shifted.T @ shifted / len(x))
        # A norm removes one direction exactly; the decomposition itself rounds too.
        smallest = max(rounding**2, 4 * x.shape[1] * torch.finfo(torch.float64).eps) * float(variances[-1])
        is_spanned = variances > max(smallest, 1e-30)
        whiten = torch.where(is_spanned, directions / variances.clamp(min=1e-30).sqrt(), 0.0)
        x_means.append(mean)
        whitens.append(whiten)
        whitened = shifted @ whiten
        W_O = reader.W_O(layer).double()
        for i, (_, head) in enumerate(heads[place]):
            basis, back = _output_basis(W_O[head], target)
            t = z[:, i] @ basis
            size = t.pow(2).mean().sqrt()
            t_mean = t.mean(0)
            t = t - t_mean
            scale = t.pow(2).mean().sqrt()
            scale = torch.where(scale > rounding * size, scale, 0.0)
            bases.append(basis)
            backs.append(back)
            means.append(t_mean)
            scales.append(scale)
            warms.append(whitened.T @ (t * _inverse(scale)) / len(x))
    return Scaling(
        x_mean=torch.stack(x_means),
        whiten=torch.stack(whitens),
        basis=torch.stack(bases),
        back=torch.stack(backs),
        t_mean=torch.stack(means),
        scale=torch.stack(scales),
        warm=torch.stack(warms),
    )


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale > 0, 1 / torch.where(scale > 0, scale, 1.0), 0.0)


def _output_basis(W_O: Float[Tensor, "d_head d_model"], target: str) -> tuple[Tensor, Tensor]:
    if target == "z":
        unit = torch.eye(len(W_O), dtype=W_O.dtype, device=W_O.device)
        return unit, unit
    U, S, _ = torch.linalg.svd(W_O, full_matrices=False)
    inverse = torch.where(S.gt(1e-10 * S[0].clamp(min=1e-30)), 1 / S.clamp(min=1e-300), 0.0)
    return U * S, (U * inverse).T


class Moments:
    """Sums over training tokens, in float64. `x [layer, d_model + 1, tokens]`, `t [head, out, tokens]`, as columns."""

    def __init__(self, heads_of_layer: list[slice], d_in: int, n_out: int, n_pos: int, device: torch.device) -> None:
        self.heads_of_layer = heads_of_layer
        n_heads = heads_of_layer[-1].stop
        wide: dict = {"dtype": torch.float64, "device": device}
        self.n = torch.zeros((), **wide)
        self.xx = torch.zeros(len(heads_of_layer), d_in, d_in, **wide)
        self.tx = torch.zeros(n_heads, n_out, d_in, **wide)
        self.t_by_position = torch.zeros(n_heads, n_out, n_pos, **wide)
        self.n_by_position = torch.zeros(n_pos, **wide)

    def add(self, x: Float[Tensor, "layer d tokens"], t: Float[Tensor, "head out tokens"], positions: Tensor) -> None:
        """Add a piece; sums within it are taken in its own type."""
        self.n += x.shape[2]
        self.xx += torch.bmm(x, x.transpose(1, 2)).double()
        for layer, heads in enumerate(self.heads_of_layer):
            self.tx[heads] += torch.matmul(t[heads], x[layer].T).double()
        self.t_by_position.index_add_(2, positions, t.double())
        self.n_by_position += torch.bincount(positions, minlength=len(self.n_by_position)).double()

    def mean(self) -> Float[Tensor, "head out"]:
        return self.t_by_position.sum(2) / self.n

    def position_means(self) -> Float[Tensor, "head out pos"]:
        """Return the mean of each position; the training mean where a position had no token."""
        seen = self.n_by_position > 0
        means = self.t_by_position / self.n_by_position.clamp(min=1)
        return torch.where(seen, means, self.mean()[:, :, None])

    def linear(self) -> Float[Tensor, "head out d"]:
        """Return B of every head; the smallest one where inputs do not span their space."""
        maps = []
        for layer, heads in enumerate(self.heads_of_layer):
            inverse = torch.linalg.pinv(self.xx[layer] / self.n, rtol=1e-10, hermitian=True)
            maps.append(self.tx[heads] / self.n @ inverse)
        return torch.cat(maps)

    def tensors(self) -> dict[str, Tensor]:
        names = ("n", "xx", "tx", "t_by_position", "n_by_position")
        return {name: getattr(self, name) for name in names}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, own in self.tensors().items():
            own.copy_(tensors[name])


_MARGIN = 1.5  # biases beyond the farthest input seen


def reduced_rank(
    moments: Moments, linear: Float[Tensor, "head out d"], rank: int
) -> tuple[Float[Tensor, "head out _r"], Float[Tensor, "head _r d_1"], Float[Tensor, "head out"]]:
    """Return (P, Pᵀ B, c) of every head; r is at most `out`. `linear` is `moments.linear()`, its last column the
    constant."""
    left, right, constants = [], [], []
    for layer, heads in enumerate(moments.heads_of_layer):
        second = moments.xx[layer] / moments.n
        mean = second[:-1, -1]
        covariance = second[:-1, :-1] - torch.outer(mean, mean)
        B, constant = linear[heads, :, :-1], linear[heads, :, -1]
        _, vectors = torch.linalg.eigh(B @ covariance @ B.transpose(1, 2))
        P = vectors.flip(2)[:, :, :rank]
        PtB = P.transpose(1, 2) @ B
        left.append(P)
        right.append(PtB)
        # The mean of t is that of B x̃ + constant, whatever the rank.
        constants.append(constant + (B @ mean) - (P @ (PtB @ mean)[:, :, None])[:, :, 0])
    return torch.cat(left), torch.cat(right), torch.cat(constants)


def as_network(
    moments: Moments,
    linear: Float[Tensor, "head out d"],
    width: int,
    x: Float[Tensor, "layer d tokens"],
) -> tuple[Float[Tensor, "head width d"], Float[Tensor, "head out width_1"]]:
    """Return (W₁, W₂) of every head: linear on the inputs x and half as far again. Units beyond rank `out` are zero."""
    P, PtB, constant = reduced_rank(moments, linear, width)
    n_heads, n_out, rank = P.shape
    sizes = PtB.norm(dim=2, keepdim=True)
    directions = torch.where(sizes > 0, PtB / sizes.clamp(min=1e-300), 0.0)
    W1 = linear.new_zeros(n_heads, width, linear.shape[2])
    W2 = linear.new_zeros(n_heads, n_out, width + 1)
    W1[:, :rank, :-1] = directions
    for layer, heads in enumerate(moments.heads_of_layer):
        seen = directions[heads].to(x.dtype) @ x[layer, :-1]
        W1[heads, :rank, -1] = _MARGIN * seen.abs().amax(2).to(linear.dtype)
    W2[:, :, :rank] = P * sizes.transpose(1, 2)
    W2[:, :, width] = constant - (W2[:, :, :rank] @ W1[:, :rank, -1:])[:, :, 0]
    return W1, W2
