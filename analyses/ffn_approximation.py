"""*nonlinearity*, Figures 4 to 6: can attention learn to be a feed-forward network?

    python -m analyses.ffn_approximation [--quick] [--figure 4] [--batch 16] [--out DIR]

Trains F (a fixed vector appended; a token sees itself and that vector) and S (standard attention) on a random FFN:
over epochs (Figure 4), for 5 to 100 heads (Figure 5), and an FFN of depth 5 for 1 to 10 layers (Figure 6). The paper's
text says batch size 1, its captions 16; both are run. Errors are test mean squared errors, also relative to the best
constant's, without which a small error says little: a random FFN of torch's initial weights has outputs of variance
8e-4 (depth 3) or 2e-5 (depth 5), while leaving the skip connection as it is costs 1; Figure 4 is therefore run with an
FFN of larger weights as well, whose outputs are as large as its inputs. S, which costs eight times as much, and F in
batches of 1 are run at fewer numbers of heads (and S of layers). Eight minutes of one core; `--quick`, half
a minute: fewer heads, layers and epochs. Results so far are kept in DIR/parts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from analyses._nonlinearity import Clock, Finding, Results, command_of, kept, options, publish
from analyses._tiny import Approximation, approximate_ffn
from aotlens.plots.primitives import seed_curves
from aotlens.statistics import rank_correlation

SEEDS = (0, 1, 2)
BATCHES = (16, 1)
KINDS = ("F", "S")
HEADS, LAYERS, DEPTH = 75, 3, 5
EPOCHS, EPOCHS_QUICK = 100, 10
GAIN = 6**0.5
INF = float("inf")
Work = Callable[..., Approximation]


def grid(work: Work, kind: str, heads: Sequence[int], layers: Sequence[int], **more: float) -> Approximation:
    """Return all heads × layers × seeds in one go."""
    runs = [(h, depth, seed) for h in heads for depth in layers for seed in SEEDS]
    each = [list(values) for values in zip(*runs, strict=True)]
    return work(kind, *each, **more)


def by_seed(results: Approximation, what: np.ndarray) -> np.ndarray:
    """Return `what [run]` as `[seed, setting]`."""
    return what.reshape(-1, len(SEEDS)).T


def findings_4(which: str, batch: int, f: Approximation, s: Approximation) -> list[Finding]:
    return [
        Finding(claim=f"{which}, batch {batch}: F's test error ÷ S's after training", expected="well below 1",
                bounds=(0, 0.5), measured=tuple(f.test_loss[:, -1] / s.test_loss[:, -1])),
        Finding(claim=f"{which}, batch {batch}: F “effectively” approximates the FFN: error ÷ the best constant's",
                expected="small", bounds=(0, 0.5), measured=tuple(f.relative[:, -1])),
        Finding(claim=f"{which}, batch {batch}: S does not: error ÷ the best constant's", expected="large",
                bounds=(0.9, INF), measured=tuple(s.relative[:, -1])),
    ]  # fmt: skip


def figure_4(work: Work, batch: int, quick: bool) -> Results:
    """Return the errors over epochs, for both FFNs."""
    epochs = EPOCHS_QUICK if quick else EPOCHS
    findings: list[Finding] = []
    plots, data = {}, {}
    for which, slug, gain in (("Figure 4", "", 1.0), (f"{GAIN:.3g} × the FFN's weights", "-unit", GAIN)):
        results = {
            kind: grid(work, kind, [HEADS], [LAYERS], batch_size=batch, epochs=epochs, ffn_gain=gain) for kind in KINDS
        }
        findings += findings_4(which, batch, results["F"], results["S"])
        curves = {kind: each.test_loss for kind, each in results.items()}
        curves["best constant"] = np.repeat(results["F"].constant_loss[:, None], epochs + 1, 1)
        plots[f"ffn-approximation-epochs{slug}-batch-{batch}"] = seed_curves(
            np.arange(epochs + 1), curves, x_title="epochs", y_title="test mean squared error", log_y=True,
            quiet=("best constant",),
        )  # fmt: skip
        data[which] = curves
    return Results(
        name=f"ffn_approximation_4_batch_{batch}", findings=findings, data=data, plots=plots, seeds=SEEDS,
        settings={"heads": HEADS, "layers": LAYERS, "epochs": epochs, "batch": batch},
    )  # fmt: skip


def figure_5(work: Work, batch: int, quick: bool) -> Results:
    """Return Figure 5 of the paper: errors as the number of heads grows."""
    epochs = EPOCHS_QUICK if quick else EPOCHS
    some = [5, 25, 75] if quick else [5, 25, 50, 75, 100]
    every = some if quick or batch == 1 else list(range(5, 101, 5))
    results = {
        kind: grid(work, kind, every if kind == "F" else some, [LAYERS], batch_size=batch, epochs=epochs)
        for kind in KINDS
    }
    f, s = (by_seed(results[kind], results[kind].test_loss[:, -1]) for kind in KINDS)
    falls = [rank_correlation(np.array(every, dtype=float), row) for row in f]
    findings = [
        Finding(claim=f"Figure 5, batch {batch}: rank correlation of F's error with its heads", expected="falls",
                bounds=(-1, -0.7), measured=tuple(falls)),
        Finding(claim=f"Figure 5, batch {batch}: F's error with most heads ÷ with fewest", expected="below 1",
                bounds=(0, 0.8), measured=tuple(f[:, -1] / f[:, 0])),
        Finding(claim=f"Figure 5, batch {batch}: S's error ÷ F's, most heads", expected="S far above",
                bounds=(2, INF), measured=tuple(s[:, -1] / f[:, -1])),
    ]  # fmt: skip
    settings = {"layers": LAYERS, "epochs": epochs, "batch": batch}
    return _over(5, "heads", "heads a layer", every, results, findings, settings, batch)


def figure_6(work: Work, batch: int, quick: bool) -> Results:
    """Return Figure 6 of the paper: errors as the number of layers grows."""
    epochs = EPOCHS_QUICK if quick else EPOCHS
    every = [1, 3, 5, 7] if quick else list(range(1, 11))
    some = every if quick else [1, 3, 5]
    results = {
        kind: grid(work, kind, [HEADS], every if kind == "F" else some, ffn_depth=DEPTH, batch_size=batch,
                   epochs=epochs)
        for kind in KINDS
    }  # fmt: skip
    f = by_seed(results["F"], results["F"].test_loss[:, -1])
    findings = [
        Finding(claim=f"Figure 6, batch {batch}: layers of F with the least error, FFN of depth {DEPTH}",
                expected=f"{DEPTH}", bounds=(DEPTH, DEPTH), measured=tuple(float(every[i]) for i in f.argmin(1))),
        Finding(claim=f"Figure 6, batch {batch}: F's error with {DEPTH} layers ÷ with the best number", expected="1",
                bounds=(1, 1.001), measured=tuple(f[:, every.index(DEPTH)] / f.min(1))),
    ]  # fmt: skip
    settings = {"heads": HEADS, "FFN's depth": DEPTH, "epochs": epochs, "batch": batch}
    return _over(6, "layers", "attention layers", every, results, findings, settings, batch)


def _over(
    figure: int,
    axis: str,
    title: str,
    every: Sequence[int],
    results: dict[str, Approximation],
    findings: list[Finding],
    settings: dict[str, object],
    batch: int,
) -> Results:
    """Return test errors after training against heads or layers; S has been run at some of them only."""
    curves = {}
    for kind, result in results.items():
        curves[kind] = np.full((len(SEEDS), len(every)), np.nan)
        columns = [list(every).index(n) for n in by_seed(result, getattr(result, axis))[0]]
        curves[kind][:, columns] = by_seed(result, result.test_loss[:, -1])
    curves["best constant"] = by_seed(results["F"], results["F"].constant_loss)
    rows = [[name, *("" if np.isnan(v) else float(v) for v in values.mean(0))] for name, values in curves.items()]
    return Results(
        name=f"ffn_approximation_{figure}_batch_{batch}",
        findings=findings,
        settings=settings,
        seeds=SEEDS,
        data={axis: list(every), **curves},
        tables={f"Test mean squared error by {axis}, means over seeds": ([axis, *map(str, every)], rows)},
        plots={
            f"ffn-approximation-{axis}-batch-{batch}": seed_curves(
                np.array(every), curves, x_title=title, y_title="test mean squared error", log_y=True,
                quiet=("best constant",),
            )
        },
    )  # fmt: skip


FIGURES = {4: figure_4, 5: figure_5, 6: figure_6}


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--figure", type=int, choices=list(FIGURES), help="one of them, not all")
    parser.add_argument("--batch", type=int, choices=list(BATCHES), help="one batch size, not both")
    arguments = parser.parse_args(argv)
    for figure in [arguments.figure] if arguments.figure else list(FIGURES):
        for batch in [arguments.batch] if arguments.batch else BATCHES:
            clock = Clock()
            results = FIGURES[figure](kept(arguments, approximate_ffn, clock), batch, arguments.quick)
            command = command_of("ffn_approximation", arguments, f"--figure {figure} --batch {batch}")
            publish(results, arguments, command, clock())
    return 0


if __name__ == "__main__":
    sys.exit(main())
