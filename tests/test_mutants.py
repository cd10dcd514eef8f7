"""The tool that changes the code to see whether a test notices: what it draws, and where its patches go."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.mutants.covering import Covering, executed_lines
from tests.mutants.draw import PACKAGES, Mutant, draw, meaningful_patch, shares
from tests.mutants.patches import Change, locate
from tests.mutants.run import Runner

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''\
"""A module."""

LIMIT = 3


def within(values, most: int = LIMIT):
    """Values up to a bound."""
    if most < 0:
        raise ValueError(f"expected a bound, got {most}")
    chosen = []
    for value in values:
        if value <= most:
            chosen.append(value)
    return chosen
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "module.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").touch()
    return tmp_path


def mutant(before: str, after: str) -> Mutant:
    file = f"{PACKAGES[0]}/module.py"
    patch = meaningful_patch(file, SOURCE, SOURCE.replace(before, after))
    assert patch is not None
    return Mutant(id="one", file=file, operator="by hand", patch=patch)


def test_a_draw_is_a_function_of_its_seed(tree: Path):
    pytest.importorskip("mutmut", reason="make mutants installs it")
    drawn = draw(tree, 27, 0)
    assert drawn == draw(tree, 27, 0) != draw(tree, 27, 1)
    assert len({each.id for each in drawn}) == len({each.patch for each in drawn}) == 27
    for each in drawn:
        change = locate(tree, each)
        assert change is not None and change.file == each.file
        assert ast.dump(ast.parse(change.text)) != ast.dump(ast.parse(SOURCE))


def test_shares_add_up():
    assert shares({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A module.", "No module."),
        ("expected a bound", "expected none"),
        ("most: int", "most: None"),
        ("return chosen", "return  chosen"),
        ("return chosen", "return chosen)"),
    ],
)
def test_what_computes_the_same_is_no_mutant(before: str, after: str):
    assert meaningful_patch("module.py", SOURCE, SOURCE.replace(before, after)) is None


def test_a_patch_finds_its_code_where_that_has_moved(tree: Path):
    stricter = mutant("value <= most", "value < most")
    path = tree / stricter.file
    changed = SOURCE.replace("value <= most", "value < most")
    assert locate(tree, stricter).text == changed

    path.write_text("# More.\n" * 40 + SOURCE.replace("= []", "= list()"))  # lower, and beside other code
    change = locate(tree, stricter)
    assert change.text == "# More.\n" * 40 + changed.replace("= []", "= list()")
    assert list(change.lines) == [52]

    path.unlink()
    moved = path.with_name("elsewhere.py")
    moved.write_text(SOURCE)
    change = locate(tree, stricter, [moved])
    assert (change.file, change.text) == (f"{PACKAGES[0]}/elsewhere.py", changed)

    moved.write_text(SOURCE.replace("value <= most", "value not in seen"))
    assert locate(tree, stricter, [moved]) is None


def test_kept_patches_are_whole():
    records = (ROOT / "tests" / "mutants" / "seed0.jsonl").read_text("utf-8").splitlines()
    kept = [Mutant(**json.loads(record)) for record in records]
    assert len({each.id for each in kept}) == len(kept) == 300
    assert {each.file.rpartition("/")[0] for each in kept} >= set(PACKAGES)


@pytest.mark.parametrize(
    ("line", "lines"),
    [(3, []), (6, range(6, 15)), (8, [8]), (9, [9]), (12, [12]), (13, [13])],
)
def test_lines_that_a_test_must_execute(line: int, lines):
    assert executed_lines(SOURCE, range(line, line + 1)) == list(lines)


def test_tests_of_a_line_come_nearest_first_and_a_fixture_s_with_their_file(tree: Path, tmp_path: Path):
    coverage = pytest.importorskip("coverage", reason="make mutants installs it")
    stricter = mutant("value <= most", "value < most")
    contexts = {
        "tests/other/test_pages.py::test_far|run": [12],
        "tests/circuits/test_bounds.py::test_near|run": [12],
        "tests/circuits/test_module.py::test_nearest[a|b]|run": [11, 12],
        "tests/circuits/test_module.py::test_elsewhere|run": [8],
        "tests/plots/test_figures.py::test_first|setup": [12],
    }
    data = coverage.CoverageData(str(tmp_path / "data"))
    for context, lines in contexts.items():
        data.set_context(context)
        data.add_lines({str(tree / stricter.file): lines})
    data.write()
    known = {context.rpartition("|")[0] for context in contexts} | {"tests/plots/test_figures.py::test_second"}
    seconds = dict.fromkeys(known, 1.0) | {"tests/plots/test_figures.py::test_second": 0.1}
    found = Covering(tmp_path / "data", seconds)
    assert found.tests(tree, locate(tree, stricter), known) == [
        "tests/circuits/test_module.py::test_nearest[a|b]",
        "tests/circuits/test_bounds.py::test_near",
        "tests/plots/test_figures.py::test_second",
        "tests/other/test_pages.py::test_far",
        "tests/plots/test_figures.py::test_first",
    ]


TESTS = """\
import pytest
from aotlens.circuits.module import within


def test_of_the_empty_list():
    assert within([]) == []


def test_at_the_bound():
    assert within([1, 2, 3]) == [1, 2, 3]
"""


@pytest.mark.long
def test_a_mutant_is_killed_in_a_process_of_its_own(tree: Path, tmp_path: Path):
    (tree / "tests" / "test_module.py").write_text(TESTS)
    (tree / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["browser", "long", "gpu", "network"]\n')
    stricter = mutant("value <= most", "value < most")
    runner = Runner(tree, tmp_path / "copies", check_shapes=False)
    known = runner.collected()
    near, far = "tests/test_module.py::test_at_the_bound", "tests/test_module.py::test_of_the_empty_list"
    assert known == {near, far}

    class EveryTest(Covering):
        def tests(self, root: Path, change: Change, allowed: set[str]) -> list[str]:
            return sorted(allowed, reverse=True)

    covering = EveryTest(tmp_path / "none", dict.fromkeys(known, 1.0))
    killed = runner.outcome(stricter, covering, known)
    assert (killed.outcome, killed.by, killed.tests) == ("killed", near, 2)  # each in a batch of its own
    assert runner.outcome(stricter, covering, {far}).outcome == "survived"  # and the tree is as before
    assert runner.outcome(stricter, covering, set()).outcome == "uncovered"
    broken = runner.outcome(mutant("LIMIT = 3", "LIMIT = MISSING"), covering, known)
    assert (broken.outcome, broken.by) == ("killed", "import")
    (tree / stricter.file).write_text("")
    assert runner.outcome(stricter, covering, known).outcome == "gone"
