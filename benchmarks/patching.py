"""Activation patching: every cell of a sweep, against TransformerLens's own functions on its native bridge.

    python -m benchmarks.patching [--quick] [--prompts 32] [--length 62] [--json PATH]

A model of the shape of `novels-12l-mssa` with positions in the stream (a bridge cannot have them on queries and keys),
random weights; pairs of random tokens. Ours runs the whole sweep of the stream before every layer at every position,
and of every head's output; theirs runs a sample of the same cells, drawn by one seed, whose values must be equal, and
its time is scaled to all of them. Attribution patching is compared with the model's own forward pass.

Expected: the stream at most .4 of theirs, heads at most .3, attribution at most 4 forward passes without its check; a
circuit of `novels-2l-mhsa` in at most 60 s, with a faithfulness of .9 on pairs that the search did not see. Some three
minutes on two cores.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import aotlens
from aotlens.data import PromptPairs
from aotlens.interop import to_transformer_lens
from aotlens.models import AttentionOnlyTransformer
from aotlens.patching import attribution, find_circuit, patch
from benchmarks import _common

SHAPE = "novels-12l-mssa"
#: Cells of each sweep that theirs runs.
SAMPLE = 24


def timed(work: Any, clock: Any = time.perf_counter) -> tuple[float, Any]:
    start = clock()
    result = work()
    return clock() - start, result


@torch.no_grad()
def measure(n_pairs: int, length: int, sample: int) -> list[dict[str, Any]]:
    from transformer_lens import patching as theirs

    cfg = aotlens.load(SHAPE, device="cpu").cfg
    model = AttentionOnlyTransformer(replace(cfg, positions="learned")).requires_grad_(False).eval()
    bridge = to_transformer_lens(model).requires_grad_(False).eval()
    pairs = PromptPairs.induction(model, n=n_pairs, length=length)
    clean, corrupted = (torch.stack([getattr(pair, name) for pair in pairs]) for name in ("clean", "corrupted"))
    rows, answers, wrong = range(n_pairs), pairs.answers, pairs.wrong

    def margin(logits: Tensor) -> Tensor:
        return (logits[rows, -1, answers] - logits[rows, -1, wrong]).mean()

    _, cache = bridge.run_with_cache(clean)
    generator = np.random.default_rng(0)
    comparisons = []
    for what, name, setter, axes in (
        ("resid_pre", "resid_pre", theirs.layer_pos_patch_setter, ("layer", "pos")),
        ("z", "z", theirs.layer_head_vector_patch_setter, ("layer", "head")),
    ):
        ours, result = timed(lambda what=what: patch(model, pairs, what))
        cells = np.stack(np.unravel_index(generator.permutation(result.values.size)[:sample], result.values.shape), 1)
        index = pd.DataFrame(cells, columns=list(axes))
        took, values = timed(
            lambda name=name, setter=setter, index=index: theirs.generic_activation_patch(
                bridge, corrupted, cache, margin, setter, name, index_df=index
            )
        )
        theirs_all = took / len(cells) * result.values.size
        comparisons.append(
            {
                "what": what, "cells": result.values.size, "pairs": n_pairs, "tokens": clean.shape[1], "ours, s": ours,
                "theirs, s (scaled)": theirs_all, "ratio": ours / theirs_all,
                "largest difference": float(np.abs(result.values[tuple(cells.T)] - values.numpy()).max()),
            }
        )  # fmt: skip
    spent = time.process_time  # of two short runs other work would disturb one
    forward = min(timed(lambda: model(corrupted), spent)[0] for _ in range(3))
    with torch.enable_grad():
        estimate = min(timed(lambda: attribution(model, pairs, "z", check=1), spent)[0] for _ in range(3))
    comparisons.append(
        {"what": "attribution of z, one cell checked", "ours, s": estimate, "forward passes": estimate / forward}
    )
    return comparisons


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--prompts", type=int, default=32)
    options.add_argument("--length", type=int, default=62)
    arguments = options.parse_args(argv)
    sizes = (4, 14, 6) if arguments.quick else (arguments.prompts, arguments.length, SAMPLE)
    *sweeps, estimate = measure(*sizes)
    _common.report("patching: a sweep", sweeps, arguments.json)
    _common.report("patching: attribution", [estimate], None)
    model, circuits = aotlens.load("novels-2l-mhsa", device="cpu"), []
    for differs in ("value", "key"):
        pairs = PromptPairs.induction(model, differs=differs, n=64, length=24)
        took, circuit = timed(lambda pairs=pairs: find_circuit(model, pairs))
        circuits.append(
            {"pairs": f"induction, {differs}", "seconds": took, "edges": len(circuit.edges), "of": circuit.n_edges,
             "sets tried": circuit.n_runs, "faithfulness": circuit.faithfulness, "low": circuit.interval[0],
             "all others": circuit.completeness}
        )  # fmt: skip
    _common.report("patching: a circuit", circuits, None)
    met = sweeps[0]["ratio"] <= 0.4 and sweeps[1]["ratio"] <= 0.3 and estimate["forward passes"] <= 4
    met = met and all(row["seconds"] <= 60 and row["faithfulness"] >= 0.9 for row in circuits)
    return 0 if met or arguments.quick else 1


if __name__ == "__main__":
    sys.exit(main())
