"""Which tests execute the lines of a mutant, in the order in which they are tried."""

from __future__ import annotations

import ast
import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from tests.mutants.patches import Change


class Covering:
    """Contexts that coverage recorded for each test (`--cov-context=test`), and seconds that each test takes."""

    def __init__(self, coverage_file: Path, seconds: Mapping[str, float]) -> None:
        self.uri = f"{coverage_file.resolve().as_uri()}?mode=ro"
        self.seconds = seconds

    def tests(self, root: Path, change: Change, known: set[str]) -> list[str]:
        """The tests among `known` that execute the changed statements, nearest and cheapest first.

        Of a test with parameters one comes before the next test's second, so that different tests are tried early.
        What runs at import only (a constant, a dataclass's field, a default) is left to every test of the module.
        """
        lines = executed_lines((root / change.file).read_text("utf-8"), change.lines)
        contexts = {
            context
            for context, bits in self._rows(change.file)
            if context and (not lines or any(_has(bits, line) for line in lines))
        }
        names = {context.rpartition("|")[0] for context in contexts} & known
        # A fixture's lines are noted for the first test that asks for it; the others may be what holds its values.
        files = {context.partition("::")[0] for context in contexts if context.endswith("|setup")}
        names |= {name for name in known if name.partition("::")[0] in files}
        stem, package = Path(change.file).stem, change.file.split("/")[1 if change.file.startswith("aotlens") else 0]

        def distance(name: str) -> int:
            file = name.partition("::")[0]
            return 0 if stem in Path(file).stem else 1 if file.startswith(f"tests/{package}/") else 2

        position: dict[str, int] = {}
        seen: dict[str, int] = {}
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            function = name.partition("[")[0]
            position[name] = seen[function] = seen.get(function, -1) + 1

        def order(name: str) -> tuple[bool, int, int, float, str]:
            return position[name] > 2, distance(name), position[name], self.seconds[name], name

        return sorted(names, key=order)

    def _rows(self, file: str) -> list[tuple[str, bytes]]:
        """Each context of a file, and the lines that it executed. `CoverageData` would erase its file when it is used
        in a fork of the process that opened it; this reads only."""
        with contextlib.closing(sqlite3.connect(self.uri, uri=True)) as database:
            return database.execute(
                "SELECT context.context, line_bits.numbits FROM line_bits JOIN context ON context.id = context_id"
                " JOIN file ON file.id = file_id WHERE file.path LIKE ?",
                (f"%/{file}",),
            ).fetchall()


def _has(bits: bytes, line: int) -> bool:
    """Whether a line is in coverage's set of lines: bit `line % 8` of byte `line // 8`."""
    return line // 8 < len(bits) and bool(bits[line // 8] >> line % 8 & 1)


def executed_lines(source: str, changed: range) -> list[int]:
    """Lines of the innermost statement around the changed ones, without its body; where it is a function, with it.
    Empty for a statement outside every function: it runs when the module is imported."""
    innermost: ast.stmt | None = None
    in_function = False

    def visit(node: ast.AST, within: bool) -> None:
        nonlocal innermost, in_function
        within = within or isinstance(node, ast.FunctionDef)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and child.lineno <= changed.start and changed.stop - 1 <= child.end_lineno:
                innermost, in_function = child, within
            visit(child, within)

    visit(ast.parse(source), False)
    if innermost is None:
        return []
    if isinstance(innermost, ast.FunctionDef):
        return list(range(innermost.lineno, innermost.end_lineno + 1))
    if not in_function:
        return []
    body = getattr(innermost, "body", None)
    end = body[0].lineno - 1 if body and changed.start < body[0].lineno else innermost.end_lineno
    return list(range(innermost.lineno, max(end, innermost.lineno) + 1))
