"""What a choice on each page costs: processor time of the browser's main thread and of the server, and requests.

    python -m benchmarks choices [--times 12] [--quick]

Starts the app on a free port, opens every page in Chromium with its bundled checkpoints, and makes the same kind of
choice again and again: another head, another token, a slider one step on. Of each choice, until nothing more is asked
for: milliseconds of the main thread (all its tasks, in its own processor time, so that other work on the machine does
not count), milliseconds of the server's process, and requests of callbacks. Beside them, what a load of the page costs.
Aim: one request, and one more for what is slow; the main thread 60 ms without drawing, 100 with up to 8 line plots.
Some two minutes. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks._common import chromium
from benchmarks.app_latency import Meter, finish, options, served_by, spread

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A page's address, and what is clicked: the elements of a selector, one after another, or a slider's next step."""

    page: str
    query: str = ""
    click: str = ""
    slider: str = ""


CHOICES = {
    "Heads: a head": Choice(page="heads", click="#heads-grid-cells .cell"),
    "Circuits: a head": Choice(page="circuits", click="#circuits-field-head-heads .pick-head"),
    "Circuits, 12 layers: a head": Choice(
        page="circuits", query="checkpoint=novels-12l-mssa", click="#circuits-field-head-heads .pick-head"
    ),
    "Skip-trigrams: a head": Choice(page="trigrams", click="#trigrams-field-head-heads .pick-head"),
    "Paths: a token": Choice(page="paths", click="#paths-strip .chip"),
    "Training: the next step": Choice(page="training", query="step=0", click='#training-film [aria-label="Next step"]'),
    "Atlas: a head": Choice(page="atlas", query="tab=head", click="#atlas-field-head-heads .pick-head"),
    "Distillation: a head": Choice(
        page="distillation", query="view=table", click="#distillation-table-lines tbody button"
    ),
    "Non-linearity: η": Choice(page="nonlinearity", slider="#nonlinearity-eta-slider"),
    "Subspaces: the seed": Choice(page="subspaces", slider="#subspaces-seed"),
    "Denoising: the seed": Choice(page="denoising", slider="#denoising-seed"),
    "In-context regression: a head": Choice(page="regression", query="tab=heads", click="#regression-maps-cells .cell"),
    "In-context regression: the seed": Choice(page="regression", slider="#regression-field-seed"),
}


def measure(page: Page, address: str, server: int, choice: Choice, times: int) -> dict[str, float]:
    """Time a page's load, and `times` choices on it after those that warm up."""
    meter = Meter(page, server)
    page.goto(f"{address}/{choice.page}?{choice.query}")
    page.wait_for_selector(choice.click or f"{choice.slider} [role=slider]")
    meter.settle()
    loaded = meter.look()

    def choose(number: int) -> None:
        if choice.click:
            page.evaluate(
                "([all, at]) => { const found = document.querySelectorAll(all); found[at % found.length].click(); }",
                [choice.click, number + 1],
            )
        else:
            page.locator(f"{choice.slider} [role=slider]").press("ArrowRight" if number < 59 else "ArrowLeft")

    main, server_ms, requests = meter.of_each(choose, times)
    return {
        **spread("main_ms", main),
        "server_ms": statistics.median(server_ms),
        "requests": statistics.median(requests),
        "load_main_ms": loaded[0],
        "load_requests": loaded[2],
    }


def main(argv: list[str] | None = None) -> int:
    arguments = options(__doc__, "times", 12, "choices on each page that count").parse_args(argv)
    figures = {}
    with served_by() as (address, server), chromium() as browser:
        columns = ("main_ms", "main_ms_95%", "server_ms", "requests", "load_main_ms", "load_requests")
        print(f"{'':32}" + "".join(f"{name:>14}" for name in columns))
        for name, choice in CHOICES.items():
            page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
            figures[name] = measure(page, address, server, choice, 3 if arguments.quick else arguments.times)
            print(f"{name:32}" + "".join(f"{figures[name][column]:14,.0f}" for column in columns), flush=True)
            page.context.close()
    return finish(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
