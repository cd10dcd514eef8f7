"""Each mutant against the tests of its lines, in a copy of the tree and a process of its own.

The process that starts them has imported what everything here stands on (torch, numpy, pandas, ...) and nothing of the
project, and is forked for each few tests: a mutant pays for the project's own imports only. Tests come in batches of 1,
8 and 31 seconds, until one fails. A test that takes more than four times its usual processor time and 20 s besides is
stopped: its mutant died of time. A test that fails without any mutant too, alone in such a process, proves nothing, and
`failing_anyway` finds those.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import time
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tests.mutants.covering import Covering
from tests.mutants.draw import PACKAGES, Mutant
from tests.mutants.patches import locate

PRELOADED = (
    "torch", "numpy", "pandas", "scipy.stats", "sklearn.linear_model", "plotly.graph_objects", "plotly.io",
    "jaxtyping", "beartype", "hypothesis.extra.numpy", "pytest", "transformers", "transformer_lens",
    "safetensors.torch", "tokenizers", "joblib", "jinja2", "markdown_it", "typer", "dash",
    "dash_mantine_components", "flask",
)  # fmt: skip
BUDGET = 40.0  # seconds of processor time for a mutant, after which it has survived
BATCHES = (1.0, 8.0, 31.0)  # seconds of tests that are tried in one process
IMPORT_LIMIT = 120.0  # seconds of processor time until the first test starts
FAILED_TO_START = 70
SELECTED = ("-m", "not browser and not long and not gpu and not network")
FLAGS = (
    "-q", "-p", "no:cacheprovider", *SELECTED,
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of plugins that are imported beforehand
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """killed or timeout (by a test, or by "import": no test could start), survived, uncovered (no test), or gone."""

    id: str
    outcome: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0
    """Of processor time."""

    @property
    def died(self) -> bool:
        return self.outcome in ("killed", "timeout")


def preload() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    for module in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    importlib.import_module("torch").set_num_threads(1)


class Runner:
    """A copy of a tree, in which mutants are put one after another and tests run."""

    def __init__(self, source: Path, folder: Path, *, check_shapes: bool) -> None:
        self.source, self.folder, self.root, self.check_shapes = source, folder, folder / "tree", check_shapes
        shutil.rmtree(folder, ignore_errors=True)
        hidden = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "out", "runs", "_build")
        shutil.copytree(source, self.root, ignore=hidden)

    def outcome(self, mutant: Mutant, covering: Covering, allowed: set[str], killer: str = "") -> Outcome:
        """What becomes of a mutant under the `allowed` tests of its lines; `killer`, which killed it before, is tried
        first and alone. The tree is afterwards what it was."""
        others = (path for package in PACKAGES for path in sorted((self.source / package).rglob("*.py")))
        change = locate(self.source, mutant, others)
        if change is None:
            return Outcome(id=mutant.id, outcome="gone")
        names = covering.tests(self.source, change, allowed)
        known = [[killer]] if killer in allowed else []
        spent, tried, status, by = 0.0, 0, "survived" if names or known else "uncovered", ""
        self._write(change.file, change.text)
        try:
            for some in (*known, *batches(names, covering.seconds)):
                result, test, seconds = self.run(some, covering.seconds)
                if result == "unknown":  # a parameter is gone with the mutant: that alone fails no test
                    functions = list(dict.fromkeys(name.partition("[")[0] for name in some))
                    result, test, seconds = self.run(functions, covering.seconds)
                spent, tried = spent + seconds, tried + len(some)
                if result != "passed":
                    status, by = "timeout" if result == "timeout" else "killed", test or "import"
                if result != "passed" or spent > BUDGET:
                    break
        finally:
            self._write(change.file, (self.source / change.file).read_text("utf-8"))
        return Outcome(id=mutant.id, outcome=status, by=by, tests=tried, seconds=round(spent, 1))

    def collected(self) -> set[str]:
        """Every test that may be chosen."""
        self.run(["--collect-only"], {})
        return set(self._noted("collected"))

    def failing_anyway(self, names: Sequence[str], seconds: Mapping[str, float]) -> set[str]:
        """Those of the tests that fail in the tree without a mutant."""
        result, test, _ = self.run(names, seconds, "--maxfail=1000") if names else ("passed", "", 0.0)
        return {*self._noted("failed"), *([test] if result == "timeout" else [])} if names else set()

    def run(self, names: Sequence[str], seconds: Mapping[str, float], *options: str) -> tuple[str, str, float]:
        """The tests, in this order, in a fork of this process: what came of them, by which test, and processor time.

        passed, failed, timeout, import (a module of tests could not be imported), or unknown (a test is not there).
        """
        (self.folder / "journal").write_text("")
        deadline = time.monotonic() + 300 + 20 * sum(seconds.get(name, 0) for name in names)  # for what only waits
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._in_child([*FLAGS, f"--basetemp={self.folder / 'tmp'}", *(options or ("-x",)), *names], seconds)
        while not (ended := os.wait4(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # what a test has started and left behind
        _, status, usage = ended
        spent, code = usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)
        started, failed = self._noted("start"), self._noted("failed")
        if code == FAILED_TO_START:
            raise RuntimeError((self.folder / "log").read_text())
        if code < 0:
            stopped = -code in (signal.SIGPROF, signal.SIGKILL)
            return "timeout" if stopped else "failed", started[-1] if started else "", spent
        if self._noted("broken") or (code not in (0, 4, 5) and not failed):
            return "import", "", spent
        return {0: "passed", 4: "unknown", 5: "unknown"}.get(code, "failed"), failed[0] if failed else "", spent

    def _in_child(self, arguments: list[str], seconds: Mapping[str, float]) -> None:
        """pytest, as if this process had been started in the tree; never returns."""
        code = FAILED_TO_START
        try:
            os.setsid()
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
                os.dup2(file, number)
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "aotlens", "app")]:
                del sys.modules[name]
            sys.meta_path[:] = [finder for finder in sys.meta_path if "jaxtyping" not in type(finder).__module__]
            sys.modules["__main__"] = types.ModuleType("__main__")  # or processes that tests start would import ours
            outside = [entry for entry in sys.path if entry and not (Path(entry) / "aotlens").is_dir()]
            sys.path[:] = [str(self.root), *outside]
            others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry in outside]
            os.environ["PYTHONPATH"] = os.pathsep.join([str(self.root), *others])
            os.chdir(self.root)
            # A mutant that makes a test slow is no dead one, as long as the test passes.
            arguments = [*arguments, "-p", "no:limit-of-seconds", *["--check-shapes"] * self.check_shapes]
            signal.setitimer(signal.ITIMER_PROF, IMPORT_LIMIT)
            with (self.folder / "journal").open("a", buffering=1) as journal:
                code = int(importlib.import_module("pytest").main(arguments, plugins=[_Watch(journal, seconds)]))
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _noted(self, kind: str) -> list[str]:
        return re.findall(rf"^{kind} (.*)$", (self.folder / "journal").read_text(), re.MULTILINE)

    def _write(self, file: str, text: str) -> None:
        path = self.root / file
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # one of the same second and size would be taken for the new text's
        path.write_text(text, "utf-8")


class _Watch:
    """Notes which test starts and which fails, and limits each test's processor time."""

    def __init__(self, journal: TextIO, seconds: Mapping[str, float]) -> None:
        self.journal, self.seconds = journal, seconds

    def pytest_collection_finish(self, session: Any) -> None:
        if session.config.option.collectonly:
            self.journal.writelines(f"collected {item.nodeid}\n" for item in session.items)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.journal.write(f"broken {report.nodeid}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.journal.write(f"start {nodeid}\n")
        signal.setitimer(signal.ITIMER_PROF, 20 + 4 * self.seconds.get(nodeid, 1.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.journal.write(f"failed {report.nodeid}\n")


def batches(names: Sequence[str], seconds: Mapping[str, float]) -> Iterator[list[str]]:
    """The tests for processes of 1, 8 and 31 seconds; each has one test at least."""
    rest = list(names)
    for limit in BATCHES:
        some: list[str] = []
        while rest and (not some or sum(seconds[name] for name in (*some, rest[0])) <= limit):
            some.append(rest.pop(0))
        if some:
            yield some
