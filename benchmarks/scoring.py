"""LAMBADA's last words in sorted batches with their own logits only, against one passage at a time with all logits.

    python -m benchmarks.scoring --lambada lambada_test.jsonl [--checkpoint novels-2l-mhsa] [--pairs 3] [--json PATH]

`ours` is `aotlens.evaluate.score_continuations`; `one at a time` is a forward pass of each passage and the log-softmax
of all its logits. Log-probabilities must agree to 1e-5 relative to max(1, |log p|). Without --lambada, and with
--quick, passages are random tokens of LAMBADA's lengths. Both sides get token ids, so encoding is no part of it.

Expected: ours at least 2.5 times as fast (with two threads, 5,153 passages take some minutes for all pairs).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch

from aotlens.checkpoints import load
from aotlens.data.zero_shot import open_lambada
from aotlens.evaluate import score_continuations
from aotlens.models import AttentionOnlyTransformer
from benchmarks import _common


@torch.inference_mode()
def one_at_a_time(
    model: AttentionOnlyTransformer, contexts: Sequence[list[int]], continuations: Sequence[list[int]]
) -> np.ndarray:
    """Score continuations as one would write it first: log p of each continuation from all logits of its row."""
    scores = []
    for context, continuation in zip(contexts, continuations, strict=True):
        ids = torch.tensor([[*context, *continuation]], device=model.device)
        log_probabilities = model(ids[:, :-1])[0].log_softmax(-1)
        of_tokens = log_probabilities.gather(-1, ids[0, 1:, None])[len(context) - 1 :]
        scores.append(of_tokens.double().sum().item())
    return np.array(scores)


def passages(
    model: AttentionOnlyTransformer, lambada: str | None, n: int | None
) -> tuple[list[list[int]], list[list[int]]]:
    """Return ids of contexts, each behind the start token, and of last words."""
    if lambada is None:
        generator = np.random.default_rng(0)
        lengths = generator.normal(95, 18, n or 5153).clip(40, 200).astype(int)
        ids = [generator.integers(1, model.cfg.d_vocab, length + 2).tolist() for length in lengths]
        return [[0, *row[:-2]] for row in ids], [row[-2:] for row in ids]
    items = open_lambada(lambada, quotes="straight")[:n]
    encode, start = model.tokenizer.encode, model.tokenizer.eot_id
    words = [encode(item.last_word) for item in items]
    # Longer passages than the model reads lose their beginnings, as in `score_continuations`.
    contexts = [
        [start, *encode(item.context)[len(word) - model.cfg.n_ctx :]] for item, word in zip(items, words, strict=True)
    ]
    return contexts, words


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--lambada", metavar="SOURCE", help="LAMBADA's test split: a file, or hf:NAME")
    options.add_argument("--checkpoint", default="novels-2l-mhsa", help="the model")
    options.add_argument("--passages", type=int, metavar="N", help="the first N passages; all by default")
    options.add_argument("--batch", type=int, default=16, help="rows at once")
    arguments = options.parse_args(argv)
    model = load(arguments.checkpoint, device="cpu")
    contexts, continuations = passages(
        model, None if arguments.quick else arguments.lambada, 40 if arguments.quick else arguments.passages
    )
    naive = one_at_a_time(model, contexts, continuations)
    ours = score_continuations(model, contexts, continuations, batch_size=arguments.batch).log_probabilities
    np.testing.assert_allclose(ours, naive, rtol=1e-5, atol=1e-5)
    timing = _common.time_in_turn(
        lambda: one_at_a_time(model, contexts, continuations),
        lambda: score_continuations(model, contexts, continuations, batch_size=arguments.batch),
        arguments.pairs or (2 if arguments.quick else 3),
    )
    row = {
        "passages": len(contexts),
        "batch": arguments.batch,
        **timing.row("one at a time", "ours"),
        "largest difference (nats)": float(np.abs(ours - naive).max()),
    }
    _common.report("scoring", [row], arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
