"""Prints the folders of tests to run with checked shapes after a change: `python -m tests.changed HEAD~1`.

`aotlens/NAME/` and `tests/NAME/` both ask for `tests/NAME`; a module in `aotlens/` itself and `tests/small_models.py` ask
for every package, and so does a commit that git does not know. Imports are not followed, and the app is left out:
`make test-long` checks everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    folder.name for folder in (ROOT / "tests").iterdir() if (ROOT / "aotlens" / folder.name / "__init__.py").exists()
)


def folders(paths: Iterable[str]) -> list[str]:
    """The folders of tests that these changed files ask for."""
    python = [Path(path).parts for path in paths if path.endswith((".py", ".toml"))]
    shared = any(parts[0] in ("aotlens", "tests") and len(parts) == 2 and _shared(parts) for parts in python)
    changed = {parts[1] for parts in python if len(parts) > 2 and parts[0] in ("aotlens", "tests")}
    return [f"tests/{name}" for name in PACKAGES if shared or name in changed]


def _shared(parts: tuple[str, ...]) -> bool:
    return parts[0] == "aotlens" or parts[1] == "small_models.py"


def main(since: str = "HEAD~1") -> None:
    """Where git does not know the commit, everything counts as changed."""
    command = ["git", "diff", "--name-only", since, "--"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    paths = answer.stdout.splitlines() if answer.returncode == 0 else ["aotlens/__init__.py"]
    print(*folders(paths))


if __name__ == "__main__":
    main(*sys.argv[1:])
