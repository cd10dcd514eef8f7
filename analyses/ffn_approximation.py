"""*nonlinearity*, Figures 4 to 6: can attention learn to be a feed-forward network?

    python -m analyses.ffn_approximation [--quick] [--out DIR]

Trains F (a fixed vector appended; a token sees itself and that vector) and S (standard attention) on a random FFN: over
epochs (Figure 4), for 5 to 100 heads (Figure 5), and an FFN of depth 5 for 1 to 10 layers (Figure 6). The paper's text
says batch size 1, its captions 16; both are run. Errors are test mean squared errors, also relative to the best
constant's, without which a small error says little: a random FFN of torch's initial weights has outputs of variance
8e-4 (depth 3) or 2e-5 (depth 5), while leaving the skip connection as it is costs 1; Figure 4 is therefore
run with an FFN of larger weights as well, whose outputs are as large as its inputs. About 30 minutes of one core;
`--quick`, a minute: fewer heads, layers and epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from analyses._nonlinearity import Clock, Finding, Results, command_of, options, publish
from aotlens.plots.curves import seed_curves
from aotlens.train.tiny import Approximation, approximate_ffn

SEEDS = (0, 1, 2)
BATCHES = (16, 1)
KINDS = ("F", "S")
HEADS, LAYERS, EPOCHS = 75, 3, 100
GAIN = 6**0.5
INF = float("inf")


def grid(kind: str, heads: Sequence[int], layers: Sequence[int], **more: float) -> Approximation:
    """All heads × layers × seeds in one go."""
    runs = [(h, depth, seed) for h in heads for depth in layers for seed in SEEDS]
    each = [list(values) for values in zip(*runs, strict=True)]
    return approximate_ffn(kind, *each, **more)  # type: ignore[arg-type]


def by_seed(found: Approximation, what: np.ndarray) -> np.ndarray:
    """`what [run]` as `[seed, setting]`."""
    return what.reshape(-1, len(SEEDS)).T


def figure_4(found: dict[tuple[str, int], Approximation], which: str = "Figure 4") -> list[Finding]:
    findings = []
    for batch in BATCHES:
        f, s = (found[kind, batch] for kind in KINDS)
        ratio = f.test_loss[:, -1] / s.test_loss[:, -1]
        findings += [
            Finding(claim=f"{which}, batch {batch}: F's test error ÷ S's after training", expected="well below 1",
                    bounds=(0, 0.5), measured=tuple(ratio)),
            Finding(claim=f"{which}, batch {batch}: F “effectively” approximates the FFN: error ÷ the best constant's",
                    expected="small", bounds=(0, 0.5), measured=tuple(f.relative[:, -1])),
            Finding(claim=f"{which}, batch {batch}: S does not: error ÷ the best constant's", expected="large",
                    bounds=(0.9, INF), measured=tuple(s.relative[:, -1])),
        ]  # fmt: skip
    return findings


def figure_5(found: dict[tuple[str, int], Approximation], batch: int) -> list[Finding]:
    f, s = (by_seed(found[kind, batch], found[kind, batch].test_loss[:, -1]) for kind in KINDS)
    heads = by_seed(found["F", batch], found["F", batch].heads)[0]
    falls = [float(np.corrcoef(np.argsort(np.argsort(heads)), np.argsort(np.argsort(row)))[0, 1]) for row in f]
    return [
        Finding(claim=f"Figure 5, batch {batch}: rank correlation of F's error with its heads", expected="falls",
                bounds=(-1, -0.7), measured=tuple(falls)),
        Finding(claim=f"Figure 5, batch {batch}: F's error with most heads ÷ with fewest", expected="below 1",
                bounds=(0, 0.8), measured=tuple(f[:, -1] / f[:, 0])),
        Finding(claim=f"Figure 5, batch {batch}: S's error ÷ F's, most heads", expected="S far above",
                bounds=(2, INF), measured=tuple(s[:, -1] / f[:, -1])),
    ]  # fmt: skip


def figure_6(found: dict[tuple[str, int], Approximation], batch: int, depth: int) -> list[Finding]:
    f = by_seed(found["F", batch], found["F", batch].test_loss[:, -1])
    layers = by_seed(found["F", batch], found["F", batch].layers)[0]
    at = int(np.flatnonzero(layers == depth)[0])
    return [
        Finding(claim=f"Figure 6, batch {batch}: layers of F with the least error, FFN of depth {depth}",
                expected=f"{depth}", bounds=(depth, depth), measured=tuple(float(n) for n in layers[f.argmin(1)])),
        Finding(claim=f"Figure 6, batch {batch}: F's error with {depth} layers ÷ with the best number", expected="1",
                bounds=(1, 1.001), measured=tuple(f[:, at] / f.min(1))),
    ]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    chosen = options(__doc__).parse_args(argv)
    clock = Clock()
    epochs = 10 if chosen.quick else EPOCHS
    heads = [5, 25, 75] if chosen.quick else list(range(5, 101, 5))
    layers = [1, 3, 5] if chosen.quick else list(range(1, 11))
    few_heads, few_layers = heads[:: 1 if chosen.quick else 5] + heads[-1:] * (not chosen.quick), layers
    findings: list[Finding] = []
    over_epochs: dict[tuple[str, int], Approximation] = {}
    wide: dict[tuple[str, int], Approximation] = {}
    over_heads: dict[tuple[str, int], Approximation] = {}
    over_layers: dict[tuple[str, int], Approximation] = {}
    for batch in BATCHES:
        for kind in KINDS:
            shared = {"batch_size": batch, "epochs": epochs}
            over_epochs[kind, batch] = grid(kind, [HEADS], [LAYERS], **shared)
            wide[kind, batch] = grid(kind, [HEADS], [LAYERS], ffn_gain=GAIN, **shared)
            clock.say(f"Figure 4: {kind}, batch {batch}")
            counts = heads if batch == BATCHES[0] else few_heads
            over_heads[kind, batch] = grid(kind, counts, [LAYERS], **shared)
            clock.say(f"Figure 5: {kind}, batch {batch}")
            over_layers[kind, batch] = grid(kind, [HEADS], few_layers, ffn_depth=5, **shared)
            clock.say(f"Figure 6: {kind}, batch {batch}")
    findings += figure_4(over_epochs) + figure_4(wide, f"{GAIN:.3g} × the FFN's weights")
    for batch in BATCHES:
        findings += figure_5(over_heads, batch) + figure_6(over_layers, batch, 5)
    data, plots = {}, {}
    for name, found, axis, title in (
        ("ffn-approximation-heads", over_heads, "heads", "heads a layer"),
        ("ffn-approximation-layers", over_layers, "layers", "attention layers"),
    ):
        for batch in BATCHES:
            values = {kind: found[kind, batch] for kind in KINDS}
            x = by_seed(values["F"], getattr(values["F"], axis))[0]
            curves = {kind: by_seed(one, one.test_loss[:, -1]) for kind, one in values.items()}
            curves["best constant"] = by_seed(values["F"], values["F"].constant_loss)
            plots[f"{name}-batch-{batch}"] = seed_curves(
                x, curves, x_title=title, y_title="test mean squared error", log_y=True, quiet=("best constant",)
            )
            data[f"{name}, batch {batch}"] = {axis: x, **curves}
    for name, found in (("ffn-approximation-epochs", over_epochs), ("ffn-approximation-epochs-unit", wide)):
        for batch in BATCHES:
            curves = {kind: found[kind, batch].test_loss for kind in KINDS}
            curves["best constant"] = np.repeat(found["F", batch].constant_loss[:, None], epochs + 1, 1)
            plots[f"{name}-batch-{batch}"] = seed_curves(
                np.arange(epochs + 1), curves, x_title="epochs", y_title="test mean squared error", log_y=True,
                quiet=("best constant",),
            )  # fmt: skip
            data[f"{name}, batch {batch}"] = curves
    results = Results(
        name="ffn_approximation",
        findings=findings,
        settings={"heads": HEADS, "layers": LAYERS, "epochs": epochs, "Figure 5's heads at batch 1": few_heads},
        seeds=SEEDS,
        data=data,
        tables={"Test mean squared error by layers (mean over seeds; Figure 6)": _layers_table(over_layers)},
        plots=plots,
    )
    return publish(results, chosen, command_of("ffn_approximation", chosen), clock())


def _layers_table(found: dict[tuple[str, int], Approximation]) -> tuple[list[str], list[list[object]]]:
    layers = by_seed(found["F", BATCHES[0]], found["F", BATCHES[0]].layers)[0]
    rows: list[list[object]] = []
    for (kind, batch), one in found.items():
        rows.append([f"{kind}, batch {batch}", *by_seed(one, one.test_loss[:, -1]).mean(0)])
    constant = by_seed(found["F", BATCHES[0]], found["F", BATCHES[0]].constant_loss).mean(0)
    return ["layers", *map(str, layers)], [*rows, ["best constant", *constant]]


if __name__ == "__main__":
    sys.exit(main())
