"""From a click on Run to the picture of all heads, against the model's own run_with_cache.

    python -m benchmarks app_latency [--checkpoint novels-12l-mssa] [--prompts 50] [--quick]

Starts the app on a free port, opens its Heads page in Chromium, and for prompts never seen before (128 tokens each,
the start token included) types the text, clicks Run, and waits until the picture of all heads of that prompt has been
decoded. In the same run, `run_with_cache` of the patterns of the same prompts is timed in this process, alternating.
Expected: a median near 300 ms on two cores; some two minutes for 50 prompts. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socket import socket

import torch

import aotlens
from aotlens.data import open_corpus
from aotlens.models import AttentionOnlyTransformer

N_TOKENS = 128
RUN, TEXT, PICTURE = "heads-run", "heads-text", "heads-grid-picture"  # ids of app/pages/heads, seen from the browser
#: Fills the text, clicks, and resolves with the milliseconds until the grid shows another picture than before.
_MEASURE = """
([text, run, box, picture]) => new Promise((resolve, reject) => {
    const area = document.getElementById(box), image = document.getElementById(picture);
    const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set;
    set.call(area, text);
    area.dispatchEvent(new Event('input', {bubbles: true}));
    requestAnimationFrame(() => setTimeout(() => {
        const before = image.src, started = performance.now();
        const watch = new MutationObserver(async () => {
            if (!image.src.startsWith('data:') || image.src === before) return;
            watch.disconnect();
            await image.decode();
            requestAnimationFrame(() => resolve(performance.now() - started));
        });
        watch.observe(image, {attributes: true, attributeFilter: ['src']});
        setTimeout(() => { watch.disconnect(); reject(new Error('no picture within 30 s')); }, 30000);
        document.getElementById(run).click();
    }, 300));
})
"""


def prompts(model: AttentionOnlyTransformer, count: int) -> Iterator[str]:
    """Texts of exactly N_TOKENS tokens with the start token, from the standard library's source."""
    found = 0
    for document in open_corpus("stdlib").documents():
        words = document.text.split(" ")
        for start in range(0, len(words), 200):
            text = " ".join(words[start : start + 200])
            if text:
                pieces = model.to_str_tokens(text, prepend_bos=False)[: N_TOKENS - 1]
                text = "".join(pieces)
                if model.to_tokens(text).shape[1] == N_TOKENS:
                    yield text
                    found += 1
            if found == count:
                return


@contextmanager
def served(checkpoint: str) -> Iterator[str]:
    """The app in a process of its own; yields the address of its Heads page."""
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = Path(checkpoint)
    more = ["--checkpoints", str(folder)] if folder.is_dir() else []
    process = subprocess.Popen([sys.executable, "-m", "app", "--port", str(port), *more], stdout=subprocess.DEVNULL)
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
        yield f"{address}/heads?checkpoint={folder.name}"
    finally:
        process.terminate()
        process.wait()


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; print and optionally write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", default="novels-12l-mssa", help="a name, or a folder")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="5 prompts")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    browser_path = os.environ.get("AOTLENS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        print("Chromium was not found: apt-get install chromium, or set AOTLENS_CHROMIUM.", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    model = aotlens.load(arguments.checkpoint, device="cpu")
    texts = list(prompts(model, 2 + (5 if arguments.quick else arguments.prompts)))
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    shown, computed = [], []
    with served(arguments.checkpoint) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--no-proxy-server", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        page.wait_for_selector(f'#{PICTURE}[src^="data:"]', timeout=60_000)
        for number, text in enumerate(texts):
            milliseconds = page.evaluate(_MEASURE, [text, RUN, TEXT, PICTURE])
            tokens = model.to_tokens(text)
            started = time.perf_counter()
            with torch.inference_mode():
                model.run_with_cache(tokens, names_filter=names)
            if number >= 2:  # the first two warm up both sides
                computed.append((time.perf_counter() - started) * 1000)
                shown.append(milliseconds)
        browser.close()
    figures = {
        "checkpoint": arguments.checkpoint,
        "prompts": len(shown),
        "tokens": N_TOKENS,
        "click_to_picture_ms": statistics.median(shown),
        "click_to_picture_p90_ms": sorted(shown)[int(0.9 * len(shown))],
        "run_with_cache_ms": statistics.median(computed),
        "ratio": statistics.median(s / c for s, c in zip(shown, computed, strict=True)),
    }
    for name, value in figures.items():
        print(f"{name:24} {value:.1f}" if isinstance(value, float) else f"{name:24} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
