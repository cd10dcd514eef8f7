"""How few groups of paths make up where heads attend: explained variance of scores over keys, MSSA beside MHSA.

    python -m analyses.score_groups --corpus dir:PATH [--checkpoint NAME ...] [--texts 8] [--length 64] [--quick]

For every head above layer 0 of the bundled language checkpoints (those of layer 0 read no heads), on windows of the
documents that its card kept from training (of code the standard library's, which needs no --corpus): R² of the best 1,
5 and 20 groups, last head × last head, of the variance over keys weighted by the pattern; how much all groups cancel;
which group is most often the best one (`aotlens.paths.explained_variance`). A unit is a head on a text; medians and
quartiles are over units and describe these checkpoints on these windows: heads of one model are no sample of anything.
Two minutes; --quick, less.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

import aotlens
from analyses._claims import markdown, parser
from analyses._texts import windows
from aotlens.checkpoints.catalog import bundled_folder
from aotlens.data import Corpus, open_corpus
from aotlens.models import AttentionOnlyTransformer
from aotlens.paths import ExplainedVariance, expand, explained_variance

BEST = (1, 5, 20)
HEADER = (
    "checkpoint",
    "attention",
    "heads × texts",
    "groups",
    *(f"R² of {k}" for k in BEST),
    "cancellation",
    "most often first",
)


def bundled_language_models() -> list[str]:
    """Return the bundled checkpoints that read and write tokens and have a head that reads heads."""
    here = [info for info in aotlens.list_checkpoints() if info.path and info.path.parent == bundled_folder()]
    return [
        info.name
        for info in here
        if info.model.get("read_in", "tokens") == "tokens" == info.model.get("read_out", "tokens")
        and info.model["n_layers"] > 1
        and info.model.get("positions") != "rotary"  # whose scores are no sum over pairs of paths
    ]


def measure(model: AttentionOnlyTransformer, corpus: Corpus, texts: int, length: int) -> Iterator[ExplainedVariance]:
    """Yield every head above layer 0 on every text."""
    (rows,) = windows(model, corpus, length, texts, 1)
    for tokens in rows:
        expansion = expand(model, tokens)
        for layer in range(1, model.cfg.n_layers):
            for head in range(model.cfg.n_heads):
                yield explained_variance(expansion, (layer, head), max(BEST))


def row(name: str, model: AttentionOnlyTransformer, units: list[ExplainedVariance]) -> list[str]:
    """Return medians over units with quartiles."""

    def quartiles(values: list[float], form: str) -> str:
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        return f"{middle:{form}} ({low:{form}} to {high:{form}})"

    kind = model.cfg.attention.upper() + ("" if model.cfg.attn_only else " and MLPs")
    fewest, most = (pick(unit.n_groups for unit in units) for pick in (min, max))
    groups = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    explained = [quartiles([unit.explained(k) for unit in units], ".2f") for k in BEST]
    cancelled = quartiles([unit.cancellation for unit in units], ".1f")
    (first, times), *_ = Counter(unit.groups[0] for unit in units).most_common(1)
    often = f"{' × '.join(first)}, {times / len(units):.0%}"
    return [f"`{name}`", kind, f"{len(units)}", groups, *explained, cancelled, often]


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--corpus", metavar="SPEC", help="the novels, as dir:PATH; without it, code only")
    options.add_argument("--checkpoint", nargs="+", help="bundled or local checkpoints; default: all bundled ones")
    options.add_argument("--texts", type=int, default=8, help="windows a checkpoint")
    options.add_argument("--length", type=int, default=64, help="tokens a window")
    arguments = options.parse_args(argv)
    texts, length = (1, 12) if arguments.quick else (arguments.texts, arguments.length)
    rows = []
    for name in arguments.checkpoint or bundled_language_models():
        spec = "stdlib" if name.startswith("code-") else arguments.corpus
        if spec is None:
            print(f"{name}: left out, since it reads novels; give --corpus dir:PATH", file=sys.stderr)
            continue
        model = aotlens.load(name, "cpu")
        rows.append(row(name, model, list(measure(model, open_corpus(spec), texts, length))))
    print(markdown(HEADER, rows) if rows else "Nothing was measured.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
