"""A head's best skip-trigrams against its circuits' bare products, and evidence against the forward passes it needs.

    python -m benchmarks.trigrams [--quick] [--pairs 5] [--json PATH]

`search`: V = 48,262 tokens, d_head 64: the top 1,000 of all V³ triples, with the normalisers known and without, over
the time of the products of its QK and OV circuits, tile by tile into one buffer, nothing done with them. Runs take
turns; medians over pairs; one thread, unless --threads says otherwise. Memory is the peak of a fresh process minus its
size before the call.

`evidence`: 1,000 rows over 5 million tokens in one pass, over the two forward passes with logits of the same windows
(timed on a tenth of them); and, counting alone as well, per token over a naive double loop on a slice, whose counts
must be the same. The text needs no corpus: random tokens with Zipf's frequencies, and the rows' tokens are drawn by
frequency, so that pairs occur at least as often as in language; the model is as large as the bundled one-layer
checkpoint.

Expected: search ÷ products at most 1.2 with normalisers given and 2.0 without, 1.2 GB; evidence ÷ forward passes below
2. Some ten minutes on one core, `--only search` or `--only evidence` half of that; `--quick` takes seconds, and its
ratios mean little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.trigrams import background_distribution, evidence, log_background, score_triples, skip_trigrams
from aotlens.trigrams.factors import head_circuits
from benchmarks import _common

_TILE = 1024


def model_of(d_vocab: int, d_model: int, d_head: int) -> AttentionOnlyTransformer:
    """Return one layer without a norm, Zipf's counts, scores with a standard deviation of about 1 nat."""
    cfg = ModelConfig(
        n_layers=1, d_model=d_model, n_heads=8, d_head=d_head, n_ctx=256, d_vocab=d_vocab, norm=None, positions="qk"
    )
    model = AttentionOnlyTransformer(cfg).eval().requires_grad_(False)
    model.embed.W_E *= d_model**0.5 / model.embed.W_E.norm(dim=1).mean()
    model.unigram_counts = (10**7 / torch.arange(1, d_vocab + 1)).long()
    return model


def products(model: AttentionOnlyTransformer) -> None:
    """Compute the bare products of head 0.0's circuits."""
    circuits = head_circuits(model, "0.0")
    buffer = torch.empty(_TILE, _TILE)
    for circuit in (circuits.qk, circuits.ov):
        columns = circuit.B.T.contiguous()
        for rows in circuit.A.split(_TILE):
            for part in columns.split(_TILE):
                torch.mm(rows, part.T, out=buffer.view(-1)[: len(rows) * len(part)].view(len(rows), len(part)))


def search(*, quick: bool, pairs: int) -> list[dict[str, Any]]:
    model = model_of(3000 if quick else 48_262, 128, 64)
    normaliser = log_background(head_circuits(model, "0.0").qk, background_distribution(model, None))
    rows: list[dict[str, Any]] = []
    for name, given in (("normalisers given", normaliser), ("normalisers computed", None)):
        timing = _common.time_in_turn(
            lambda given=given: skip_trigrams(model, "0.0", normaliser=given), lambda: products(model), pairs
        )
        memory = _common.added_bytes(prepared, model.cfg.d_vocab, given is not None) / 1e6
        row = timing.row("ours", "products")
        rows.append({"what": f"top 1,000, {name}", **row, "memory (MB)": memory})
    return rows


def prepared(d_vocab: int, given: bool) -> Callable[[], Any]:
    """Return the call whose memory is measured."""
    torch.set_num_threads(1)
    model = model_of(d_vocab, 128, 64)
    skip_trigrams(model_of(300, 128, 64), "0.0", k=10)  # libraries load on first use
    return lambda: skip_trigrams(model, "0.0", normaliser=np.zeros(d_vocab) if given else None)


def in_text(*, quick: bool) -> list[dict[str, Any]]:
    model = model_of(4096, 128, 32)
    generator = np.random.default_rng(0)
    u = background_distribution(model, None)
    n_tokens, n_rows = (20_000, 100) if quick else (5_000_000, 1000)
    text = generator.choice(len(u), n_tokens, p=u)
    table = score_triples(model, "0.0", *(generator.choice(len(u), n_rows, p=u) for _ in range(3)))
    started = time.process_time()
    evidence(model, table, text, max_tokens=None)
    ours = time.process_time() - started
    width, share = model.cfg.n_ctx - 1, 10
    batch = torch.from_numpy(text[: n_tokens // share // width * width].reshape(-1, width))
    started = time.process_time()
    with torch.no_grad():
        for part in batch.split(15):
            model(part), model(part)
    forward = (time.process_time() - started) * n_tokens / batch.numel()
    started = time.process_time()
    evidence(model, table, text, max_tokens=None, run_model=False)
    counting = time.process_time() - started
    few = text[: 2000 if quick else 20_000]
    started = time.process_time()
    counts = _naive(table.source, table.destination, table.out, few, width)
    naive = (time.process_time() - started) / len(few)
    assert counts == evidence(model, table, few, max_tokens=None, run_model=False).counts.pair_out.tolist()
    return [
        {
            "what": f"evidence, {n_rows:,} rows, {n_tokens:,} tokens",
            "ours (s)": ours,
            "two forward passes (s)": forward,
            "ours ÷ forward passes (processor time)": ours / forward,
            "counting alone (s)": counting,
            "counting alone, naive loop (s)": naive * n_tokens,
            "counting ÷ naive loop": counting / (naive * n_tokens),
            "ours ÷ naive loop": ours / (naive * n_tokens),
        }
    ]


def _naive(source: np.ndarray, destination: np.ndarray, out: np.ndarray, text: np.ndarray, width: int) -> list[int]:
    """Counts of source … destination → out, the way one would first write it."""
    counts = [0] * len(source)
    rows = list(zip(source.tolist(), destination.tolist(), out.tolist(), strict=True))
    for begin in range(0, len(text), width):
        window = [0, *text[begin : begin + width].tolist()]
        for i in range(len(window) - 1):
            for row, (s, d, o) in enumerate(rows):
                if window[i] == d and s in window[:i]:
                    counts[row] += window[i + 1] == o
    return counts


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--only", choices=("search", "evidence"), help="one of the two")
    arguments = options.parse_args(argv)
    torch.set_num_threads(arguments.threads or 1)
    if arguments.only != "evidence":
        rows = search(quick=arguments.quick, pairs=arguments.pairs or (2 if arguments.quick else 5))
        _common.report("trigrams", rows, arguments.json)
    if arguments.only != "search":
        _common.report("trigrams evidence", in_text(quick=arguments.quick), arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
