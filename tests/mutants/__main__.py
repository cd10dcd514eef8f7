"""Mutants of the library against the tests of their lines: `make mutants`.

    make mutants ARGS=--cover                    # record which test runs which line (half again as long as the suite)
    make mutants ARGS="--sample 300 --seed 0"    # run the sample kept in seed0.jsonl; draw it where there is none
    make mutants ARGS=--check-shapes             # those that lived, once more with shapes and types checked

Prints each mutant's outcome, then a table by package. With outcomes of an earlier run beside the patches
(`seed0-results.jsonl`; `--store` replaces them) a mutant is first tried with the test that killed it then, and the exit
status is 1 where one that died lives. Outcomes are noted in out/mutants as they come, and a run that was interrupted
goes on from there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests import durations
from tests.mutants.covering import Covering
from tests.mutants.draw import Mutant, draw
from tests.mutants.run import SELECTED, Outcome, Runner, preload

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many are run; drawn where none are kept")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--cover", action="store_true", help="record which test runs which line, and end")
    parser.add_argument("--check-shapes", action="store_true", help="the survivors, with shapes and types checked")
    parser.add_argument("--only", nargs="*", metavar="ID", help="these mutants alone")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree that is mutated and tested")
    parser.add_argument("--coverage", type=Path, help="contexts of its tests (default: those of --cover)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants", help="where outcomes are noted")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", action="store_true", help="keep the outcomes beside the patches")
    args = parser.parse_args(argv)
    args.tree, args.out = args.tree.resolve(), args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    coverage = args.coverage or args.out / ".coverage"
    if args.cover:
        flags = ("-n", str(args.workers), *SELECTED, "--cov", "--cov-context=test", "--cov-report=")
        command = [sys.executable, "-m", "pytest", "-q", *flags]
        return subprocess.call(command, cwd=args.tree, env={**os.environ, "COVERAGE_FILE": str(coverage)})
    patches, stored = HERE / f"seed{args.seed}.jsonl", HERE / f"seed{args.seed}-results.jsonl"
    if not patches.exists():
        drawn = draw(args.tree, args.sample, args.seed)
        patches.write_text("".join(json.dumps(asdict(mutant)) + "\n" for mutant in drawn), "utf-8")
        print(f"{len(drawn)} mutants are in {patches.relative_to(ROOT)}.")
    mutants = [Mutant(**json.loads(line)) for line in patches.read_text("utf-8").splitlines()][: args.sample]
    if not coverage.exists():
        raise SystemExit(f"{coverage}: expected a record of which test runs which line; make mutants ARGS=--cover")
    earlier = read_outcomes(stored)
    if args.check_shapes:
        survivors = {name for name, was in read_outcomes(args.out / "last.jsonl").items() if was.outcome == "survived"}
        mutants = [mutant for mutant in mutants if mutant.id in survivors]
    if args.only:
        mutants = [mutant for mutant in mutants if mutant.id in args.only]
    journal = args.out / ("outcomes-shapes.jsonl" if args.check_shapes else "outcomes.jsonl")
    outcomes = run(args, mutants, coverage, earlier, journal)
    print(table(mutants, outcomes))
    journal.replace(args.out / ("last-shapes.jsonl" if args.check_shapes else "last.jsonl"))
    if args.store and not args.check_shapes:
        lines = (json.dumps(asdict(outcome)) + "\n" for _, outcome in sorted((earlier | outcomes).items()))
        stored.write_text("".join(lines), "utf-8")
    now = {name: outcomes[name].outcome for name, was in earlier.items() if was.died and name in outcomes}
    for name, outcome in now.items():
        if outcome == "gone":
            print(f"{name} died before, and its code is gone.")
        elif not outcomes[name].died:
            print(f"{name} died before, by {earlier[name].by}, and lives.")
    return int(any(outcome in ("survived", "uncovered") for outcome in now.values()))


def run(
    args: argparse.Namespace, mutants: list[Mutant], coverage: Path, earlier: dict[str, Outcome], journal: Path
) -> dict[str, Outcome]:
    """The outcome of each mutant; each is noted when it is known."""
    preload()
    first = Runner(args.tree, args.out / "trees" / "first", check_shapes=args.check_shapes)
    known = first.collected()
    covering = Covering(coverage, durations.estimates(sorted(known)))
    print(f"{len(known)} tests, {len(mutants)} mutants, {args.workers} at a time.", flush=True)
    refused: set[str] = set()
    while True:
        noted = read_outcomes(journal)
        outcomes = {name: was for name, was in noted.items() if not (was.died and was.by in refused)}
        todo = [mutant for mutant in mutants if mutant.id not in outcomes]
        context = multiprocessing.get_context("fork")
        pool = ProcessPoolExecutor(args.workers, context, _start_worker, (args, covering, known - refused))
        with pool, journal.open("a", encoding="utf-8") as lines:
            killers = {name: was.by for name, was in earlier.items()}
            pending = [pool.submit(_outcome, mutant, killers.get(mutant.id, "")) for mutant in todo]
            for future in as_completed(pending):
                outcome = future.result()
                outcomes[outcome.id] = outcome
                lines.write(json.dumps(asdict(outcome)) + "\n")
                lines.flush()
                number = f"{len(outcomes):4} {outcome.id:16}"
                print(f"{number} {outcome.outcome:9} {outcome.seconds:6.1f} s  {outcome.by}", flush=True)
            tests = sorted({outcome.by for outcome in outcomes.values() if outcome.by in known})
            failing = pool.submit(_failing_anyway, tests).result()
        if not failing:
            return outcomes
        print("Without a mutant these fail too, and do not count:", *sorted(failing), sep="\n  ")
        refused |= failing


_worker: tuple[Runner, Covering, set[str]] | None = None


def _start_worker(args: argparse.Namespace, covering: Covering, allowed: set[str]) -> None:
    global _worker
    folder = args.out / "trees" / multiprocessing.current_process().name
    _worker = Runner(args.tree, folder, check_shapes=args.check_shapes), covering, allowed


def _outcome(mutant: Mutant, killer: str) -> Outcome:
    assert _worker is not None
    runner, covering, allowed = _worker
    return runner.outcome(mutant, covering, allowed, killer)


def _failing_anyway(tests: list[str]) -> set[str]:
    assert _worker is not None
    runner, covering, _ = _worker
    return runner.failing_anyway(tests, covering.seconds)


def read_outcomes(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return {record["id"]: Outcome(**record) for record in records}


def table(mutants: list[Mutant], outcomes: dict[str, Outcome]) -> str:
    """Rows by package, as Markdown."""
    kinds = ("killed", "timeout", "survived", "uncovered", "gone")
    rows = ["| package | mutants | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 2) + "|"]
    packages = dict.fromkeys(mutant.id.rpartition("-")[0] for mutant in mutants)
    for package in [*packages, ""]:
        some = [outcomes[mutant.id] for mutant in mutants if mutant.id.startswith(package)]
        counts = Counter(outcome.outcome for outcome in some)
        cells = [package or "all", str(len(some)), *(str(counts[kind]) for kind in kinds)]
        rows.append("| " + " | ".join(cells) + " |")
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    return "\n".join([*rows, "", f"{seconds / 60:.0f} minutes of processor time."])


if __name__ == "__main__":
    raise SystemExit(main())
