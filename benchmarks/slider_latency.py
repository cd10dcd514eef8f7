"""From letting a slider go to the pictures, on the pages Subspaces and Denoising, at their first sizes.

    python -m benchmarks slider_latency [--moves 30] [--quick]

Starts the app on a free port, opens both pages in Chromium, and moves the seed by one with an arrow key, which asks for
everything anew: milliseconds until every picture of the page is drawn with the new seed. The library's own computation
of the same is timed in this process, alternating, and the ratio counts; its processor time stands beside it.
Subspaces' layer slider is timed too: it draws all three pictures without the server.
Aim: 200 ms on two quiet cores. Some two minutes. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from aotlens.denoise import Spheres, descend, energy_on_plane, sample_mixture, unroll_mixture
from benchmarks._common import chromium
from benchmarks.app_latency import WARM_UP, served, spread

if TYPE_CHECKING:
    from playwright.sync_api import Page

_WAIT_MS = 240_000
SUBSPACES = ("subspaces-cloud-graph", "subspaces-snr-graph", "subspaces-membership-graph")
DENOISING = ("denoising-plane-graph", "denoising-errors-graph")

#: Presses an arrow key on a slider; resolves with the milliseconds until `drawn(plot, wanted)` holds of every graph.
_PRESS = """
([slider, graphs, wanted, patience]) => new Promise((resolve, reject) => {
    const drawn = (id) => {
        const plot = document.querySelector(`#${id} .js-plotly-plot`), panel = plot && plot.closest(".panel");
        if (wanted.layer !== undefined) return panel && panel.dataset.layer === String(wanted.layer);
        const meta = plot && plot.layout && plot.layout.meta;
        return meta && meta.key.includes(`seed=${wanted.seed},`) && plot._fullData && plot._fullData.length;
    };
    const started = performance.now();
    const look = function () {
        if (graphs.every(drawn)) requestAnimationFrame(() => resolve(performance.now() - started));
        else if (performance.now() - started > patience) reject(new Error("not drawn"));
        else requestAnimationFrame(look);
    };
    const thumb = document.querySelector(`#${slider} [role=slider]`);
    thumb.focus();
    thumb.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", code: "ArrowRight", bubbles: true }));
    look();
})
"""


def moves(
    page: Page, address: str, name: str, graphs: tuple[str, ...], compute: Callable[[int], Any], count: int
) -> dict[str, float]:
    """Time the seed moved by one, again and again, beside the library's own computation of what is drawn."""
    page.goto(f"{address}/{name}")
    page.wait_for_function(
        "graphs => graphs.every(id => document.querySelector(`#${id} .js-plotly-plot`)?.layout?.meta?.key)",
        arg=list(graphs), timeout=_WAIT_MS,
    )  # fmt: skip
    page.wait_for_load_state("networkidle")
    pictures, wall, processor = [], [], []
    for seed in range(1, WARM_UP + count + 1):
        pictures.append(page.evaluate(_PRESS, [f"{name}-seed", list(graphs), {"seed": seed}, _WAIT_MS]))
        page.wait_for_load_state("networkidle")
        started, started_cpu = time.perf_counter(), time.process_time()
        compute(seed)
        wall.append((time.perf_counter() - started) * 1000)
        processor.append((time.process_time() - started_cpu) * 1000)
    pictures, wall, processor = pictures[WARM_UP:], wall[WARM_UP:], processor[WARM_UP:]
    return {
        **spread(f"{name}_slider_ms", pictures),
        f"{name}_library_ms": statistics.median(wall),
        f"{name}_library_processor_ms": statistics.median(processor),
        f"{name}_ratio": statistics.median(s / w for s, w in zip(pictures, wall, strict=True)),
    }


def layers(page: Page, address: str, count: int) -> dict[str, float]:
    """Time the layer slider, which asks the server nothing."""
    page.goto(f"{address}/subspaces?layers=24")
    page.wait_for_selector("#subspaces-membership[data-layer='0']", timeout=_WAIT_MS)
    page.wait_for_load_state("networkidle")
    pictures = [
        page.evaluate(_PRESS, ["subspaces-layer", list(SUBSPACES), {"layer": layer}, _WAIT_MS])
        for layer in range(1, min(count, 20) + 1)
    ]
    return spread("subspaces_layer_ms", pictures)


def unrolled(seed: int) -> None:
    """Compute what the Subspaces page computes for another seed, at its first sizes."""
    mixture = sample_mixture(3, 24, 24, 72, 0.1, seed)
    result = unroll_mixture(mixture, 0.5, "thresholded_softmax", 0.6, 10)
    assert result.lengths.shape[0] == result.memberships(0).shape[0] == 11


def descended(seed: int) -> None:
    """Compute what the Denoising page computes for another seed, at its first sizes."""
    circle = Spheres(n=2, d=1, radius=1.0, noise_variance=0.1)
    single, many = circle.sample(1, 20, seed), circle.sample(400, 20, 1000 + seed)
    axis = torch.linspace(-2, 2, 61, dtype=torch.float64)
    energy_on_plane(single.context[0], axis, axis, alpha=1.0, beta=10.0)
    for prompts in (single, many):
        descend(circle, prompts, alpha=1.0, beta=10.0, n_steps=20)


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; print and optionally write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=30, help="of each slider, counted")
    parser.add_argument("--quick", action="store_true", help="4 moves")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    count = 4 if arguments.quick else arguments.moves
    with served() as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        figures = moves(page, address, "subspaces", SUBSPACES, unrolled, count)
        figures |= moves(page, address, "denoising", DENOISING, descended, count)
        figures |= layers(page, address, count)
    for name, value in figures.items():
        print(f"{name:44} {value:,.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
