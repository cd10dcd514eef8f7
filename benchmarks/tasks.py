"""Ten tasks of a first hour, done by clicks and keys: what each asks of the user, of the browser and of the server.

    python -m benchmarks tasks [--only 1 4] [--quick]

Starts the app on a free port, with a GPT-2 of random weights imported beside the bundled checkpoints, and does each
task from the start page in a tab of its own. Of each: clicks, texts that are typed, milliseconds of the main thread and
of the server's process (processor time, which other work on the machine hardly disturbs), requests of callbacks,
seconds on the clock, and the answer at the end. Pointing at a menu is no click; a text is typed in one go, with
Ctrl+Enter. Reading, and finding what to click, is not counted. It fails where a thing to click or an answer does not
come. Some four minutes. Needs Chromium, like the browser tests.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from aotlens.checkpoints import import_external
from benchmarks import _common
from benchmarks._common import chromium
from benchmarks.app_latency import Meter, served_by
from benchmarks.importing import write_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_WAIT_MS = 180_000
_SENTENCE = "When Harold and Beatrix went to the shop, Beatrix gave Harold a hat and Beatrix"
_OWN = (f"#start-text={_SENTENCE}", "text=See its heads")


class Task(NamedTuple):
    """What is wanted, the steps from the start page, and where the answer stands.

    A step is a selector that is clicked, ">SELECTOR" that is pointed at, or "#ID=TEXT" where the text is typed.
    """

    wanted: str
    steps: tuple[str, ...]
    answer: str


def menu(group: str, page: str) -> tuple[str, str]:
    """Return the steps that open a page by the menu."""
    return f">button.nav-name:has-text('{group}')", f".nav-menu .nav-link:text-is('{page}')"


_ONE_ROW = "role=button[name='Export: One row']"
# fmt: off
TASKS = (
    Task("Say what this is and where to start", (), ".start-lead"),
    Task("Find the induction head on a sentence of your own, and what it is worth",
         (*_OWN, "role=tab[name='Loss']", ".head-switch[data-layer='1'][data-head='0']"),
         "#heads-losses-change-heading"),
    Task("Compare two models on one prompt",
         (*menu("Heads", "Compare"), "role=button[name='MSSA | MHSA']", f"#compare-field-text={_SENTENCE}"),
         "#compare-losses .panel-content"),
    Task("Why does 1.0 attend there",
         ("a:text-is('Look into it') >> nth=1", "role=tab[name='Why']"), "#heads-why"),
    Task("Continue the text; the loss per token",
         (*_OWN, "role=tab[name='Loss']", "role=tab[name='Continue']", "role=button[name='Continue']"),
         ".continued-text"),
    Task('The strongest OV entries of " her", as CSV and Python',
         (*menu("Circuits", "Circuits"), "text=OV: what it writes", "role=tab[name='Row and column']",
          "#circuits-field-row= her", "role=option[name='·her']", _ONE_ROW, "role=menuitem[name=/CSV/]", _ONE_ROW,
          "role=menuitem[name=/Python/]"),
         ".python-dialog .code"),
    Task("A confirmed skip-trigram in its text", menu("Circuits", "Skip-trigrams"), "#trigrams-one .panel-content"),
    Task("The largest path to the predicted token, and what it does",
         (*menu("Circuits", "Paths"), f"#paths-text={_SENTENCE}", "role=button[name='without']"),
         "#paths-without"),
    Task("Does an MSSA head need a wider network than an MHSA head",
         (*menu("MSSA and FFN", "Distillation"), "role=tab[name='Error by width']"), "#distillation-widths-caption"),
    Task("Open a GPT-2 of your own (after `aotlens checkpoints import FOLDER --name mine`)",
         (".nav-link:text-is('Checkpoints')", "role=gridcell[name='mine']", "text=Open in Heads",
          "#heads-text=5 9 2 5 9 2 5 9"),
         "#heads-map"),
)
# fmt: on


def do(page: Page, meter: Meter, step: str) -> None:
    """Do one step, and wait until nothing is asked for any more."""
    selector, typed, text = step.lstrip(">").partition("=") if step.startswith("#") else (step.lstrip(">"), "", "")
    target = page.locator(selector).first
    if step.startswith(">"):
        target.hover()
    else:
        target.click()
    if typed:
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.type(text)
        if selector.endswith("-text"):
            page.keyboard.press("ControlOrMeta+Enter")
    meter.settle()


def answered(page: Page, meter: Meter, selector: str) -> str:
    """Return what is shown at a selector, once something is: what runs in the background asks for it now and then."""
    deadline = time.perf_counter() + _WAIT_MS / 1000
    while time.perf_counter() < deadline:
        answer = " ".join(page.locator(selector).first.inner_text().split())
        if answer:
            return answer
        meter.settle()
    raise RuntimeError(f"Nothing is shown at {selector}.")


def measure(browser: Browser, address: str, server: int, task: Task) -> dict[str, Any]:
    """Return what a task takes, and the answer that it comes to."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(_WAIT_MS)
    meter = Meter(page, server)
    server_before = meter.look()[1]
    started = time.perf_counter()
    page.goto(address)
    meter.settle()
    for step in task.steps:
        do(page, meter, step)
    answer = answered(page, meter, task.answer)
    main_ms, server_ms, requests = meter.look()
    page.context.close()
    return {
        "task": task.wanted,
        "clicks": sum(not step.startswith(">") for step in task.steps),
        "texts typed": sum(step.startswith("#") and "=" in step for step in task.steps),
        "main thread (ms)": round(main_ms),
        "server (ms)": round(server_ms - server_before),
        "requests": requests,
        "seconds": time.perf_counter() - started,
        "shown at the end": answer if len(answer) < 160 else f"{answer[:157]}…",
    }


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--only", type=int, nargs="+", metavar="N", help="numbers of tasks, from 1; --quick: 1 and 4")
    arguments = options.parse_args(argv)
    numbers = [1, 4] if arguments.quick else arguments.only or range(1, len(TASKS) + 1)
    home = tempfile.mkdtemp()
    with patch.dict(os.environ, AOTLENS_HOME=home), chromium() as browser:
        write_folder(Path(home, "gpt2"), "model.safetensors", quick=True)
        import_external(Path(home, "gpt2"), name="mine")
        with served_by() as (address, server):
            rows = [measure(browser, address, server, TASKS[number - 1]) for number in numbers]
    shutil.rmtree(home)
    _common.report("tasks", rows, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
