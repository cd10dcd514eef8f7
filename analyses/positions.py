"""What kinds of positions let two layers of attention do: losses, previous-token and induction heads, frequencies.

    python -m analyses.positions [CHECKPOINT ...]

A row a checkpoint (default: the bundled ones of two layers of novels without MLPs): the loss on held-out novels that
its card states; the head with the highest score of each behaviour, measured on random tokens that come twice
(`aotlens.heads.motif_scores`, the mean over 16 sequences of 2 × 50 tokens); and of rotary heads, by weights alone
(`aotlens.circuits.reach`), the head that singles out the token before most, in standard deviations over pairs of
tokens, and the wavelengths of the two pairs of coordinates that raise the score at distance 1 most above its mean
over the other distances up to 32, over 64 pairs of tokens drawn by their counts
(`aotlens.circuits.distance_profile`). A model a kind: differences between kinds are those of single trainings. A
minute.
"""

from __future__ import annotations

import sys

import numpy as np

import aotlens
from analyses._claims import markdown, parser
from aotlens.checkpoints import find_checkpoint
from aotlens.circuits import distance_profile, reach
from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer

MODELS = ("novels-2l-mhsa", "novels-2l-rotary", "novels-2l-rotary-mssa")
#: Pairs of tokens, and distances from 0, over which a head's frequencies are compared.
N_PAIRS, N_DISTANCES = 64, 33
HEADER = (
    "checkpoint", "positions", "norm", "loss", "less than a bigram", "previous token", "induction",
    "one token back, by weights (sd)", "by wavelengths",
)  # fmt: skip


def by_weights(model: AttentionOnlyTransformer) -> tuple[str, str]:
    """The rotary head that singles out the token before most, and the wavelengths it does so with; dashes without."""
    if model.cfg.positions != "rotary":
        return "–", "–"
    heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    best = max((reach(model, head) for head in heads), key=lambda found: found.previous_token)
    said = f"{best.head[0]}.{best.head[1]}: {best.previous_token:+.2f}"
    counts = model.unigram_counts.double().numpy()
    pairs = np.random.default_rng(0).choice(len(counts), size=(N_PAIRS, 2), p=counts / counts.sum())
    parts = [distance_profile(model, best.head, int(u), int(v)).by_frequency[:, :N_DISTANCES] for u, v in pairs]
    by_frequency = np.mean([part[:, 1] - np.delete(part, 1, 1).mean(1) for part in parts], 0)
    first = np.argsort(-by_frequency)[:2]
    waves = [f"{2 * np.pi / best.theta[each]:.1f} tokens ({by_frequency[each]:+.2f} nats)" for each in first]
    return said, ", ".join(waves)


def row(name: str) -> list[str]:
    """The cells of a checkpoint."""
    model, metrics = aotlens.load(name, "cpu"), find_checkpoint(name).metrics
    scores = motif_scores(model, n_sequences=16, half_length=50, seed=0)
    best = [scores.best(motif) for motif in ("previous_token", "induction")]
    found = ["–" if one is None else f"{one[0][0]}.{one[0][1]}: {one[1]:.2f}" for one in best]
    loss, bigram = metrics["validation_loss"], metrics["bigram_loss"]
    cfg = model.cfg
    kind = f"{cfg.positions}{' (MSSA)' if cfg.attention == 'mssa' else ''}"
    return [f"`{name}`", kind, str(cfg.norm), f"{loss:.3f}", f"{bigram - loss:.3f}", *found, *by_weights(model)]


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("checkpoints", nargs="*", default=MODELS, help="names or folders")
    print(markdown(HEADER, [row(name) for name in options.parse_args(argv).checkpoints]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
