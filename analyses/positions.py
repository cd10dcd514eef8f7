"""What kinds of positions let two layers of attention do: losses, previous-token and induction heads, frequencies.

    python -m analyses.positions [CHECKPOINT ...]

A row a checkpoint (default: the bundled ones of two layers of novels without MLPs): the loss on held-out novels that
its card states, and the head with the highest score of each behaviour on random tokens that come twice
(`aotlens.heads.motif_scores`, the mean over 16 sequences of 2 × 50 tokens). Of rotary heads, by weights alone, the one
that singles out the token before most (`aotlens.circuits.reach`), in standard deviations over tokens; and which of its
frequencies do: of the mean score at distance 1 less that at the other distances up to 32 (tokens by their counts), the
whole and the fastest pair's part, and the head's previous-token score where its queries have the fastest pair of
coordinates alone, and all others. A model a kind, which differ in more than positions: differences are those of single
trainings. A minute.
"""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch

import aotlens
from analyses._claims import markdown, parser
from aotlens.checkpoints import find_checkpoint
from aotlens.circuits import qk_circuit, reach
from aotlens.circuits.distance import in_pairs
from aotlens.conventions import Head
from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.positions import frequencies

MODELS = ("novels-2l-mhsa", "novels-2l-rotary", "novels-2l-rotary-mssa")
#: Distances from 0 over which a head's frequencies are compared.
N_DISTANCES = 33
HEADER = (
    "checkpoint", "positions", "norm", "heads of keys", "weights", "loss", "less than a bigram", "previous token",
    "induction", "one token back, by weights (sd)", "nats above other distances: all, fastest pair",
    "previous token with the fastest pair alone, without it",
)  # fmt: skip


def frequency_parts(model: AttentionOnlyTransformer, head: Head) -> np.ndarray:
    """Return what each pair of coordinates adds to the mean score at distance 1 above the mean of the others."""
    family = qk_circuit(model, head, biases=True, distance=range(N_DISTANCES))
    assert model.unigram_counts is not None
    p = (model.unigram_counts.double() / model.unigram_counts.sum()).to(family.content.A)
    (u, v, _), (x, y, _) = (in_pairs(model.cfg, rows) for rows in (p @ family.content.A, family.content.B @ p))
    angles = frequencies(model.cfg)[:, None] * torch.arange(N_DISTANCES)
    curves = ((u * x + v * y)[:, None] * angles.cos() + (u * y - v * x)[:, None] * angles.sin()).numpy()
    parts: np.ndarray = curves[:, 1] - np.delete(curves, 1, 1).mean(1)
    return parts


def with_pairs(model: AttentionOnlyTransformer, head: Head, keep_fastest: bool) -> float:
    """Return the head's previous-token score with the fastest pair of its queries' coordinates alone, or with all
    others."""
    changed = copy.deepcopy(model)
    coordinates = torch.arange(model.cfg.d_head, dtype=torch.float64)
    first, second, _ = in_pairs(model.cfg, coordinates)
    fastest = (coordinates == first[0]) | (coordinates == second[0])
    with torch.no_grad():
        changed.blocks[head[0]].attn.W_Q[head[1]][:, fastest != keep_fastest] = 0
    return float(motif_scores(changed, motifs="previous_token", n_sequences=16, half_length=50, seed=0).values[0][head])


def by_weights(model: AttentionOnlyTransformer) -> list[str]:
    """Return the rotary head that singles out the token before most, and what its frequencies do of that; dashes
    without."""
    if model.cfg.positions != "rotary":
        return ["–"] * 3
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    best = max((reach(model, head) for head in heads), key=lambda each: each.previous_token)
    parts = frequency_parts(model, best.head)
    return [
        f"{best.head[0]}.{best.head[1]}: {best.previous_token:+.2f}",
        f"{parts.sum():+.2f}, {parts[0]:+.2f}",
        f"{with_pairs(model, best.head, True):.2f}, {with_pairs(model, best.head, False):.2f}",
    ]


def row(name: str) -> list[str]:
    """Return the cells of a checkpoint."""
    model, info = aotlens.load(name, "cpu"), find_checkpoint(name)
    scores = motif_scores(model, n_sequences=16, half_length=50, seed=0)
    best = [scores.best(motif) for motif in ("previous_token", "induction")]
    cells = ["–" if score is None else f"{score[0][0]}.{score[0][1]}: {score[1]:.2f}" for score in best]
    loss, bigram = info.metrics["validation_loss"], info.metrics["bigram_loss"]
    cfg = model.cfg
    kind = f"{cfg.positions}{' (MSSA)' if cfg.attention == 'mssa' else ''}"
    size = f"{sum(weight.numel() for weight in model.parameters()):,}"
    keys = str(cfg.n_kv_heads or cfg.n_heads)
    return [
        f"`{info.name}`",
        kind,
        str(cfg.norm),
        keys,
        size,
        f"{loss:.3f}",
        f"{bigram - loss:.3f}",
        *cells,
        *by_weights(model),
    ]


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("checkpoints", nargs="*", default=MODELS, help="names or folders")
    print(markdown(HEADER, [row(name) for name in options.parse_args(argv).checkpoints]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
