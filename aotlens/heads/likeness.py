"""The likeness of the heads of several models, by weights and on text: the six kinds of evidence of `universality`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.heads.matching import Factors, cosines, ov_factors, qk_factors
from aotlens.heads.reader import HeadReader
from aotlens.heads.without import HeadSwitches
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.weights import double

#: Directions below this share of a head's largest are rounding in float32: the head does not write them.
_LEAST_SINGULAR = 1e-6
#: Similarities of every two heads of all models.
Alike = Float64[np.ndarray, "head head"]


def weights_alike(
    models: list[AttentionOnlyTransformer], owner: Int64[np.ndarray, " head"], done: Callable[[], None]
) -> dict[str, Alike]:
    """Compute the similarities `ov`, `qk` and `written` of every two heads; `qk` is NaN where a model has no queries
    and keys. `done` is called after each pair of models."""
    counts = [double(model.unigram_counts) for model in models if model.unigram_counts is not None]
    size = len(models[0].W_E)
    shares = [count / count.sum() for count in counts] or [torch.full((size,), 1 / size).double()]
    p = torch.stack(shares).mean(0)
    alike = {name: np.full((len(owner), len(owner)), np.nan) for name in ("ov", "qk", "written")}
    factors: list[dict[str, Factors | None]] = []
    bases: list[Tensor] = []
    for model in models:
        ov = ov_factors(model, p)
        bases.append(_written(ov[1]))
        qk = qk_factors(model, p) if model.cfg.has_query_key else None
        factors.append({"ov": ov, "qk": qk})
    for a in range(len(models)):
        for b in range(a, len(models)):
            block = np.ix_(owner == a, owner == b)
            for name in ("ov", "qk"):
                if (first := factors[a][name]) is not None and (second := factors[b][name]) is not None:
                    alike[name][block] = cosines(first, second)
                    alike[name][block[1].T, block[0].T] = alike[name][block].T
            first_basis, second_basis = bases[a], bases[b]
            overlap = torch.einsum("hdv,gev->hgde", first_basis, second_basis).square().sum((-1, -2))
            ranks = [basis.square().sum((-1, -2)).round() for basis in (first_basis, second_basis)]  # orthonormal rows
            least = torch.minimum(ranks[0][:, None], ranks[1][None])
            alike["written"][block] = (overlap / least.clamp(min=1)).numpy()
            alike["written"][block[1].T, block[0].T] = alike["written"][block].T
            if a != b:
                done()
    return alike


def _written(rows: Float64[Tensor, "head d_head d_vocab"]) -> Float64[Tensor, "head d_head d_vocab"]:
    """Orthonormal rows that span what each head writes, the rows of W_O W_U, so that ‖P Q‖² is the squared overlap; of
    a head of a lower rank the others are 0."""
    basis, triangle = torch.linalg.qr(rows.mT)
    turn, sizes, _ = torch.linalg.svd(triangle)
    spanned = sizes > _LEAST_SINGULAR * sizes.amax(-1, keepdim=True)
    return (basis @ (turn * spanned[:, None])).mT


@dataclass(frozen=True, kw_only=True)
class OnText:
    """The behaviour of one model's heads on the sequences."""

    patterns: Tensor
    """`[head, sequence, query · key]`: attention without position 0, less as much spread evenly over the other keys."""
    effects: Tensor
    """`[head, sequence, pos]`: what ablating the head by zero adds to each token's loss, less the mean."""


@torch.no_grad()
def on_text(model: AttentionOnlyTransformer, ids: Tensor, batch_size: int) -> OnText:
    """Measure the patterns of all heads of a model on the sequences, and each head's effect on every token's loss."""
    reader = HeadReader.of(model, "universality")
    visible = reader.visible_keys(ids.shape[1])[0].float()
    visible[:, 0] = 0
    uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    lower = visible.bool()
    batches: list[Tensor] = []
    for rows in ids.split(batch_size):
        layers: dict[int, Tensor] = {}
        reader.listen_to_patterns(rows, partial(_keep, layers))
        batches.append(torch.cat([layers[layer] for layer in sorted(layers)]))
    attention = torch.cat(batches, 1)
    # Without position 0, and less the same mass spread evenly: nothing is divided by, where a head rests on position 0.
    left = torch.where(lower, attention, 0.0)
    patterns = left - left.sum(-1, keepdim=True) * uniform
    switches = HeadSwitches(model, "zero")
    whole = _losses(model, ids, batch_size)
    effects = []
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            with switches.off((layer, head)):
                change = _losses(model, ids, batch_size) - whole
            effects.append(change - change.mean())
    return OnText(patterns=patterns[..., lower], effects=torch.stack(effects))


def _keep(layers: dict[int, Tensor], layer: int, pattern: Tensor) -> None:
    layers[layer] = pattern.cpu().transpose(0, 1)


def _losses(model: AttentionOnlyTransformer, ids: Tensor, batch_size: int) -> Tensor:
    rows = [model.loss_per_token(rows.to(model.device)).double().cpu() for rows in ids.split(batch_size)]
    return torch.cat(rows)


def text_rows(runs: list[OnText]) -> dict[str, Tensor]:
    """Return the `[head, sequence, cell]` of all models' heads whose cosines are `pattern`, `content` and `effect`."""
    patterns = torch.cat([run.patterns for run in runs]).double()
    own = patterns.mean(1, keepdim=True)
    return {"pattern": patterns, "content": patterns - own, "effect": torch.cat([run.effects for run in runs])}


def texts_alike(rows: dict[str, Tensor]) -> dict[str, Alike]:
    """Compute the similarities of every two heads by `text_rows`; 0 for a head that does not vary."""
    return {name: _correlations(each.flatten(1)) for name, each in rows.items()}


def _correlations(rows: Tensor) -> Alike:
    """Cosines of every two rows; 0 for one that is zero."""
    norms = rows.norm(dim=1)
    scale = norms[:, None] * norms
    alike: Alike = torch.where(scale > 0, rows @ rows.T / scale.clamp(min=1e-300), 0.0).numpy()
    return alike
