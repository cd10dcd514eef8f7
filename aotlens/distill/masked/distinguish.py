"""One attention layer that gives [MASK] another vector in every sequence (*nonlinearity*, Propositions 5.1–5.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_choice, require_seed
from aotlens.distill.compile.ffn import FeedForward, require_tensors
from aotlens.distill.masked.assumption import MaskedSequences, check_assumption
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.results import Result

Method = Literal["attention", "fixed", "random"]
METHODS: tuple[Method, ...] = ("attention", "fixed", "random")
_DIRECTIONS = 64
#: β times the spread of v·x: how far softmax is from averaging.
_SHARPNESS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class DistinguishedMasks(Result):
    """A layer that tells the masks apart, and by how much."""

    method: Method
    data: MaskedSequences
    model: AttentionOnlyTransformer
    """One layer, one head of size 1, float64. It reads X, or with `method="random"` (f(x), 0)."""
    ffn: PointFit | None
    """The network f before the layer, 3·|S| units (`method="random"`)."""
    contexts: Float[Tensor, " n"]
    """The context that the head has gathered at each sequence's mask: one number, another for every sequence."""
    pattern: Float[Tensor, "query key"] | None
    """The fixed pattern A, rows attending (the paper's is its transpose)."""

    @property
    def headline(self) -> str:
        return f"masks are at least {self.gap:.3g} apart, of at most {float(self.contexts.abs().max()):.3g}"

    @property
    def gap(self) -> float:
        """The least difference of two contexts."""
        return float(least_gap(self.contexts))

    @property
    def condition(self) -> float:
        """Largest |context| / gap: float64 tells contexts apart up to some 1e15."""
        return float(self.contexts.abs().max()) / self.gap

    def __call__(self, X: Float[Tensor, "n pos d_model"]) -> Float[Tensor, "n pos width"]:
        """The stream after the layer; for the sequences it was made for, its rows at the masks are all different."""
        if X.ndim != 3 or X.shape[1:] != self.data.X.shape[1:]:
            raise ValueError(f"expected sequences {list(self.data.X.shape[1:])}, got {list(X.shape[1:])}.")
        stream = X.to(torch.float64)
        if self.ffn is not None:
            values = self.ffn(stream.flatten(0, 1)).view(stream.shape[:2])
            stream = torch.stack([values, torch.zeros_like(values)], -1)
        return self.model(stream)


def distinguish_mask(
    X: Float[Tensor, "n pos d_model"],
    *,
    method: Method = "attention",
    mask: Float[Tensor, " d_mask"] | None = None,
    pattern: Float[Tensor, "query key"] | None = None,
    score_separation: float | int | None = None,
    seed: int = 0,
) -> DistinguishedMasks:
    """Return a layer after which [MASK] has another vector in every one of n sequences that fulfil Assumption 3.1.

    With v a unit vector, p_j = v·x_j, m the mask's position and u'' (W_O) a vector, the layer adds u''·c to [MASK]:

        method       c, of a sequence                                    proposition
        "attention"  Σ_j softmax_j(β p_j) p_j                            5.1: input-dependent patterns
        "fixed"      Σ_j A[m, j] p_j, A > 0 chosen for the sequences     5.2
        "random"     Σ_j A[m, j] f(x_j), A > 0 any (or `pattern`)        5.3: needs an FFN f before it

    5.1: scores are (x_i·v)(x_j·v) u u', so β = u u' (v·[MASK]) is the same everywhere. The proof takes β so large that
    the scores of distinct tokens differ by more than 2 log N + 3 (log D is printed; the vectors have length N).
    Then nearly all weight is on the token with the largest score: the two nearest of all tokens set β, and two
    sequences that share that token differ by about exp(−β · difference of p), soon below float64's rounding.
    `score_separation=` that number shows it. Any β > 0 but for isolated ones tells the sequences apart too (c is the
    derivative in β of log Σ exp(β p_j), and exponentials are independent), so without `score_separation` the (v, β)
    with the largest gap of a few hundred is taken. u'' is orthogonal to [MASK], or 1 if D = 1.

    5.3: f(x) = w_{g(x)}, g numbering the tokens S and w a unit vector (Lemma H.1), by Lemma H.4 with 3·|S| units. The
    proposition's width 3(n−1)N is too small where tokens are shared by few: |S| can be n(N−1) + 1.

    `mask` is [MASK]; without it, the token that is in every sequence.

    Raises `ValueError` where Assumption 3.1 is violated (which condition, which sequences), where float64 cannot tell
    two sequences' contexts apart (which ones), and for a pattern with entries that are not positive.
    """
    require_choice("method", method, METHODS)
    if score_separation is not None and (method != "attention" or not 0 < score_separation < math.inf):
        raise ValueError("score_separation: expected a positive number, with method='attention'.")
    if pattern is not None and method != "random":
        raise ValueError("pattern is for method='random'; the other methods make theirs.")
    data = check_assumption(X, mask)
    generator = torch.Generator().manual_seed(require_seed(seed))
    if method == "attention":
        return _attention(data, generator, score_separation)
    return _fixed(data, generator) if method == "fixed" else _random(data, generator, pattern, seed)


def _attention(data: MaskedSequences, generator: torch.Generator, separation: float | int | None) -> DistinguishedMasks:
    best = (-1.0, torch.zeros(0), 0.0)
    overflowed = False
    for v in _directions(data.X.shape[2], generator):
        projected = data.tokens @ v
        own = float(data.mask @ v)
        if own == 0 or float(least_gap(projected)) == 0:
            continue  # W_Q x = u'(v·[MASK]) would be 0, or two tokens the same
        spread = max(float(projected.max() - projected.min()), 1e-300)
        betas = [b / spread for b in _SHARPNESS] if separation is None else [separation / float(least_gap(projected))]
        for beta in betas:
            p = data.X @ v
            if not math.isfinite(2 * beta * float(p.abs().max())) or not math.isfinite(beta / own):
                overflowed = True
                continue
            contexts = ((beta * p).softmax(1) * p).sum(1)
            quality = float(least_gap(contexts) / contexts.abs().max().clamp_min(1e-300))
            if quality > best[0]:
                best = (quality, v, beta / own)
    _, v, scale = best
    if not len(v) and overflowed:
        raise ValueError(
            f"score_separation={separation:g}: scores so far apart are beyond float64; give a smaller number."
            if separation is not None
            else "tokens are so near to each other that β is beyond float64; multiply X by a number."
        )
    if not len(v):
        raise ValueError("no direction tried gives distinct tokens distinct projections in float64.")
    model = one_head_layer(data.X.shape[1], len(v), v, _away_from(data.mask))
    attn = model.blocks[0].attn
    # d_head = 1, so the model's own scale is 1.
    attn.W_Q[0, :, 0], attn.W_K[0, :, 0] = math.copysign(math.sqrt(abs(scale)), scale) * v, math.sqrt(abs(scale)) * v
    return _finish("attention", data, model, None, None, separated=separation is not None)


def _fixed(data: MaskedSequences, generator: torch.Generator) -> DistinguishedMasks:
    length = data.X.shape[1]
    best = (-1.0, torch.zeros(0), torch.zeros(0))
    for v in _directions(data.X.shape[2], generator):
        pattern = 0.5 + torch.rand(length, length, generator=generator, dtype=torch.float64)
        contexts = (pattern[data.positions] * (data.X @ v)).sum(1)
        quality = float(least_gap(contexts) / contexts.abs().max().clamp_min(1e-300))
        if quality > best[0]:
            best = (quality, v, pattern)
    _, v, pattern = best
    model = one_head_layer(length, len(v), v, _away_from(data.mask), pattern)
    return _finish("fixed", data, model, None, pattern)


def _random(data: MaskedSequences, generator: torch.Generator, pattern: Tensor | None, seed: int) -> DistinguishedMasks:
    length = data.X.shape[1]
    if pattern is None:
        pattern = torch.rand(length, length, generator=generator, dtype=torch.float64) + 2.0**-20
    pattern = pattern.to("cpu", torch.float64)
    if pattern.shape != (length, length) or not pattern.isfinite().all() or not (pattern > 0).all():
        raise ValueError(f"pattern: expected [{length}, {length}] finite positive numbers, got {list(pattern.shape)}.")
    best = (-1.0, torch.zeros(0))
    for w in _directions(len(data.tokens), generator):
        contexts = (pattern[data.positions] * w[data.ids]).sum(1)
        quality = float(least_gap(contexts))
        if quality > best[0]:
            best = (quality, w)
    ffn = point_fit(data.tokens, best[1], seed=seed)
    first, second = torch.eye(2, dtype=torch.float64)
    return _finish("random", data, one_head_layer(length, 2, first, second, pattern), ffn, pattern)


def one_head_layer(
    length: int, width: int, v: Tensor, out: Tensor, pattern: Tensor | None = None
) -> AttentionOnlyTransformer:
    """Return one layer with one head of size 1, W_OV = v outᵀ: softmax (W_Q and W_K to be filled in), or a fixed
    `pattern`."""
    cfg = ModelConfig(
        n_layers=1,
        d_model=width,
        n_heads=1,
        d_head=1,
        n_ctx=length,
        phi="softmax" if pattern is None else "fixed",
        fixed_pattern=None if pattern is None else "given",
        norm=None,
        causal=False,
        positions=None,
        read_in="vectors",
        read_out="vectors",
    )
    model = AttentionOnlyTransformer(cfg, pattern=pattern).to("cpu", torch.float64).requires_grad_(False)
    attn = model.blocks[0].attn
    if pattern is not None:
        attn.fixed_pattern.copy_(pattern)  # the constructor's is in the default type
    attn.W_V[0, :, 0], attn.W_O[0, 0] = v, out
    return model


def _finish(
    method: Method,
    data: MaskedSequences,
    model: AttentionOnlyTransformer,
    ffn: PointFit | None,
    pattern: Tensor | None,
    separated: bool = False,
) -> DistinguishedMasks:
    """Contexts as the model itself computes them, and a refusal where rounding may have made the differences."""
    result = DistinguishedMasks(
        method=method, data=data, model=model, ffn=ffn, pattern=pattern, contexts=torch.zeros(len(data.X))
    )
    out = model.blocks[0].attn.W_O[0, 0]
    rows = torch.arange(len(data.X))
    after = torch.cat([result(part) for part in data.X.split(1024)])[rows, data.positions]
    contexts = after[:, 1] if method == "random" else (after - data.mask) @ out / (out @ out)
    size = float(contexts.abs().max()) + (0.0 if method == "random" else float(data.mask.abs().max()))
    rounding = 8 * (data.X.shape[1] + data.X.shape[2]) * 2.0**-53 * size
    if ffn is not None:
        assert pattern is not None
        rounding += 2 * float(ffn.errors.max() * pattern.sum(1).max())
    if float(least_gap(contexts)) <= rounding:
        order = contexts.argsort()
        pair = sorted(order[int(contexts[order].diff().argmin()) :][:2].tolist())
        raise ValueError(
            f"sequences {pair[0]} and {pair[1]}: their masks differ by {float(least_gap(contexts)):.1g} after the "
            f"layer, within float64's rounding of {rounding:.1g}. Give fewer sequences"
            + (", or leave out score_separation." if separated else ".")
        )
    return DistinguishedMasks(method=method, data=data, model=model, ffn=ffn, pattern=pattern, contexts=contexts)


def _directions(d: int, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(_DIRECTIONS):
        v = torch.randn(d, generator=generator, dtype=torch.float64)
        yield v / v.norm()


def _away_from(mask: Tensor) -> Tensor:
    """A unit vector orthogonal to [MASK], as different from a coordinate axis as can be; 1 if D = 1."""
    if len(mask) == 1:
        return torch.ones(1, dtype=torch.float64)
    unit = mask / mask.norm()
    axis = torch.zeros_like(mask)
    axis[unit.abs().argmin()] = 1.0
    away = axis - unit * (axis @ unit)
    return away / away.norm()


_FIT_DIRECTIONS = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class PointFit(Result):
    """f(x) = Σ_i y_i I_i(x), I_i a triangle of height 1 over v·x_i."""

    ffn: FeedForward
    """One hidden layer of 3n ReLU units; `compile_ffn` takes it."""
    direction: Float[Tensor, " d"]
    """The unit vector v."""
    sharpness: float
    """K: the triangles reach 1/K to both sides."""
    gap: float
    """The least |v·x_i − v·x_j|."""
    errors: Float[Tensor, " n"]
    """|f(x_i) − y_i| in float64: rounding, since in exact arithmetic it is 0."""

    condition: float
    """K · largest |v·x_i|: how many times larger a relative error of v·x becomes as one of a triangle's height."""

    @property
    def headline(self) -> str:
        return f"{len(self.errors)} points within {float(self.errors.max()):.2g}"

    def __call__(self, x: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """The fitted network's output f(x), in float64."""
        return self.ffn(x.to(torch.float64))[:, 0]


def point_fit(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " value"],
    *,
    direction: Float[Tensor, " d_direction"] | None = None,
    seed: int = 0,
) -> PointFit:
    """Return a network with f(x_i) = y_i for n distinct points (Lemma H.4).

    Along a unit vector v on which the points differ, with K > 2 / min |v·(x_i − x_j)|:

        I_i(x) = σ(K v·(x − x_i) − 1) − 2σ(K v·(x − x_i)) + σ(K v·(x − x_i) + 1)

    is 1 at x_i and 0 at all other points; f = Σ y_i I_i has 3n units. `direction` gives v; otherwise the one of 256
    random ones (Lemma H.1: most are good) that separates the points best.

    **Conditioning.** K·|v·x| is about 2 · spread / gap, and the gap of n random numbers is about spread / n². Each of
    the 3n units rounds by some 1e-16 of K·|v·x|, so errors grow about as n^2.5 · |y| · 1e-16.

    Raises `ValueError` for other shapes, for equal points (which ones), for points that no direction separates in
    float64, and for numbers that are not finite.
    Cost: O(n²) numbers to evaluate at all points, O(n (log n + d)) a direction.
    """
    require_tensors(x=x, y=y)
    x, y = (t.detach().to("cpu", torch.float64) for t in (x, y))
    if x.ndim != 2 or y.ndim != 1 or 0 in x.shape:
        raise ValueError(f"expected points [n, d] and values [n], got {list(x.shape)} and {list(y.shape)}.")
    if len(x) != len(y):
        raise ValueError(f"expected as many values as points, got {len(x)} points, {len(y)} values.")
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("expected finite points and values.")
    _refuse_equal(x)
    if direction is None:
        generator = torch.Generator().manual_seed(require_seed(seed))
        candidates = torch.randn(_FIT_DIRECTIONS, x.shape[1], generator=generator, dtype=torch.float64)
    else:
        candidates = direction.to("cpu", torch.float64)[None]
        if direction.shape != x.shape[1:] or not 0 < candidates.norm() < math.inf:
            raise ValueError(f"direction: expected {x.shape[1]} finite numbers, not all 0, got {direction.tolist()}.")
    candidates = candidates / candidates.norm(dim=1, keepdim=True)
    gaps = torch.stack([least_gap(x @ v) / (x @ v).abs().max().clamp_min(1e-300) for v in candidates])
    v = candidates[gaps.argmax()]
    projected = x @ v
    gap, largest = float(least_gap(projected)), float(projected.abs().max())
    rounding = (x.shape[1] + 2) * 2.0**-53 * float((x.abs() @ v.abs()).max())
    if gap <= 4 * rounding:
        pair = sorted(projected.argsort()[projected.sort().values.diff().argmin() :][:2].tolist())
        raise ValueError(f"points {pair[0]} and {pair[1]} are not separated by any direction tried, in float64.")
    sharpness = 2 / gap * (1 + 2**-20) if gap < math.inf else 1.0
    if not math.isfinite(sharpness * max(largest, 1.0)):
        raise ValueError(f"the points are only {gap:.1g} apart along v: K = 2/{gap:.1g} is beyond float64.")
    centre = sharpness * projected
    biases = torch.stack([-centre - 1, -centre, -centre + 1], 1).flatten()
    heights = torch.stack([y, -2 * y, y], 1).view(-1, 1)
    ffn = FeedForward(
        weights=((sharpness * v)[:, None].expand(-1, len(biases)).contiguous(), heights),
        biases=(biases, torch.zeros(1, dtype=torch.float64)),
        activations=("relu",),
    )
    parts = zip(x.split(512), y.split(512), strict=True)
    errors = torch.cat([(ffn(rows)[:, 0] - values).abs() for rows, values in parts])
    return PointFit(
        ffn=ffn, direction=v, sharpness=sharpness, gap=gap, errors=errors, condition=sharpness * largest
    )  # fmt: skip


def least_gap(values: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Return the least distance of two of the n values; infinity for one value."""
    if values.shape[-1] < 2:
        return torch.full(values.shape[:-1], math.inf, dtype=values.dtype)
    return values.sort(-1).values.diff(dim=-1).amin(-1)


def _refuse_equal(x: Tensor) -> None:
    _, group, sizes = torch.unique(x + 0.0, dim=0, return_inverse=True, return_counts=True)
    if (sizes > 1).any():
        same = (group == group[(sizes[group] > 1).nonzero()[0, 0]]).nonzero()[:2, 0].tolist()
        raise ValueError(f"points {same[0]} and {same[1]} are equal; a function has one value there.")
