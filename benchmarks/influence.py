"""What the influence of every training window costs beside training.

    python -m benchmarks influence [--steps 60] [--threads 1] [--json PATH]

A run of two layers (d_model 64, 4 heads, 512 tokens of vocabulary, rows of text that comes twice from the standard
library's source) is trained, and the influence of its windows on two measures is found, a process each: processor time,
and the peak of memory above that of a process that has imported both. At 32 rows of 64 tokens and 16 of 128.

Expected: time ≤ 8, memory ≤ 3. Two minutes.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from aotlens.dynamics import RecipeRun, influence, recipe_run
from aotlens.train import CorpusRecipe, Recipe, Stage, prepare
from aotlens.train.loop import update_weights
from aotlens.train.optimiser import make_optimiser
from benchmarks import _common

MEASURES = ("repeated_loss", "induction 1.0")


def run_of(rows: int, length: int, n_steps: int, home: Path) -> RecipeRun:
    """Return the run that is timed."""
    stage = Stage(
        tokens=n_steps * rows * length, batch_size=rows, sequence_length=length, learning_rate=3e-3,
        repeat_fraction=1.0, repeat_source="text",
    )  # fmt: skip
    model = {"n_layers": 2, "d_model": 64, "n_heads": 4, "d_head": 16, "n_ctx": length, "positions": "rotary"}
    recipe = Recipe(name="timed", model=model, stages=(stage,), corpus=CorpusRecipe(spec="stdlib", d_vocab=512))
    return recipe_run((recipe, prepare(recipe.corpus, home=home)))


def plain(run: RecipeRun, home: Path) -> None:
    """Do training's own steps."""
    model = run.model()
    optimiser = make_optimiser(model, run.recipe)
    for step in range(run.n_steps):
        run.loss(model, run.rows(step)).backward()  # type: ignore[no-untyped-call]
        update_weights(model, optimiser, run.recipe)


def swept(run: RecipeRun, home: Path) -> None:
    """Compute the influence of every window on two measures."""
    influence(run, MEASURES, folder=home)


def nothing(run: RecipeRun, home: Path) -> None:
    """Do nothing, to measure what a process has before."""


def _measured(name: str, sizes: tuple[int, int, int], home: Path, threads: int, answer: Any) -> None:
    torch.set_num_threads(threads)
    run = run_of(*sizes, home)
    warm = run_of(sizes[0], sizes[1], 2, home)
    plain(warm, home)  # what first calls import and make is no cost of steps
    swept(warm, home)
    started = time.process_time()
    {"plain": plain, "swept": swept, "nothing": nothing}[name](run, home)
    answer.put((time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def measured(name: str, sizes: tuple[int, int, int], home: Path, threads: int) -> tuple[float, int]:
    """Return processor time and peak memory of one of the three, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_measured, args=(name, sizes, home, threads, answer))
    process.start()
    figures: tuple[float, int] = answer.get()
    process.join()
    return figures


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--steps", type=int, default=60, help="updates of each run")
    arguments = options.parse_args(argv)
    n_steps, threads = 6 if arguments.quick else arguments.steps, arguments.threads or 1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in ((32, 64), (16, 128)):
            sizes = (*shape, n_steps)
            (own, peak), (training, training_peak), (_, base) = (
                measured(name, sizes, Path(folder), threads) for name in ("swept", "plain", "nothing")
            )
            rows.append(
                {
                    "rows × tokens": f"{shape[0]} × {shape[1]}",
                    "influence of two measures ÷ training (processor time)": own / training,
                    "peak of memory, MB": peak / 1e6,
                    "of training": training_peak / 1e6,
                    "of imports and data alone": base / 1e6,
                }
            )
    _common.report("influence", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
