"""Prints the folders of tests to run with checked shapes after a change: `python -m tests.changed [SINCE]`.

`aotlens/NAME/` and `tests/NAME/` both ask for `tests/NAME`; a module in `aotlens/` itself and `tests/small_models.py`
ask for every package, and so does a commit that git does not know. Without SINCE it is where the branch left
`origin/main`, or on `origin/main` itself the commit before (of a merge: all that was merged). Imports are not followed,
and the app is left out: `make test-long` checks everything.
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


def git(*arguments: str) -> str | None:
    """What git prints, or None where it fails."""
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def main(since: str = "") -> None:
    if not since:
        fork = git("merge-base", "HEAD", "origin/main")
        since = fork if fork and fork != git("rev-parse", "HEAD") else "HEAD~1"
    changes = git("diff", "--name-only", since, "--")
    print(*folders(["aotlens/__init__.py"] if changes is None else changes.splitlines()))


if __name__ == "__main__":
    main(*sys.argv[1:])
