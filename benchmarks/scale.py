"""What every headline analysis costs at which size: measured points, fitted exponents, what larger models would take.

    python -m benchmarks.scale [--out FILE.json] [--docs docs/scale.md] [--only circuits,atlas] [--minutes 4] [--quick]

One axis at a time from a stated middle: vocabulary 1k to 128k, layers 1 to 24, heads 4 to 720 in all, width 128 to
4,096, tokens 16 to 1,024. Models are untrained, since what weights are does not change what a product costs; where
weights decide how much is searched, a bundled trained checkpoint is measured beside an untrained model of its shape.
Each point has a process of its own with its own peak of memory, and `--threads` threads (1). A point whose law, from
the last one of its series, says that it takes more than `--seconds` or `--memory-gb` is skipped and shown as skipped.

`--out` keeps the points: one that stands there is not measured again, so that a run goes on after Ctrl-C or
`--minutes`. `--docs PAGE` writes the page's section and the figure beside it from what stands in `--out`.
`--device cuda` measures a GPU: wall time and the GPU's own memory.

Expected: 15 to 20 minutes on one quiet core, 8 GB; `--quick` takes seconds, and its exponents mean nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks import _common
from benchmarks._scale.headline import HEADLINES
from benchmarks._scale.series import Bounds, Points, about, run
from benchmarks._scale.tables import exponent_rows, write_page


def main(argv: list[str] | None = None) -> int:
    options = _common.parser(__doc__)
    options.add_argument("--out", type=Path, metavar="FILE", help="keep the points in this file, and go on from it")
    options.add_argument("--docs", type=Path, metavar="PAGE", help="write the tables and the figure of this page")
    options.add_argument("--only", default=",".join(HEADLINES), help="analyses, by comma: %(default)s")
    options.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    options.add_argument("--seconds", type=float, default=20, help="most seconds of one call (%(default)s)")
    options.add_argument("--memory-gb", type=float, default=8, help="most memory of one process (%(default)s)")
    options.add_argument("--minutes", type=float, help="begin no point after so many minutes")
    options.add_argument("--no-run", action="store_true", help="measure nothing; tables of what stands in --out")
    chosen = options.parse_args(argv)
    names = chosen.only.split(",")
    if unknown := sorted(set(names) - set(HEADLINES)):
        options.error(f"--only: expected some of {', '.join(HEADLINES)}; got {', '.join(unknown)}.")
    until = float("inf") if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    bounds = Bounds(seconds=chosen.seconds, memory_bytes=chosen.memory_gb * 1e9, until=until)
    try:
        if chosen.no_run and chosen.out is not None:
            points, complete = Points.read(chosen.out), True
        else:
            points = Points.open(chosen.out, about(chosen.device, chosen.threads or 1, chosen.quick))
            complete = run(points, names, bounds, lambda line: print(f"  {line}", file=sys.stderr, flush=True))
        if chosen.docs is not None:
            write_page(chosen.docs, points)
    except ValueError as error:
        print(f"scale: {error}", file=sys.stderr)
        return 2
    if rows := exponent_rows(points, names):
        _common.report("scale", rows, chosen.json)
    if not complete:
        print("The time is over and points are missing; the same command goes on.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
