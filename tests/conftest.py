"""What every test gets: a seed named in failures, an order, a browser, reasons for what is skipped."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

from tests import durations

if TYPE_CHECKING:
    from playwright.sync_api import Browser

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: one worker a core, and no more threads than cores

# A proxy must not stand between a test and the server that it has started.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

SEED = int(os.environ.get("AOTLENS_SEED", "0"))
ON_CI = os.environ.get("CI", "").lower() in ("1", "true")

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if ON_CI else "default")

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = (
    "--no-sandbox",  # a container's root user has no sandbox
    "--disable-dev-shm-usage",  # nor much of a /dev/shm
    "--no-proxy-server",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    group = parser.getgroup("aotlens")
    group.addoption("--check-shapes", action="store_true", help="check annotated shapes and types at every call")
    group.addoption(
        "--but-shapes", default="", help="folders of a --check-shapes run: here, what it leaves out of them"
    )
    group.addoption("--store-durations", action="store_true", help="store what tests took in tests/durations.json")
    config = pluginmanager.get_plugin("pytestconfig")
    assert config is not None
    asked = parser.parse_known_args(config.invocation_params.args).check_shapes
    if asked or getattr(config.option, "check_shapes", False):  # the latter in a worker
        from tests import checker

        checker.install()  # before any import of aotlens: conftests of the given folders are loaded next


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("check_shapes") and sys.gettrace() is None:
        # Neither checks, coverage nor a debugger count against a test.
        config.pluginmanager.register(durations.Limit(), "limit-of-seconds")
    if config.getoption("store_durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto` is half as many workers again as cores: tests with a browser wait more than they compute."""
    return round(1.5 * len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_report_header(config: pytest.Config) -> str:
    checked = ", shapes checked" if config.getoption("check_shapes") else ""
    return f"seed: {SEED} (AOTLENS_SEED={SEED}){checked}"


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order by stored durations; mark what opens the browser; skip what this machine or run cannot do, saying how."""
    durations.longest_first(items)
    for item in items:
        if item.get_closest_marker("minutes"):
            item.add_marker("long")
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            if os.environ.get("CI"):  # the summary names what failed once
                item.add_marker(pytest.mark.flaky(reruns=1))
    once = ("unchecked", "slow", "browser")  # which a run with checked shapes leaves out
    folders = [config.rootpath / folder for folder in config.getoption("but_shapes").split()]
    items[:] = [
        item
        for item in items
        if any(map(item.get_closest_marker, once)) or not any(map(item.path.is_relative_to, folders))
    ]
    checked = "types are checked in this run" if config.getoption("check_shapes") else None
    reasons = {"gpu": _no_gpu(items), "network": _no_network(), "unchecked": checked}
    for item in items:
        for name, reason in reasons.items():
            if reason and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a run that checks types, of every module of aotlens that is there by now."""
    if session.config.getoption("check_shapes"):
        ours = [name for name in sys.modules if name.partition(".")[0] == "aotlens"]
        bare = [name for name in ours if type(sys.modules[name].__loader__).__module__.partition(".")[0] != "jaxtyping"]
        assert not bare, f"imported before --check-shapes could check them: {', '.join(bare)}"


def _no_gpu(items: list[pytest.Item]) -> str | None:
    if not any(item.get_closest_marker("gpu") for item in items):
        return None  # and torch need not be imported to know
    import torch

    if torch.cuda.is_available():
        return None
    return "needs an NVIDIA GPU and PyTorch's CUDA build; there, run: make test ARGS='-m gpu'"


def _no_network() -> str | None:
    if os.environ.get("AOTLENS_NETWORK") == "1":
        return None
    return "downloads; run: AOTLENS_NETWORK=1 make test ARGS='-m network'"


def seed_everything() -> None:
    random.seed(SEED)
    np.random.seed(SEED)
    torch = sys.modules.get("torch")  # what has not imported it has nothing to seed
    if torch is not None:
        torch.manual_seed(SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before the fixtures of every test, so that none depends on which tests ran earlier."""
    seed_everything()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("seed", f"AOTLENS_SEED={SEED}"))
    return report


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; `AOTLENS_SEED` chooses another."""
    return SEED


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of its own for each test."""
    return np.random.default_rng(SEED)


@pytest.fixture
def real_bundled_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The app's tests hide the bundled checkpoints for a whole session; and none of the user's own come in between."""
    from aotlens.checkpoints import bundled_folder

    monkeypatch.setattr("aotlens.checkpoints.catalog.bundled_folder", bundled_folder)
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))


BERT_WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "far", ".", ",", "he", "she", "it", "was"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of a few thousand weights, saved as Hugging Face saves one, and read as it would be from its hub."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join([*BERT_SPECIAL, *BERT_WORDS]))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(BERT_WORDS) + len(BERT_SPECIAL), hidden_size=24, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


def find_chromium() -> str | None:
    """The browser's path: AOTLENS_CHROMIUM if set, else the first known name on PATH or in /usr/bin."""
    chosen = os.environ.get("AOTLENS_CHROMIUM")
    if chosen:
        return shutil.which(chosen)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/bin"])
    return next(filter(None, (shutil.which(name, path=path) for name in CHROMIUM_NAMES)), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless Chromium for the session. Each test opens a context of its own: `chromium.new_context()`."""
    executable = find_chromium()
    if executable is None:
        chosen = os.environ.get("AOTLENS_CHROMIUM")
        reason = (
            f"AOTLENS_CHROMIUM={chosen} is not an executable"
            if chosen
            else "no Chromium here; apt-get install chromium, or set AOTLENS_CHROMIUM=/path/to/chromium"
        )
        if ON_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()
