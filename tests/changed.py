"""Print what a change asks CI to run: `python -m tests.changed WHAT [SINCE]`.

`shapes`: the folders of tests that run with shapes and types checked. `aotlens/NAME/` and `tests/NAME/` ask for
`tests/NAME`, a module in `aotlens/` itself for every package. `pages`: the folders of pages whose journeys run
(`make test-long`). A page's own folder asks for that page; `app/shell`, `app/core`, another module of `app/` and
`aotlens/widget` ask for every page, and `aotlens/views/NAME….py` for the page NAME; each of these asks for the kinds of
panels, too (`tests/app/declared`). `site`: the word "site" if the site
has to be built, for its pages, examples or docstrings have changed (the changelog alone does not count).

Without SINCE it is the last commit that is a day older than the newest, so that a clone of main checks what the latest
work touched; a commit that git does not know asks for everything. Imports are not followed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    folder.name for folder in (ROOT / "tests").iterdir() if (ROOT / "aotlens" / folder.name / "__init__.py").exists()
)
PAGES = sorted(
    page.stem
    for page in (ROOT / "app/pages").iterdir()
    if (page.suffix == ".py" or (page / "__init__.py").exists()) and (ROOT / "tests/app" / page.stem).is_dir()
)
_A_DAY = 24 * 60 * 60
_EVERYTHING = ["aotlens/__init__.py", "app/factory.py", "docs/index.md"]


def folders(paths: Iterable[str]) -> list[str]:
    """The folders of tests of packages that these changed files ask for."""
    python = [Path(path).parts for path in paths if path.endswith((".py", ".toml"))]
    everything = any(parts[0] == "aotlens" and len(parts) == 2 for parts in python)
    changed = {parts[1] for parts in python if len(parts) > 2 and parts[0] in ("aotlens", "tests")}
    return [f"tests/{name}" for name in PACKAGES if everything or name in changed]


def pages(paths: Iterable[str]) -> list[str]:
    """The folders of tests of pages that these changed files ask for."""
    code = [Path(path) for path in paths if path.endswith((".py", ".js", ".css"))]

    def asks(name: str, path: Path) -> bool:
        module = path == Path(f"app/pages/{name}.py")
        own = module or path.is_relative_to(f"app/pages/{name}") or path.is_relative_to(f"tests/app/{name}")
        shared = path.parts[0] == "app" and path.parts[1] != "pages"
        view = path.parent == Path("aotlens/views") and path.stem.startswith(name)
        return own or shared or view or path.is_relative_to("aotlens/widget")

    asked = [f"tests/app/{name}" for name in PAGES if any(asks(name, path) for path in code)]
    kinds = ("app", "aotlens/views", "aotlens/widget", "tests/app/declared")
    declared = any(path.is_relative_to(folder) for path in code for folder in kinds)
    return [*asked, "tests/app/declared"] if declared else asked


def site(paths: Iterable[str], since: str) -> bool:
    """Whether the site's pages, examples, or the docstrings of the library differ from those of the commit `since`."""
    return any(
        path.startswith(("docs/", "tests/docs/")) or path in ("README.md", "CONTRIBUTING.md", "analyses/README.md")
        or (path.startswith("aotlens/") and path.endswith(".py") and _documented(path, since) != _documented(path))
        for path in paths
    )  # fmt: skip


def _documented(path: str, commit: str | None = None) -> list[str | None]:
    """The docstrings and signatures of a file, as it is now or was at a commit; none if it does not exist."""
    file = ROOT / path
    text = _git("show", f"{commit}:{path}") if commit else file.read_text("utf-8") if file.exists() else ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    signatures = [ast.unparse(node.args) for node in nodes if isinstance(node, ast.FunctionDef)]
    return [*map(ast.get_docstring, nodes), *signatures]


def _git(*arguments: str) -> str:
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def main(what: str, since: str = "") -> None:
    newest = _git("log", "-1", "--format=%ct")
    since = since or (_git("rev-list", "-1", f"--before={int(newest) - _A_DAY}", "HEAD") if newest else "")
    paths = _git("diff", "--name-only", since, "--").splitlines() if since else _EVERYTHING
    if what == "site":
        print("site" if site(paths, since) else "")
    else:
        print(*{"shapes": folders, "pages": pages}[what](paths))


if __name__ == "__main__":
    main(*sys.argv[1:])
