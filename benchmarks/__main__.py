"""Run the measurements of this folder, each in a process of its own: `python -m benchmarks [NAME ...] [--OPTION ...]`.

NAME is a module here, without `.py`; without names, all of them run. Options go to each module's `main`; every one
knows `--help` and `--quick`. Figures are printed; a measurement that fails its own check ends with a status above 0,
and so does this.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def names() -> list[str]:
    """List the measurements there are: every module here that doesn't start with an underscore."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    # Names come first: what follows the first option may be an option's value.
    first_option = next((i for i, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    requested, options = arguments[:first_option], arguments[first_option:]
    unknown = sorted(set(requested) - set(names()))
    if unknown:
        print(f"No such measurement: {', '.join(unknown)}. There are: {', '.join(names())}.", file=sys.stderr)
        return 2
    if not requested and options == ["--help"]:
        print(__doc__, f"There are: {', '.join(names())}.", sep="\n")
        return 0
    failed = []
    for name in requested or names():
        print(f"== {name}", flush=True)
        # A fresh process, so that one's memory and warm caches are not another's.
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
