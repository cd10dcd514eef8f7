"""The reference leaves no public name out: the site's inventory beside what the packages export."""

from __future__ import annotations

import ast
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import aotlens
from tests.test_structure import ROOT


def inventory(site: Path) -> dict[str, str]:
    """Name → address, read as the format says: four lines of header, then a compressed line a name."""
    raw = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(raw.split(b"\n", 4)[4]).decode().splitlines()
    entries = [line.split(maxsplit=4) for line in lines]
    return {name: address.replace("$", name) for name, kind, _, address, _ in entries if kind.startswith("py:")}


def public_names() -> set[str]:
    """What the source says: `__all__` of every package; of the modules that the library's own door names and that have
    none, what they define."""
    library = ROOT / "aotlens"
    names = set()
    for door in library.rglob("__init__.py"):
        package = ".".join(door.parent.relative_to(ROOT).parts)
        names |= {f"{package}.{name}" for name in exported(door)}
    for name in exported(library / "__init__.py"):
        module = library / f"{name}.py"
        if module.is_file():
            names |= {f"aotlens.{name}.{each}" for each in defined(module) if not each.startswith("_")}
    return names - {"aotlens.__version__"}


def exported(path: Path) -> list[str]:
    """The names of `__all__`; of a package without it, what it imports from aotlens, and what it defines itself."""
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(aotlens.__all__ if path.parent == ROOT / "aotlens" else ast.literal_eval(node.value))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aotlens."):
            names += [alias.name for alias in node.names if alias.asname is None]
    return names + [name for name in defined(path) if not name.startswith("_")]


def defined(path: Path) -> list[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


class Anchors(HTMLParser):
    """The ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.ids |= {value for name, value in attributes if name == "id" and value}


def test_every_public_name_is_described(site: Path) -> None:
    described = inventory(site)
    public = public_names()
    assert len(public) > 400
    assert not public - described.keys()


def test_what_the_inventory_names_is_there(site: Path) -> None:
    anchors: dict[str, set[str]] = {}
    missing = []
    for name, address in inventory(site).items():
        page, _, anchor = address.partition("#")
        if page not in anchors:
            parser = Anchors()
            parser.feed((site / page).read_text(encoding="utf-8"))
            anchors[page] = parser.ids
        if anchor and anchor not in anchors[page]:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aotlens.paths.Kronecker", "1/scale multiplies it"),  # a docstring
        ("aotlens.models.ModelConfig", "Width of the residual stream."),  # a field's
        ("aotlens.heads.MOTIFS", "by name"),  # a constant's comment
        ("aotlens.circuits.qk_circuit", "[source]"),
    ],
)
def test_a_description_says_what_the_source_says(site: Path, name: str, words: str) -> None:
    page = inventory(site)[name].partition("#")[0]
    assert words in (site / page).read_text(encoding="utf-8")


def test_shapes_are_shown_as_they_are_written(site: Path) -> None:
    page = (site / "reference" / "aotlens.paths.html").read_text(encoding="utf-8")
    plain = text_of(page)
    assert "Float[Tensor, 'n p']" in plain and "<class" not in plain and "jaxtyping." not in plain


def text_of(page: str) -> str:
    """A page's text."""
    pieces: list[str] = []
    parser = HTMLParser()
    parser.handle_data = pieces.append  # type: ignore[method-assign]
    parser.feed(page)
    return "".join(pieces)
