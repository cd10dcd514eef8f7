"""A Llama-like forward pass beside `transformers`' own with SDPA, largest entries over distances beside products, and
the memory of opening a folder.

    python -m benchmarks rotary --threads 1            some three minutes on one core

Expected (processor time): the forward at most 1.05 of theirs, with equal logits; the largest 100 entries over 64
distances of 48,262 tokens at most .3 of 64 bare products of the same factors where rows' lengths vary as of trained
heads, and at most 1.0 where all are of one length, with at most .3 GB more memory; opening a folder of Pythia-410m's
shape, with random weights in half precision, at most 1.2 times the model's own memory, without pages of the file (the
folder takes .8 GB of the temporary files).
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from aotlens.circuits.over_distances import best_scores
from aotlens.models import ModelConfig
from benchmarks import _common, importing

N_DISTANCES = 64


def forward(quick: bool, pairs: int) -> dict[str, object]:
    """Measure a pass of 12 layers of width 768, 12 heads and 4 of keys, 1,024 tokens."""
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


def opening(quick: bool) -> dict[str, object]:
    """Time opening a folder of Pythia-410m's shape in a process of its own."""
    import transformers

    sizes = (256, 2, 4, 1024) if quick else (1024, 24, 16, 4096)
    config = transformers.GPTNeoXConfig(
        vocab_size=50304, hidden_size=sizes[0], num_hidden_layers=sizes[1], num_attention_heads=sizes[2],
        intermediate_size=sizes[3], max_position_embeddings=2048,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        model = transformers.GPTNeoXForCausalLM(config)
        size = 4 * sum(parameter.numel() for parameter in model.parameters())  # opened in float32
        model.half().save_pretrained(folder)
        own = importing.measure("ours", Path(folder))["bytes"]
    return {"what": "memory of opening ÷ the model's", "ratio": own / size}


def largest(lengths_vary: bool, quick: bool, pairs: int) -> dict[str, object]:
    """Time the 100 largest entries over distances."""
    n_tokens, d_head = 2_000 if quick else 48_262, 32 if lengths_vary else 64
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

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = best_scores(cfg, q, k, range(N_DISTANCES), 100)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    timing = _common.time_in_turn(lambda: best_scores(cfg, q, k, range(N_DISTANCES), 100), products, pairs)
    what = f"top 100 over {N_DISTANCES} distances ÷ products, {'lengths vary' if lengths_vary else 'one length'}"
    return {
        "what": f"{what} ({entries.share_of_pairs:.2%} of pairs)", "ratio, wall": timing.ratio / N_DISTANCES,
        "ratio, processor": timing.cpu_ratio / N_DISTANCES, "GB more": more,
    }  # fmt: skip


def trained(pairs: int) -> dict[str, object]:
    """Time the largest entries of the heads of `novels-2l-rotary`, 4,096 tokens: their mean."""
    import aotlens
    from aotlens.circuits import qk_circuit

    model = aotlens.load("novels-2l-rotary", "cpu")
    ratios, shares = [], []
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads):
            circuit = qk_circuit(model, (layer, head), distance=range(N_DISTANCES)).content
            q, k = circuit.A, circuit.B.T
            shares.append(best_scores(model.cfg, q, k, range(N_DISTANCES), 100).share_of_pairs)
            ratios.append(_common.time_in_turn(
                lambda q=q, k=k: best_scores(model.cfg, q, k, range(N_DISTANCES), 100), lambda q=q, k=k: q @ k.T, pairs
            ))  # fmt: skip
    return {
        "what": f"the same of novels-2l-rotary's heads ({np.mean(shares):.2%} of pairs)",
        "ratio, wall": float(np.mean([timing.ratio for timing in ratios]) / N_DISTANCES),
        "ratio, processor": float(np.mean([timing.cpu_ratio for timing in ratios]) / N_DISTANCES),
    }


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__).parse_args(argv)
    pairs = options.pairs or (1 if options.quick else 3)
    # Memory first: what was freed before would hide it.
    rows = [opening(options.quick), *(largest(vary, options.quick, pairs) for vary in (True, False))]
    rows += [trained(pairs), forward(options.quick, pairs)]
    _common.report("rotary", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
