"""A two-layer attention-only model that recovers every masked token (*nonlinearity*, Theorem 6.1)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from aotlens.distill.compile.assemble import assemble, count_heads
from aotlens.distill.compile.bounds import RELU_GAP
from aotlens.distill.compile.heads import HeadGroup, layer_heads
from aotlens.distill.compile.layers import unit_layers
from aotlens.distill.masked.assumption import MaskedSequences
from aotlens.distill.masked.distinguish import distinguish_mask
from aotlens.distill.masked.point_fit import PointFit, point_fit
from aotlens.distill.tensors import require_tensors
from aotlens.models import AttentionOnlyTransformer

if TYPE_CHECKING:
    import pandas as pd

_BYTES_AT_ONCE = 2e8


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedLanguageModel:
    """The model, run on all its sequences."""

    model: AttentionOnlyTransformer
    """Two layers, float64. Position 0 is the auxiliary token; a stream is (x, 1, 0)."""
    data: MaskedSequences
    targets: Float[Tensor, " n"]
    """y, the ids of the masked tokens."""
    predictions: Float[Tensor, " n"]
    """What the model writes at the masks."""
    tolerance: float
    fit: PointFit
    """Layer 1, before it was compiled: from what layer 0 made of [MASK] to its token's id, 3n units."""
    eta: float
    """η of layer 1's units."""
    heads_per_layer: tuple[int, ...]
    condition: float
    """Largest |context| / least difference of two contexts, of what layer 0 adds to [MASK]."""

    @property
    def errors(self) -> Float[Tensor, " n"]:
        """|prediction − y|, measured: with one for every sequence there is, that is a proof for this machine."""
        return (self.predictions - self.targets).abs()

    @property
    def recovered(self) -> Bool[Tensor, " n"]:
        """Which masked tokens the rounded prediction names."""
        return self.errors < 0.5

    @property
    def paper_heads(self) -> int:
        """max{3n, D} + 1, which Theorem 6.1 states for each layer."""
        return max(3 * len(self.targets), self.data.X.shape[2]) + 1

    def predict(self, X: Float[Tensor, "m pos d_model"]) -> Float[Tensor, "m pos"]:
        """The model's output number at every position; at a mask, the id of the token that was there."""
        if X.ndim != 3 or X.shape[1:] != self.data.X.shape[1:]:
            raise ValueError(f"expected sequences {list(self.data.X.shape[1:])}, got {list(X.shape[1:])}.")
        m, length, d = X.shape
        stream = torch.zeros(m, length + 1, d + 2, dtype=torch.float64)
        stream[:, 0, -1] = 1.0
        stream[:, 1:, :d], stream[:, 1:, d] = X, 1.0
        cfg = self.model.cfg
        each = 4 * 8 * cfg.n_heads * cfg.n_ctx * (cfg.d_head + cfg.n_ctx)
        parts = stream.split(max(1, int(_BYTES_AT_ONCE // each)))
        return torch.cat([self.model(part)[:, 1:, 0] for part in parts])

    def to_frame(self) -> pd.DataFrame:
        """One row a sequence: sequence, position, target, prediction, error, recovered."""
        import pandas as pd

        return pd.DataFrame(
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
    mask: Float[Tensor, " d_mask"] | None = None,
    seed: int = 0,
) -> MaskedLanguageModel:
    """A two-layer attention-only model with |model(X^(i)) at its mask − y^(i)| ≤ tolerance for all n sequences.

    Layer 0 is Proposition 5.1's head (`distinguish_mask`): after it [MASK] is [MASK] + u''·c_i, another vector in every
    sequence. Layer 1 is Lemma H.4's network of 3n ReLU units through (c_i, y_i), along u'', compiled by Theorem 4.1.
    Heads: 1, then 3n + 1 (the paper states max{3n, D} + 1 of each; see `compile_ffn` for what its proof needs), d_model
    D + 2 instead of max{3n, D} + 2. Zero heads fill both layers up to one shape. The model is built, and run on every
    sequence: the errors reported are all there are.

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
    masks = distinguish_mask(X, mask=mask, seed=seed)
    data = masks.data
    first = masks.model.blocks[0].attn
    out = first.W_O[0, 0]
    d = len(out)
    rows = torch.arange(len(data.X))
    after = torch.cat([masks.model(part) for part in data.X.split(1024)])[rows, data.positions]
    fit = point_fit(after, targets, direction=out)

    # 0.2785·η a unit, through weights of y(1, −2, 1): half of the tolerance; the rest is rounding's.
    reach = float(fit.ffn.weights[1].abs().sum())
    eta = min(float(tolerance) / 2 / (RELU_GAP * reach), 1.0) if reach > 0 else 1.0
    unit = torch.zeros(d + 2, dtype=torch.float64)
    unit[-1] = 1.0
    (layer,) = unit_layers(fit.ffn, [eta], "lean")
    context_head = HeadGroup(
        sees="tokens",
        **{name: _pad(getattr(first, name), (0, 0, 0, 2)) for name in ("W_Q", "W_K", "W_V")},
        W_O=_pad(first.W_O, (0, 2)),
    )
    model = assemble([[context_head], layer_heads(layer, unit)], data.X.shape[1])
    result = MaskedLanguageModel(
        model=model,
        data=data,
        targets=targets,
        predictions=targets,
        tolerance=float(tolerance),
        fit=fit,
        eta=eta,
        heads_per_layer=tuple(count_heads(model).tolist()),
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
