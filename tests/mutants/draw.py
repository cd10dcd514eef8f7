"""Mutants by mutmut's operators, drawn with a seed and kept as patches.

A package's share of the sample is its share of the lines. In it a file is drawn in proportion to its lines, in the
file a place that some operator can change, and of that place's mutants one: a call with eight arguments, of which
mutmut makes sixteen mutants, counts as one place. Three of five change a number, an operator, a comparison or a
condition; the others drop an argument or put None in its place, or in an assignment's, which mostly ends in an
exception at once. What changes nothing that is computed is drawn again: annotations, decorators, docstrings, the words
of an error or a sentence, `__all__`, names of type variables, and arguments such as `strict` and `encoding`.
"""

from __future__ import annotations

import ast
import difflib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = (
    "aotlens/circuits", "aotlens/paths", "aotlens/trigrams", "aotlens/heads", "aotlens/denoise", "aotlens/evaluate",
    "aotlens/interop", "aotlens/checkpoints", "app/core",
)  # fmt: skip
VALUE_OPERATORS = {"number", "name", "swap_op", "keywords", "remove_unary_ops", "if_exp"}
VALUE_SHARE = 0.6
WORDS_ONLY = {"cast", "TypeVar", "NewType", "warn", "debug", "info", "warning", "error", "exception"}
IDLE_KEYWORDS = {"strict", "encoding", "stacklevel", "errors"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one file, as a unified patch of one hunk."""

    id: str
    file: str
    operator: str
    patch: str


def draw(root: Path, sample: int, seed: int) -> list[Mutant]:
    """`sample` mutants of the tree at `root`: a function of the tree, the sample's size and the seed."""
    rng = random.Random(seed)
    files = {package: sorted((root / package).rglob("*.py")) for package in PACKAGES}
    lines = {path: len(path.read_text("utf-8").splitlines()) for paths in files.values() for path in paths}
    weights = {package: sum(lines[path] for path in paths) for package, paths in files.items()}
    places: dict[Path, tuple[list[Place], list[Place]]] = {}
    mutants = []
    for package, count in shares(weights, sample).items():
        patches: set[str] = set()
        while len(patches) < count:
            (path,) = rng.choices(files[package], [lines[path] for path in files[package]])
            source, file = path.read_text("utf-8"), path.relative_to(root).as_posix()
            if path not in places:
                found = mutable_places(source)
                places[path] = [p for p in found if p.of_values], [p for p in found if not p.of_values]
            kind = places[path][rng.random() >= VALUE_SHARE]
            if not kind:
                continue
            operator, code = rng.choice(kind).mutant(rng)
            patch = meaningful_patch(file, source, code)
            if patch is None or patch in patches:
                continue
            patches.add(patch)
            name = f"{package.rpartition('/')[2]}-{len(patches):02}"
            mutants.append(Mutant(id=name, file=file, operator=operator, patch=patch))
    return mutants


def shares(weights: dict[str, int], sample: int) -> dict[str, int]:
    """Whole numbers in proportion to the weights, which add up to the sample: the largest remainders are rounded up."""
    exact = {name: sample * weight / sum(weights.values()) for name, weight in weights.items()}
    counts = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[: sample - sum(counts.values())]:
        counts[name] += 1
    return counts


@dataclass(frozen=True, kw_only=True)
class Place:
    """A node of a module, and what each operator makes of it."""

    module: Any
    node: Any
    changes: list[tuple[str, Any]]
    of_values: bool

    def mutant(self, rng: random.Random) -> tuple[str, str]:
        """One of the place's mutants: its operator, and the file's text."""
        operator, changed = rng.choice(self.changes)
        return operator, self.module.deep_replace(self.node, changed).code


def mutable_places(source: str) -> list[Place]:
    """Every place of a file that an operator can change, in the order of the text."""
    import libcst
    from mutmut.mutation.mutators import mutation_operators

    module = libcst.MetadataWrapper(libcst.parse_module(source)).module  # in which no node occurs twice
    places: list[Place] = []

    class Visitor(libcst.CSTVisitor):
        def on_visit(self, node: libcst.CSTNode) -> bool:
            if isinstance(node, libcst.Annotation | libcst.Decorator | libcst.Raise):
                return False
            changes = [
                (operator.__name__.removeprefix("operator_"), changed)
                for kind, operator in mutation_operators
                if isinstance(node, kind)
                for changed in operator(node)
            ]
            for of_values in (True, False):
                some = [change for change in changes if (change[0] in VALUE_OPERATORS) == of_values]
                if some:
                    places.append(Place(module=module, node=node, changes=some, of_values=of_values))
            return True

    module.visit(Visitor())
    return places


def meaningful_patch(file: str, before: str, after: str) -> str | None:
    """The change as a patch of one hunk; None if it is no Python, changes nothing that is computed, or is apart."""
    try:
        changed = ast.dump(_Computed().visit(ast.parse(after)))
    except SyntaxError:
        return None
    if changed == ast.dump(_Computed().visit(ast.parse(before))):
        return None
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{file}", f"b/{file}", lineterm=""))
    return "\n".join(lines) + "\n" if sum(line.startswith("@@") for line in lines) == 1 else None


class _Computed(ast.NodeTransformer):
    """A module without what computes nothing."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = [
            statement
            for statement in node.body
            if not (isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test))
            and not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__")
            and not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript))  # a type's name
        ]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(exc=kind, cause=None)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return self.generic_visit(ast.Assert(test=node.test, msg=None))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func).rpartition(".")[2] in WORDS_ONLY:
            return node.func
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in IDLE_KEYWORDS]
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_sentence = isinstance(node.value, str) and any(character.isspace() for character in node.value)
        return ast.Constant(value="") if is_sentence else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)
