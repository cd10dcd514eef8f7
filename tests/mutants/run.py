"""Each mutant against the tests of its lines, in a copy of the tree and a process of its own.

The process that starts them has imported what everything here stands on (torch, numpy, pandas, ...) and nothing of the
project, and is forked for each few tests: a mutant pays for the project's own imports only. Tests come in batches of 1,
8 and 31 seconds, until one fails. A test that takes more than four times its usual processor time and 20 s besides is
stopped: its mutant died of time. A test that fails without any mutant too, alone in such a process, proves nothing, and
`killers_that_fail_anyway` finds those.
"""

from __future__ import annotations

import contextlib
import importlib
import json
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

from tests.mutants.covering import Covering
from tests.mutants.draw import PACKAGES, Mutant
from tests.mutants.patches import Change, locate

PRELOADED = (
    "torch", "numpy", "pandas", "scipy.stats", "sklearn.linear_model", "plotly.graph_objects", "plotly.io",
    "jaxtyping", "beartype", "hypothesis.extra.numpy", "pytest", "transformers", "transformer_lens",
    "safetensors.torch", "tokenizers", "joblib", "jinja2", "markdown_it", "typer", "dash", "dash_ag_grid",
    "dash_mantine_components", "flask",
)  # fmt: skip
BUDGET = 40.0  # seconds of processor time for a mutant, after which it has survived
BATCHES = (1.0, 8.0, 31.0)  # seconds of tests that are tried in one process
IMPORT_LIMIT = 120.0  # seconds of processor time until the first test starts
FAILED_TO_START = 70
SELECTED = "not browser and not long and not gpu and not network"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """killed, timeout (both by a test, or by the import of the tests), survived, uncovered (no test), or gone."""

    id: str
    outcome: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0
    """Of processor time."""

    @property
    def died(self) -> bool:
        return self.outcome in ("killed", "timeout")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What became of some tests in one process."""

    status: str
    """passed, failed, timeout, import (a module of tests could not be imported), or unknown (a test is not there)."""
    by: str
    seconds: float


def preload() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    for module in PRELOADED:
        try:
            importlib.import_module(module)
        except ImportError:
            print(f"{module} is not here, and is not imported beforehand.")
    importlib.import_module("torch").set_num_threads(1)


class Tree:
    """A copy of a tree, in which mutants are put one after another and tests run."""

    def __init__(self, source: Path, folder: Path, *, check_shapes: bool) -> None:
        self.root, self.scratch, self.check_shapes = folder / "tree", folder / "tmp", check_shapes
        shutil.rmtree(folder, ignore_errors=True)
        hidden = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "out", "runs", "_build")
        shutil.copytree(source, self.root, ignore=hidden)

    def run(self, names: Sequence[str], seconds: Mapping[str, float], options: Sequence[str] = ("-x",)) -> Batch:
        """The tests, in this order, in a fork of this process."""
        journal = self.root.parent / "journal"
        journal.write_text("")
        deadline = time.monotonic() + 300 + 20 * sum(seconds.get(name, 0) for name in names)  # for what only waits
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                code = self._in_child(names, seconds, options, journal)
            except BaseException:
                traceback.print_exc()
                code = FAILED_TO_START
            sys.stdout.flush()
            os._exit(code)
        while True:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        _end_group(child)
        spent = usage.ru_utime + usage.ru_stime
        last, failed, broken = "", "", False
        for line in journal.read_text().splitlines():
            kind, _, name = line.partition(" ")
            last = name if kind == "start" else last
            failed = failed or (name if kind == "failed" else "")
            broken = broken or kind == "broken"
        if os.WIFSIGNALED(status):
            stopped = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL)
            return Batch(status="timeout" if stopped else "failed", by=last, seconds=spent)
        code = os.WEXITSTATUS(status)
        if code == FAILED_TO_START:
            raise RuntimeError((self.root.parent / "log").read_text())
        word = {0: "passed", 4: "unknown", 5: "unknown"}.get(code, "failed" if failed else "import")
        return Batch(status="import" if broken else word, by=failed or last, seconds=spent)

    def _in_child(
        self, names: Sequence[str], seconds: Mapping[str, float], options: Sequence[str], journal: Path
    ) -> int:
        import pytest

        log = os.open(self.root.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "aotlens", "app")]:
            del sys.modules[name]
        outside = [entry for entry in sys.path if entry and not (Path(entry) / "aotlens").is_dir()]
        sys.path[:] = [str(self.root), *outside]
        others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry in outside]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.root), *others])
        os.chdir(self.root)
        sys.modules["__main__"] = types.ModuleType("__main__")  # or processes that a test starts would import this one
        if self.check_shapes:
            os.environ["AOTLENS_CHECK_SHAPES"] = "1"
        else:  # the conftest of an older tree checks them always
            importlib.import_module("jaxtyping").install_import_hook = lambda *args, **kwargs: None
        signal.setitimer(signal.ITIMER_PROF, IMPORT_LIMIT)
        with journal.open("a", buffering=1) as lines:
            watch = _Watch(lines, seconds)
            flags = ["-q", "-p", "no:cacheprovider", f"--basetemp={self.scratch}", "-m", SELECTED]
            flags += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are imported beforehand
            return int(pytest.main([*flags, *options, *names], plugins=[watch]))

    def collected(self) -> set[str]:
        """Every test that may be chosen."""
        self.run(["--collect-only"], {}, ())
        journal = (self.root.parent / "journal").read_text()
        return set(re.findall(r"^test (.*)$", journal, re.MULTILINE))

    def mutate(self, file: str, text: str) -> None:
        path = self.root / file
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()  # one of the same second and size would be taken for the new text's
        path.write_text(text, "utf-8")


class _Watch:
    """Notes in a file which test starts and which fails, and limits each test's processor time."""

    def __init__(self, lines, seconds: Mapping[str, float]) -> None:
        self.lines, self.seconds = lines, seconds

    def pytest_collection_finish(self, session) -> None:
        if session.config.option.collectonly:
            self.lines.writelines(f"test {item.nodeid}\n" for item in session.items)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.lines.write(f"broken {report.nodeid}\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.lines.write(f"start {nodeid}\n")
        signal.setitimer(signal.ITIMER_PROF, 20 + 4 * self.seconds.get(nodeid, 1.0))

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.lines.write(f"failed {report.nodeid}\n")


def _end_group(child: int) -> None:
    """What a test has started and left behind goes too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A mutant in the tree as it is now, and the tests that are tried on it, in this order."""

    id: str
    change: Change | None
    """None where its code is gone."""
    names: list[str]
    alone: bool
    """Whether the first of the tests killed it before, and is tried alone."""


def jobs(
    source: Path, mutants: Sequence[Mutant], covering: Covering, allowed: set[str], earlier: Mapping[str, Outcome]
) -> Iterator[Job]:
    """What is to be run for each mutant, with the `allowed` tests."""
    others = [path for package in PACKAGES for path in sorted((source / package).rglob("*.py"))]
    for mutant in mutants:
        change = locate(source, mutant, others)
        names = covering.tests(source, change, allowed) if change else []
        killer = earlier[mutant.id].by if mutant.id in earlier else ""
        if killer in allowed:
            names = [killer, *(name for name in names if name != killer)]
        yield Job(id=mutant.id, change=change, names=names, alone=killer in allowed)


def outcome(tree: Tree, job: Job, seconds: Mapping[str, float]) -> Outcome:
    """What becomes of a mutant; the tree is afterwards what it was."""
    if job.change is None:
        return Outcome(id=job.id, outcome="gone")
    original = (tree.root / job.change.file).read_text("utf-8")
    tree.mutate(job.change.file, job.change.text)
    spent, tried, status, by = 0.0, 0, "survived" if job.names else "uncovered", ""
    try:
        for some in batches(job.names, seconds, alone=job.alone):
            batch = tree.run(some, seconds)
            if batch.status == "unknown":  # a parameter is gone with the mutant: that alone fails no test
                functions = list(dict.fromkeys(name.partition("[")[0] for name in some))
                batch = tree.run(functions, seconds)
            spent, tried = spent + batch.seconds, tried + len(some)
            if batch.status != "passed":
                status = "timeout" if batch.status == "timeout" else "killed"
                by = batch.by if batch.by and batch.status in ("failed", "timeout") else "import"
                break
            if spent > BUDGET:
                break
    finally:
        tree.mutate(job.change.file, original)
    return Outcome(id=job.id, outcome=status, by=by, tests=tried, seconds=round(spent, 1))


def batches(names: list[str], seconds: Mapping[str, float], *, alone: bool) -> Iterator[list[str]]:
    """The tests in processes of 1, 8 and 31 seconds; the first one alone where it is known to kill."""
    rest = list(names)
    if alone:
        yield [rest.pop(0)]
    for limit in BATCHES:
        some: list[str] = []
        total = 0.0
        while rest and (not some or total + seconds[rest[0]] <= limit):
            total += seconds[rest[0]]
            some.append(rest.pop(0))
        if some:
            yield some


def killers_that_fail_anyway(tree: Tree, outcomes: Sequence[Outcome], seconds: Mapping[str, float]) -> set[str]:
    """Of the tests that killed: those that fail in the tree without a mutant."""
    names = sorted({outcome.by for outcome in outcomes if outcome.died and outcome.by not in ("", "import")})
    if not names:
        return set()
    batch = tree.run(names, seconds, ())
    journal = (tree.root.parent / "journal").read_text()
    return set(re.findall(r"^failed (.*)$", journal, re.MULTILINE)) | (
        {batch.by} if batch.status == "timeout" else set()
    )


def read_outcomes(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return {record["id"]: Outcome(**record) for record in records}
