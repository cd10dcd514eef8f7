"""All heads, widths and seeds distilled at once, against scikit-learn's MLPRegressor on one after another.

    python -m benchmarks.distillation [--corpus dir:PATH] [--heads 6] [--quick] [--threads N] [--json PATH]

One run measures both, on novels-12l-mssa: 48 heads × 4, 16 and 64 hidden units × 3 seeds = 432 networks.

    scikit-learn   MLPRegressor(hidden_layer_sizes=(width,), early_stopping=True), the rest its defaults: Adam at 1e-3,
                   batches of 200, a tenth of the data held out, stops after 10 epochs without an improvement of 1e-4,
                   at most 200 epochs. Inputs are standardised, and targets are the head's own d_head coordinates
                   divided by their size: four times less to learn than its d_model outputs, for the same error. It is
                   fitted to --heads heads, spread over the layers, at each width with one seed, on 65,536 tokens; its
                   time for all 432 is each width's mean time × 48 × 3. Reading the activations is not counted.
    ours           `distill_heads` on 640,000 tokens, all 432 networks (and the linear maps, which are not counted off),
                   until each of the fitted heads has, with all three seeds, reached scikit-learn's final error on the
                   same held-out tokens. Everything counts: loading what it starts from, running the model, evaluations.

Memory is the peak of our process minus its size before the call; scikit-learn's user holds one head's activations.

Expected: at least 10 times faster, every head reached. About four minutes on two cores; `--quick` takes seconds on a
random model, and its ratio means nothing. PATH holds the novels that the checkpoint's card names; without --corpus the
text is Python's library, on which the heads' errors are others.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import aotlens
from aotlens.data import open_corpus, repeated_random_tokens
from aotlens.distill import Distillation, distill_heads
from aotlens.distill.heads.stream import sides
from aotlens.heads.reader import HeadReader
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks import _common

CHECKPOINT = "novels-12l-mssa"
WIDTHS, SEEDS = (4, 16, 64), 3
_SKLEARN_TOKENS, _OURS_TOKENS, _HELD_OUT_TOKENS = 65_536, 640_000, 16_384


def load_model(quick: bool) -> AttentionOnlyTransformer:
    if not quick:
        return aotlens.load(CHECKPOINT, device="cpu")
    cfg = ModelConfig(
        n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=32, d_vocab=64, attention="mssa", positions="qk"
    )
    return AttentionOnlyTransformer(cfg).eval().requires_grad_(False)


def texts(model: AttentionOnlyTransformer, corpus: str, quick: bool) -> tuple[Tensor, Tensor]:
    """Return training windows, shuffled, and held-out ones."""
    if quick:
        rows = [repeated_random_tokens(64, n, 15, seed) for seed, n in enumerate((400, 40))]
        return rows[0], rows[1]
    training, held_out, _ = sides(HeadReader.of(model), open_corpus(corpus), None, None)
    rows = training(_OURS_TOKENS)
    return rows[np.random.default_rng([0, 17]).permutation(len(rows))], held_out(_HELD_OUT_TOKENS)


def activations(
    model: AttentionOnlyTransformer, windows: Tensor, head: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return x `[tokens, d_model]`, and the head's result in orthonormal coordinates of what W_O can write."""
    layer, number = head
    reader = HeadReader.of(model)
    parts = [reader.read(rows, [layer])[layer] for rows in windows.split(32)]
    x = torch.cat([x.flatten(0, 1) for x, _ in parts])
    z = torch.cat([z[:, :, number].flatten(0, 1) for _, z in parts])
    U, S, _ = torch.linalg.svd(reader.W_O(layer)[number], full_matrices=False)
    return x.numpy(), (z @ (U * S)).numpy()


def fit_sklearn(
    x: np.ndarray, y: np.ndarray, x_new: np.ndarray, y_new: np.ndarray, width: int, max_iter: int
) -> dict[str, Any]:
    """Time of one fit, and its error on held-out tokens."""
    mean, size = y.mean(0), float(y.std(axis=0).mean())
    wall, cpu = time.perf_counter(), time.process_time()
    scaler = StandardScaler().fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the most epochs are part of its defaults
        network = MLPRegressor(hidden_layer_sizes=(width,), early_stopping=True, random_state=0, max_iter=max_iter)
        network.fit(scaler.transform(x), (y - mean) / size)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    guess = network.predict(scaler.transform(x_new)) * size + mean
    return {"seconds": wall, "cpu": cpu, "epochs": network.n_iter_, "squared": float(((y_new - guess) ** 2).sum())}


def distil(
    quick: bool, train: Tensor, held_out: Tensor, threads: int | None
) -> tuple[Distillation, float, float, float]:
    """Return (what was found, seconds before training began, processor seconds ÷ seconds, MB), in a new process."""
    if threads:
        torch.set_num_threads(threads)
    model = load_model(quick)
    model(train[:1])  # libraries load on first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began: list[float] = []
    wall, cpu = time.perf_counter(), time.process_time()
    distillation = distill_heads(
        model,
        (train, held_out, held_out),
        [0, *WIDTHS],
        seeds=SEEDS,
        train_tokens=12_000 if quick else _OURS_TOKENS,
        batch_size=32 if quick else 512,
        wide=None,
        neighbours=0,
        evaluations=40,
        progress=lambda done, total: began.append(time.perf_counter() - wall),
    )
    load = (time.process_time() - cpu) / (time.perf_counter() - wall)
    per_unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / per_unit
    return distillation, began[0], load, memory


def seconds_to_reach(
    distillation: Distillation, before: float, head: tuple[int, int], width: int, error: float
) -> float:
    """Return the seconds until all seeds of a head's FFN have had at most this error; infinity if they never do."""
    curve = distillation.curve[
        :, distillation.place(head), distillation.settings.trained.index(width)
    ]  # [evaluation, seed]
    reached = (np.minimum.accumulate(curve, axis=0) <= error).all(1)
    return before + float(distillation.curve_seconds[reached.argmax()]) if reached.any() else float("inf")


def measure(*, quick: bool, corpus: str, n_heads: int, threads: int | None) -> list[dict[str, Any]]:
    model = load_model(quick)
    train, held_out = texts(model, corpus, quick)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        distillation, before, load, memory = pool.apply(distil, (quick, train, held_out, threads))
    fitted_heads = [
        distillation.heads[i * len(distillation.heads) // n_heads + i % model.cfg.n_heads] for i in range(n_heads)
    ]
    few = train[: (4000 if quick else _SKLEARN_TOKENS) // train.shape[1]]
    rows = []
    for width in WIDTHS:
        fits, ours = [], []
        for head in fitted_heads:
            x, y = activations(model, few, head)
            x_new, y_new = activations(model, held_out, head)
            fit = fit_sklearn(x, y, x_new, y_new, width, 20 if quick else 200)
            mean = activations_mean(distillation, model, head)
            error = fit["squared"] / float(((y_new - mean) ** 2).sum())
            ours.append(seconds_to_reach(distillation, before, head, width, error))
            fits.append({**fit, "error": error})
            _say(head, width, fits[-1], ours[-1])
        networks = len(distillation.heads) * SEEDS
        rows.append(
            {
                "hidden units": str(width),
                "networks": networks,
                "scikit-learn, one (s)": float(np.mean([fit["seconds"] for fit in fits])),
                "scikit-learn, all (s)": networks * float(np.mean([fit["seconds"] for fit in fits])),
                "scikit-learn, all (processor s)": networks * float(np.mean([fit["cpu"] for fit in fits])),
                "its error": float(np.mean([fit["error"] for fit in fits])),
                "our final error": float(
                    np.mean(
                        [
                            distillation.curve[:, distillation.place(h), WIDTHS.index(width)].min(0).mean()
                            for h in fitted_heads
                        ]
                    )
                ),
                "ours there (s)": max(ours),
                "reached": f"{sum(np.isfinite(ours))} of {len(ours)}",
            }
        )
    return [*rows, _total(rows, load, memory)]


def _say(head: tuple[int, int], width: int, fit: dict[str, Any], ours: float) -> None:
    theirs = f"scikit-learn {fit['error']:.4f} in {fit['seconds']:.1f} s and {fit['epochs']} epochs"
    print(f"{head[0]}.{head[1]}, {width} units: {theirs}; ours there after {ours:.1f} s", file=sys.stderr, flush=True)


def activations_mean(distillation: Distillation, model: AttentionOnlyTransformer, head: tuple[int, int]) -> np.ndarray:
    """Return the training mean that errors are measured from, in the coordinates of `activations`."""
    U, S, _ = torch.linalg.svd(HeadReader.of(model).W_O(head[0])[head[1]], full_matrices=False)
    return (distillation.mean_z[distillation.place(head)].float() @ (U * S)).numpy()


def _total(rows: list[dict[str, Any]], load: float, memory: float) -> dict[str, Any]:
    theirs = sum(row["scikit-learn, all (s)"] for row in rows)
    theirs_cpu = sum(row["scikit-learn, all (processor s)"] for row in rows)
    ours = max(row["ours there (s)"] for row in rows)
    return {
        **dict.fromkeys(rows[0], ""),
        "hidden units": "all",
        "networks": sum(row["networks"] for row in rows),
        "scikit-learn, all (s)": theirs,
        "scikit-learn, all (processor s)": theirs_cpu,
        "ours there (s)": ours,
        "reached": ", ".join(row["reached"] for row in rows),
        "times faster": theirs / ours,
        "times faster (processor time)": theirs_cpu / (ours * load),
        "memory (MB)": memory,
    }


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--corpus", default="stdlib", metavar="SPEC", help="text (default: stdlib)")
    options.add_argument("--heads", type=int, default=6, help="heads that scikit-learn is fitted to (6)")
    arguments = options.parse_args(argv)
    rows = measure(
        quick=arguments.quick,
        corpus=arguments.corpus,
        n_heads=2 if arguments.quick else arguments.heads,
        threads=arguments.threads,
    )
    columns = dict.fromkeys(rows[-1], "")
    _common.report("distillation", [{**columns, **row} for row in rows], arguments.json)
    return 0 if arguments.quick or np.isfinite(rows[-1]["ours there (s)"]) else 1


if __name__ == "__main__":
    sys.exit(main())
