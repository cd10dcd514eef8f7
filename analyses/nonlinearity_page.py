"""docs/nonlinearity.md from what the analyses have written: no analysis runs again.

    python -m analyses.nonlinearity_page [--out DIR] [--page docs/nonlinearity.md]

Puts every DIR/NAME.md that the page has marks for (`<!-- NAME -->`) between them, and names what has not been run.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from analyses._docs import write_section


def fill(page: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Write every section that `folder` has; the names of those written, and of those that it lacks."""
    names = re.findall(r"<!-- ([a-z0-9_]+) -->", page.read_text(encoding="utf-8"))
    written = [name for name in names if (folder / f"{name}.md").exists()]
    for name in written:
        write_section(page, name, (folder / f"{name}.md").read_text(encoding="utf-8"))
    return written, [name for name in names if name not in written]


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="where the analyses wrote (out)")
    options.add_argument("--page", type=Path, default=Path("docs/nonlinearity.md"), metavar="FILE")
    chosen = options.parse_args(argv)
    written, missing = fill(chosen.page, chosen.out)
    print(f"written: {', '.join(written) or 'nothing'}; not run: {', '.join(missing) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
