"""Path expansions against the ways to the same numbers: a forward pass a path, and whole forward passes.

    python -m benchmarks.paths [--quick] [--pairs 5] [--checkpoint NAME_OR_FOLDER] [--json PATH]

Three measurements, runs in turn, medians over pairs:

    all paths    Every head sequence of a model of 4 layers and 8 heads (6,561) to one logit on 64 tokens, against
                 forward passes of the same model with hooks that keep only that path, as many paths in a batch as
                 suits it best (of 8, 32, 128). The forward passes are timed on 512 of the sequences, and their
                 contributions must be equal; the ratio takes all of them.
    by_order     `.by_order()` on a checkpoint, 128 tokens, against a forward pass that fills a cache: one target at
                 all positions, and the whole vocabulary.
    top          `.top(20)` on the same, for ten positions of the prompt: how many ranks are proven, and the time; and
                 on a random model of 24 layers and 16 heads.

Expected: at least 20 times faster; at most 3 and 6 forward passes; all 20 ranks proven at most positions. Some three
minutes on two cores; `--quick` takes seconds, and its ratios mean little.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

import aotlens
from aotlens.models import AttentionOnlyTransformer, ModelConfig, hook_names
from aotlens.paths import expand
from benchmarks import _common

PROMPT = (
    "It was on a dreary night in November that Mr. Henry Lambert came home to his father's house in the country, after "
    "an absence of three years. His sister Mary was standing at the door, and when she saw him she ran down the steps "
    'and cried, "Oh, Henry, you have come at last!" Mr. Lambert took her hand, and said that he was very glad to see '
    "her again; but he did not look at her, and Mary thought that he was much changed. In the drawing-room they found "
    "their father, old Mr. Lambert, who was sitting by the fire with a book upon his knees. He did not rise when they "
    "came in, but he held out his hand to his son, and said in a low voice that he had been expecting him."
)


def only_path_hooks(
    model: AttentionOnlyTransformer, tokens: Tensor, sequences: list[tuple[int, ...]]
) -> tuple[Tensor, list[tuple[str, Callable[..., Any]]]]:
    """Return a batch of the prompt, and hooks that keep path i in row i: digit 0 skips a layer, 1 + h takes head h."""
    with torch.inference_mode():
        _, cache = model.run_with_cache(
            tokens[None], names_filter=lambda name: name.endswith((hook_names.PATTERN, "hook_scale"))
        )
    n = len(sequences)
    hooks: list[tuple[str, Callable[..., Any]]] = []
    for name, value in cache.cache_dict.items():
        hooks.append((name, lambda _, hook, value=value: value.expand(n, *value.shape[1:])))
    for layer in range(model.cfg.n_layers):
        digits = torch.tensor([sequence[layer] for sequence in sequences])
        kept = torch.nn.functional.one_hot(digits, model.cfg.n_heads + 1)[:, 1:].to(model.dtype)
        skips = (digits == 0).to(model.dtype)[:, None, None]

        # z · W_O is linear: a head is kept by its z. A path that takes a head does not take the skip connection.
        def keep_head(z: Tensor, hook: object, kept: Tensor = kept) -> Tensor:
            return z * kept[:, None, :, None]

        stream: list[Tensor] = []

        def remember(x: Tensor, hook: object, stream: list[Tensor] = stream) -> None:
            stream[:] = [x]

        def drop(x: Tensor, hook: object, stream: list[Tensor] = stream, skips: Tensor = skips) -> Tensor:
            return x - stream[0] * (1 - skips)

        hooks.append((hook_names.resid_pre(layer), remember))
        hooks.append((hook_names.attn(layer, hook_names.Z), keep_head))
        hooks.append((hook_names.resid_post(layer), drop))
    return tokens.expand(n, -1), hooks


@torch.inference_mode()
def measure_all_paths(*, quick: bool, pairs: int) -> dict[str, Any]:
    n_layers, n_heads, n_pos, n_sampled = (2, 4, 16, 25) if quick else (4, 8, 64, 512)
    cfg = ModelConfig(
        n_layers=n_layers, d_model=256, n_heads=n_heads, d_head=32, d_vocab=1000, n_ctx=n_pos, positions="qk"
    )
    model = AttentionOnlyTransformer(cfg).eval().requires_grad_(False)
    tokens = torch.randint(1000, (n_pos,), generator=torch.Generator().manual_seed(0))
    # In another order than they are counted, so that a sample has paths of every length.
    every = list(product(range(n_heads + 1), repeat=n_layers))
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(1)).tolist()
    sampled = [every[i] for i in order[:n_sampled]]

    def ours() -> Tensor:
        return expand(model, tokens).all_paths(-1, 7).values[0]

    def theirs(batch: int) -> Tensor:
        values = []
        for start in range(0, len(sampled), batch):
            inputs, hooks = only_path_hooks(model, tokens, sampled[start : start + batch])
            values.append(model.run_with_hooks(inputs, fwd_hooks=hooks)[:, -1, 7])
        return torch.cat(values)

    torch.testing.assert_close(ours()[order[:n_sampled]], theirs(32), rtol=1e-4, atol=1e-5)
    batches = [(_seconds(lambda batch=batch: theirs(batch)), batch) for batch in (8, 32, 128)]
    best = min(batches)[1]
    timing = _common.time_in_turn(lambda: theirs(best), ours, pairs)
    scale = len(every) / len(sampled)
    return {
        "sequences": len(every),
        "tokens": n_pos,
        "ours (s)": timing.second,
        "forward passes (s)": timing.first * scale,
        "paths in a batch": best,
        "times faster": timing.ratio * scale,
        "times faster (processor time)": timing.cpu_ratio * scale,
    }


@torch.inference_mode()
def measure_by_order(model: AttentionOnlyTransformer, tokens: Tensor, pairs: int) -> dict[str, Any]:
    """Measure runs that expand anew what is kept between targets, but not the pass that freezes the model."""

    def cached() -> None:
        model.run_with_cache(tokens[None])

    expansions = [expand(model, tokens) for _ in range(2 * (pairs + 1))]
    one_target = _common.time_in_turn(lambda: expansions.pop().by_order(7), cached, pairs)
    everything = _common.time_in_turn(lambda: expansions.pop().by_order(), cached, pairs)
    freezing = _common.time_in_turn(lambda: expand(model, tokens), cached, pairs)
    residual = expand(model, tokens).residual()
    return {
        "tokens": len(tokens),
        "forward pass with cache (s)": one_target.second,
        "one target ÷ forward": one_target.ratio,
        "whole vocabulary ÷ forward": everything.ratio,
        "expand ÷ forward": freezing.ratio,
        "sum of paths − model": residual.largest,
        "tolerance": residual.tolerance,
    }


@torch.inference_mode()
def measure_top(name: str, model: AttentionOnlyTransformer, tokens: Tensor, n_positions: int) -> dict[str, Any]:
    start = time.perf_counter()
    expansion = expand(model, tokens)
    expansion.top(20, -1, budget=1)
    first = time.perf_counter() - start
    proven, seconds, expanded = [], [], []
    for position in torch.linspace(1, expansion.n_pos - 1, n_positions).round().int().tolist():
        start = time.perf_counter()
        top = expansion.top(20, position)
        seconds.append(time.perf_counter() - start)
        proven.append(top.n_proven / len(top.paths))
        expanded.append(top.n_expanded)
    return {
        "model": name,
        "tokens": len(tokens),
        "paths": float(expansion.n_paths),
        "proven, share of 20": statistics.mean(proven),
        "all proven, share of positions": statistics.mean(share == 1 for share in proven),
        "nodes expanded (median)": statistics.median(expanded),
        "seconds (median)": statistics.median(seconds),
        "seconds before the first": first,
    }


def _seconds(function: Callable[[], Any]) -> float:
    function()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def deep_model(*, quick: bool) -> AttentionOnlyTransformer:
    """Build 24 layers of 16 heads (quick: 4 of 4), random."""
    n_layers, n_heads = (4, 4) if quick else (24, 16)
    cfg = ModelConfig(n_layers=n_layers, d_model=512, n_heads=n_heads, d_head=32, d_vocab=1000, n_ctx=128)
    return AttentionOnlyTransformer(cfg).eval().requires_grad_(False)


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--checkpoint", default="novels-12l-mssa", help="for by_order and top")
    options.add_argument("--no-deep", action="store_true", help="leave out the random model of 24 layers")
    arguments = options.parse_args(argv)
    quick, pairs = arguments.quick, arguments.pairs or (2 if arguments.quick else 9)
    all_paths = measure_all_paths(quick=quick, pairs=pairs)
    _common.report("paths: all of them", [all_paths], arguments.json)
    model = aotlens.load(arguments.checkpoint, device="cpu").eval()
    tokens = model.to_tokens(PROMPT)[0, : min(128, model.cfg.n_ctx)]
    by_order = measure_by_order(model, tokens, pairs)
    _common.report("paths: by_order", [by_order], arguments.json)
    rows = [measure_top(arguments.checkpoint, model, tokens, 2 if quick else 10)]
    if not arguments.no_deep:
        random_tokens = torch.randint(1000, (64,), generator=torch.Generator().manual_seed(0))
        rows.append(measure_top("random", deep_model(quick=quick), random_tokens, 1 if quick else 3))
    _common.report("paths: top", rows, arguments.json)
    met = (
        all_paths["times faster"] >= 20
        and by_order["one target ÷ forward"] <= 3
        and by_order["whole vocabulary ÷ forward"] <= 6
        and by_order["sum of paths − model"] <= by_order["tolerance"]
    )
    return 0 if met or quick else 1


if __name__ == "__main__":
    sys.exit(main())
