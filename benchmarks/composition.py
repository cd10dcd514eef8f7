"""Composition in three modes with both nulls, beside TransformerLens's scores alone, on a model of GPT-2 small's shape.

    python -m benchmarks.composition [--quick] [--pairs 3] [--json PATH]

Processor seconds, in turn, medians over pairs; random weights, since what they are does not change the work.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from aotlens.circuits import all_compositions
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks import _common


def _processor_seconds(call: Callable[[], Any]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def main(argv: list[str] | None = None) -> int:
    chosen = _common.parser(__doc__).parse_args(argv)
    pairs = chosen.pairs or (1 if chosen.quick else 3)
    layers, width = (2, 96) if chosen.quick else (12, 768)
    cfg = ModelConfig(n_layers=layers, d_model=width, n_heads=width // 64 or 1, d_head=64, n_ctx=64, d_vocab=2000)
    model = AttentionOnlyTransformer(cfg)
    bridge = to_transformer_lens(model)

    def scores() -> None:
        for mode in "QKV":
            bridge.all_composition_scores(mode)

    scores()  # what is made once
    measured = [(_processor_seconds(lambda: all_compositions(model)), _processor_seconds(scores)) for _ in range(pairs)]
    row = {
        "model": f"{layers} layers, d_model {width}",
        "seconds": statistics.median(ours for ours, _ in measured),
        "÷ scores alone": statistics.median(ours / theirs for ours, theirs in measured),
        "pairs": pairs,
    }
    _common.report("composition", [row], chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
