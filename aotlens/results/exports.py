"""What the packages of `aotlens` export, and which types a file of a result may hold.

A package exports what its `__init__.py` imports from `aotlens`: `from aotlens.circuits.reach import Reach`. These lines
are the only list of names; they are read as text, so that to look up a name imports no package.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

#: The dataclasses that are no results and that fields of results hold.
_PARTS = frozenset(
    ("GaussianMixtures", "HeadGroup", "LinearSubspaces", "Node", "Pair", "PatchGrid", "Path", "Piece",
     "RegressionTask", "Settings", "Spheres", "TraceEdge", "TraceNode", "TrainingSettings")
)  # fmt: skip
#: A part that no package exports.
_INTERNAL = {"PatchGrid": "aotlens.heads.patch_grid"}
#: The results that hold a model or a folder, which no file may make.
_NOT_STORED = frozenset(
    ("CompiledFFN", "DistinguishedMasks", "MaskedLanguageModel", "PathExpansion", "ScoreExpansion", "SweepStatus")
)
_LIBRARY = Path(__file__).resolve().parents[1]


@cache
def exports() -> dict[str, dict[str, str]]:
    """Return for each package, "aotlens.circuits", the names it exports, each with the module that defines it."""
    tables = {}
    for path in sorted(_LIBRARY.rglob("__init__.py")):
        package = ".".join(("aotlens", *path.relative_to(_LIBRARY).parts[:-1]))
        tables[package] = {
            alias.name: str(node.module)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aotlens.")
            for alias in node.names
            if alias.asname is None
        }
    return tables


@cache
def storable(name: str) -> type | None:
    """Return the type of that name that a file may hold: a result, or a part of one. None for every other name."""
    from aotlens.results import Result

    for table in (*exports().values(), _INTERNAL):
        if name in table and name not in _NOT_STORED:
            kind = getattr(import_module(table[name]), name)
            if isinstance(kind, type) and (issubclass(kind, Result) or hasattr(kind, "_fields") or name in _PARTS):
                return kind
    return None
