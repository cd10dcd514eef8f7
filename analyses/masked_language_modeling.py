"""*nonlinearity*, Figures 7 to 9: which attention can memorise masked tokens, and how many heads that takes.

    python -m analyses.masked_language_modeling [--quick] [--readout HOW] [--seeds N] [--heads-needed] [--sequences N …]
        [--step N] [--most N]

Figures 7 and 8: training losses of S, F, F+T, F+R and F+R+noF (`analyses._tiny.recall`) on 1,024 sequences with
1,024 heads a layer, 200 epochs in batches of 128. The paper does not say how the token is read; both ways are run, as
classes (main) and as the token's number, or one of them with --readout. With --heads-needed, Figure 9 instead: the
least heads of 32, 64, …, 608 with which F's loss on n sequences falls below 0.05, n = 512, 1024, …, 4608 (or those of
--sequences), by bisection; --step 4 --most 96 tries 4, 8, …, 96 instead. Figures 7 and 8 take 12 minutes of one
core, Figure 9 up to 3,072 sequences 20, in steps of 4 more; `--quick`, a minute: fewer sequences and heads. Results so
far are kept in DIR/parts.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence

import numpy as np

from analyses._nonlinearity import Clock, Finding, Results, command_of, kept, options, publish
from analyses._tiny import MODELS, Recall, heads_needed, train_recall
from analyses._tiny.recall import Readout
from aotlens.plots.primitives import seed_curves
from aotlens.statistics import fit_line

SEEDS = (0, 1, 2)
STEP, MOST = 32, 608
UNITS: dict[Readout, str] = {"classes": "nats", "number": "squared error ÷ variance"}
INF = float("inf")
FAST, SLOW = ("F+T", "F+R"), ("S", "F")


def epochs_to(result: Recall, level: float) -> np.ndarray:
    """Count epochs until the training loss is below `level`, a number a seed; one more than were run if it never is."""
    below = result.epoch_loss < level
    return np.where(below.any(1), below.argmax(1) + 1, result.epoch_loss.shape[1] + 1).astype(float)


def figures_7_and_8(results: dict[str, Recall], readout: str) -> list[Finding]:
    """Return the findings, where nearly zero is below 0.05, the paper's own mark in Figure 9."""
    first = float(np.mean([recall.epoch_loss[:, 0].mean() for recall in results.values()]))
    half = {kind: epochs_to(each, 0.5 * first) for kind, each in results.items()}
    findings = [
        Finding(claim=f"Figure 7, {readout}: {kind}'s loss after training", expected="nearly 0", bounds=(0, 0.05),
                measured=tuple(results[kind].loss))
        for kind in MODELS[:4]
    ]  # fmt: skip
    findings += [
        Finding(claim=f"Figure 7, {readout}: epochs to half the first loss, {fast} ÷ {slow}", expected="well below 1",
                bounds=(0, 0.8), measured=tuple(half[fast] / half[slow]))
        for fast in FAST for slow in SLOW
    ]  # fmt: skip
    findings += [
        Finding(claim=f"Figure 8, {readout}: F+R+noF's loss after training", expected="nearly 0", bounds=(0, 0.05),
                measured=tuple(results["F+R+noF"].loss)),
        Finding(claim=f"Figure 8, {readout}: epochs to half the first loss, F+R+noF ÷ F+R", expected="above 1",
                bounds=(1.05, INF), measured=tuple(half["F+R+noF"] / half["F+R"])),
    ]  # fmt: skip
    return findings


def together(runs: Sequence[Recall]) -> Recall:
    """Return one run a seed, as one result."""
    return dataclasses.replace(
        runs[0],
        seeds=tuple(seed for run in runs for seed in run.seeds),
        **{name: np.concatenate([getattr(run, name) for run in runs]) for name in ("epoch_loss", "loss", "accuracy")},
    )


def curves(work: Callable[..., Recall], quick: bool, readout: Readout, seeds: Sequence[int], clock: Clock) -> Results:
    n = 128 if quick else 1024
    epochs, batch = (60, 16) if quick else (200, 128)
    unit = UNITS[readout]
    runs: dict[str, list[Recall]] = {kind: [] for kind in MODELS}
    for seed in seeds:  # all kinds of one seed before the next
        for kind in MODELS:
            runs[kind].append(work(kind, n, n, (seed,), epochs=epochs, readout=readout, batch_size=batch))
            clock.say(f"{kind}, {readout}, seed {seed}: loss {runs[kind][-1].loss[0]:.4f}")
    curves = {kind: together(of_seed) for kind, of_seed in runs.items()}
    rows = [
        [kind, each.epoch_loss[:, 0].mean(), each.epoch_loss[:, epochs // 4].mean(),
         each.epoch_loss[:, epochs // 2].mean(), each.loss.mean(), each.accuracy.mean()]
        for kind, each in curves.items()
    ]  # fmt: skip
    header = ["model", "loss in epoch 1", f"{epochs // 4 + 1}", f"{epochs // 2 + 1}", "after", "named right"]
    return Results(
        name=f"masked_language_modeling_{readout}",
        findings=figures_7_and_8(curves, readout),
        settings={"sequences": n, "heads": n, "epochs": epochs, "batch": batch, "vocabulary": 2048},
        seeds=list(seeds),
        data={
            kind: {"epoch_loss": each.epoch_loss, "loss": each.loss, "accuracy": each.accuracy}
            for kind, each in curves.items()
        },
        tables={f"Training losses ({unit}), means over seeds": (header, rows)},
        plots={
            f"masked-language-modeling-{readout}": seed_curves(
                np.arange(1, epochs + 1),
                {kind: each.epoch_loss for kind, each in curves.items()},
                x_title="epochs",
                y_title=f"training loss ({unit})",
            )
        },
    )


def figure_9(
    work: Callable[..., int | None], arguments: argparse.Namespace, seeds: Sequence[int], clock: Clock
) -> Results:
    quick, sequences = arguments.quick, arguments.sequences
    grid = list(range(arguments.step, arguments.most + 1, arguments.step))
    sizes = sequences or ([64, 128] if quick else list(range(512, 4609, 512)))
    epochs = 100 if quick else 200
    needed = np.full((len(seeds), len(sizes)), np.nan)
    for column, n in enumerate(sizes):
        for row, seed in enumerate(seeds):
            n_heads = work(n, grid, seed, epochs=epochs)
            needed[row, column] = np.nan if n_heads is None else n_heads
            clock.say(f"n = {n}, seed {seed}: {n_heads} heads")
    fits = [fit_line(np.array(sizes, dtype=float), row) for row in needed]
    findings = [
        Finding(claim="Figure 9: heads needed against n, R² of a straight line", expected="linear",
                bounds=(0.9, 1), measured=tuple(fit.r_squared for fit in fits if not np.isnan(fit.r_squared))),
        Finding(claim="Figure 9: heads needed per 1,000 sequences, slope", expected="positive",
                bounds=(1, INF), measured=tuple(1000 * fit.slope for fit in fits if not np.isnan(fit.slope))),
    ]  # fmt: skip
    return Results(
        name="heads_needed" if arguments.step == STEP else f"heads_needed_step_{arguments.step}",
        findings=[finding for finding in findings if finding.measured],
        settings={"model": "F", "read as": "classes", "loss below": 0.05, "epochs": epochs, 
                  "heads tried": f"{grid[0]}, {grid[0] + arguments.step}, …, {grid[-1]}"},
        seeds=seeds,
        data={"sequences": sizes, "heads_needed": needed},
        tables={
            f"Least heads by seed (“more” where {grid[-1]} are too few)": (
                ["sequences", *(f"seed {seed}" for seed in seeds)],
                [[n, *("more" if np.isnan(v) else int(v) for v in needed[:, i])] for i, n in enumerate(sizes)],
            )
        },
        plots={
            "heads-needed" if arguments.step == STEP else f"heads-needed-step-{arguments.step}": seed_curves(
                np.array(sizes), {"F": needed}, x_title="training sequences", y_title="heads for a loss below 0.05"
            )
        },
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--heads-needed", action="store_true", help="Figure 9 instead of Figures 7 and 8")
    parser.add_argument("--readout", choices=list(UNITS), help="how the token is read, where not both ways")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N", help="how many (3)")
    parser.add_argument("--sequences", type=int, nargs="+", metavar="N", help="Figure 9's n, where not all of them")
    parser.add_argument("--step", type=int, default=STEP, metavar="N", help="heads tried are multiples of it (32)")
    parser.add_argument("--most", type=int, default=MOST, metavar="N", help="most heads tried (608)")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.step < arguments.most:
        parser.error(f"--step {arguments.step} --most {arguments.most}: expected 1 or more, and less than --most.")
    if not arguments.heads_needed:
        for readout in [arguments.readout] if arguments.readout else list(UNITS):
            clock = Clock()
            seeds = list(range(arguments.seeds))
            results = curves(kept(arguments, train_recall, clock), arguments.quick, readout, seeds, clock)
            command = command_of(
                "masked_language_modeling", arguments, f"--readout {readout} --seeds {arguments.seeds}"
            )
            publish(results, arguments, command, clock())
        return 0
    clock = Clock()
    results = figure_9(kept(arguments, heads_needed, clock), arguments, list(range(arguments.seeds)), clock)
    more = ["--heads-needed", *(["--sequences", *map(str, arguments.sequences)] if arguments.sequences else [])]
    if (arguments.step, arguments.most) != (STEP, MOST):
        more += ["--step", str(arguments.step), "--most", str(arguments.most)]
    return publish(results, arguments, command_of("masked_language_modeling", arguments, *more), clock())


if __name__ == "__main__":
    sys.exit(main())
