"""The coordinates in which FFNs are trained: whitened inputs, and outputs in the head's own d_head dimensions.

Inputs of a layer become x̃ = (x − mean) M with covariance I, on a first piece of text. That changes no FFN's error
(M is folded into its first layer afterwards) but makes every direction equally quick to learn.

A head's result y = z W_O lies in the row space of W_O. With W_O = U S Vᵀ,

    ‖y − ŷ‖ = ‖t − t̂‖,   t = z U S,   ŷ = t̂ Vᵀ

so an FFN that predicts t, d_head numbers instead of d_model, has exactly the error of one that predicts y; what it
wrote outside the row space could only add to the error. With `target="z"`, t = z. Either way t is shifted and divided
by one number, so that its mean is 0 and its mean square 1; and the FFN's output is told in z, so that it can take the
head's place there: ẑ = t̂ S⁻¹ Uᵀ.
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
    """Float64 and on the device of the model; `layer` counts the layers that have a chosen head, `head` those heads."""

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
    """Fit the scaling from a first piece of text: one x and one z (of the chosen heads) a layer."""
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
