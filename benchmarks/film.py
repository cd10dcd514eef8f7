"""What snapshots cost a training run, the film against atlases, and what the ledger's split leaves over.

    python -m benchmarks film [--steps 400] [--threads 1] [--json PATH]

For MHSA and MSSA (2 layers, d_model 128, 4 heads, 4,096 tokens of the standard library's source, 8 rows of 256) trains
the same steps with 100 snapshots and without, in turn. Then, of that run: bytes of the snapshots over those of as many
whole weights; the film's table of a snapshot and its atlas, on the same 16 windows of 256 tokens, in turn; the ledger
over every third snapshot on random tokens that come twice: residual of the whole and of the worst segment
over its change, how much the split differs with every second snapshot, passes, and how much it changes when the heads
of the last snapshot are rotated (which changes nothing that the model does).

Expected: training ≤ 1.10, by processor time, where a run is of 1,200 steps or more; the film ≤ 0.5; the residual ≤ .001
and in the worst segment .01; gauge ≤ 1e-10. Some ten minutes.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aotlens
from aotlens.checkpoints import Run
from aotlens.checkpoints.snapshots import snapshots_folder
from aotlens.data import repeated_random_tokens, validation_windows
from aotlens.dynamics import ledger, measure_model
from aotlens.heads import atlas
from aotlens.models import AttentionOnlyTransformer
from aotlens.train import CorpusRecipe, Recipe, Stage, prepare, train
from benchmarks import _common

N_SNAPSHOTS = 100


def recipe_of(attention: str, n_steps: int, *, quick: bool) -> Recipe:
    """Return a run on random tokens that come twice and on text, as the bundled models of two layers."""
    rows, length, width = (4, 64, 32) if quick else (8, 256, 128)
    sizes = {"attention": attention, "n_layers": 2, "d_model": width, "n_heads": 4, "d_head": width // 4}
    stage = Stage(
        tokens=n_steps * rows * length, batch_size=rows, sequence_length=length, learning_rate=2e-3, repeat_fraction=0.5
    )
    return Recipe(
        name=f"film-{attention}", model={**sizes, "n_ctx": length}, stages=(stage,),
        corpus=CorpusRecipe(spec="stdlib", d_vocab=512 if quick else 4096), validation_tokens=4096,
        evaluate_tokens=10**9, save_tokens=10**9,
    )  # fmt: skip


def rotated(model: AttentionOnlyTransformer) -> AttentionOnlyTransformer:
    """Return the same model with every head's factors rotated."""
    other = copy.deepcopy(model).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for attention in (block.attn for block in other.blocks):
        size = attention.W_O.shape[0], other.cfg.d_head, other.cfg.d_head
        R = torch.linalg.qr(torch.randn(size, generator=generator, dtype=torch.float64)).Q
        names = ("U",) if other.cfg.attention == "mssa" else ("W_Q", "W_K", "W_V")
        for name in names:
            getattr(attention, name).copy_(getattr(attention, name) @ R)
        attention.W_O.copy_(R.mT @ attention.W_O)
    return other


def trained(recipe: Recipe, data: Any, out: Path) -> float:
    """Return the processor time of a run in seconds."""
    started = time.process_time()
    train(recipe, data, out, device="cpu")
    return time.process_time() - started


def measure(attention: str, folder: Path, n_steps: int, *, quick: bool) -> dict[str, Any]:
    """Return one row: all that is measured of a kind of head."""
    recipe = recipe_of(attention, n_steps, quick=quick)
    data = prepare(recipe.corpus, home=folder)
    n_snapshots = 12 if quick else N_SNAPSHOTS
    plain = trained(recipe, data, folder / f"{attention}-plain")
    filmed = trained(replace(recipe, snapshots=f"log:{n_snapshots}"), data, folder / attention)
    run = aotlens.load_run(folder / attention, device="cpu")
    model = run[run.steps[-1]]
    whole = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    size = sum(path.stat().st_size for path in snapshots_folder(folder / attention).iterdir())
    windows = torch.as_tensor(validation_windows(data.validation, model.cfg.n_ctx, max_windows=16))
    timing = _common.time_in_turn(
        lambda: measure_model(model, windows), lambda: atlas(model, windows, cache=None), 1 if quick else 5
    )
    return {
        "heads": attention.upper(),
        "steps": n_steps,
        "snapshots": len(run.steps),
        "training with snapshots ÷ without (processor time)": filmed / plain,
        "bytes of snapshots ÷ whole weights": size / (len(run.steps) * whole),
        "film ÷ atlas, a snapshot": timing.ratio,
        "film ÷ atlas (processor time)": timing.cpu_ratio,
        **split(run),
    }


def split(run: Run) -> dict[str, float]:
    """Return the ledger's figures."""
    end = run[run.steps[-1]]
    half = min(31, (end.cfg.n_ctx - 1) // 2)
    tokens = repeated_random_tokens(end.cfg.d_vocab, 16, half, 1, eot_id=0)
    books = ledger([run[step] for step in [*run.steps[:-1:3], run.steps[-1]]], tokens)
    started = run[run.steps[len(run.steps) // 2]]
    first, second = (ledger([started, each], tokens, tolerance=1.0) for end in [end] for each in (end, rotated(end)))
    changes = np.abs(np.diff(books.losses))
    worst = (np.abs(books.residuals) / np.maximum(changes, np.abs(books.change) / len(changes))).max()
    return {
        "change of the loss": books.change,
        "residual ÷ change": abs(float(books.residuals.sum()) / books.change),
        "worst segment's": float(worst),
        "with every second snapshot": float(books.halved or 0.0),
        "passes": books.n_passes,
        "rotated heads": float(np.abs(first.parts - second.parts).max() / np.abs(first.parts).sum()),
    }


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--steps", type=int, default=1200, help="updates of each run")
    arguments = options.parse_args(argv)
    n_steps = 40 if arguments.quick else arguments.steps
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(attention, Path(folder), n_steps, quick=arguments.quick) for attention in ("mhsa", "mssa")]
    _common.report("film", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
