"""Attention-only models that recover every masked token (*nonlinearity*, Theorem 6.1 and its restatements)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from aotlens.distill.compile.bounds import RELU_GAP
from aotlens.distill.compile.ffn import require_tensors
from aotlens.distill.compile.layers import HeadGroup, assemble, count_heads, layer_heads, unit_layers
from aotlens.distill.masked.assumption import MaskedSequences
from aotlens.distill.masked.distinguish import (
    DistinguishedMasks,
    Method,
    PointFit,
    distinguish_mask,
    one_head_layer,
    point_fit,
)
from aotlens.models import AttentionOnlyTransformer
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

_BYTES_AT_ONCE = 2e8


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedLanguageModel(Result):
    """The model, run on all its sequences."""

    method: Method
    """The proposition, of 5.1 to 5.3, by which the masks are distinguished."""
    stages: tuple[AttentionOnlyTransformer, ...]
    """Run one after the other on one stream, float64. Position 0 is the auxiliary token; others begin as (x, 1, 0)."""
    data: MaskedSequences
    targets: Float[Tensor, " n"]
    """y, the ids of the masked tokens."""
    predictions: Float[Tensor, " n"]
    """The model's outputs at the masks."""
    tolerance: float
    fit: PointFit
    """The last layer, before it was compiled: from what was made of [MASK] to its token's id, 3n units."""
    eta: float
    """η of the last layer's units."""
    heads_per_layer: tuple[int, ...]
    condition: float
    """Largest |context| / least difference of two contexts, of what the head of Proposition 5.1 to 5.3 gathers."""

    @property
    def model(self) -> AttentionOnlyTransformer:
        """All layers as one model. Raises `ValueError` where one has a fixed pattern, and others have not."""
        if len(self.stages) > 1:
            raise ValueError(
                f"method={self.method!r} has a layer with a fixed pattern beside layers with softmax, which one model "
                "cannot have; run its stages one after the other, as predict does."
            )
        return self.stages[0]

    @property
    def headline(self) -> str:
        return f"{int(self.recovered.sum())} of {len(self.targets)} masked tokens are recovered"

    @property
    def errors(self) -> Float[Tensor, " n"]:
        """|prediction − y|, measured: with one for every sequence there is, that is a proof for this machine."""
        return (self.predictions - self.targets).abs()

    @property
    def recovered(self) -> Bool[Tensor, " n"]:
        """Whether the rounded prediction names each masked token."""
        return self.errors < 0.5

    @property
    def paper_heads(self) -> int:
        """max{3n, D} + 1, which Theorem 6.1 states for each of its two layers (`method="attention"`)."""
        return max(3 * len(self.targets), self.data.X.shape[2]) + 1

    def predict(self, X: Float[Tensor, "m pos d_model"]) -> Float[Tensor, "m pos"]:
        """Return the number that is written at every position; at a mask, the id of the token that was there."""
        if X.ndim != 3 or X.shape[1:] != self.data.X.shape[1:]:
            raise ValueError(f"expected sequences {list(self.data.X.shape[1:])}, got {list(X.shape[1:])}.")
        return _run(self.stages, X)[..., 0]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a sequence: sequence, position, target, prediction, error, recovered."""
        return data_frame(
            {
                "sequence": range(len(self.targets)),
                "position": self.data.positions.numpy(),
                "target": self.targets.numpy(),
                "prediction": self.predictions.numpy(),
                "error": self.errors.numpy(),
                "recovered": self.recovered.numpy(),
            }
        )


def masked_lm(
    X: Float[Tensor, "n pos d_model"],
    y: Real[Tensor, " target"],
    tolerance: float | int,
    *,
    method: Method = "attention",
    mask: Float[Tensor, " d_mask"] | None = None,
    pattern: Float[Tensor, "query key"] | None = None,
    seed: int = 0,
) -> MaskedLanguageModel:
    """Return an attention-only model with |model(X^(i)) at its mask − y^(i)| ≤ tolerance for all n sequences.

    A head (`distinguish_mask`) makes [MASK] another vector in every sequence, [MASK] + u''·c_i. The last layer is Lemma
    H.4's network of 3n ReLU units through (c_i, y_i), along u'', compiled by Theorem 4.1. The paper's §6 builds the
    head by Proposition 5.1 and says that 5.2 and 5.3 serve as well:

        method       layers, with their heads                                             the head's pattern
        "attention"  the head; 3n + 1                                                     softmax (5.1)
        "fixed"      the head; 3n + 1                                                     chosen for the sequences (5.2)
        "random"     3·|S| + 1; the head; 3n + 1                                          any positive one (5.3)

    For 5.3 the first layer is the proposition's feed-forward network of 3·|S| units on the tokens S, compiled too (its
    printed width 3(n−1)N is too small where tokens are shared by few), and `pattern` `[N, N]` can be given. The paper
    states max{3n, D} + 1 heads for both layers of 5.1 (see `compile_ffn` for what its proof needs) and d_model
    max{3n, D} + 2 where D + 2 serve. Zero heads fill the layers of a stage up to one shape. The model is built, and run
    on every sequence: the errors reported are all there are.

    **How many sequences float64 can hold.** n contexts in one dimension are at least about spread/n² apart, so
    K ~ n², and a context's rounding of some 1e-16 is amplified by K·|y|: `condition` is the first factor. Of 2,000
    random sequences (ids to 4,000) all were recovered, within 2.4e-5; at 300 the error was 3e-8. More were not run.

    **How large tokens may be.** Layer 1's wide head takes [MASK] off the stream while the units add y, so of its first
    coordinate a rounding of some 1e-16 stays in the output, whatever n: 10 sequences err by 1e-9 with tokens of some
    1e6, by 1e-3 at 1e12. Dividing X by a number mends that, as the contexts' conditioning has no scale.

    `y` are token ids, whole numbers of any dtype, at most 2⁵³. `mask` is [MASK]; without it, the token that is in
    every sequence.

    Raises `ValueError` where Assumption 3.1 is violated (which condition, which sequences), for y of another shape or
    not whole, and where float64 does not reach the tolerance, with the error that it does reach and what limits it.
    Cost: O(n) heads, so O(n²·N·(N + D)) to run on all n.
    """
    if isinstance(tolerance, bool) or not (tolerance > 0 and math.isfinite(tolerance)):
        raise ValueError(f"tolerance={tolerance}: expected a positive finite number; below 0.5, every token is named.")
    require_tensors(X=X, y=y)
    targets = _whole(y, X)
    masks = distinguish_mask(X, method=method, mask=mask, pattern=pattern, seed=seed)
    data = masks.data
    rows = torch.arange(len(data.X))
    d = data.X.shape[2]
    if masks.pattern is None:
        head = masks.model.blocks[0].attn
        out = head.W_O[0, 0]
        before: tuple[AttentionOnlyTransformer, ...] = ()
        after = torch.cat([masks.model(part) for part in data.X.split(1024)])[rows, data.positions]
    else:
        # The compiled network of 5.3 leaves f(x) in the first coordinate and nothing in the others.
        first = torch.eye(d, dtype=torch.float64)[0]
        v, out = (first, first) if masks.ffn else (masks.model.W_V[0, 0, :, 0], masks.model.W_O[0, 0, 0])
        fixed = one_head_layer(
            data.X.shape[1] + 1, d + 2, _pad(v, (0, 2)), _pad(out, (0, 2)), _pad(masks.pattern, (1, 0, 1, 0))
        )
        before = (*_token_layer(masks), fixed)
        after = _run(before, data.X)[rows, data.positions, :d]
    fit = point_fit(after, targets, direction=out)

    # 0.2785·η a unit, through weights of y(1, −2, 1): half of the tolerance; the rest is rounding's.
    reach = float(fit.ffn.weights[1].abs().sum())
    eta = min(float(tolerance) / 2 / (RELU_GAP * reach), 1.0) if reach > 0 else 1.0
    last = _compiled(fit, eta)
    if not before:
        context_head = HeadGroup(
            sees="tokens",
            **{name: _pad(getattr(head, name), (0, 0, 0, 2)) for name in ("W_Q", "W_K", "W_V")},
            W_O=_pad(head.W_O, (0, 2)),
        )
    layers = [last] if before else [[context_head], last]
    stages = (*before, assemble(layers, data.X.shape[1]))
    result = MaskedLanguageModel(
        method=method,
        stages=stages,
        data=data,
        targets=targets,
        predictions=targets,
        tolerance=float(tolerance),
        fit=fit,
        eta=eta,
        heads_per_layer=tuple(n for stage in stages for n in count_heads(stage).tolist()),
        condition=masks.condition,
    )
    predictions = result.predict(data.X)[rows, data.positions]
    worst = float((predictions - targets).abs().max())
    if not worst <= tolerance:
        taken_off = float(after[:, 0].abs().max())
        from_contexts = fit.sharpness * float(after.abs().max()) * float(targets.abs().max())
        raise ValueError(
            f"tolerance={tolerance:g}: in float64 this model of {len(y)} sequences errs by up to {worst:.2g}. "
            + (
                f"[MASK]'s first coordinate is up to {taken_off:.1g}, and what rounding takes from it stays in the "
                "output; give a larger tolerance or divide X by a number."
                if taken_off > from_contexts
                else f"The largest context is {masks.condition:.1g} times the least difference of two; give a larger "
                "tolerance or fewer sequences."
            )
        )
    return dataclasses.replace(result, predictions=predictions)


def _run(stages: Sequence[AttentionOnlyTransformer], X: Tensor) -> Float[Tensor, "m pos width"]:
    """The stream of the tokens (x, 1, 0) after all stages, the auxiliary token left out."""
    m, length, d = X.shape
    stream = torch.zeros(m, length + 1, d + 2, dtype=torch.float64)
    stream[:, 0, -1] = 1.0
    stream[:, 1:, :d], stream[:, 1:, d] = X, 1.0
    for stage in stages:
        each = 4 * 8 * stage.cfg.n_heads * stage.cfg.n_ctx * (stage.cfg.d_head + stage.cfg.n_ctx)
        stream = torch.cat([stage(part) for part in stream.split(max(1, int(_BYTES_AT_ONCE // each)))])
    return stream[:, 1:]


def _compiled(fit: PointFit, eta: float) -> tuple[HeadGroup, ...]:
    """The heads of one layer that do what `fit`'s network does, its ReLUs within 0.2785·η."""
    unit = torch.zeros(len(fit.direction) + 2, dtype=torch.float64)
    unit[-1] = 1.0
    (layer,) = unit_layers(fit.ffn, [eta], "lean")
    return layer_heads(layer, unit)


def _token_layer(masks: DistinguishedMasks) -> tuple[AttentionOnlyTransformer, ...]:
    """Proposition 5.3's network on single tokens, compiled, so well that contexts stay apart; nothing without one."""
    if masks.ffn is None:
        return ()
    assert masks.pattern is not None
    # A context moves by at most 0.2785·η · Σ|weights| · Σ_j A[m, j]: a quarter of the least difference of two.
    reach = float(masks.ffn.ffn.weights[1].abs().sum() * masks.pattern.sum(1).max())
    eta = min(masks.gap / 4 / (RELU_GAP * reach), 1.0)
    return (assemble([_compiled(masks.ffn, eta)], masks.data.X.shape[1]),)


def _whole(y: Tensor, X: Tensor) -> Float[Tensor, " n"]:
    """y as float64: one id a sequence."""
    if y.ndim != 1 or y.shape != X.shape[:1]:
        raise ValueError(f"y: expected one target a sequence, got {list(y.shape)} for X {list(X.shape)}.")
    ids = y.detach().to("cpu", torch.float64)
    if not ((ids == ids.round()) & (ids.abs() <= 2.0**53)).all():
        raise ValueError("y: expected token ids, whole numbers of at most 2⁵³ in size.")
    return ids


def _pad(weight: Tensor, padding: tuple[int, ...]) -> Tensor:
    return torch.nn.functional.pad(weight.detach(), padding)
