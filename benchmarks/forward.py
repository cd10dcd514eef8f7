"""A forward pass that nobody watches, against the plainest model with the same weights.

    python -m benchmarks.forward [--quick] [--pairs 10] [--bridge-pairs 3] [--json PATH]

Batch 8, 1,024 tokens, 12 layers, d_model 768, biases and norms, for vocabularies of 1,000 and 50,257
tokens. `plain` is an attention-only transformer on `scaled_dot_product_attention`, written below in the way
of nanoGPT (one matrix for queries, keys and values). Its logits must equal ours. Runs alternate; medians
over pairs. `bridge` is the same model as TransformerLens's native bridge.

Expected: ours ÷ plain about 1 (at most 1.05), and bridge ÷ ours between 2 (large vocabulary) and 4. Some 20
minutes on one core (`--threads 1`) and 12 GB of memory; `--quick` takes seconds, and its ratios mean little.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common


class Plain(nn.Module):
    """A model as one would write it without hooks: pre-norm attention layers and nothing else."""

    def __init__(self, model: AttentionOnlyTransformer) -> None:
        super().__init__()
        cfg = model.cfg
        self.n_heads, self.eps = cfg.n_heads, cfg.norm_eps
        self.tokens, self.positions = nn.Parameter(model.W_E.clone()), nn.Parameter(model.W_pos.clone())
        # [out, in], as nn.Linear has it; queries, keys and values of all heads in one.
        flat = [w.transpose(2, 3).flatten(1, 2) for w in (model.W_Q, model.W_K, model.W_V)]
        self.qkv = nn.Parameter(torch.cat(flat, dim=1))
        self.qkv_bias = nn.Parameter(torch.cat([b.flatten(1) for b in (model.b_Q, model.b_K, model.b_V)], dim=1))
        self.out = nn.Parameter(model.W_O.flatten(1, 2).transpose(1, 2).contiguous())
        self.out_bias = nn.Parameter(model.b_O.clone())
        norms = [block.ln1 for block in model.blocks] + [model.ln_final]
        self.gain = nn.Parameter(torch.stack([norm.w for norm in norms]))
        self.shift = nn.Parameter(torch.stack([norm.b for norm in norms]))
        self.head, self.head_bias = nn.Parameter(model.W_U.T.contiguous()), nn.Parameter(model.b_U.clone())
        self.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, n_pos = tokens.shape
        x = F.embedding(tokens, self.tokens) + self.positions[:n_pos]
        width = x.shape[-1]
        for layer in range(len(self.qkv)):
            normed = F.layer_norm(x, (width,), self.gain[layer], self.shift[layer], self.eps)
            qkv = F.linear(normed, self.qkv[layer], self.qkv_bias[layer])
            q, k, v = qkv.view(batch, n_pos, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + F.linear(z, self.out[layer], self.out_bias[layer])
        return F.linear(F.layer_norm(x, (width,), self.gain[-1], self.shift[-1], self.eps), self.head, self.head_bias)


@torch.inference_mode()
def measure(d_vocab: int, *, batch: int, n_pos: int, quick: bool, pairs: int, bridge_pairs: int) -> dict[str, Any]:
    model = _common.build(_common.model_config(d_vocab, n_pos, quick=quick))
    plain = Plain(model)
    tokens = torch.randint(d_vocab, (batch, n_pos), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(tokens), plain(tokens), rtol=1e-5, atol=1e-4)
    timing = _common.time_in_turn(lambda: model(tokens), lambda: plain(tokens), pairs)
    row: dict[str, Any] = {"d_vocab": d_vocab, "batch": batch, "tokens": n_pos, **timing.row("ours", "plain")}
    if bridge_pairs:
        bridge = to_transformer_lens(model)
        torch.testing.assert_close(bridge(tokens), model(tokens), rtol=1e-5, atol=1e-4)
        against = _common.time_in_turn(lambda: bridge(tokens), lambda: model(tokens), bridge_pairs)
        row |= {"bridge ÷ ours": against.ratio, "bridge ÷ ours (processor time)": against.cpu_ratio}
    return row


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--batch", type=int, help="sequences at once")
    options.add_argument("--bridge-pairs", type=int, help="pairs of runs against the bridge; 0 leaves it out")
    options.add_argument("--d-vocab", type=int, nargs="+", help="sizes of the vocabulary")
    arguments = options.parse_args(argv)
    quick = arguments.quick
    rows = [
        measure(
            d_vocab,
            batch=arguments.batch or (2 if quick else 8),
            n_pos=128 if quick else 1024,
            quick=quick,
            pairs=arguments.pairs or (3 if quick else 10),
            bridge_pairs=(2 if quick else 3) if arguments.bridge_pairs is None else arguments.bridge_pairs,
        )
        for d_vocab in arguments.d_vocab or [1000, 50_257]
    ]
    _common.report("forward", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
