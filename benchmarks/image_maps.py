"""Maps of every head on 64 images against a forward pass that keeps nothing.

    python -m benchmarks.image_maps [--pairs 15] [--threads N] [--json PATH]

`ours` is `aotlens.heads.image_maps`: patterns and value norms of all heads. `forward` is the same model's pass on the
same images with patterns computed, which a listener to any of them needs; `unwatched` is the pass that nobody watches,
on `scaled_dot_product_attention`. Models are of the size of the bundled ones of Fashion-MNIST (49 patches of 4 × 4),
and of 14 × 14 patches, with random weights. A row of the maps must equal the cache's.

Measured: 1.14 to 1.19 times a pass with patterns at 49 patches (aim 1.2) and 1.05 at 196 (docs/benchmarks.md).
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from aotlens.heads import image_maps
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from benchmarks import _common

_N_IMAGES = 64


def config(side: int, *, quick: bool) -> ModelConfig:
    """Return a model's configuration for `side` × `side` patches of 4 × 4 pixels and [CLS]."""
    n_layers, d_model = (2, 16) if quick else (12, 64)
    return ModelConfig(
        n_layers=n_layers, d_model=d_model, n_heads=4, d_head=d_model // 4, n_ctx=side**2 + 1, read_in="patches",
        image_size=4 * side, patch_size=4, class_token=True, read_out="classes", d_out=10, causal=False, bias=True,
        attention="mssa",
    )  # fmt: skip


def with_patterns(model: AttentionOnlyTransformer, images: torch.Tensor) -> None:
    """Run a pass in which every pattern is computed, and none kept."""
    hooks = [(hook_names.attn(layer, hook_names.PATTERN), _look) for layer in range(model.cfg.n_layers)]
    model.run_with_hooks(images, return_type=None, fwd_hooks=hooks)


def _look(pattern: torch.Tensor, hook: object) -> None:
    """Keeps nothing."""


@torch.inference_mode()
def main(argv: list[str] | None = None) -> int:
    arguments = _common.parser(__doc__).parse_args(argv)
    rows = []
    for side in (3,) if arguments.quick else (7, 14):
        model = _common.build(config(side, quick=arguments.quick))
        images = torch.randn(_N_IMAGES, 1, 4 * side, 4 * side, generator=torch.Generator().manual_seed(0))
        _, cache = model.run_with_cache(images[-1:])
        last = image_maps(model, images).pattern[-1, -1]
        expected = cache[hook_names.attn(model.cfg.n_layers - 1, hook_names.PATTERN)][0]
        np.testing.assert_allclose(last, expected.numpy(), atol=1e-5)
        pairs = arguments.pairs or (1 if arguments.quick else 15)
        hooked = _common.time_in_turn(lambda: image_maps(model, images), lambda: with_patterns(model, images), pairs)  # noqa: B023
        unwatched = _common.time_in_turn(lambda: image_maps(model, images), lambda: model(images), pairs)  # noqa: B023
        rows.append(
            {
                "patches": side**2,
                "heads": model.cfg.n_layers * model.cfg.n_heads,
                "ours (ms)": 1e3 * hooked.first,
                "ours ÷ forward with patterns": hooked.ratio,
                "(processor time)": hooked.cpu_ratio,
                "ours ÷ unwatched forward": unwatched.ratio,
                "(processor time) ": unwatched.cpu_ratio,
                "pairs": pairs,
            }
        )
    _common.report("image_maps", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
