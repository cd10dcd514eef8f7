"""The cost of every headline analysis by size: measured points, exponents, and estimates for larger models.

    python -m benchmarks.scale [--out FILE.json] [--docs docs/scale.md] [--only circuits,atlas] [--minutes 4] [--quick]

One axis is varied at a time: vocabulary 1k to 128k, layers 1 to 24, heads 4 to 720 in all, width 128 to 4,096, tokens
16 to 1,024. Models are untrained. Each point has a process of its own with its own peak of memory, and `--threads`
threads (1). A point that its law predicts, from the last one of its series, to take more than `--seconds` or
`--memory-gb` is skipped.

`--out` keeps the points: a run resumes after Ctrl-C or `--minutes`. `--docs PAGE` writes the page's section from them.
`--device cuda` measures a GPU: wall time and the GPU's own memory.

Expected: 15 to 20 minutes on one quiet core, 8 GB; `--quick` takes seconds, and its exponents mean nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks import _common
from benchmarks._scale.analyses import HEADLINES
from benchmarks._scale.page import exponent_rows, write_page
from benchmarks._scale.points import Bounds, Points, about, run


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--out", type=Path, metavar="FILE", help="keep the points in this file, and go on from it")
    options.add_argument("--docs", type=Path, metavar="PAGE", help="write the tables of this page")
    options.add_argument("--only", default=",".join(HEADLINES), help="analyses, by comma: %(default)s")
    options.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    options.add_argument("--seconds", type=float, default=20, help="most seconds of one call (%(default)s)")
    options.add_argument("--memory-gb", type=float, default=8, help="most memory of one process (%(default)s)")
    options.add_argument("--minutes", type=float, help="begin no point after so many minutes")
    options.add_argument("--no-run", action="store_true", help="measure nothing; tables of what stands in --out")
    arguments = options.parse_args(argv)
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(HEADLINES)):
        options.error(f"--only: expected some of {', '.join(HEADLINES)}; got {', '.join(unknown)}.")
    until = float("inf") if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    bounds = Bounds(seconds=arguments.seconds, memory_bytes=arguments.memory_gb * 1e9, until=until)
    try:
        if arguments.no_run and arguments.out is not None:
            points, complete = Points.read(arguments.out), True
        else:
            points = Points.open(arguments.out, about(arguments.device, arguments.threads or 1, arguments.quick))
            complete = run(points, names, bounds, lambda line: print(f"  {line}", file=sys.stderr, flush=True))
        if arguments.docs is not None:
            write_page(arguments.docs, points)
    except ValueError as error:
        print(f"scale: {error}", file=sys.stderr)
        return 2
    if rows := exponent_rows(points, names):
        _common.report("scale", rows, arguments.json)
    if not complete:
        print("The time is over and points are missing; the same command goes on.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
