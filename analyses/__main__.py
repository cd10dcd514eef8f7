"""The analyses of the papers: `python -m analyses` lists them, `python -m analyses NAME [--OPTION ...]` runs one.

`python -m analyses --quick --corpus dir:PATH` runs all of them, small, each in a process of its own; those that read
text are left out without --corpus, and said to be. An analysis is a module here whose docstring opens with its paper.
README.md beside it has a row for each: what is claimed, how long it takes, and what was found.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def analyses() -> dict[str, str]:
    """Return the docstring of each analysis, by its module's name."""
    documented = {
        path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for path in sorted(Path(__file__).parent.glob("[!_]*.py"))
    }
    return {name: text for name, text in documented.items() if text.startswith("*")}


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    known = analyses()
    if not arguments or arguments == ["--help"]:
        print(__doc__)
        width = max(map(len, known))
        print(*(f"{name:{width}}  {text.splitlines()[0]}" for name, text in known.items()), sep="\n")
        return 0
    if not arguments[0].startswith("-"):
        name, *options = arguments
        if name not in known:
            print(f"No such analysis: {name}. There are: {', '.join(known)}.", file=sys.stderr)
            return 2
        return _run(name, options)
    corpus = _given(arguments)
    failed = []
    for name, text in known.items():
        if "--corpus" in text and not corpus:
            print(f"== {name}: left out, since it reads text; give --corpus dir:PATH", flush=True)
            continue
        print(f"== {name}", flush=True)
        options = arguments if "--corpus" in text else [word for word in arguments if word not in corpus]
        if _run(name, options):
            failed.append(name)
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _given(arguments: list[str]) -> list[str]:
    """The words that give the corpus: `--corpus SPEC` or `--corpus=SPEC`."""
    for place, word in enumerate(arguments):
        if word == "--corpus":
            return arguments[place : place + 2]
        if word.startswith("--corpus="):
            return [word]
    return []


def _run(name: str, options: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", f"analyses.{name}", *options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
