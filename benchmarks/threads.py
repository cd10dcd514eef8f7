"""What the lock between threads costs one thread alone, against the same model without it.

    python -m benchmarks.threads [--quick] [--pairs 2000] [--json PATH]

`without` is the model's class with PyTorch's own `__call__` and a lock that does nothing. Calls are of one
sequence, so that the lock is as large a share as it can be: of a model as small as a test's (2 layers, d_model 12,
8 tokens), and of one of 12 layers with d_model 768 and 128 tokens. Single calls alternate, with and without; medians
over pairs (a hundredth as many for the large model).

Expected: with ÷ without between 1.03 and 1.05 for the small model and 1.00 for the large one,
within noise. A minute on one core; `--quick` takes seconds.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch import nn

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.models.run_lock import RunLock
from benchmarks import _common


class NoLock(RunLock):
    """A lock that never makes anybody wait."""

    def begin_hooked(self) -> None:
        """Do nothing: nobody waits."""

    end_hooked = begin_hooked


class Unlocked(AttentionOnlyTransformer):
    """The same model as it would be if it belonged to one thread."""

    __call__ = nn.Module.__call__

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__(cfg)
        self._run_lock = NoLock()


@torch.inference_mode()
def measure(size: str, cfg: ModelConfig, *, n_pos: int, pairs: int) -> list[dict[str, Any]]:
    locked, unlocked = AttentionOnlyTransformer(cfg).eval(), Unlocked(cfg).eval()
    tokens = torch.randint(cfg.d_vocab or 1, (1, n_pos), generator=torch.Generator().manual_seed(0))
    assert torch.equal(locked(tokens), unlocked(tokens))
    rows = []
    for what, with_lock, without in (
        ("forward", locked, unlocked),
        ("run_with_cache", locked.run_with_cache, unlocked.run_with_cache),
    ):
        timing = _common.time_in_turn(partial(with_lock, tokens), partial(without, tokens), pairs)
        rows.append(
            {
                "model": size,
                "run": what,
                "with (µs)": 1e6 * timing.first,
                "without (µs)": 1e6 * timing.second,
                "with ÷ without": timing.ratio,
                "with ÷ without (processor time)": timing.cpu_ratio,
                "pairs": timing.pairs,
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__).parse_args(argv)
    torch.set_num_threads(options.threads or 1)
    small = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=8, d_vocab=11)
    pairs = options.pairs or (50 if options.quick else 2000)
    rows = measure("small", small, n_pos=8, pairs=pairs)
    if not options.quick:
        large = _common.model_config(1000, 128, quick=False)
        rows += measure("large", large, n_pos=128, pairs=max(1, pairs // 100))
    _common.report("threads", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
