"""Heads on thousands of tokens: what a click costs, and the memory of the tab and of the server.

    python -m benchmarks long_texts [--clicks 20] [--quick]

Makes a model of 12 layers × 4 heads with random weights (d_model 256, 4,096 positions), serves it, and opens Heads in
Chromium on 2,048 tokens of a novel, and then on 4,000:

- a click on another head: processor time of the browser's main thread until nothing more is asked for, its tile drawn;
- the tab: memory that its renderer process has for itself, after these clicks;
- the server: the most that it held (VmHWM) above what it held with the model and a short text.

Aims: 40 ms, 300 MB, 600 MB. Some two minutes on a quiet machine. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import open_corpus
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from benchmarks._common import chromium
from benchmarks.app_latency import CHOSEN, Meter, finish, options, served_by, spread

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_WAIT_MS = 600_000
N_TOKENS = (2048, 4000)
_SERVE = "import sys; from app.__main__ import main; main(['--checkpoints', {folder!r}, '--port', sys.argv[1]])"
_READY = """() => { const { map } = document.querySelector("#heads-map-canvas") ?? {}, maps = map?.of();
    const waiting = (maps?.flying?.size ?? 0) + (maps?.wanted?.length ?? 0);
    return maps?.n === %d && !document.querySelector(".first") && map.place && !waiting; }"""


def make_model(folder: Path) -> AttentionOnlyTransformer:
    """Make a checkpoint with random weights and a bundled tokenizer."""
    tokenizer = aotlens.load("novels-2l-mhsa", device="cpu").tokenizer
    sizes = {"n_layers": 12, "n_heads": 4, "d_model": 256, "d_head": 64, "d_vocab": 4096, "n_ctx": 4096}
    model = AttentionOnlyTransformer(ModelConfig(**sizes, seed=1), tokenizer)
    save_checkpoint(folder / "long", model, CheckpointInfo(name="long", description="Random weights."))
    return model


def text_of(model: AttentionOnlyTransformer, n_tokens: int) -> str:
    """Return the longest beginning of a novel, to a token, that is not more than so many tokens with the
    start token."""
    novel = next(iter(open_corpus("novels").documents())).text
    pieces = model.to_str_tokens(novel[: 8 * n_tokens], prepend_bos=False)[: n_tokens - 1]
    while (n_ids := model.to_tokens("".join(pieces)).shape[1]) > n_tokens:  # bytes of cut characters count anew
        pieces = pieces[: n_tokens - n_ids]
    return "".join(pieces)


def megabytes(process: int, name: str) -> float:
    """Return a figure of a process's status, such as VmHWM, in MB."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def own_megabytes(browser: Browser) -> float:
    """Return the memory that the largest renderer process of a browser shares with no other, in MB."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [0.0]
    for process in processes:
        if process["type"] == "renderer":
            rollup = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            sizes.append(sum(map(int, re.findall(r"Private_(?:Clean|Dirty):\s+(\d+) kB", rollup))) / 1024)
    return max(sizes)


def open_text(page: Page, address: str, text: str, n_tokens: int) -> None:
    """Open Heads on a text, and wait until its maps are drawn."""
    keep = urllib.request.Request(f"{address}/texts", data=text.encode(), method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    key = opener.open(keep, timeout=60).read().decode()
    page.goto(f"{address}/heads?checkpoint=long&text={key}")
    page.wait_for_selector("#heads-ranking button", state="attached", timeout=_WAIT_MS)
    page.wait_for_function(_READY % n_tokens, timeout=_WAIT_MS)


def main(argv: list[str] | None = None) -> int:
    arguments = options(__doc__, "clicks", 20, "on a head").parse_args(argv)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        with served_by(_SERVE.format(folder=folder)) as (address, server), chromium() as browser:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            short = "The captain bowed."
            open_text(page, address, short, model.to_tokens(short).shape[1])
            held = megabytes(server, "VmRSS")
            for n_tokens in N_TOKENS:
                text = text_of(model, n_tokens)
                open_text(page, address, text, model.to_tokens(text).shape[1])
                main_ms, own, requests = Meter(page, server).of_each(
                    lambda number: page.evaluate(f"n => {CHOSEN['head']}", number + 1),
                    6 if arguments.quick else arguments.clicks,
                )
                name = f"head_click_{n_tokens}_tokens"
                figures |= spread(f"{name}_main_ms", main_ms)
                figures |= {
                    f"{name}_server_ms": statistics.median(own), f"{name}_requests": max(requests),
                    f"tab_{n_tokens}_tokens_mb": own_megabytes(browser),
                    f"server_{n_tokens}_tokens_above_mb": megabytes(server, "VmHWM") - held,
                }  # fmt: skip
    for name, value in figures.items():
        print(f"{name:44} {value:,.1f}", flush=True)
    return finish(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
