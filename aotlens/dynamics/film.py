"""The measures of every snapshot of a run: losses, motifs, composition, copying, and the size of each circuit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.checkpoints import Run, load
from aotlens.circuits import all_compositions, ov_circuit, spectrum
from aotlens.conventions import Progress
from aotlens.dynamics.events import LEAST_SNAPSHOTS, ChangePoint, change_point
from aotlens.dynamics.over_training import OverTraining, over_training
from aotlens.evaluate import in_context_learning_score, repeat_losses
from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.folding import folded_norm
from aotlens.models.traits import NOT_PRODUCTS
from aotlens.paths import term_importance
from aotlens.results import Result, top_head

if TYPE_CHECKING:
    import pandas as pd

#: Sequences of which the share of each order of paths is measured: a frozen pass for each layer and sequence.
_SEQUENCES_OF_ORDERS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures(Result):
    """The film's measures of one model. NaN where a model lacks something, such as an earlier head."""

    loss: float
    """The loss on the text, nats per token."""
    in_context: float
    """The in-context-learning score of the first and last quarter of positions (`in_context_learning_score`)."""
    repeated_gain: float
    """Loss of random tokens minus loss when they repeat, nats per token."""
    loss_by_position: Float64[np.ndarray, " pos"]
    """The loss on the text, of the token that is predicted at each position."""
    motifs: tuple[str, ...]
    motif_scores: Float64[np.ndarray, "motif layer head"]
    """Mean attention to each motif's keys, on repeated random tokens."""
    composition: Float64[np.ndarray, "mode layer head"]
    """The largest of a head's q, k and v composition with an earlier head, 0 to 1."""
    composition_p: Float64[np.ndarray, "mode layer head"]
    """The p-value of that composition against random rotations, of that pair alone; NaN where none were drawn for
    it."""
    copying: Float64[np.ndarray, "layer head"]
    """Copying score of the OV circuit's eigenvalues, −1 to 1."""
    by_order: Float64[np.ndarray, " order"]
    """The decrease of the loss by the paths through exactly 1, 2, … heads, given the shorter ones, nats per token."""
    qk_norm: Float64[np.ndarray, "layer head"]
    """Frobenius norm of W_Q W_Kᵀ with the norm's gain folded in and the model's scale."""
    ov_norm: Float64[np.ndarray, "layer head"]
    qk_rank: Float64[np.ndarray, "layer head"]
    """Effective rank (Σσ²)² ÷ Σσ⁴ of the singular values σ, 1 to d_head."""
    ov_rank: Float64[np.ndarray, "layer head"]
    qk_distance: Float64[np.ndarray, "layer head"]
    """‖M − M_end‖ ÷ ‖M_end‖ of the QK circuit from its own at the end of the run; NaN without an end."""
    ov_distance: Float64[np.ndarray, "layer head"]

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The labels of the first axis of those arrays that are of several things."""
        modes = ("q", "k", "v")
        return {"motif_scores": self.motifs, "composition": modes, "composition_p": modes}

    @staticmethod
    def events(measures: OverTraining) -> dict[str, ChangePoint]:
        """Return the change point of each of `film_curves` (`change_point`); nothing for too few snapshots."""
        if len(measures.steps) < LEAST_SNAPSHOTS:
            return {}
        return {name: change_point(measures.steps, curve) for name, curve in film_curves(measures).items()}

    @property
    def headline(self) -> str:
        induction = self.motif_scores[self.motifs.index("induction")] if "induction" in self.motifs else None
        more = "" if induction is None else f", induction is highest in {top_head(induction)}"
        return f"loss {self.loss:.3f} nats per token, {self.repeated_gain:.3f} less when tokens are repeated{more}"

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each measure of the model and of each head: `measure`, `head` (empty for the model's),
        `value`."""
        import pandas as pd

        rows = [(name, "", getattr(self, name)) for name in ("loss", "in_context", "repeated_gain")]
        rows += [(f"order {order}", "", value) for order, value in enumerate(self.by_order, start=1)]
        by_head = {name: self.motif_scores[place] for place, name in enumerate(self.motifs)}
        for place, mode in enumerate("qkv"):
            by_head[f"{mode} composition"] = self.composition[place]
            by_head[f"{mode} composition p"] = self.composition_p[place]
        for name in ("copying", "qk_norm", "ov_norm", "qk_rank", "ov_rank", "qk_distance", "ov_distance"):
            by_head[name] = getattr(self, name)
        for name, values in by_head.items():
            rows += [(name, f"{layer}.{head}", values[layer, head]) for layer, head in np.ndindex(*values.shape)]
        return pd.DataFrame(rows, columns=["measure", "head", "value"])


def film(
    run: Run,
    tokens: Int[Tensor, "sequence pos"],
    *,
    steps: Iterable[int] | None = None,
    n_random: int = 100,
    progress: Progress | None = None,
) -> OverTraining:
    """Return the measures of every snapshot of a run on the text `tokens`, and of every head's distance to itself at
    the end.

    `over_training` of `measure_model`, with its cache. Raises `ValueError` for models that do not predict tokens.
    """
    end = run.source(run.steps[-1])
    settings = {"tokens": tokens, "end": str(end), "end_sha256": load(end, "cpu").card.weights_sha256}
    return over_training(run, measure_model, steps=steps, progress=progress, n_random=n_random, **settings)


def film_curves(measures: OverTraining) -> dict[str, np.ndarray]:
    """Return the film's chief measures over training, `[step]`: the loss, the gain on repeated tokens, and of heads the
    largest previous-token score, induction score, K-composition, and copying score (of those after the first layer,
    which read what other heads wrote, where there are any)."""
    motifs, scores = measures.results[0].motifs, measures["motif_scores"]
    curves = {"loss": measures["loss"], "gain on repeated tokens": measures["repeated_gain"]}
    for name in ("previous_token", "induction"):
        if name in motifs:
            curves[name.replace("_", " ")] = np.nanmax(scores[:, motifs.index(name)], axis=(1, 2))
    later = slice(1 if scores.shape[2] > 1 else 0, None)
    if later.start:
        curves["k composition"] = np.nanmax(measures["composition"][:, 1, later], axis=(1, 2))
    return curves | {"copying": np.nanmax(measures["copying"][:, later], axis=(1, 2))}


@torch.no_grad()
def measure_model(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, "sequence pos"],
    *,
    n_random: int = 100,
    end: str | None = None,
    end_sha256: str = "",
) -> Measures:
    """Return the film's measures of one model. `end` is the model (as `aotlens.load` takes it) that heads are compared
    with, and `end_sha256`, of its weights, is part of what the result is kept under."""
    require_ours(model, "measure_model", without=NOT_PRODUCTS)
    cfg = model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens") or model.sees_later_keys or not cfg.has_query_key:
        raise ValueError(
            "a film is of models that predict their next token with patterns made of scores; this one reads "
            f"{cfg.read_in}, writes {cfg.read_out} and has phi={cfg.phi!r}."
        )
    if tokens.ndim != 2 or tokens.shape[1] < 5:
        raise ValueError(f"tokens: expected ids [sequence, at least 5 positions], got {list(tokens.shape)}.")
    tokens = tokens.to(model.device)
    by_token = torch.cat([model.loss_per_token(rows).double() for rows in tokens.split(8)])
    by_position = by_token.mean(0).cpu().numpy()
    repeated = repeat_losses(model, n_sequences=16)
    scores = motif_scores(model)
    composition, p = _best_compositions(model, n_random)
    circuits = {kind: _factors(model, kind) for kind in ("qk", "ov")}
    ends = None if end is None else load(end, model.device)
    sizes = {kind: _norm_and_rank(*factors) for kind, factors in circuits.items()}
    distances = {
        kind: np.full((cfg.n_layers, cfg.n_heads), np.nan) if ends is None else _distance(factors, _factors(ends, kind))
        for kind, factors in circuits.items()
    }
    copying = [
        [spectrum(ov_circuit(model, (layer, head)), n_vectors=1, k=1).copying_score for head in range(cfg.n_heads)]
        for layer in range(cfg.n_layers)
    ]
    return Measures(
        loss=float(by_position.mean()),
        in_context=in_context_learning_score(by_position),
        repeated_gain=repeated.gain,
        loss_by_position=by_position,
        motifs=scores.motifs,
        motif_scores=scores.values,
        composition=composition,
        composition_p=p,
        copying=np.array([[np.nan if score is None else score for score in row] for row in copying], dtype=np.float64),
        by_order=term_importance(model, tokens[:_SEQUENCES_OF_ORDERS], heads=False).by_order,
        qk_norm=sizes["qk"][0],
        ov_norm=sizes["ov"][0],
        qk_rank=sizes["qk"][1],
        ov_rank=sizes["ov"][1],
        qk_distance=distances["qk"],
        ov_distance=distances["ov"],
    )


def _best_compositions(
    model: AttentionOnlyTransformer, n_random: int
) -> tuple[Float64[np.ndarray, "mode layer head"], Float64[np.ndarray, "mode layer head"]]:
    shape = (3, model.cfg.n_layers, model.cfg.n_heads)
    best, p = np.full(shape, np.nan), np.full(shape, np.nan)
    compositions = all_compositions(model, n_random=n_random)
    for place, mode in enumerate("qkv"):
        result = compositions[mode]  # type: ignore[index]
        for layer in range(1, shape[1]):
            for head in range(shape[2]):
                earlier = np.unravel_index(result.values[:layer, :, layer, head].argmax(), (layer, shape[2]))
                best[place, layer, head] = result.values[(*earlier, layer, head)]
                p[place, layer, head] = result.p_above[(*earlier, layer, head)]
    return best, p


def _factors(model: AttentionOnlyTransformer, kind: str) -> tuple[Tensor, Tensor]:
    """A and B `[layer, head, d_model, d_head]` of the circuits A Bᵀ in float64, with the norm's gain and centring
    folded in and, of QK, the model's scale."""
    norms = [folded_norm(model, layer) for layer in range(model.cfg.n_layers)]

    def into(weights: Tensor) -> Tensor:
        return torch.stack([norm.into(weight.double()) for norm, weight in zip(norms, weights, strict=True)])

    if kind == "qk":
        return into(model.W_Q) * model.cfg.score_scale, into(model.W_K)
    return into(model.W_V), model.W_O.double().mT


def _norm_and_rank(A: Tensor, B: Tensor) -> tuple[np.ndarray, np.ndarray]:
    singular = torch.linalg.svdvals(torch.linalg.qr(A).R @ torch.linalg.qr(B).R.mT)
    squares = singular.pow(2).sum(-1)
    rank = squares.pow(2) / singular.pow(4).sum(-1)
    return squares.sqrt().cpu().numpy(), rank.cpu().numpy()


def _distance(now: tuple[Tensor, Tensor], end: tuple[Tensor, Tensor]) -> np.ndarray:
    """‖A Bᵀ − A_end B_endᵀ‖ ÷ ‖A_end B_endᵀ‖, without the products of d_model × d_model."""
    wide = torch.cat([now[0], -end[0]], -1), torch.cat([now[1], end[1]], -1)
    return _norm_and_rank(*wide)[0] / _norm_and_rank(*end)[0]
