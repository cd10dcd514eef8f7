"""What a browser waits for and what it is sent: the first load, a click on Run, a click on a head.

    python -m benchmarks app_latency [--prompts 50] [--quick]

Starts the app on a free port and opens its pages in Chromium:

- a bare page of Dash with Mantine and one heat map, as a measure of this machine's speed;
- the first load of the Heads page with nothing cached: bytes over the wire, seconds to the first head's map, and from
  Chrome's trace the processor time of the main thread's tasks until then, which over the bare page's is to be ≤ 0.25;
- at 251 tokens a head, a token, the direction and the ranking, with the map and with predictions in view: processor
  time of the browser's main thread and of the server, and requests, until nothing more is asked for;
- `novels-12l-mssa`, new prompts of 128 tokens with the start token: from a click on Run to the picture of all heads,
  beside `run_with_cache` of their patterns in this process, alternating: the ratio counts;
- a head ablated after another, 128 tokens, 2 and 12 layers: to the last head's map without them, from a new run.

Expected: a first load of 0.7 MB; some four minutes on a quiet machine. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch

import aotlens
from aotlens.data import open_corpus
from aotlens.models import AttentionOnlyTransformer
from benchmarks._common import chromium, main_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LARGE, SMALL = "novels-12l-mssa", "novels-2l-mhsa"
N_TOKENS = 128
CHOICE_TOKENS = 251
#: Clicks that are not counted, before those that are.
WARM_UP = 2
# Ids of app/pages, seen from the browser.
RUN, TEXT, CELLS = "heads-run", "heads-text", "heads-grid-cells"
_WAIT_MS = 240_000
_QUIET_MS = 400  # without a request in flight, after which a choice is answered

# Expressions of JavaScript for what is drawn: another value is another picture.
MAP = "document.getElementById('heads-map-canvas')?.dataset.head"
FIRST_MAP = "document.querySelector('[data-part=heads-map-canvas], #heads-map-canvas')?.dataset.head"
MAP_OFF = "document.getElementById('heads-map-off-canvas')?.map?.maps?.key"
ALL_HEADS = "document.getElementById('heads-map-canvas')?.map?.maps?.key"

#: Fills the text, clicks, and resolves with the milliseconds until the grid shows another picture than before.
_RUN = """
([text, run, box, picture, patience]) => new Promise((resolve, reject) => {
    const area = document.getElementById(box), look = new Function(`return ${picture}`), before = look();
    const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set;
    set.call(area, text);
    area.dispatchEvent(new Event('input', {bubbles: true}));
    setTimeout(() => {
        const started = performance.now(), watch = () => {
            if (look() && look() !== before) resolve(performance.now() - started);
            else if (performance.now() - started > patience) reject(new Error('no picture'));
            else requestAnimationFrame(watch);
        };
        document.getElementById(run).click();
        watch();
    }, 300);
})
"""
#: Clicks, and resolves with the milliseconds until another picture than before is drawn.
_CLICK = """
([button, picture, patience]) => new Promise((resolve, reject) => {
    const look = new Function(`return ${picture}`), before = look(), started = performance.now();
    const watch = () => {
        if (look() && look() !== before) requestAnimationFrame(() => resolve(performance.now() - started));
        else if (performance.now() - started > patience) reject(new Error('no map'));
        else requestAnimationFrame(watch);
    };
    document.querySelector(button).click();
    watch();
})
"""
#: The choices of somebody on Heads, as an expression that clicks on it for the n-th time.
CHOSEN = {
    "head": "document.querySelectorAll('#heads-grid-cells .cell')[n % 48].click()",
    "token": "document.querySelectorAll('#heads-strip .chip')[200 + n].click()",
    "direction": "document.querySelector('#heads-direction input:not(:checked)').click()",
    "ranking": "document.querySelectorAll('#heads-ranking button')[n % 48].click()",
}
#: Marks the first frame with a head's map.
_MARK = f"(function look() {{ ({FIRST_MAP}) ? performance.mark('first-map') : requestAnimationFrame(look) }})()"
_BARE = """
import sys, dash, dash_mantine_components as dmc, numpy as np, plotly.graph_objects as go
app = dash.Dash(serve_locally=True)
figure = go.Figure(go.Heatmap(z=np.random.default_rng(0).random((45, 45), dtype=np.float32)))
app.layout = dmc.MantineProvider(dash.dcc.Graph(figure=figure))
app.run(port=int(sys.argv[1]))
"""


def prompts(model: AttentionOnlyTransformer, count: int, n_tokens: int = N_TOKENS) -> Iterator[str]:
    """Yield texts of exactly `n_tokens` tokens with the start token, from the standard library's source."""
    n_texts = 0
    for document in open_corpus("stdlib").documents():
        words = document.text.split(" ")
        for start in range(0, len(words), 200):
            text = " ".join(words[start : start + 200])
            if text:
                pieces = model.to_str_tokens(text, prepend_bos=False)[: n_tokens - 1]
                text = "".join(pieces)
                if model.to_tokens(text).shape[1] == n_tokens:
                    yield text
                    n_texts += 1
            if n_texts == count:
                return


@contextmanager
def served_by(code: str | None = None) -> Iterator[tuple[str, int]]:
    """Serve the app, or what the Python in `code` serves at the port that it is given; yield the address and the
    process's number."""
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    what = ["-m", "app", "--port"] if code is None else ["-c", code]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": None if code is None else subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, *what, str(port)], **quiet)
    address = f"http://127.0.0.1:{port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        for _ in range(600):
            try:
                opener.open(address, timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("the app did not start") from None
                time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


class Wire:
    """Bytes that a tab has received, headers included, as they came over the wire."""

    def __init__(self, page: Page) -> None:
        self.received = 0.0
        session = page.context.new_cdp_session(page)
        session.on("Network.loadingFinished", self._add)
        session.send("Network.enable")

    def _add(self, event: Mapping[str, Any]) -> None:
        self.received += event["encodedDataLength"]

    def take(self, page: Page) -> float:
        """Return the bytes since the last call, once all has come."""
        page.wait_for_load_state("networkidle")
        received, self.received = self.received, 0.0
        return received


class Meter:
    """A meter of what a tab and the server have spent since the last look."""

    def __init__(self, page: Page, server: int) -> None:
        self._page, self._server, self.requests, self._flying = page, server, 0, 0
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.on("request", self._asked)
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, self._answered)

    def _asked(self, request: Any) -> None:
        self.requests += any(path in request.url for path in ("_dash-update-component", "/maps"))
        self._flying += 1

    def _answered(self, request: Any) -> None:
        self._flying -= 1

    def settle(self) -> None:
        """Wait until nothing is asked for any more."""
        quiet = 0
        while quiet < _QUIET_MS:
            self._page.wait_for_timeout(50)
            quiet = 0 if self._flying > 0 else quiet + 50

    def look(self) -> tuple[float, float, int]:
        """Return milliseconds of the main thread and of the server, and requests of callbacks and maps, so far."""
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        main = next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        user, system = Path(f"/proc/{self._server}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        ticks = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return 1000 * main, 1000 * ticks, self.requests

    def of_each(self, choose: Callable[[int], Any], times: int) -> tuple[list[float], list[float], list[float]]:
        """Return what each of so many choices costs until nothing is asked for any more, after those that warm up."""
        rows = []
        for number in range(WARM_UP + times):
            self.settle()
            before = self.look()
            choose(number)
            self.settle()
            rows.append([after - first for first, after in zip(before, self.look(), strict=True)])
        main, server, requests = zip(*rows[WARM_UP:], strict=True)
        return list(main), list(server), list(requests)


def drawn(page: Page, picture: str) -> None:
    page.wait_for_function(f"() => {picture}", timeout=_WAIT_MS)


def bare_page(browser: Browser) -> dict[str, float]:
    """Measure what Dash, Mantine and plotly take by themselves."""
    with served_by(_BARE) as (address, server):
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        meter = Meter(page, server)
        page.goto(address)
        page.wait_for_selector(".heatmaplayer image", state="attached", timeout=_WAIT_MS)
        meter.settle()
        figures = {"bare_page_main_ms": meter.look()[0]}
        page.context.close()
    return figures


def first_load(browser: Browser, address: str, server: int) -> dict[str, float]:
    """Measure the first load with nothing cached."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(_MARK)
    wire, meter, started = Wire(page), Meter(page, server), time.perf_counter()
    own = meter.look()[1]
    browser.start_tracing(page=page, categories=["toplevel", "blink.user_timing"])
    page.goto(f"{address}/heads?checkpoint={LARGE}", wait_until="commit")
    drawn(page, FIRST_MAP)
    seconds = time.perf_counter() - started
    at_map = main_until(json.loads(browser.stop_tracing())["traceEvents"], "first-map")
    drawn(page, MAP)
    meter.settle()
    whole = meter.look()
    sizes = {
        "first_load_bytes": wire.take(page), "first_load_s": seconds, "first_map_main_ms": at_map,
        "first_load_main_ms": whole[0], "first_load_server_ms": whole[1] - own, "first_load_requests": whole[2],
    }  # fmt: skip
    page.context.close()
    return sizes


def choices(page: Page, address: str, server: int, model: AttentionOnlyTransformer, n: int) -> dict[str, float]:
    """Measure choices on Heads at 251 tokens, with nothing that depends on them in view and with the predictions."""
    figures: dict[str, float] = {}
    for tab in ("map", "predictions"):
        text = quote(next(prompts(model, 1, CHOICE_TOKENS)))
        page.goto(f"{address}/heads?checkpoint={LARGE}&tab={tab}&text={text}")
        page.wait_for_selector("#heads-ranking button", state="attached", timeout=_WAIT_MS)
        drawn(page, ALL_HEADS)
        meter = Meter(page, server)
        for name, click in CHOSEN.items():
            main, own, requests = meter.of_each(lambda number, click=click: page.evaluate(f"n => {click}", number), n)
            label = f"{name}_with_{tab}"
            figures |= spread(f"{label}_main_ms", main)
            figures |= {f"{label}_server_ms": statistics.median(own), f"{label}_requests": max(requests)}
    return figures


def run_to_picture(page: Page, address: str, model: AttentionOnlyTransformer, count: int) -> dict[str, float]:
    """Time a click on Run, against `run_with_cache`."""
    page.goto(f"{address}/heads?checkpoint={LARGE}")
    drawn(page, MAP)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    pictures, computed = [], []
    for text in prompts(model, WARM_UP + count):
        pictures.append(page.evaluate(_RUN, [text, RUN, TEXT, ALL_HEADS, _WAIT_MS]))
        tokens = model.to_tokens(text)
        started = time.perf_counter()
        with torch.inference_mode():
            model.run_with_cache(tokens, names_filter=names)
        computed.append((time.perf_counter() - started) * 1000)
    pictures, computed = pictures[WARM_UP:], computed[WARM_UP:]
    return {
        **spread("run_to_picture_ms", pictures),
        "run_with_cache_ms": statistics.median(computed),
        "run_ratio": statistics.median(s / c for s, c in zip(pictures, computed, strict=True)),
    }


def switches(page: Page, address: str, checkpoint: str, n: int) -> dict[str, float]:
    """Switch heads off one after another, and on again; the map is the last head's, which those of layer 0 reach."""
    model = aotlens.load(checkpoint, device="cpu")
    last = f"{model.cfg.n_layers - 1}.{model.cfg.n_heads - 1}"
    page.goto(f"{address}/heads?checkpoint={checkpoint}&head={last}&text={quote(next(prompts(model, 1, N_TOKENS)))}")
    drawn(page, MAP)
    page.wait_for_load_state("networkidle")
    milliseconds = []
    n_heads = model.cfg.n_heads
    for number in range(min(WARM_UP + n, 2 * n_heads - 1)):
        # Heads of the first layer, off and then on again, but for the last: another set each time, so that it is run.
        button = f'#{CELLS} .head-switch[data-layer="0"][data-head="{number % n_heads}"]'
        milliseconds.append(page.evaluate(_CLICK, [button, MAP_OFF, _WAIT_MS]))
        page.wait_for_load_state("networkidle")
    return spread(f"switch_{checkpoint}_ms", milliseconds[WARM_UP:])


def spread(name: str, values: list[float]) -> dict[str, float]:
    """Return the median, and below what 95% lie."""
    return {name: statistics.median(values), f"{name}_95%": sorted(values)[int(0.95 * (len(values) - 1))]}


def options(description: str | None, name: str, default: int, of: str) -> argparse.ArgumentParser:
    """Return the options of a measurement in a browser: how often it is repeated, and the file of the figures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{name}", type=int, default=default, help=of)
    parser.add_argument("--quick", action="store_true", help="few of them")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser


def finish(figures: Mapping[str, Any], path: Path | None) -> int:
    """Write the figures to a file if there is one; return the exit status."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = options(__doc__, "prompts", 50, "prompts of 128 tokens")
    parser.add_argument("--clicks", type=int, default=20, help="on a head, counted in each setting")
    arguments = parser.parse_args(argv)
    n_prompts, n_clicks = (5, 4) if arguments.quick else (arguments.prompts, arguments.clicks)
    model = aotlens.load(LARGE, device="cpu")
    with served_by() as (address, server), chromium() as browser:
        figures: dict[str, float] = {}

        def tell(measured: dict[str, float]) -> None:
            for name, value in measured.items():
                print(f"{name:44} {value:,.1f}", flush=True)
            figures.update(measured)

        tell(bare_page(browser))
        tell(first_load(browser, address, server))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        tell(choices(page, address, server, model, n_clicks))
        tell(run_to_picture(page, address, model, n_prompts))
        for checkpoint in (SMALL, LARGE):
            tell(switches(page, address, checkpoint, n_clicks))
    return finish(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
