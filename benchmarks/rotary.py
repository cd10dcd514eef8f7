"""A Llama-like forward pass beside `transformers`' own with SDPA, and largest entries over distances beside products.

    python -m benchmarks rotary --threads 1            some three minutes on one core

Expected (processor time): the forward at most 1.05 of theirs, with equal logits; the largest 100 entries over 64
distances at most .3 of 64 bare products of the same factors where rows' lengths vary as of trained heads, and at most
1.0 where all are of one length.
"""

from __future__ import annotations

import sys

import torch

from aotlens.circuits.over_distances import best_scores
from aotlens.models import ModelConfig
from benchmarks import _common

N_DISTANCES = 64


def forward(quick: bool, pairs: int) -> dict[str, object]:
    """12 layers of width 768, 12 heads and 4 of keys, 1,024 tokens."""
    import transformers

    import aotlens

    n_layers, n_pos = (2, 128) if quick else (12, 1024)
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=768, intermediate_size=2048, num_hidden_layers=n_layers, num_attention_heads=12,
        num_key_value_heads=4, max_position_embeddings=n_pos, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    ours = aotlens.load(theirs, "cpu")
    tokens = torch.randint(4096, (1, n_pos))
    with torch.inference_mode():
        expected = theirs(tokens, use_cache=False).logits
        torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
        timing = _common.time_in_turn(lambda: ours(tokens), lambda: theirs(tokens, use_cache=False), pairs)
    return {"what": "forward ÷ transformers'", "ratio, wall": timing.ratio, "ratio, processor": timing.cpu_ratio}


def largest(lengths_vary: bool, quick: bool, pairs: int) -> dict[str, object]:
    """The 100 largest entries over distances."""
    n_tokens, d_head = 2_000 if quick else 20_000, 32 if lengths_vary else 64
    cfg = ModelConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=d_head, n_ctx=256, d_vocab=2, positions="rotary", norm="rms"
    )
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n_tokens, d_head, generator=generator) for _ in range(2))
    if lengths_vary:
        q, k = (x * torch.randn(n_tokens, 1, generator=generator).mul(0.5).exp() for x in (q, k))
    buffer = torch.empty(512 * 2048)

    def products() -> None:
        for rows in q.split(512):
            for columns in k.split(2048):
                shape = (len(rows), len(columns))
                torch.mm(rows, columns.T, out=buffer[: shape[0] * shape[1]].view(shape))

    found = best_scores(cfg, q, k, range(N_DISTANCES), 100)
    timing = _common.time_in_turn(lambda: best_scores(cfg, q, k, range(N_DISTANCES), 100), products, pairs)
    what = f"top 100 over {N_DISTANCES} distances ÷ products, {'lengths vary' if lengths_vary else 'one length'}"
    return {
        "what": f"{what} ({found.share_of_pairs:.2%} of pairs)", "ratio, wall": timing.ratio / N_DISTANCES,
        "ratio, processor": timing.cpu_ratio / N_DISTANCES,
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__).parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    pairs = options.pairs or (1 if options.quick else 3)
    rows = [forward(options.quick, pairs), *(largest(vary, options.quick, pairs) for vary in (True, False))]
    _common.report("rotary", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
