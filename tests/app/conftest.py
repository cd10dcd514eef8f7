"""Tiny checkpoints, made here, an app that serves them, and a tab of a browser that opens it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from app.core import Core
from app.core.settings import Settings
from app.factory import create_app
from app.server import listen, make_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from aotlens.data.images import ImageProcessor
    from app.core.jobs import Job
    from app.shell.app import App

TEXT = (
    "The captain bowed, and Mrs. Pendlebury smiled at the captain. She said that the captain of a ship must dance, "
    "and the captain danced.\n\tHow well he danced! "
)


def eventually(state: Callable[[], Any]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 120
    while not state() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state()


def wait(job: Job) -> Job:
    """Until it has ended, whatever the end."""
    eventually(lambda: not job.active)
    return job


def save_tiny(folder: Path, name: str, *, n_layers: int = 2, n_heads: int = 3, history: bool = True, **rest) -> None:
    """A checkpoint with random weights, a tokenizer of 300 tokens and a context of 48."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint
    from aotlens.data import Tokenizer
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    tokenizer = Tokenizer.train([TEXT * 3], 300)
    cfg = ModelConfig(
        n_layers=n_layers, d_model=24, n_heads=n_heads, d_head=8, d_vocab=300, **{"n_ctx": 48, "seed": 1, **rest}
    )
    rows = [{"step": step, "tokens": 64 * step, "loss": 5.0 - step, "induction": 0.1 * step} for step in range(4)]
    save_checkpoint(
        folder / name,
        AttentionOnlyTransformer(cfg, tokenizer),
        CheckpointInfo(
            name=name,
            description="Random weights, for tests.",
            metrics={"validation_loss": 4.25, "bigram_loss": 4.5},
            tokens_seen=192,
        ),
        history=rows if history else [],
    )


def save_images(folder: Path, name: str, *, processor: ImageProcessor | None = None, **rest: Any) -> None:
    """A checkpoint with random weights that reads scikit-learn's digits: 4 × 4 patches and [CLS]."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint
    from aotlens.data.images import ImageProcessor, open_images
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    sizes: dict[str, Any] = {
        "n_layers": 2, "d_model": 24, "n_heads": 3, "d_head": 8, "n_ctx": 17, "image_size": 8, "patch_size": 2,
        "class_token": True, "bias": True, "init_std": 0.4, "seed": 3,
    }  # fmt: skip
    ends: dict[str, Any] = {"read_in": "patches", "read_out": "classes", "d_out": 10, "causal": False}
    model = AttentionOnlyTransformer(ModelConfig(**{**sizes, **ends, **rest}))
    model.image_processor = processor or ImageProcessor.of(open_images("digits").train, "digits")
    save_checkpoint(folder / name, model, CheckpointInfo(name=name, description="Random weights, for tests."))


def save_regression(folder: Path, name: str, d: int = 3, **rest: Any) -> None:
    """A checkpoint with random weights that reads prompts of in-context regression of 2d + 1 points."""
    from aotlens.checkpoints import CheckpointInfo, save_checkpoint
    from aotlens.models import AttentionOnlyTransformer, ModelConfig

    sizes: dict[str, Any] = {"n_layers": 2, "d_model": 24, "n_heads": 3, "d_head": 8, "n_ctx": 4 * d + 1, "seed": 2}
    ends: dict[str, Any] = {"read_in": "vectors", "d_in": d, "read_out": "vectors", "d_out": 1}
    model = AttentionOnlyTransformer(ModelConfig(**{**sizes, **ends, "position_init_std": 1.0, **rest}))
    recipe = {"prompts": {"d": d, "n_nonzero": None, "noise_std": 0.0}}
    info = CheckpointInfo(name=name, description="Random weights, for tests.", recipe=recipe)
    save_checkpoint(folder / name, model, info)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three that load, one that is broken."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_tiny(folder, "tiny-mhsa")
    save_tiny(folder, "tiny-mssa", n_layers=3, n_heads=2, attention="mssa", history=False)
    save_tiny(folder, "tiny-fixed", n_layers=1, phi="fixed", fixed_pattern="random")
    save_tiny(folder, "broken")
    weights = folder / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    return folder


@pytest.fixture(scope="session")
def settings(checkpoints: Path) -> Settings:
    return Settings(checkpoints=(checkpoints,), device="cpu", max_characters=20_000)


@pytest.fixture(scope="session", autouse=True)
def nothing_else(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the user's own and the bundled checkpoints, before a module's fixture does whose end would show them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTLENS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr("aotlens.checkpoints.catalog.bundled_folder", lambda: Path("/nonexistent"))
        yield


@pytest.fixture(scope="session")
def services(settings: Settings) -> Core:
    return Core.start(settings)


@pytest.fixture(scope="session")
def app(settings: Settings, services: Core) -> App:
    return create_app(settings, services)


@pytest.fixture(scope="session")
def address(app) -> Iterator[str]:
    """Where the app is; a module with an app of its own has a fixture of this name."""
    with serve(app) as address:
        yield address


@contextmanager
def serve(app: App) -> Iterator[str]:
    """Serves as for users, on a port of its own."""
    server = make_server(app.server, app.core.settings, listen("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.stop()
    thread.join(timeout=5)
    server.drain(0)


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a page's folder, browser tests are `long`, but for the page's visit."""
    for item in items:
        is_journey = "chromium" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("visit")
        if is_journey and item.path.parent.parent == Path(__file__).parent:
            item.add_marker("long")


# ── the browser ─────────────────────────────────────────────────────────────────────────────────────────────


#: How long a test waits for what it looks at, in milliseconds: only a test that fails waits that long.
PATIENCE = 120_000

#: A page's layout hangs on its theme only by mistake: the dark one is laid out in the long suite.
SCHEMES = ["light", pytest.param("dark", marks=pytest.mark.long)]


@contextmanager
def new_page(chromium: Browser, **options: Any) -> Iterator[Page]:
    """A tab in a context of its own; whatever waits in it, and every `expect`, has the same patience."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)
    context = chromium.new_context(**options)
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


class Tabs:
    """The tab that a worker's tests share, since each load parses megabytes of scripts; and what went wrong in it."""

    def __init__(self, chromium: Browser) -> None:
        self.chromium = chromium
        self.trouble: list[str] = []
        self._open: tuple[str, Page, AbstractContextManager[Page]] | None = None

    def at(self, address: str) -> Page:
        """The one that is open, if it is of this app; else a new one."""
        if self._open is not None and self._open[0] == address and not self._open[1].is_closed():
            return self._open[1]
        self.close()
        opening = new_page(self.chromium, viewport={"width": 1440, "height": 900}, color_scheme="light")
        page = opening.__enter__()
        self._open = address, page, opening
        note = self.trouble.append
        page.on("console", lambda m: note(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note(f"{error}\n{error.stack}"))
        page.on("requestfailed", lambda request: note(f"{request.url}: {request.failure}"))
        page.on("request", lambda request: None if _own(request.url, address) else note(request.url))
        return page

    def close(self) -> None:
        """The next test gets a new one."""
        if self._open is not None:
            self._open[2].__exit__(None, None, None)
            self._open = None


@pytest.fixture(scope="session")
def tabs(chromium: Browser) -> Iterator[Tabs]:
    tabs = Tabs(chromium)
    yield tabs
    tabs.close()


@pytest.fixture(scope="module")
def forgotten(tabs: Tabs, address: str) -> None:
    """A module finds nothing in the browser that another one has left there, and begins with a load."""
    page = tabs.at(address)
    if page.url.startswith(address):
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        page.goto("about:blank")


@pytest.fixture
def tab(tabs: Tabs, forgotten: None, address: str) -> tuple[Page, list[str]]:
    """A tab of the app at `address`, and what goes wrong in it."""
    return tabs.at(address), tabs.trouble


#: What a page that is left still had under way isn't an error, nor are Chromium's remarks on how fast plotly's pictures
#: in three dimensions are drawn without a graphics card.
_HARMLESS = ("ERR_ABORTED", "GL Driver Message", "willReadFrequently")


def _own(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the tab did: its address, what went wrong in it, its text."""
    report = yield
    page, trouble = getattr(item, "funcargs", {}).get("tab", (None, []))
    if report.failed and page is not None and not page.is_closed():
        with suppress(Exception):  # of a tab that has crashed, or hangs
            shown = page.inner_text("body", timeout=5000)[:4000]
            report.sections.append(("page", "\n".join([page.url, *trouble, shown])))
    return report


@pytest.fixture
def open_page(
    tabs: Tabs, tab: tuple[Page, list[str]], address: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Page]]:
    """Goes to an address of the app, as a link inside it does, or (`load=True`) as a copied one does.

    At the end there must have been no error or warning in the console, no failed request and none to elsewhere. What a
    test that failed has left in the tab is the next one's no more.
    """
    page, trouble = tab
    trouble.clear()
    failures = request.session.testsfailed

    def open_at(path: str, *, width: int = 1440, scheme: Any = "light", load: bool = False) -> Page:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        if load or not page.url.startswith(address):
            page.goto(address + path)
            return page
        for step in ("/nowhere", path):
            page.evaluate("to => history.pushState({}, '', to)", step)
            page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
            page.wait_for_selector(".missing" if step == "/nowhere" else "#page .panel:visible")
        return page

    yield open_at
    try:
        if page.url.startswith(address):
            settled(page)  # so that what goes wrong late is this test's, and the next one starts from rest
        assert [one for one in trouble if not any(harmless in one for harmless in _HARMLESS)] == []
    except BaseException:
        tabs.close()
        raise
    if request.session.testsfailed > failures:
        tabs.close()


def query(page: Page) -> dict[str, str]:
    """What the address says."""
    return {key: values[-1] for key, values in parse_qs(page.evaluate("location.search.slice(1)")).items()}


def written(page: Page, key: str, value: str | None) -> None:
    """Waits until the address says so; the browser writes it after it has shown what it says."""
    there = "([key, value]) => new URLSearchParams(location.search).get(key) === value"
    page.wait_for_function(there, arg=[key, value])


def settled(page: Page) -> None:
    """Wait until the page is at rest (static/settled.js): what is in view is drawn, and nothing is under way."""
    from playwright.sync_api import Error

    with suppress(Error):  # of a page that is being left
        page.evaluate("window.aotlens?.unsettle()")  # a scroll or a new size tells the page a frame later
    page.wait_for_function(
        """() => document.documentElement.dataset.settled === "true"
            || (document.readyState === "complete" && !document.querySelector("template.dash"))"""  # not the app's
    )


def choose(page: Page, action: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Act as a reader does (`choose(page, page.click, "#run")`), and wait until the page is at rest again."""
    action(*args, **kwargs)
    settled(page)


def act(action: Callable[..., Any], *args: Any) -> None:
    """Act while a test holds an answer back, so that the page cannot come to rest."""
    action(*args)


def head_drawn(page: Page, title: str) -> None:
    """Waits until the Heads page's large map is that head's: its title and what is drawn."""
    page.wait_for_function(
        """title => document.getElementById("heads-map-title")?.textContent === title
            && `Head ${document.getElementById("heads-map-canvas")?.dataset.head}` === title""",
        arg=title,
    )


def entry(page: Page, query: int, key: int, canvas: str = "heads-map-canvas") -> tuple[float, float]:
    """Where an entry of a large map is in the window: the Heads page's, or that of another canvas."""
    page.wait_for_function("id => document.getElementById(id)?.map?.place", arg=canvas)
    x, y = page.evaluate(
        """([query, key, id]) => { const { canvas, place, shown } = document.getElementById(id).map;
            const { left, top } = canvas.getBoundingClientRect(), unit = place.side / shown[2];
            return [left + place.left + (key + .5) * unit, top + place.top + (query + .5) * unit]; }""",
        [query, key, canvas],
    )
    return x, y


def focused(page: Page, selector: str) -> None:
    """Waits until the keyboard's focus is on what `selector` finds."""
    page.wait_for_function("selector => document.activeElement?.matches(selector)", arg=selector)


def in_the_first_screen(page: Page, panel: str) -> None:
    """Without scrolling at 1,440 × 900, the panel's content is there from its first line to its last."""
    settled(page)
    assert page.evaluate("scrollY") == 0
    there = page.locator(f"#{panel} .panel-content").bounding_box()
    assert there is not None, f"{panel} is not shown"
    assert there["height"] > 150, f"{panel} shows next to nothing"
    assert there["y"] + there["height"] <= 900, f"{panel} ends {there['y'] + there['height'] - 900:.0f} pixels too low"


def opened(page: Page, tab: str) -> None:
    """Open a tab by the name that it shows."""
    choose(page, page.get_by_role("tab", name=tab, exact=True).click)


def revealed(page: Page, panel: str) -> None:
    """Opens the tab that a panel is in, where it is in one that is shut, and scrolls to the panel."""
    page.locator(f"#{panel}").wait_for(state="attached")
    page.evaluate(
        """panel => {
            const body = document.getElementById(panel).closest(".mantine-Tabs-panel");
            const tab = body && document.getElementById(body.getAttribute("aria-labelledby"));
            if (tab && tab.getAttribute("aria-selected") !== "true") tab.click();
        }""",
        panel,
    )
    page.locator(f"#{panel}").scroll_into_view_if_needed()


def seen(page: Page, panel: str) -> None:
    """Goes to a panel, which is asked for only then, and waits until it is there."""
    revealed(page, panel)
    settled(page)


def fits(page: Page) -> None:
    """Check that nothing sticks out of the window once all is there, nor of one that is 390 pixels wide."""
    size = page.viewport_size
    assert size is not None
    for width in (size["width"], 390):
        page.set_viewport_size({"width": width, "height": size["height"]})
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size(size)
