"""Composition in three modes with both nulls, beside TransformerLens's scores alone, on a model of GPT-2 small's shape.

    python -m benchmarks.composition [--quick] [--pairs 3] [--json PATH]

In turn, medians over pairs; random weights, since what they are does not change the work.
"""

from __future__ import annotations

import sys

from aotlens.circuits import all_compositions
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks import _common


def main(argv: list[str] | None = None) -> int:
    arguments = _common.parser(__doc__).parse_args(argv)
    pairs = arguments.pairs or (1 if arguments.quick else 3)
    layers, width = (2, 96) if arguments.quick else (12, 768)
    cfg = ModelConfig(n_layers=layers, d_model=width, n_heads=width // 64 or 1, d_head=64, n_ctx=64, d_vocab=2000)
    model = AttentionOnlyTransformer(cfg)
    bridge = to_transformer_lens(model)

    def scores() -> None:
        for mode in "QKV":
            bridge.all_composition_scores(mode)

    timing = _common.time_in_turn(lambda: all_compositions(model), scores, pairs)
    row = {
        "model": f"{layers} layers, d_model {width}",
        "seconds": timing.first,
        "÷ scores alone (processor time)": timing.cpu_ratio,
        "pairs": pairs,
    }
    _common.report("composition", [row], arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
