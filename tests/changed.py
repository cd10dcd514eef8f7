"""Prints the folders of tests to run with checked shapes after a change: `python -m tests.changed [SINCE]`.

`aotlens/NAME/` and `tests/NAME/` both ask for `tests/NAME`; a module in `aotlens/` itself asks for every package, and
so does a commit that git does not know. Without SINCE it is the last commit that is a day older than the newest, so
that a clone of main checks what the latest work touched. Imports are not followed, and the app is left out:
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
_A_DAY = 24 * 60 * 60


def folders(paths: Iterable[str]) -> list[str]:
    """The folders of tests that these changed files ask for."""
    python = [Path(path).parts for path in paths if path.endswith((".py", ".toml"))]
    everything = any(parts[0] == "aotlens" and len(parts) == 2 for parts in python)
    changed = {parts[1] for parts in python if len(parts) > 2 and parts[0] in ("aotlens", "tests")}
    return [f"tests/{name}" for name in PACKAGES if everything or name in changed]


def _git(*arguments: str) -> str:
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def main(since: str = "") -> None:
    newest = _git("log", "-1", "--format=%ct")
    since = since or (_git("rev-list", "-1", f"--before={int(newest) - _A_DAY}", "HEAD") if newest else "")
    paths = _git("diff", "--name-only", since, "--").splitlines() if since else ["aotlens/__init__.py"]
    print(*folders(paths))


if __name__ == "__main__":
    main(*sys.argv[1:])
