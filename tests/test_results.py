"""Every result of an analysis prints as a short text, and as a table in a notebook where it is one."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import aotlens
from aotlens.results import MAX_CHARACTERS, Result, describe, top_head
from aotlens.results.exports import exports, storable
from tests.every_result import every_result
from tests.test_glossary import COLUMNS, ROWS, terms

PACKAGES = ("circuits", "denoise", "distill", "evaluate", "heads", "paths", "trigrams")

#: Frozen dataclasses that packages export and that no analysis returns: settings, and names of things.
NOT_RESULTS = {
    "CircuitFamily",
    "Inputs",
    "Metric",
    "HeadScore",
    "Motif",
    "Settings",
    "Path",
    "Side",
    "Kronecker",
    "LongPatterns",
    "BlockMaxima",
    "KroneckerSum",
    "Wires",
    "HeadGroup",
    "Node",
    "Task",
    "LinearSubspaces",
    "Spheres",
    "GaussianMixtures",
    "TrainingSettings",
}


@pytest.fixture(scope="module")
def results() -> list[Any]:
    return list(every_result())


def test_all_dataclasses_that_packages_export_are_results() -> None:
    exported = {
        value
        for package in PACKAGES
        for module in (aotlens, importlib.import_module(f"aotlens.{package}"))
        for value in (getattr(module, name) for name in exports().get(module.__name__, ()))
        if isinstance(value, type) and is_dataclass(value) and value.__module__.split(".")[1] in PACKAGES
    }
    assert len(exported) > 30
    assert {value.__name__ for value in exported if not issubclass(value, Result)} <= NOT_RESULTS


def test_every_name_that_a_package_exports_is_what_its_module_defines() -> None:
    for package, names in exports().items():
        door = importlib.import_module(package)
        for name, module in names.items():
            assert hasattr(door, name) and hasattr(importlib.import_module(module), name), f"{package}.{name}"


def test_a_file_holds_results_and_their_parts_and_no_other_class() -> None:
    assert storable("Reach") is aotlens.circuits.Reach and storable("Example") is aotlens.trigrams.Example
    assert storable("Pair") is aotlens.data.Pair
    for name in ("ModelConfig", "Family", "load", "circuits", "os", "Path/..", ""):
        assert storable(name) is None, name


@pytest.mark.slow
def test_there_is_one_of_each(results: list[Any]) -> None:
    ours = {each for each in _subclasses(Result) if each.__module__.startswith("aotlens.")}
    assert {each.__name__ for each in ours - {type(result) for result in results}} == {
        "Estimates",
        "Expanded",
        "OfCheckpoint",
        "OfLogit",
        "OverPairs",
        "Ranked",
    }, "bases"


def _subclasses(of: type) -> set[type]:
    return {each for child in of.__subclasses__() for each in (child, *_subclasses(child))}


def test_a_result_says_in_short_what_it_is(results: list[Any]) -> None:
    for result in results:
        text = repr(result)
        assert len(text) <= MAX_CHARACTERS and "\n" not in text, text
        assert type(result).__name__.lower() in text.lower() and "nan" not in text.lower(), text
        assert "tensor(" not in text and "array(" not in text, text


def test_a_table_stands_below_it_in_a_notebook(results: list[Any]) -> None:
    tables = 0
    for result in results:
        if not isinstance(result, Result):
            continue
        page = result._repr_html_()
        frame = result._table()
        assert (page is None) == (frame is None)
        if page is not None and frame is not None:
            assert isinstance(frame, pd.DataFrame) and page.startswith("<p>") and "</table>" in page
            assert page.count("<tr") <= 15, "the page shows the ends of a long table"
            tables += 1
    assert tables >= 25


def test_long_and_hostile_fields_are_cut_and_escaped() -> None:
    @dataclass(frozen=True)
    class Long(Result):
        name: str
        words: tuple[str, ...]
        values: np.ndarray
        nothing: None = None

        @property
        def headline(self) -> str:
            return "x" * 500

        def to_frame(self) -> pd.DataFrame:
            return pd.DataFrame({"token": ["<script>", *map(str, range(1000))]})

    long = Long("a" * 1000, ("<b>",) * 1000, np.zeros((3, 4)))
    assert len(repr(long)) == MAX_CHARACTERS and repr(long).startswith("Long(")
    page = long._repr_html_()
    assert page is not None and "<script>" not in page and "<b>" not in page
    assert describe(long) == f"Long(name '{'a' * 45}…', words of 1000, values [3, 4])"


def test_the_top_head_is_named() -> None:
    values = np.array([[0.1, np.nan], [0.7, 0.2]])
    assert top_head(values) == "head 1.0 (0.7)"
    assert top_head(np.array([0.1, 0.9]), [(3, 1), (2, 5)]) == "head 2.5 (0.9)"
    assert top_head(np.full((2, 2), np.nan)) == "no head (not measured)"


#: Columns that have the names of data: numbers, and models, measures and kinds of the tests.
_DATA = re.compile(r"[\d.e-]+|[a-d]|M[HS]SA|(cluster|in subspace|wavelength|error_after|induction|tokens that are).*")


def test_every_column_is_a_term_a_field_or_a_column_of_the_glossary(results: list[Any]) -> None:
    """Beginnings and endings that the glossary lists stand before and behind others that it has."""
    listed = {term.replace(" ", "_") for term in terms(ROWS + COLUMNS)}
    listed |= {name for row in ROWS for name in re.findall(r"`(\w+)`", row[-1])}
    before = [each.removesuffix("…") for each in listed if each.endswith("_…")]
    after = [each.removeprefix("…") for each in listed if each.startswith("…_")]
    alone = {each.strip("_") for each in before + after}
    assert len(before) > 15 and len(after) > 12

    def known(name: str, own: set[str]) -> bool:
        if {name, f"{name}s", name.removesuffix("s")} & (listed | own | alone):
            return True
        cut = [name.removeprefix(each) for each in before] + [name.removesuffix(each) for each in after]
        return any(known(each, own) for each in cut if each != name)

    unknown: dict[str, str] = {}
    for result in results:
        own = {name.lower() for name in dir(result) if not name.startswith("_")}
        try:
            columns = [str(column) for column in result.to_frame().columns]
        except (AttributeError, ValueError, TypeError):  # none, or one that is asked for what it is of
            continue
        for column in columns:
            if not _DATA.fullmatch(column) and not known(column.replace(" ", "_").lower(), own):
                unknown[column] = type(result).__name__
    assert not unknown, ", ".join(f"{column} ({of})" for column, of in unknown.items())
