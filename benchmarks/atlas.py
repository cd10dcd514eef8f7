"""What the atlas costs: its pass over a text beside plain passes with a cache, and heads left out one by one.

    python -m benchmarks.atlas [--quick] [--pairs 5] [--tokens 16384] [--json PATH]

`novels-12l-mssa` on random tokens (what the patterns are of does not change the cost; content motifs see as many keys).
Pass: everything that patterns show (motifs beside chance, pattern consistency, distance and entropy, examples) ÷ a
forward pass with a cache of every activation over the same tokens, with the chance that is added up at the end and
without intervals. One by one: `ablate_each` ÷ runs of only the layers from each head on, from streams made beforehand,
and ÷ as many whole forward passes. Paired, in one process; memory is the largest resident size before and after. In
the end the numbers of `ablate_each` are compared with `ablate`.

Expected: pass at most 3, one by one at most 1.2 of the suffixes. Some 3 minutes; `--quick` takes seconds, and its
ratios mean little.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor

import aotlens
from aotlens.heads import ablate, ablate_each
from aotlens.heads.atlas_stages import AtlasText, patterns_stage
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from benchmarks import _common

BATCH = 8


def load_model(quick: bool) -> AttentionOnlyTransformer:
    if quick:
        return _common.build(ModelConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, d_vocab=300, n_ctx=32))
    return aotlens.load("novels-12l-mssa")


@torch.no_grad()
def measure_pass(model: AttentionOnlyTransformer, tokens: Tensor, pairs: int) -> dict[str, float | str]:
    """Measure the atlas's pass ÷ plain passes with a cache."""
    reader = HeadReader.of(model)

    def plain() -> None:
        for start in range(0, len(tokens), BATCH):
            model.run_with_cache(tokens[start : start + BATCH], return_type=None)

    text = AtlasText.of(reader, tokens, len(tokens), None, None, None, None)
    timing = _common.time_in_turn(lambda: patterns_stage(reader, text, 4, 0, BATCH), plain, pairs)
    return {"what": "atlas's pass ÷ plain pass with cache", "seconds": timing.first, "other, seconds": timing.second,
            "ratio": timing.ratio, "ratio of processor time": timing.cpu_ratio}  # fmt: skip


@torch.no_grad()
def measure_each(model: AttentionOnlyTransformer, tokens: Tensor, pairs: int) -> list[dict[str, float | str]]:
    """Measure heads left out one by one ÷ the same layers alone, and ÷ whole passes."""
    heads = list(np.ndindex(model.cfg.n_layers, model.cfg.n_heads))
    batches = [tokens[start : start + BATCH] for start in range(0, len(tokens), BATCH)]
    names = [hook_names.resid_pre(layer) for layer in range(model.cfg.n_layers)]
    caches = [model.run_with_cache(batch, names_filter=names, return_cache_object=False)[1] for batch in batches]

    def suffixes() -> None:
        for batch, cache in zip(batches, caches, strict=True):
            for layer, _ in heads:
                resid_pre = cache[hook_names.resid_pre(layer)]
                model(batch, return_type="loss", start_at_layer=layer, resid_pre=resid_pre)

    def whole() -> None:
        for batch in batches:
            for _ in heads:
                model(batch, return_type="loss")

    rows: list[dict[str, float | str]] = []
    for name, other in (("the layers from each head on", suffixes), ("whole passes", whole)):
        timing = _common.time_in_turn(lambda: ablate_each(model, tokens, batch_size=BATCH), other, pairs)
        rows.append(
            {"what": f"each head ÷ {name}", "seconds": timing.first, "other, seconds": timing.second,
             "ratio": timing.ratio, "ratio of processor time": timing.cpu_ratio}
        )  # fmt: skip
    each, head = ablate_each(model, tokens, batch_size=BATCH), heads[-2]
    np.testing.assert_allclose(each.ablated[-2], ablate(model, tokens, head).ablated, atol=1e-5)
    return rows


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--tokens", type=int, default=16_384, help="tokens of the pass (%(default)s)")
    arguments = options.parse_args(argv)
    model = load_model(arguments.quick)
    length = model.cfg.n_ctx
    n_sequences = 8 if arguments.quick else arguments.tokens // length
    assert model.cfg.d_vocab is not None
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, model.cfg.d_vocab, (n_sequences, length), generator=generator)
    pairs = arguments.pairs or (1 if arguments.quick else 5)
    before = _common.peak_bytes()
    rows = [measure_pass(model, tokens, pairs)]
    after = _common.peak_bytes()
    rows += measure_each(model, tokens[:BATCH], pairs)
    _common.report("atlas", rows, arguments.json)
    print(
        f"\n{tokens.numel():,} tokens; peak memory {before / 1e6:.0f} MB before the pass, {after / 1e6:.0f} MB after."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
