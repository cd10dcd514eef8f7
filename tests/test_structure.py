"""The shape of the house: which way imports point, how large a room is, what it needs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]

#: Each may import from the rows above it only; those of one row do not import each other.
ORDER = (
    ("conventions", "untrusted"),
    ("files", "statistics"),
    ("results",),
    ("models",),
    ("data",),
    ("interop",),
    ("checkpoints",),
    ("evaluate",),
    ("circuits",),
    ("heads",),
    ("train",),
    ("trigrams", "paths", "distill"),
    ("patching", "denoise"),
    ("dynamics",),
    ("plots",),
    ("widget",),
    ("views",),
    ("report", "notebook", "sweeps"),
    ("commands",),
    ("cli",),
    ("__main__",),
    ("app", "analyses", "benchmarks"),
)
RANK = {unit: rank for rank, row in enumerate(ORDER) for unit in row}
OUTSIDE_THE_LIBRARY = ORDER[-1]
HEAVY = ("torch", "transformer_lens", "transformers", "dash")
#: What makes an import slower than PyTorch's own by more than a quarter.
BEYOND_TORCH = ("transformer_lens", "transformers", "datasets", "pandas", "sklearn", "scipy.stats", "pytest", "plotly")
MAX_LINES = 400


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import statement: `module` in full, for types only or not."""

    path: Path
    line: int
    module: str
    type_checking: bool

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Every import of a module, those inside functions included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]

    def visit(node: ast.AST, type_checking: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, True)
            for child in node.orelse:
                yield from visit(child, type_checking)
            return
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            # `from aotlens import models` imports aotlens.models
            names = [".".join([*base, alias.name]) for alias in node.names]
        for name in names:
            yield Import(path=path, line=node.lineno, module=name, type_checking=type_checking)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, type_checking)

    return tuple(visit(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)), False))


def unit_of_path(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "aotlens" else parts[0]


def unit_of_import(module: str) -> str | None:
    """The unit that a module belongs to; None for other people's packages and for aotlens.__version__."""
    top, _, rest = module.partition(".")
    if top in OUTSIDE_THE_LIBRARY:
        return top
    if top != "aotlens" or rest == "__version__":
        return None
    return rest.partition(".")[0] or "aotlens"


def test_every_package_has_a_place_in_the_order():
    units = {unit_of_path(path) for path in modules("aotlens", *OUTSIDE_THE_LIBRARY)} - {"__init__"}
    assert units <= RANK.keys(), f"not in ORDER: {sorted(units - RANK.keys())}"


@pytest.mark.slow
def test_imports_point_one_way():
    wrong = []
    for path in modules("aotlens", *OUTSIDE_THE_LIBRARY):
        unit = unit_of_path(path)
        for found in imports(path):
            target = unit_of_import(found.module)
            if target is None or target == unit:
                continue
            if unit == "__init__":  # the library's own, which is lazy: names of everything, for types only
                allowed = found.type_checking
            elif target in RANK:
                allowed = RANK[target] < RANK[unit]
            else:  # `aotlens` itself, or a name that it resolves lazily: callers' business, not the library's
                allowed = unit in OUTSIDE_THE_LIBRARY
            if not allowed:
                wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_no_modules_of_a_package_import_each_other_in_a_circle():
    """Types and imports inside functions count: what is in a circle is read as one. A package's own `__init__` only
    gathers, and modules of two packages are `ORDER`'s."""
    known = {_dotted(path): path for path in modules("aotlens", *OUTSIDE_THE_LIBRARY)}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        if path.name != "__init__.py":
            targets = {_module_of(each.module, known) for each in imports(path)} - {name}
            graph[name] = {one for one in targets if one and _package(one) == _package(name)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"modules in a circle: {' -> '.join(error.args[1])}") from None


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(module: str) -> list[str]:
    return module.split(".")[: 1 if module.startswith(("analyses", "benchmarks")) else 2]


def _module_of(imported: str, known: dict[str, Path]) -> str | None:
    """The module that `from module import name` reads; None for a package's `__init__`, and for what is not ours."""
    found = next((name for name in (imported, imported.rpartition(".")[0]) if name in known), None)
    return None if found is None or known[found].name == "__init__.py" else found


def test_plots_knows_results_as_types_only_and_no_model():
    wrong = [
        str(found)
        for path in modules("aotlens/plots")
        for found in imports(path)
        if not found.type_checking
        and (
            unit_of_import(found.module) not in (None, "plots", "conventions", "files")
            or found.module.partition(".")[0] in HEAVY
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_the_app_is_core_then_shell_then_pages():
    """The core knows neither Dash nor the shell; the shell knows no page; a page knows no other."""
    forbidden = {"core": r"dash|app\.(shell|pages|factory)\b", "shell": r"app\.(pages|factory)\b"}
    wrong = []
    for path in modules("app/core", "app/shell", "app/pages"):
        room, page = path.relative_to(ROOT).parts[1:3]
        rule = forbidden.get(room, rf"app\.(factory\b|pages\.(?!{page}\b))")
        wrong += [str(found) for found in imports(path) if re.match(rule, found.module)]
    assert not wrong, "\n".join(wrong)


def test_what_computes_for_a_page_knows_no_interface():
    """Of a page: its address, its service, what that gives for figures and tables, its words and its files."""
    computes = re.compile(r"address|service\w*|figures|rows|words|files")
    wrong = [
        str(found)
        for path in modules("app/pages")
        if computes.fullmatch(path.stem)
        for found in imports(path)
        if re.match(r"dash|app\.(shell|factory)\b", found.module)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("aotlens.cli, aotlens.conventions, aotlens.plots, aotlens.sweeps", HEAVY),
        ("aotlens.models, aotlens.interop, aotlens.circuits, aotlens.heads", BEYOND_TORCH),
    ],
)
def test_importing_them_is_light(modules: str, unwanted: tuple[str, ...]):
    code = f"import sys, {modules}; print(*sorted(set({unwanted!r}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"import {modules} brings {done.stdout.strip()}"


def test_no_module_is_long():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules("aotlens", "tests", *OUTSIDE_THE_LIBRARY)
    }
    long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines: {long}"


def test_one_writer_of_csv():
    """Only `aotlens.files` forms it, which quotes every field; a second one forgot to."""
    writing = re.compile(r"\.to_csv\(|\bcsv\.(?:writer|DictWriter)\b|from csv import|\.savetxt\(")
    others = modules("aotlens", "app", "analyses", "benchmarks")
    writers = {str(path.relative_to(ROOT)) for path in others if writing.search(path.read_text(encoding="utf-8"))}
    assert writers == {"aotlens/files.py"}


def repository_files() -> list[Path]:
    """What git tracks or would track; without git, everything that is not hidden."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True,
        ).stdout.decode().split("\0")  # fmt: skip
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file()]


def declared(extra: str | None = None) -> dict[str, Requirement]:
    """The requirements of the project and its extras; or those of one extra that has a requirements.txt of its own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = dict(project["optional-dependencies"])
    apart = {name: extras.pop(name) for name in ("docs", "mutants")}
    lines = (
        apart[extra] if extra else [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    )
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


@pytest.mark.parametrize("file", ["requirements.txt", "docs/requirements.txt", "tests/mutants/requirements.txt"])
def test_requirements_pin_what_pyproject_allows(file: str):
    lines = [
        line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")
    ]
    inexact = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", line)]
    assert not inexact, f"exact pins without a local build, please: {inexact}"
    pins = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2].split()[0] for line in lines}
    for name, requirement in declared(Path(file).parent.name or None).items():
        assert name in pins, f"{name} has no pin"
        assert requirement.specifier.contains(pins[name]), f"{requirement}: pinned {pins[name]}"


def test_what_is_imported_is_declared():
    distributions = {"sklearn": "scikit-learn", "PIL": "pillow", "markdown_it": "markdown-it-py"}
    ours = {"aotlens", "tests", *OUTSIDE_THE_LIBRARY}
    undeclared = []
    known = declared().keys()
    for path in modules("aotlens", *OUTSIDE_THE_LIBRARY):
        for found in imports(path):
            top = found.module.partition(".")[0]
            if top in ours or top in sys.stdlib_module_names:
                continue
            if canonicalize_name(distributions.get(top, top)) not in known:
                undeclared.append(str(found))
    assert not undeclared, "\n".join(undeclared)
