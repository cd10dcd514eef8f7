"""How often two kinds of models are told apart that do not differ, and that do (`Universality.compare_kinds`).

    python -m benchmarks.kinds [--runs 1000]         (a minute of one core; the table of docs/universality.md)

Similarities of pairs of models are simulated above permuted heads. In each null the kinds have one distribution, though
pairs of unlike kinds may be less alike; the level is the share of p ≤ .05. The power is of a difference of six standard
deviations of the pairs in one kind, and, where a circuit forms by chance, of one that all models of a kind form and a
fifth of the other's.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from jaxtyping import Float64

from aotlens.heads.kinds import LEAST_MODELS, kinds_differ

SIZES = ((3, 3), (3, 7), (5, 5), (5, 10))
FORMS = {f"{share:.0%} form a circuit": share for share in (0.3, 0.5, 0.7)}
#: The ways in which similarities vary where kinds do not differ.
NULLS = (
    "pairs alone differ", "models differ", "models differ in size, unlike kinds share nothing", *FORMS,
    *(f"{name}, unlike kinds share nothing" for name in FORMS), "80% form one circuit, the others another",
)  # fmt: skip


def simulated(
    null: str, sizes: tuple[int, int], rng: np.random.Generator, *, differ: bool = False
) -> Float64[np.ndarray, "model model"]:
    """Return the similarity of each two models, of which the first `sizes[0]` are of one kind."""
    kind = np.repeat([0, 1], sizes)
    noise = np.triu(rng.normal(size=(len(kind), len(kind))), 1)
    noise += noise.T
    shared = np.equal.outer(kind, kind) if "share nothing" in null else np.ones_like(noise, dtype=bool)
    form = null.partition(",")[0]
    if form in FORMS:
        formed = rng.random(len(kind)) < np.where(differ, np.where(kind == 0, 0.2, 1), FORMS[form])
        return 0.02 * noise + 0.4 * np.outer(formed, formed) * shared
    if null == "models differ":
        own = rng.normal(size=len(kind))
        noise += own + own[:, None]
    elif form == "models differ in size":
        size = rng.uniform(0.2, 1, len(kind))
        noise = 0.02 * noise + 0.4 * np.outer(size, size) * shared
    elif form == "80% form one circuit":
        which = rng.random(len(kind)) < 0.2
        noise = 0.02 * noise + 0.4 * np.equal.outer(which, which)
    return noise + (6 * noise.std() * (np.add.outer(kind, kind) == 2) if differ else 0)


def rates(null: str, sizes: tuple[int, int], n_runs: int, seed: int = 0) -> tuple[float, float]:
    """Return the level and the power at p ≤ .05; NaN where so few models are not tested."""
    rng = np.random.default_rng(seed)
    p = [[kinds_differ(simulated(null, sizes, rng, differ=differ), sizes[0]) for differ in (False, True)]
         for _ in range(n_runs)]  # fmt: skip
    if min(sizes) < LEAST_MODELS:
        assert np.isnan(p).all()
        return float("nan"), float("nan")
    level, power = (np.array(p) <= 0.05).mean(0)
    return float(level), float(power)


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=1000, metavar="N", help="simulations of each cell")
    n_runs = options.parse_args(argv).runs
    print("null |", " | ".join(f"{a} + {b}: level, power" for a, b in SIZES))
    print(" | ".join(["---"] * (1 + len(SIZES))))
    for null in NULLS:
        cells = [rates(null, sizes, n_runs) for sizes in SIZES]
        words = ["not tested" if np.isnan(level) else f"{level:.1%}, {power:.0%}" for level, power in cells]
        print(f"{null} |", " | ".join(words), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
