"""Prints the slowest tests of `tests/durations.json`, and what they protect: `python -m tests.slowest [HOW_MANY]`."""

from __future__ import annotations

import ast
import sys

from tests import changed, durations


def main(how_many: str = "50") -> None:
    """A table in Markdown: seconds, the test, and its docstring's first line, or else its module's."""
    long = {name: seconds for name, seconds in durations.read().items() if "::" in name}
    print("| seconds | test | what it protects |\n|---|---|---|")
    for name in sorted(long, key=lambda name: -long[name])[: int(how_many)]:
        file, test = name.split("::", 1)
        words = protects(file, test.split("[")[0].split("::")[-1])
        print(f"| {long[name]:.1f} | `{name.replace('|', '/')}` | {words} |")


def protects(file: str, test: str) -> str:
    path = changed.ROOT / file
    if not path.exists():
        return "(gone)"
    module = ast.parse(path.read_text())
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == test]
    docstring = (ast.get_docstring(functions[0]) if functions else None) or ast.get_docstring(module) or ""
    return docstring.strip().split("\n\n")[0].replace("\n", " ").replace("|", "/")


if __name__ == "__main__":
    main(*sys.argv[1:])
