"""The reads of a node of the search, and bounds on how large its longer paths can be.

Write u_f `[pos, d_head]` for the gradient of the logit with respect to head f's values, along one chain of heads
above. A path that reaches f with values v contributes Σ_j ⟨u_f[j], v[j]⟩ ≤ Σ_j ‖u_f[j]‖ ‖v[j]‖. With r_k,f[j] a bound
on ‖v[j]‖ over all single paths with k heads below f,

    r_0,f    the norm of a source's own values, exact
    r_1,f    the largest norm of one head's output as f reads it, exact
    r_k,f[j] ≤ 1/s_f[j] · max_e σ_ef m_{k−1},e[j]      over heads e below f
    m_1,e[j] the largest norm of what e moves to j of one head's output, exact
    m_k,e[j] ≤ Σ_i |P_e[j, i]| r_k,e[i]

where σ_ef bounds the spectral norm of W_O,e V_f, the virtual head from e to f. So no path through the node with further
heads below is larger than max_{k≥1} Σ_j ‖u_f[j]‖ r_k,f[j]. This is the bound ‖g‖·‖x₀‖·∏ max(1, max_h ‖A‖₂‖W_OV‖₂) with
each factor replaced by what it can be at a position and between two heads, usually orders of magnitude smaller. m_1 is
worth its product with the pattern: values that a head averages cancel, their norms do not.

A head's inner basis is free (W_V G, G⁻¹ W_O): it is chosen so that W_V with its bias has orthonormal columns. Bounds
are kept in float64, where their products neither overflow nor vanish; one that is no number counts as infinite, so that
it proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from aotlens.conventions import Head
from aotlens.paths.frozen import Frozen
from aotlens.paths.path import SourceName

_SQUARINGS = 4  # σ is overestimated by at most inner^(1/2^(squarings + 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """The heads of all layers in one row, f = layer · n_heads + head."""

    names: tuple[SourceName, ...]
    n_heads: int
    split: bool
    """Whether they are bounds on paths from single source positions."""
    patterns: Float[Tensor, "f query key"]
    inverse_scale: Float[Tensor, "f pos"]
    W_V: Float[Tensor, "f d_model inner"]
    W_O: Float[Tensor, "f inner d_model"]
    values: Float[Tensor, "source f pos inner"]
    """v of each source by itself, 0 where it enters above the head; a bias's include b_O of the layers below and the
    head's own."""
    enters: Bool[Tensor, "source f"]
    """Whether the source is in the stream that the head reads: an MLP's output is from the layer after it."""
    reach: Float64[Tensor, "order f pos"]
    """r_1, r_2, …; bounds are on the CPU."""
    moved: Float64[Tensor, "f pos"]
    """m_1: the largest norm of what each source moves to a position of one head's output."""
    sigma: Float64[Tensor, "earlier later"]
    """Bounds on the spectral norms of virtual heads; 0 unless the layers increase."""

    @property
    def n_pos(self) -> int:
        return self.patterns.shape[-1]

    def gradient(self, head: Head, u: Float[Tensor, "pos inner"]) -> Float[Tensor, "pos d_model"]:
        """Return ∂ logit / ∂ stream before the head's layer, through the head."""
        f = head[0] * self.n_heads + head[1]
        return (u @ self.W_V[f].T) * self.inverse_scale[f][:, None]

    def head_values_gradient(self, head: Head, g: Float[Tensor, "pos d_model"]) -> Float[Tensor, "pos inner"]:
        """Return ∂ logit / ∂ the head's values, given ∂ logit / ∂ stream after it."""
        f = head[0] * self.n_heads + head[1]
        return self.patterns[f].T @ (g @ self.W_O[f].T)

    def contributions(self, reading: Reading) -> Float[Tensor, "source below pos"]:
        """Return the exact contribution of every source through each head below, by source position."""
        return torch.einsum("fpk,sfpk->sfp", reading.u, self.values[:, : len(reading.u)])

    def starts(self, first: int, stop: int) -> Int[Tensor, "start 2"]:
        """Return the pairs (source, head) in which the source enters below the head, for heads `first` to `stop`."""
        starts = self.enters[:, first:stop].nonzero()
        starts[:, 1] += first
        return starts


@dataclass(frozen=True, eq=False)
class Sizes:
    """Bounds on how much each head below a node passes on, of values of norm 1 at each position."""

    norms: Float64[Tensor, "below pos"]
    result_norms: Float64[Tensor, "below pos"]
    """Bounds on what each head has moved, P v, at the position that it writes to."""


@dataclass(frozen=True, eq=False)
class Reading(Sizes):
    """∂ logit / ∂ values of each head below a node, and its norms at each position."""

    u: Float[Tensor, "below pos inner"]


def read_heads(bounds: Bounds, g: Float[Tensor, "pos d_model"], n_below: int) -> Reading:
    """Extend a node by all of the first `n_below` heads, given ∂ logit / ∂ stream below the node."""
    y = torch.einsum("pd,fkd->fpk", g, bounds.W_O[:n_below])
    u = bounds.patterns[:n_below].mT @ y
    return Reading(row_norms(u), row_norms(y), u)


def row_norms(x: Float[Tensor, "*more inner"]) -> Float64[Tensor, "*more"]:
    """Return the norm of each row, on the CPU; where its squares overflow or vanish, the bound √inner · max |x|."""
    norms = x.norm(dim=-1)
    lost = (norms < torch.finfo(x.dtype).tiny ** 0.5 / torch.finfo(x.dtype).eps) | ~norms.isfinite()
    wide = norms.cpu().double()
    if bool(lost.any()):
        wide = torch.where(lost.cpu(), x.abs().amax(-1).cpu().double() * x.shape[-1] ** 0.5, wide)
    return wide


def bound_longer(bounds: Bounds | Via, reading: Sizes) -> Float64[Tensor, " below"]:
    """Bound for each extension what any path with still further heads below (the one of a `Via`) contributes."""
    n_below = len(reading.norms)
    longer = torch.einsum("fp,kfp->kf", reading.norms, bounds.reach[:, :n_below])
    longer[0] = torch.minimum(longer[0], (reading.result_norms * bounds.moved[:n_below]).sum(-1))
    return longer.nan_to_num(nan=torch.inf, posinf=torch.inf).amax(0)


@dataclass(frozen=True, eq=False)
class Via:
    """The bounds on the paths that pass one head, for the heads above it; 0 up to the head's own layer."""

    reach: Float64[Tensor, "order f pos"]
    """r_k, k heads above the one that they pass."""
    moved: Float64[Tensor, "f pos"]
    """m of those for which k = 1."""


def bounds_via(bounds: Bounds, head: Head) -> Via:
    """Bound the paths through `head` from its own output; the first step is exact if it is their first head."""
    n_heads, n_layers = bounds.n_heads, len(bounds.patterns) // bounds.n_heads
    place, above = head[0] * n_heads + head[1], (head[0] + 1) * n_heads
    reach, moved = torch.zeros_like(bounds.moved), torch.zeros_like(bounds.moved)
    if head[0] == n_layers - 1:
        return Via(reach[None], moved)
    P, virtual = bounds.patterns[place], bounds.W_O[place] @ bounds.W_V[above:]
    brought = bounds.values[:, place] if bounds.split else P @ bounds.values[:, place]
    scale, patterns = bounds.inverse_scale[above:], bounds.patterns[above:]
    reach[above:], moved[above:] = _read(brought[:, None] @ virtual, P, patterns, scale, bounds.split)
    # Paths with heads below it as well: as in `prepare`, from its largest output.
    sizes, scale = bounds.patterns.abs().cpu().double(), bounds.inverse_scale.cpu().double()
    longer = torch.zeros_like(moved)
    longer[place] = torch.stack(
        [bounds.moved[place], *(sizes[place] @ below[place] for below in bounds.reach[1:])]
    ).amax(0)
    longer = _reach(bounds.sigma, longer, n_layers, n_heads) * scale
    reaches = [torch.maximum(reach, longer)]
    first = torch.maximum(moved, _moved(sizes, longer))
    through = first
    for _ in range(head[0] + 2, n_layers):
        reaches.append(_reach(bounds.sigma, through, n_layers, n_heads) * scale)
        through = _moved(sizes, reaches[-1])
    return Via(torch.stack(reaches), first)


def _read(
    read: Float[Tensor, "source f pos inner"],
    P: Float[Tensor, "query key"],
    patterns: Float[Tensor, "f query key"],
    scale: Float[Tensor, "f pos"],
    split: bool,
) -> tuple[Tensor, Tensor]:
    """The largest norms of what a head with pattern P brings to heads f, and of what these then move, `[f, pos]`."""
    norms, scaled = row_norms(read).amax(0), patterns * scale[:, None]
    wide = scale.cpu().double()
    if split:  # one source position at a time
        return _largest(P.expand(len(norms), -1, -1), norms) * wide, _largest(scaled @ P, norms)
    # What cancels keeps the rounding of what it was.
    rounding = 16 * torch.finfo(read.dtype).eps * _moved(scaled.abs().cpu().double(), norms)
    return norms * wide, row_norms(scaled @ read).amax(0) + rounding


def _largest(weights: Float[Tensor, "f query key"], norms: Float64[Tensor, "f key"]) -> Float64[Tensor, "f query"]:
    """max_key |P| · norm, with what a product in single precision may have lost."""
    top = norms.amax()
    relative = (norms / top.clamp(min=torch.finfo(norms.dtype).tiny)).to(weights)
    largest = (weights.abs() * relative[:, None]).amax(-1).cpu().double()
    return (largest + torch.finfo(weights.dtype).tiny) * top


def _moved(sizes: Float64[Tensor, "f query key"], norms: Float64[Tensor, "f key"]) -> Float64[Tensor, "f query"]:
    """Σ_key |P| of norms."""
    return (sizes @ norms[:, :, None])[:, :, 0]


def prepare(frozen: Frozen, split: bool) -> Bounds:
    """Compute all that depends on the prompt and not on the logit. Time and memory as in `aotlens.paths.search`."""
    n_layers, n_heads, n_pos = frozen.n_layers, frozen.n_heads, frozen.n_pos
    joined = torch.cat([frozen.W_V, frozen.v_bias[:, :, None]], dim=2)  # [layer, head, d_model + 1, d_head]
    # On the CPU, since not every accelerator decomposes.
    orthonormal, inner = (factor.to(joined.device) for factor in torch.linalg.qr(joined.cpu()))
    W_V, v_bias = orthonormal[:, :, :-1].flatten(0, 1), orthonormal[:, :, -1].flatten(0, 1)
    W_O = (inner @ frozen.W_O).flatten(0, 1)
    patterns = frozen.patterns.flatten(0, 1)
    inverse_scale = frozen.inverse_scale.repeat_interleave(n_heads, 0)
    streams = [x.expand(n_layers, -1, -1) for x in frozen.sources.values()]
    enters = torch.ones(len(frozen.source_names), n_layers, dtype=torch.bool)
    for layer in range(frozen.n_mlps):
        assert frozen.mlps is not None
        above = torch.arange(n_layers) > layer
        enters[len(streams)] = above
        streams.append(frozen.mlps[layer] * above.to(frozen.mlps)[:, None, None])
    if frozen.has_bias:
        streams.append(frozen.bias_before[:-1, None].expand(-1, n_pos, -1))
    read = torch.stack(streams) * frozen.inverse_scale[:, :, None]  # [source, layer, pos, d_model]
    values = torch.einsum("slpd,lhdk->slhpk", read, W_V.unflatten(0, (n_layers, n_heads))).flatten(1, 2)
    if frozen.has_bias:
        values[-1] += v_bias[:, None]
    sigma, first, moved = _virtual_heads(W_V, W_O, values, patterns, inverse_scale, n_heads, split)
    sizes, scale = patterns.abs().cpu().double(), inverse_scale.cpu().double()
    moved = moved + 16 * torch.finfo(values.dtype).eps * _moved(sizes, first)  # what cancels keeps its rounding
    reaches, through = [first], moved
    for _ in range(2, n_layers):
        reaches.append(_reach(sigma, through, n_layers, n_heads) * scale)
        through = _moved(sizes, reaches[-1])
    return Bounds(
        names=frozen.source_names,
        n_heads=n_heads,
        split=split,
        patterns=patterns,
        inverse_scale=inverse_scale,
        W_V=W_V,
        W_O=W_O,
        values=values,
        enters=enters.repeat_interleave(n_heads, 1),
        reach=torch.stack(reaches),
        moved=moved,
        sigma=sigma,
    )


def _virtual_heads(
    W_V: Tensor, W_O: Tensor, values: Tensor, patterns: Tensor, inverse_scale: Tensor, n_heads: int, split: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """σ `[earlier, later]` over all pairs, 0 unless the layers increase; r_1 and m_1 `[f, pos]`, both exact."""
    n, n_pos = len(W_V), values.shape[2]
    sigma = torch.zeros(n, n, dtype=torch.float64)
    first, moved = (torch.zeros(n, n_pos, dtype=torch.float64) for _ in range(2))
    brought = values if split else patterns @ values
    for later in range(n_heads, n):
        below = (later // n_heads) * n_heads
        virtual = W_O[:below] @ W_V[later]  # [below, inner, inner]
        sigma[:below, later] = spectral_norm_bound(virtual).cpu().double()
        read = brought[:, :below] @ virtual  # [source, below, pos, inner]
        norms = row_norms(read).amax(0)  # [below, pos]
        scale = inverse_scale[later].cpu().double()
        scaled = patterns[later] * inverse_scale[later]
        if split:  # one source position i at a time: ‖v_i …‖ times the weight from i, straight or by way of `later`
            first[later] = _largest(patterns[:below], norms).amax(0) * scale
            moved[later] = _largest(scaled @ patterns[:below], norms).amax(0)
        else:
            first[later] = norms.amax(0) * scale
            moved[later] = row_norms(scaled @ read).amax((0, 1))
    return sigma, first, moved


def _reach(sigma: Tensor, moved: Tensor, n_layers: int, n_heads: int) -> Tensor:
    """max over heads e below f of σ_ef · moved_e, `[f, pos]`; 0 in the first layer."""
    reach = torch.zeros_like(moved)
    for layer in range(1, n_layers):
        below, here = layer * n_heads, slice(layer * n_heads, (layer + 1) * n_heads)
        reach[here] = (sigma[:below, here].T[:, :, None] * moved[:below]).amax(1)
    return reach


def spectral_norm_bound(matrices: Float[Tensor, "*more a b"]) -> Float[Tensor, "*more"]:
    """Return an upper bound on the largest singular value, at most inner^(1/32) times it: ‖(M Mᵀ)^16‖_F^(1/32)."""
    largest = matrices.abs().amax((-2, -1))
    # Of order 1, so that no square overflows or vanishes.
    matrices = matrices / largest.clamp(min=torch.finfo(matrices.dtype).tiny)[..., None, None]
    gram = matrices @ matrices.mT
    scale = gram.norm(dim=(-2, -1))
    # Normalised before each squaring, so that no power overflows: gram = scale · power.
    log_norm = torch.log(scale)
    power = gram / scale.clamp(min=torch.finfo(gram.dtype).tiny)[..., None, None]
    for _ in range(_SQUARINGS):
        power = power @ power
        norm = power.norm(dim=(-2, -1))
        log_norm = 2 * log_norm + torch.log(norm)
        power = power / norm.clamp(min=torch.finfo(gram.dtype).tiny)[..., None, None]
    return torch.where(scale > 0, largest * torch.exp(log_norm / 2 ** (_SQUARINGS + 1)), 0.0)
