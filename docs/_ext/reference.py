"""The reference: a page for every package, with every name that the package exports, written before the build reads.

Packages, and what they export (`aotlens.results.exports`, and the public names that a module defines), are asked of the
code, so that a new name is described without a line here. A name is described where it belongs, which is the outermost
package of the module that defines it, and elsewhere points there.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import markup
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

#: Doors that are no packages: modules that scripts import by name.
MODULES = ("aotlens.models.presets",)

#: Names that are described under another one.
elsewhere: set[str] = set()


@dataclass(frozen=True)
class Name:
    """A name that a package exports."""

    package: str
    name: str
    value: Any
    module: str
    """The module that defines it."""

    @property
    def full(self) -> str:
        return f"{self.package}.{self.name}"

    @property
    def kind(self) -> str:
        if inspect.isclass(self.value):
            return "exception" if issubclass(self.value, BaseException) else "class"
        return "function" if inspect.isroutine(self.value) else "data"

    @cached_property
    def doc(self) -> list[str]:
        """Its docstring, or the comment beside a constant."""
        if self.kind == "data":
            return list(ModuleAnalyzer.for_module(self.module).find_attr_docs().get(("", self.name), []))
        return inspect.cleandoc(self.value.__doc__ or "").splitlines()


def packages() -> list[str]:
    """Every package with a door, the outer ones first; the root is the last."""
    import aotlens
    from aotlens.results.exports import exports

    inner = [package for package, names in exports().items() if names and "._" not in package]
    modules = [
        f"aotlens.{name}" for name in aotlens.__all__ if isinstance(getattr(aotlens, name), ModuleType)
    ]  # some of them are no packages
    return [*sorted({*inner, *modules, *MODULES}, key=lambda name: (name.count("."), name)), "app", "aotlens"]


def exported(package: str) -> list[Name]:
    """What it exports, in the order of its modules, modules themselves left out."""
    from aotlens.results.exports import exports

    module = import_module(package)
    analyzed = ModuleAnalyzer.for_module(package)
    analyzed.analyze()
    own = {name for scope, name in analyzed.attr_docs if not scope}
    defined = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == package}
    here = sorted(name for name in {*own, *defined} if not name.startswith("_"))
    names = list(dict.fromkeys([*exports().get(package, ()), *getattr(module, "__all__", here)]))
    found = [
        Name(package, name, value, definer(package, name, value))
        for name in names
        if not isinstance(value := getattr(module, name), ModuleType) and name != "__version__"
    ]
    listing = module.__doc__ or ""
    return sorted(found, key=lambda each: (place(each.module, package, listing), each.module, -len(each.kind)))


def definer(package: str, name: str, value: Any) -> str:
    """The module that defines a name. Constants do not know it: the imports of the doors are followed to it."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(value.__module__)
    for node in ast.walk(ast.parse(inspect.getsource(import_module(package)))):
        if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
            return definer(node.module, name, value)
    return package


def place(module: str, package: str, listing: str) -> int:
    """Where the package's docstring names a module, whose order the page follows; behind all where it does not."""
    stem = module.removeprefix(f"{package}.").partition(".")[0]
    found = [position for ending in (".py", "/") if (position := listing.find(f"{stem}{ending}")) >= 0]
    return min(found, default=len(listing))


def homes(names: list[Name]) -> dict[int, Name]:
    """By a value's identity, the name under which it is described."""
    home: dict[int, Name] = {}
    for name in names:
        if name.kind == "data":
            continue
        belongs = f"{name.module}.".startswith(f"{name.package}.")
        best = home.get(id(name.value))
        if best is None or (belongs and not f"{best.module}.".startswith(f"{best.package}.")):
            home[id(name.value)] = name
    return home


def page(package: str, names: list[Name], home: dict[int, Name]) -> str:
    """The page of one package: what its docstring says, a table, and every name with its module's own words."""
    lines = [package, "=" * len(package), "", f".. py:module:: {package}", ""]
    lines += markup(inspect.cleandoc(import_module(package).__doc__ or "").splitlines())
    rows = [(name, home.get(id(name.value), name)) for name in names]
    if rows:
        lines += [".. list-table::", "   :widths: 30 70", "   :class: names", ""]
    for name, there in rows:
        summary = next(iter(markup(first_sentence(there.doc))), "")
        lines += [f"   * - :py:obj:`~{name.full}`", f"     - {summary}"]
    module = None
    for name, there in rows:
        if not name.module.startswith(package) and module != "elsewhere":
            module = "elsewhere"
            lines += ["", "Described elsewhere", "-------------------", ""]
        elif name.module != module and name.module.startswith(f"{package}."):
            module = name.module
            title = module.removeprefix(f"{package}.")
            doc = inspect.cleandoc(import_module(module).__doc__ or "").splitlines()
            lines += ["", title, "-" * len(title), "", *markup(doc)]
        lines += ["", *entry(name, there), ""]
    return "\n".join(lines) + "\n"


def first_sentence(doc: list[str]) -> list[str]:
    """A docstring's first sentence, which ends in a full stop before a capital letter or at the paragraph's end."""
    paragraph = " ".join(line.strip() for line in doc[: doc.index("") if "" in doc else len(doc)])
    match = re.match(r"(.+?[.:])(?= [A-Z`*]|$)", paragraph)
    return [match[1] if match else paragraph]


def entry(name: Name, there: Name) -> list[str]:
    """One name: its description, or where that is."""
    if there is not name:
        return [*description(name), "", f"   The same as :py:obj:`{there.full}`."]
    if name.kind == "data":
        shown = repr(name.value)
        value = [f"   :value: {shown}"] if isinstance(name.value, int | float | str | tuple) and len(shown) < 80 else []
        return [*description(name), *value, "", *("   " + line for line in markup(name.doc))]
    options = []
    if inspect.isclass(name.value):
        options += ["   :special-members: __call__"]
        options += ["   :show-inheritance:"] * (name.value.__bases__ != (object,))
    return [f".. auto{name.kind}:: {name.full}", *options]


def description(name: Name) -> list[str]:
    return [f".. py:{name.kind}:: {name.name}", f"   :module: {name.package}"]


def write(app: Sphinx) -> None:
    """The pages, in `docs/reference/`, rewritten where they have changed."""
    folder = Path(app.srcdir) / "reference"
    names = {package: exported(package) for package in packages()}
    home = homes([name for each in names.values() for name in each])
    pages = {package: page(package, names[package], home) for package in names}
    for package, content in pages.items():
        path = folder / f"{package}.rst"
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    every = [name for each in names.values() for name in each]
    elsewhere.update(name.full for name in every if home.get(id(name.value), name) is not name)


def prefer_homes(app: Sphinx, env: BuildEnvironment) -> None:
    """A name in a signature means the place that describes it, not one that points there; and modules without source
    are not listed."""
    known = env.domains["py"].objects
    for name in elsewhere & known.keys():
        known[name] = known[name]._replace(aliased=True)
    listings = vars(env).get("_viewcode_modules", {})
    for module in [each for each, listing in listings.items() if not listing]:
        del listings[module]  # it has no source (builtins), and Sphinx would still link to its listing


def right_ways_back(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """In a listing of source code, links to descriptions: Sphinx takes all names of a module to be of one package."""
    if not page.startswith("_modules/"):
        return
    known = app.env.domains["py"].objects

    def right(match: re.Match[str]) -> str:
        package, name = match[1], match[2]
        while "." in name and f"{package}.{name}" not in known:
            name = name.partition(".")[2]
        entry = known.get(f"{package}.{name}")
        return f"reference/{package}.html#{entry.node_id if entry else name}"

    context["body"] = re.sub(r"reference/([\w.]+)\.html#([\w.]+)", right, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("env-updated", prefer_homes)
    app.connect("html-page-context", right_ways_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
