"""What it takes to find the heads that recur in ten models.

    python -m benchmarks universality [--models 10] [--threads 1] [--json PATH]

Models of random weights (12 layers of 4 heads, d_model 64, 1,024 tokens of vocabulary) on 32 sequences of 64 tokens:
seconds and processor time of `universality`, all four tests with 999 permutations, surrogates of texts and errors over
documents (of four sequences each); and the processor time of the surrogates alone.

Expected: at most 120 s of processor time for ten models; above that the measurement fails. Two minutes.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from aotlens.heads import universality
from aotlens.heads.likeness import text_null
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks import _common

#: Seconds of processor time that ten models may take.
MOST_SECONDS = 120.0


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--models", type=int, default=10, help="models whose heads are matched")
    arguments = options.parse_args(argv)
    torch.set_num_threads(arguments.threads or 1)
    n, n_layers = (2, 1) if arguments.quick else (arguments.models, 12)
    sizes = {"n_layers": n_layers, "d_model": 64, "n_heads": 4, "d_head": 16, "d_vocab": 1024, "n_ctx": 64}
    models = {str(seed): AttentionOnlyTransformer(ModelConfig(**sizes, seed=seed)).eval() for seed in range(n)}
    tokens = torch.randint(1024, (32, 64), generator=torch.Generator().manual_seed(0))
    documents = np.arange(32) // 4
    started, began = time.perf_counter(), time.process_time()
    result = universality(models, tokens, clusters=documents)
    seconds, processor = time.perf_counter() - started, time.process_time() - began
    rows = torch.randn(len(result.heads), 32, 64 * 63 // 2, dtype=torch.float64)
    began = time.process_time()
    text_null(rows, result.pairs, result.model, documents, 999, np.random.default_rng(0))
    row = {"models": n, "heads of each": 4 * n_layers, "seconds": seconds, "processor time, s": processor,
           "of it surrogates of texts, s": time.process_time() - began}  # fmt: skip
    _common.report("universality", [row], arguments.json)
    return int(processor > MOST_SECONDS * max(1.0, (n / 10) ** 2))


if __name__ == "__main__":
    sys.exit(main())
