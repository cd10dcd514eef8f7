"""*in-context-denoising* §5: what several layers gain over one, tied and untied, and whether they work in two stages.

    python -m analyses denoising_depth [--quick] [--out DIR] [--html DIR] [--docs docs/denoising.md]

The paper leaves depth open. One to six layers of softmax attention, tied and untied, on its three tasks at n = 8 and
L = 16 (3 seeds, 4,000 prompts in batches of 80, Adam with a rate that rises to 0.02 and falls to 0 as a cosine), each
for 30 epochs and some again for 15: where both lose the same, longer training would gain little. Beside them Bayes on
the same prompts. A later paper (arXiv 2605.29351) reads such layers as two-stage empirical Bayes where the context is
as noisy as the query: early layers refine it, as a prior, and a last one averages it for the query as given. So tied
layers are trained on noisy contexts too, with and without a long skip connection that carries the query to the last
layer, and the context as a prior is measured before every layer (`_deep_denoisers.py`). --out keeps each training,
and goes on with those that are there; --html writes the figures, --docs its section. Nine minutes of one core;
`--quick` takes two depths, two epochs and few prompts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from analyses._claims import Finding, claims_table, markdown, parser, spread, write_figures
from analyses._deep_denoisers import DeepDenoisers, train_depth
from analyses._outcomes import publish_run
from aotlens.denoise import (
    GaussianMixtures,
    LinearSubspaces,
    Spheres,
    Task,
    TrainingSettings,
    predict,
    squared_errors,
)
from aotlens.denoise.training import sample_test_prompts
from aotlens.files import load_progress, save_progress
from aotlens.plots.primitives import seed_curves

TASKS: dict[str, Task] = {
    "subspaces": LinearSubspaces(n=8, d=4),
    "spheres": Spheres(n=8, d=4),
    "mixtures": GaussianMixtures(n=8, n_components=4),
}
SETTINGS = TrainingSettings(
    n_prompts=4000, batch_size=80, n_context=16, n_epochs=30, learning_rate=0.02, schedule="cosine",
    n_test_prompts=4000,
)  # fmt: skip
QUICK = replace(SETTINGS, n_prompts=80, n_epochs=2, n_test_prompts=80)
SEEDS = (0, 1, 2)
_TENSORS = (
    "W_QK", "W_OV", "skip", "train_loss", "test_loss", "loss_by_layer", "frozen_loss", "held_loss", "context_loss",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The kind of layers, and how long they were trained."""

    task: str
    n_layers: int
    tied: bool = False
    noisy: bool = False
    long_skip: bool = False
    half: bool = False
    """Whether it is trained for half of the epochs."""

    @property
    def name(self) -> str:
        """Return its name in tables."""
        tied = "" if self.n_layers == 1 else "tied" if self.tied else "untied"
        return f"{tied}, long skip" if self.long_skip else tied


Trainings = dict[Kind, DeepDenoisers]


def kinds(depths: Sequence[int]) -> list[Kind]:
    """Return every training of the analysis: on clean contexts, on noisy ones, and for half of the epochs."""
    both = [
        Kind(task=task, n_layers=n_layers, tied=tied)
        for n_layers, task in product(depths, TASKS)
        for tied in ((False, True) if n_layers > 1 else (False,))
    ]
    noisy = [
        Kind(task=task, n_layers=n_layers, tied=n_layers > 1, noisy=True, long_skip=long_skip)
        for n_layers, task in product((1, 2, 4), TASKS)
        for long_skip in ((False, True) if n_layers > 1 else (False,))
        if n_layers in depths
    ]
    return [*both, *noisy, *(replace(kind, half=True) for kind in both if kind.n_layers in (1, 2, 4, 6))]


def trained(kind: Kind, settings: TrainingSettings, out: Path | None) -> DeepDenoisers:
    """Return one training: the one that is kept in `out`, or a new one."""
    if kind.half:
        settings = replace(settings, n_epochs=settings.n_epochs // 2)
    options: dict[str, Any] = {"tied": kind.tied, "noisy_context": kind.noisy, "long_skip": kind.long_skip}
    options["settings"] = settings
    name = "-".join([kind.task, str(kind.n_layers), *(word for word, on in asdict(kind).items() if on is True)])
    path = out and out / f"{name}.safetensors"
    task = TASKS[kind.task]
    identity = {"task": asdict(task), **asdict(kind), "settings": asdict(settings), "seeds": list(SEEDS)}
    if path is not None and path.exists():
        tensors, _ = load_progress(path, identity, "the training", "choose another --out.")
        return DeepDenoisers(task=task, kind="softmax", seeds=SEEDS, **options, **tensors)
    result = train_depth(task, kind.n_layers, seeds=SEEDS, **options)
    if path is not None:
        save_progress(path, {tensor: getattr(result, tensor) for tensor in _TENSORS}, {}, identity)
    print(f"{name}: {result!r}", file=sys.stderr, flush=True)
    return result


def bayes(name: str, settings: TrainingSettings) -> float:
    """Return the mean loss of Bayes on the prompts that layers are tested on."""
    prompts = sample_test_prompts(TASKS[name], settings, SEEDS)
    return float(squared_errors(predict(TASKS[name], prompts), prompts).mean())


def depth_table(results: Trainings, *, noisy: bool) -> str:
    """Return one row a task, depth and kind."""
    rows = []
    for kind, run in results.items():
        if kind.half or kind.noisy != noisy:
            continue
        half = results.get(replace(kind, half=True))
        rows.append(
            (
                kind.task,
                kind.n_layers,
                kind.name,
                spread(run.test_loss),
                "" if half is None else f"{float(half.test_loss.mean()):.4g}",
                f"{100 * float(run.late_fall.mean()):.2g}%",
                f"{float(run.frozen_loss.mean()):.4g}",
                f"{float(run.held_loss.mean()):.4g}",
                ", ".join(f"{value:.4g}" for value in run.context_loss.mean(0).tolist()),
            )
        )
    rows.sort(key=lambda row: (list(TASKS).index(row[0]), row[1], row[2][:4] == "tied", row[2]))
    header = (
        "noisy contexts" if noisy else "clean contexts", "layers", "", "loss, mean (range)", "trained half as long",
        "training loss still fell by", "context left as given", "query left as given",
        "context as a prior, before each layer",
    )  # fmt: skip
    return markdown(header, rows)


def findings(results: Trainings, settings: TrainingSettings) -> tuple[list[Finding], str]:
    """Measure what depth gains on every task, and what becomes of the context as a prior."""
    rows, gains = [], []
    for task, noisy in product(TASKS, (False, True)):
        runs = {
            kind: run for kind, run in results.items() if (kind.task, kind.noisy, kind.half) == (task, noisy, False)
        }
        one_layer = runs.pop(Kind(task=task, n_layers=1, noisy=noisy))
        kind, best = min(runs.items(), key=lambda item: float(item[1].test_loss.mean()))
        least = bayes(task, settings)
        gained = 100 * (one_layer.test_loss - best.test_loss) / (one_layer.test_loss - least)
        kind_of_context = f"{task}, {'noisy' if noisy else 'clean'} contexts"
        gains.append(
            Finding(
                claim=f"{kind_of_context}: share of one layer's excess over Bayes that the best depth takes away, %",
                expected="above 0, if layers help one another (left open)",
                bounds=(0, 100),
                measured=tuple(gained.tolist()),
            )
        )
        given, moved = best.context_loss[:, 0], best.context_loss[:, -1]
        refined = "yes" if bool((moved < given).all()) else "no" if bool((moved >= given).all()) else "by seed"
        rows.append(
            (
                kind_of_context,
                spread(one_layer.test_loss),
                f"{kind.n_layers} {kind.name}: {spread(best.test_loss)}",
                f"{least:.4g}",
                f"{spread(gained)}%",
                f"{float(given.mean()):.4g}; {spread(moved)}",
                refined,
            )
        )
    header = (
        "task", "one layer", "best of several", "Bayes, which knows the prior",
        "share of one layer's excess over Bayes that is gone", "context as a prior: as given; before the last layer",
        "refined",
    )  # fmt: skip
    return gains, markdown(header, rows)


def curves(results: Trainings, settings: TrainingSettings) -> dict[str, go.Figure]:
    """Draw the training loss by epoch of every task and depth on clean contexts, tied layers dashed."""
    figures = {}
    for task in TASKS:
        losses: dict[str, np.ndarray] = {}
        for kind, run in results.items():
            if (kind.task, kind.noisy, kind.half) == (task, False, False):
                layers = "1 layer" if kind.n_layers == 1 else f"{kind.n_layers} layers"
                losses[f"{layers}, tied" if kind.tied else layers] = run.train_loss.numpy()
        figures[f"depth_{task}"] = seed_curves(
            np.arange(1, settings.n_epochs + 1), losses, x_title="epoch", y_title="training loss a prompt",
            references={"Bayes": bayes(task, settings)}, quiet=[name for name in losses if name.endswith("tied")],
        )  # fmt: skip
    return figures


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, html=True, docs=True)
    options.add_argument("--out", type=Path, metavar="DIR", help="keep trainings here, and go on with those there")
    arguments = options.parse_args(argv)
    settings, depths = (QUICK, (1, 2)) if arguments.quick else (SETTINGS, (1, 2, 3, 4, 5, 6))
    results = {kind: trained(kind, settings, arguments.out) for kind in kinds(depths)}
    gains, table = findings(results, settings)
    tables = [table, *(depth_table(results, noisy=noisy) for noisy in (False, True))]
    print(claims_table(gains), *tables, sep="\n\n")
    if arguments.html is not None:
        write_figures(arguments.html, curves(results, settings))
    publish_run(arguments, "denoising_depth", "docs/denoising.md", [gains, *tables], seeds=SEEDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
