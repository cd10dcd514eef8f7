"""`run_with_cache` of every attention pattern, against TransformerLens's native bridge: time and memory.

    python -m benchmarks.cache_memory [--quick] [--pairs 10] [--batch 1] [--json PATH]

Batch 1, 1,024 tokens, 12 layers, d_model 768: 604 MB of patterns. Time is measured in turn in one process.
Memory is the peak resident size of a fresh process minus its resident size before the call, for each model
in a process of its own. Patterns must be equal.

Expected: time ours ÷ bridge about 0.8 (at most 1.0), memory ours ÷ bridge about 0.9 (at most 1.05). About 2 minutes
on 2 cores and 4 GB; `--quick` takes half a minute, and its ratios mean little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common

D_VOCAB = 1000


def run(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """Run the model for every layer's pattern, and nothing else."""
    _, cache = model.run_with_cache(
        tokens, names_filter=lambda name: name.endswith("attn.hook_pattern"), return_cache_object=False
    )
    return cache


def prepare(n_pos: int, batch: int, quick: bool) -> tuple[AttentionOnlyTransformer, Tensor]:
    model = _common.build(_common.model_config(D_VOCAB, n_pos, quick=quick))
    return model, torch.randint(D_VOCAB, (batch, n_pos), generator=torch.Generator().manual_seed(0))


@torch.inference_mode()
def measure_time(n_pos: int, batch: int, quick: bool, pairs: int) -> _common.Timing:
    model, tokens = prepare(n_pos, batch, quick)
    bridge = to_transformer_lens(model)
    ours, theirs = run(model, tokens), run(bridge, tokens)
    assert ours.keys() == theirs.keys() and len(ours) == model.cfg.n_layers
    for name, pattern in ours.items():
        torch.testing.assert_close(pattern, theirs[name], rtol=1e-5, atol=1e-5)
    del ours, theirs
    return _common.time_in_turn(lambda: run(model, tokens), lambda: run(bridge, tokens), pairs)


def prepared(which: str, n_pos: int, batch: int, quick: bool) -> Callable[[], Any]:
    """Return the call whose memory is measured."""
    model, tokens = prepare(n_pos, batch, quick)
    measured: Any = to_transformer_lens(model) if which == "bridge" else model
    return lambda: run(measured, tokens)


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--batch", type=int, default=1, help="sequences at once")
    arguments = options.parse_args(argv)
    n_pos, quick = 256 if arguments.quick else 1024, arguments.quick
    ours, bridge = (
        _common.added_bytes(prepared, which, n_pos, arguments.batch, quick) / 1e6 for which in ("ours", "bridge")
    )
    timing = measure_time(n_pos, arguments.batch, quick, arguments.pairs or (3 if quick else 10))
    memory = {"ours (MB)": ours, "bridge (MB)": bridge, "memory ours ÷ bridge": ours / bridge}
    row = {"batch": arguments.batch, "tokens": n_pos, **timing.row("ours", "bridge"), **memory}
    _common.report("cache_memory", [row], arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
