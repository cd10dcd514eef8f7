"""Docstrings as they are written here, Markdown in plain sentences, given to Sphinx as reStructuredText.

A docstring has paragraphs, `code`, *titles* and **words**, bullets, indented formulas, and listings whose columns are
apart by two spaces or more. Everything else is text: no character of a formula can become markup by accident, so that
docstrings need not know Sphinx. A code span that names something (`aotlens.heads.ablate`, `FeedForward`) becomes a link
to it where the site describes it, on every page. Signatures are shown as the source has them, shapes included.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

SPAN = re.compile(
    r"``(?P<double>.+?)``|`(?P<code>[^`]+)`|\*\*(?P<strong>\S(?:.*?\S)?)\*\*|(?<!\w)\*(?P<title>\w[^*]*?)\*"
)
NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\(\))?")
LISTING = re.compile(r"\S.*? {2,}\S")
ITEM = re.compile(r"(- |\d+\. )")
SHAPE = re.compile(r"\[(\w+(?:\.\w+)*), (['\"])\s*([^'\"]*?)\s*\2\]")
#: What describes a name on its own, not as a part of a class.
DESCRIBED = ("function", "class", "exception", "data", "module")


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """The docstring between its blank lines; indented lines and what follows them stay together."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def text(sentence: str) -> str:
    """A paragraph's text with its spans as markup, and everything else escaped."""
    pieces: list[str] = []
    end = 0
    for match in SPAN.finditer(sentence):
        pieces += [escape(sentence[end : match.start()]), span(match)]
        end = match.end()
    return "".join([*pieces, escape(sentence[end:])])


def escape(words: str) -> str:
    return re.sub(r"([\\`*_|:<>\[\]])", r"\\\1", words)


def span(match: re.Match[str]) -> str:
    if code := match["double"] or match["code"]:
        code = " ".join(code.split())
        if NAME.fullmatch(code):
            return rf"\ :py:obj:`{code}`\ "
        return rf"\ ``{code}``\ "
    mark, words = ("**", match["strong"]) if match["strong"] else ("*", match["title"])
    return rf"\ {mark}{escape(words)}{mark}\ "


def markup(lines: list[str]) -> Iterator[str]:
    """A docstring's lines as reStructuredText."""
    for block in paragraphs(lines):
        if block[0].startswith("    "):
            yield from literal(block)
        elif (LISTING.match(block[0]) and not ITEM.match(block[0])) or any(line.startswith("|--") for line in block):
            yield from literal(["    " + line for line in block])
        elif ITEM.match(block[0]):
            yield from items(block)
        else:
            before = [line for line in block if not line.startswith("    ")]
            yield from (text(" ".join(map(str.strip, before))), "")
            if after := block[len(before) :]:
                yield from literal(after)


def literal(block: list[str]) -> Iterator[str]:
    indent = min(len(line) - len(line.lstrip()) for line in block)
    yield from (".. code-block:: text", "", *("    " + line[indent:] for line in block), "")


def items(block: list[str]) -> Iterator[str]:
    """Each item's own lines joined."""
    joined: list[str] = []
    for line in block:
        if ITEM.match(line):
            joined.append(line)
        else:
            joined[-1] += " " + line.strip()
    for item in joined:
        mark = ITEM.match(item)
        assert mark is not None
        yield mark[0] + text(item[mark.end() :])
    yield ""


class _Written:
    """An annotation, printed as it is written."""

    def __init__(self, words: str) -> None:
        self.words = SHAPE.sub(r'[\1, "\3"]', words)

    def __repr__(self) -> str:
        return self.words


def written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def signature_as_written(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """Annotations as the source has them: `Float[Tensor, "pos d_model"]` says more than the class that it makes.

    A result is made by an analysis, not by its reader: it has no signature, only its fields.
    """
    if signature is None:
        return None
    if what == "class" and "aotlens.results.Result" in {f"{c.__module__}.{c.__name__}" for c in obj.__mro__}:
        return "", ""
    try:
        found = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    parameters = [p.replace(annotation=written(p.annotation)) for p in found.parameters.values()]
    if what == "method" and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    gives = found.return_annotation
    if what == "class" or gives is inspect.Signature.empty:
        return str(shown), ""
    return str(shown), str(written(gives)) if isinstance(gives, str) else inspect.formatannotation(gives)


def docstring_as_markup(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = list(markup(lines))


def find_by_last_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Node) -> nodes.Node | None:
    """A link for a name without its package: of the package whose page this is, else the only one of that name."""
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].removesuffix("()").rpartition(".")[2]
    known = env.domains["py"].objects
    places = {
        (entry.docname, entry.node_id)
        for name, entry in known.items()
        if name.rpartition(".")[2] == last and entry.objtype in DESCRIBED and name.startswith("aotlens.")
        and (not node["reftarget"].startswith("aotlens.") or name.startswith(node["reftarget"].rpartition(".")[0]))
    }  # fmt: skip
    here = {place for place in places if place[0] == node["refdoc"]}
    if len(here or places) != 1:
        return None
    (docname, anchor), *_ = here or places
    return make_refnode(app.builder, node["refdoc"], docname, anchor, shown)


def link_names(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Names in the code spans of pages: `aotlens.heads.ablate`, and `motif_scores` where one thing is called so."""
    known = app.env.domains["py"].objects
    described = {name: entry for name, entry in known.items() if entry.objtype in DESCRIBED and not entry.aliased}
    short = Counter(name.rpartition(".")[2] for name in described)
    full = {name.rpartition(".")[2]: name for name in described}
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().removesuffix("()")
        if isinstance(literal.parent, nodes.reference) or literal.get("classes"):
            continue
        if short[name] == 1 and ("_" in name or name[:1].isupper()):
            name = full[name]
        if name in described and described[name].docname != docname:
            entry = described[name]
            link = make_refnode(app.builder, docname, entry.docname, entry.node_id, literal.deepcopy(), name)
            literal.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", docstring_as_markup)
    app.connect("autodoc-process-signature", signature_as_written)
    app.connect("missing-reference", find_by_last_name)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
