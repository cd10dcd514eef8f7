"""`compile_ffn`: a feed-forward network → an attention-only transformer that computes it.

1. read      the network's layers                                     ffn.py
2. choose    η for each ReLU layer, from the tolerance                bounds.py
3. lay out   each attention layer's action on the stream              layers.py
4. write     that as heads                                            layers.py
5. assemble  the heads into an `AttentionOnlyTransformer`             layers.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aotlens.conventions import minus, require_between, require_choice, require_whole
from aotlens.distill.compile.bounds import RELU_GAP, adversarial_points, bound_error, choose_etas, climb
from aotlens.distill.compile.ffn import Activation, FeedForward, Layers, read_ffn, require_tensors
from aotlens.distill.compile.layers import (
    CONSTRUCTIONS,
    Construction,
    HeadGroup,
    assemble,
    count_heads,
    heads_needed,
    layer_heads,
    stream_width,
    unit_layers,
)
from aotlens.models import AttentionOnlyTransformer
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

_SEQUENCES_AT_ONCE = 256
_MAX_BYTES = 4e9
_MAX_MASK = 20_000_000
_LARGEST = 1e300


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledFFN(Result):
    """An attention-only transformer that computes an FFN, callable like it; and how far it can be from it."""

    model: AttentionOnlyTransformer
    """float64; position 0 is the auxiliary token, and each other token sees itself and position 0 only."""
    ffn: FeedForward
    """The network as it was read, in float64."""
    construction: Construction
    bound: float
    """The proof holds for inputs in [-bound, bound]^D."""
    tolerance: float
    auxiliary: Float[Tensor, " d_model"]
    """The auxiliary token's vector, v."""
    etas: tuple[float, ...]
    """η of each layer's units; 1 for SiLU."""
    heads_per_layer: tuple[int, ...]
    """Heads that are not all zeros."""
    proven_error: float
    """No output differs by more from the FFN's, both computed in float64, for any input within the bound."""
    approximation_error: float
    """The part of it that exact arithmetic would leave: from 0.2785·η a unit."""

    @property
    def headline(self) -> str:
        return f"{self.n_heads} heads in {len(self.heads_per_layer)} layers, error at most {self.proven_error:.3g}"

    def sentences(self) -> str:
        """Return the numbers of heads and layers, the proven bound, and η."""
        return f"{super().sentences()} η: {', '.join(f'{eta:.3g}' for eta in dict.fromkeys(self.etas))}."

    def facts(self) -> list[tuple[str, str, str]]:
        """List the numbers of the model: the name of each, its value, and its source."""
        cfg, ffn = self.model.cfg, self.ffn
        stated = max(*ffn.widths, ffn.d_in) + 1
        by_layer = f"{' + '.join(map(str, self.heads_per_layer))} by layer; " if ffn.depth > 1 else ""
        wide = "size of its widest head, which cancels the skip connection"
        return [
            ("heads", f"{self.n_heads}", f"{by_layer}Theorem 4.1 states {stated}{' in each' if ffn.depth > 1 else ''}"),
            ("attention layers", str(cfg.n_layers), "one for each hidden layer; no MLP, no norm, no biases"),
            ("d_model", str(cfg.d_model),
             f"hidden units, the constant 1, the auxiliary token's mark; stated: max{{W, D}} + 2 = {stated + 1}"),
            ("d_head", str(cfg.d_head), wide if self.construction == "lean" else "every head has size 1"),
            ("proven |model − FFN|", f"≤ {self.proven_error:.3g}",
             f"over the whole range, with rounding (tolerance {minus(self.tolerance, '.6g')})"),
        ]  # fmt: skip

    @property
    def n_heads(self) -> int:
        """Heads of all layers together; those that only fill up the model's shape are not counted."""
        return sum(self.heads_per_layer)

    @property
    def rounding_error(self) -> float:
        """The part of `proven_error` that float64's rounding may add, to the model and to the FFN."""
        return self.proven_error - self.approximation_error

    @property
    def n_tokens(self) -> int:
        """Tokens in one sequence of the model, without the auxiliary one."""
        return self.model.cfg.n_ctx - 1

    def embed(self, x: Float[Tensor, "sequence token d_in"]) -> Float[Tensor, "sequence pos d_model"]:
        """Return the model's input: v, and x with zeros, the constant 1 and a last 0 (the paper's E_in, v first)."""
        sequences, tokens, d_in = x.shape
        stream = x.new_zeros(sequences, tokens + 1, len(self.auxiliary), dtype=torch.float64)
        stream[:, 0] = self.auxiliary.to(x.device)
        stream[:, 1:, :d_in] = x
        stream[:, 1:, -2] = 1.0
        return stream

    def __call__(self, x: Float[Tensor, "n d_in"]) -> Float[Tensor, "n d_out"]:
        """Return the model's output for x, in float64; `n_tokens` rows at a time, which do not see each other.

        `proven_error` is proven for x within the bound; elsewhere the model runs, and nothing is proven.

        Raises `ValueError` for rows of another width, for numbers that are not finite, and for inputs so far outside
        the bound that the model overflows.
        """
        require_tensors(x=x)
        if x.ndim != 2 or x.shape[1] != self.ffn.d_in:
            raise ValueError(f"expected rows of {self.ffn.d_in} numbers, as the FFN reads, got {list(x.shape)}.")
        if not x.isfinite().all():
            raise ValueError("expected finite inputs.")
        rows = x.to(self.model.device, torch.float64)
        padding = -len(rows) % self.n_tokens
        sequences = torch.cat([rows, rows.new_zeros(padding, rows.shape[1])]).unflatten(0, (-1, self.n_tokens))
        outputs = [self.model(self.embed(part)) for part in sequences.split(_SEQUENCES_AT_ONCE)]
        return self._finite(torch.cat(outputs)[:, 1:, : self.ffn.d_out].flatten(0, 1)[: len(rows)], x)

    @torch.no_grad()
    def error(self, x: Float[Tensor, "n d_in"]) -> Float[Tensor, "n d_out"]:
        """Return |model(x) − f(x)|, both in float64. Raises `ValueError` as a call does."""
        return self._finite((self(x) - self.ffn(x.to(torch.float64)).to(self.model.device)).abs(), x)

    def _finite(self, outputs: Tensor, x: Tensor) -> Tensor:
        if not outputs.isfinite().all():
            raise ValueError(
                f"numbers beyond float64 occur at inputs of up to {float(x.abs().max()):.3g}; the proof is for "
                f"[-{self.bound:g}, {self.bound:g}]. Give inputs nearer to that."
            )
        return outputs

    def adversarial_points(self, n: int = 2000, seed: int = 0) -> Float[Tensor, "point d_in"]:
        """Return points within the bound where the error is likely to be large: kinks, corners, random ones, climbs.

        Evaluates the model at about 2n + 3,000 points.
        """
        points = adversarial_points(self.ffn, self.etas, bound=self.bound, n=n, seed=seed)
        scale = max(*self.etas, 1e-3 * self.bound)
        worst = climb(lambda x: self.error(x).amax(1), points, bound=self.bound, scale=scale, seed=seed)
        return torch.cat([points, worst])

    def measured_error(
        self, points: Float[Tensor, "point d_in"] | None = None, *, n: int = 2000, seed: int = 0
    ) -> float:
        """Return the largest error of any output at `points`, or at `adversarial_points(n, seed)`. A measurement, no
        bound.

        Raises `ValueError` for points outside the bound, and for none.
        """
        if points is not None and (points.ndim != 2 or len(points) == 0):
            raise ValueError(f"points: expected at least one row of {self.ffn.d_in} numbers, got {list(points.shape)}.")
        if points is not None and points.abs().max() > self.bound:
            raise ValueError(f"points: expected them in [-{self.bound:g}, {self.bound:g}], where the bound holds.")
        return float(self.error(self.adversarial_points(n, seed) if points is None else points).max())

    def with_etas(self, etas: Sequence[float]) -> CompiledFFN:
        """Return the same network with other η, one a layer, instead of those from the tolerance: `proven_error`
        follows.

        `tolerance` is then the proven error. Raises `ValueError` for another number of them, for what is not positive
        and finite, and for a SiLU layer's η other than 1.
        """
        activations = self.ffn.activations
        if len(etas) != len(activations):
            raise ValueError(f"etas: expected {len(activations)}, one for each hidden layer, got {len(etas)}.")
        for layer, (eta, activation) in enumerate(zip(etas, activations, strict=True)):
            require_between(f"η of layer {layer}", eta, above=0)
            if activation == "silu" and eta != 1:
                raise ValueError(f"η of layer {layer}: a SiLU unit is exact at η = 1 and only there, got {eta}.")
        etas = tuple(float(eta) for eta in etas)
        return _build(self.ffn, self.construction, self.bound, None, self.auxiliary, etas, self.n_tokens)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per layer: layer, units, activation, eta, unit_error (at most), heads, and how many Theorem
        4.1 states (paper_heads) and its proof needs (proof_heads)."""
        relu = [activation == "relu" for activation in self.ffn.activations]
        return data_frame(
            {
                "layer": range(self.ffn.depth),
                "units": self.ffn.widths,
                "activation": self.ffn.activations,
                "eta": self.etas,
                "unit_error": [
                    RELU_GAP * eta if is_relu else 0.0 for eta, is_relu in zip(self.etas, relu, strict=True)
                ],
                "heads": self.heads_per_layer,
                "paper_heads": max(*self.ffn.widths, self.ffn.d_in) + 1,
                "proof_heads": heads_needed(self.ffn, "paper"),
            }
        )


def compile_ffn(
    ffn: nn.Module | Layers | FeedForward,
    *,
    bound: float | int,
    tolerance: float | int,
    auxiliary: Literal["unit", "random"] | Sequence[float | int] | Float[Tensor, " d_model"] = "unit",
    construction: Construction = "lean",
    activation: Activation | None = None,
    n_tokens: int = 8,
) -> CompiledFFN:
    """Compile an attention-only transformer that computes a ReLU or SiLU network (*nonlinearity*, Theorem 4.1).

    Claim: for every x in [-bound, bound]^D, |model(x) − f(x)| ≤ `proven_error` ≤ tolerance in each output, in float64
    and with rounding. SiLU is exact up to rounding. ReLU units are η SiLU(·/η), within 0.2785·η of ReLU; η is chosen
    for each layer from a bound on what later weights make of that (`bounds`), not by trial.

    A head of size 1 is a unit: its token sees itself and an auxiliary token of value 0, and so weighs its own value by
    a sigmoid (`heads`). One attention layer computes one hidden layer. With W_ℓ units in layer ℓ (W_0 = D):

        construction  heads of layer ℓ              d_head               d_model
        "lean"        W_ℓ + 1                       the widest W_{ℓ−1}*  max{D, W_1, …, W_{L−1}, D'} + 2
        "narrow"      W_ℓ + W_{ℓ−1}*                1                    the same
        "paper"       (W_ℓ + 1†) + 2(W_{ℓ−1} + 1)   1                    max{D, W, D'} + 2

    (* and one more in the last layer, if the network has a last bias; † not in the last layer, if it has none.)

    Theorem 4.1 states max{W, D} + 1; its proof needs what the last row says. "lean" cancels the skip connection by
    one wide head that sees its own token only, "narrow" by such heads of size 1. Units whose weights are all zero need
    no head and count for none.

    `ffn`: see `read_ffn` (`activation` goes with pairs of weights). `auxiliary`: "unit", (0, …, 0, 1), or any vector
    `[d_model]` whose last number is not 0 (Corollary 4.1, corrected), "random" for normal numbers of seed 0. `n_tokens`
    is the length of the model's sequences without the auxiliary token; more rows are run as several sequences.

    Raises `ValueError` for what cannot be compiled, and for a tolerance that float64 cannot be proven to reach, with
    the one that it can. Cost: O(L · heads · d_model · d_head) numbers, and some L + 5 products with the weights.
    """
    network = read_ffn(ffn, activation)
    for name, value in (("bound", bound), ("tolerance", tolerance)):
        require_between(name, value, above=0)
    require_choice("construction", construction, CONSTRUCTIONS)
    require_whole("n_tokens", n_tokens, 1)
    v = _auxiliary(auxiliary, stream_width(network, construction))
    etas = choose_etas(network, construction, bound=bound, tolerance=tolerance, v=v)
    return _build(network, construction, float(bound), float(tolerance), v, etas, n_tokens)


def _build(
    network: FeedForward,
    construction: Construction,
    bound: float,
    tolerance: float | None,
    v: Tensor,
    etas: tuple[float, ...],
    n_tokens: int,
) -> CompiledFFN:
    """The model for given η, and what is proven of it; without a tolerance, whatever that comes to."""
    layers = unit_layers(network, etas, construction)
    heads = [layer_heads(layer, v) for layer in layers]
    _check_size(heads, construction, n_tokens)
    model = assemble(heads, n_tokens)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        if not getattr(model, name).isfinite().all():
            raise ValueError(f"{name} would need numbers that float64 cannot hold; give a larger tolerance or η.")
    proof = bound_error(network, layers, bound=bound, v=v)
    proven = proof.total
    if not (math.isfinite(proven) and proof.largest <= _LARGEST):
        raise ValueError(f"etas={etas}: numbers above {_LARGEST:g} would occur, which float64 cannot hold.")
    assert tolerance is None or proven <= tolerance, (proven, tolerance)
    return CompiledFFN(
        model=model,
        ffn=network,
        construction=construction,
        bound=bound,
        tolerance=proven if tolerance is None else tolerance,
        auxiliary=v,
        etas=etas,
        heads_per_layer=tuple(count_heads(model).tolist()),
        proven_error=proven,
        approximation_error=bound_error(network, layers, bound=bound, v=v, rounding=False).total,
    )


def _check_size(layers: Sequence[Sequence[HeadGroup]], construction: Construction, n_tokens: int) -> None:
    groups = [group for groups in layers for group in groups]
    heads = max(sum(len(group.W_V) for group in groups) for groups in layers)
    d_model, d_head = groups[0].W_V.shape[1], max(group.W_V.shape[2] for group in groups)
    entries = heads * (n_tokens + 1) ** 2
    if entries > _MAX_MASK:
        raise ValueError(
            f"n_tokens={n_tokens}: a mask of {heads} heads would have {entries:,} entries, more than "
            f"{_MAX_MASK:,}. Tokens do not see each other, so shorter sequences give the same; give a smaller n_tokens."
        )
    n_bytes = 4 * len(layers) * heads * d_model * d_head * 8
    if n_bytes > _MAX_BYTES:
        advice = "construction='narrow' has heads of size 1" if construction == "lean" else "compile a smaller network"
        raise ValueError(
            f"{len(layers)} layers of {heads} heads of size {d_head} at d_model {d_model} are {n_bytes / 1e9:.1f} GB, "
            f"more than {_MAX_BYTES / 1e9:g}; {advice}."
        )


def _auxiliary(auxiliary: str | Sequence[float] | Tensor, d_model: int) -> Tensor:
    if isinstance(auxiliary, str):
        if auxiliary == "unit":
            return torch.eye(d_model, dtype=torch.float64)[-1].clone()
        if auxiliary != "random":
            raise ValueError(f"auxiliary={auxiliary!r}: expected 'unit', 'random' or a vector [{d_model}].")
        auxiliary = torch.randn(d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if not isinstance(auxiliary, Tensor):
        auxiliary = torch.tensor(auxiliary, dtype=torch.float64)
    if auxiliary.shape != (d_model,):
        raise ValueError(f"auxiliary: expected a vector of d_model = {d_model} numbers, got {list(auxiliary.shape)}.")
    v = auxiliary.detach().to("cpu", torch.float64, copy=True)
    if not v.isfinite().all() or not 1e-100 <= v[-1].abs() <= 1e100 or v.abs().max() > 1e100:
        raise ValueError(
            "auxiliary: expected numbers of at most 1e100 in size, the last of them not 0 (and at least 1e-100), since "
            f"that is what tells the auxiliary token from the others (Corollary 4.1); got {float(v[-1])!r} there."
        )
    return v
