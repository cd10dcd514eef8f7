"""Make the README's picture from a running app:

    python -m app.screenshot docs/heads.png --checkpoint novels-2l-mhsa --head 1.0

It serves the app on a free port, opens it in Chromium (Playwright), and writes a PNG of at most 300 KB. About 15 s.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from app.core.settings import Settings
from app.pages.heads.address import ADDRESS

MAX_BYTES = 300 * 1024

_READY = """() => document.querySelector("#heads-map-canvas[data-head]")
    && document.getElementById("heads-motifs-line").textContent"""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, serve and take the picture. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.screenshot", description="Make the README's picture.")
    parser.add_argument("out", type=Path, help="the PNG to write")
    parser.add_argument("--checkpoints", metavar="DIR", type=Path, action="append", default=[])
    parser.add_argument("--checkpoint", default=None, help="which one (default: the first)")
    parser.add_argument("--head", default="0.0", help="layer.head (default: %(default)s)")
    parser.add_argument("--position", type=int, default=None, help="the token to lock")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=900)
    given = parser.parse_args(argv)
    head = ADDRESS.parse(f"?head={given.head}").head
    address = ADDRESS.to(checkpoint=given.checkpoint, head=head, position=given.position)
    executable = os.environ.get("AOTLENS_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        print("app.screenshot: no Chromium; apt-get install chromium, or set AOTLENS_CHROMIUM.", file=sys.stderr)
        return 2
    picture = _shoot(Settings(checkpoints=tuple(given.checkpoints)), address, executable, given)
    content = _small(picture)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(content)
    print(f"{given.out}: {len(content) / 1024:.0f} KB")
    return 0


def _shoot(settings: Settings, path: str, executable: str, given: argparse.Namespace) -> bytes:
    from playwright.sync_api import sync_playwright

    from app.factory import create_app
    from app.server import listen, make_server

    server = make_server(create_app(settings).server, settings, listen("127.0.0.1", 0))
    threading.Thread(target=server.run, daemon=True).start()
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"]
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        size = {"width": given.width, "height": given.height}
        page = browser.new_page(viewport=size, color_scheme=given.theme)
        page.goto(f"http://127.0.0.1:{server.effective_port}{path}")
        page.wait_for_function(_READY, timeout=120_000)
        page.wait_for_timeout(500)  # the map's last redraw
        picture = page.screenshot()
        browser.close()
    server.stop()
    return picture


def _small(picture: bytes) -> bytes:
    """The same picture in as few bytes: text and flat colours fit a palette."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (256, 128, 64):
        buffer = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(buffer, format="PNG", optimize=True)
        if buffer.tell() <= MAX_BYTES:
            break
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
