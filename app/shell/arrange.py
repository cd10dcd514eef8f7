"""The arrangement of a page that is made of views: which panels, of which kind, next to or below which.

    Rows(
        Columns(Form(), Panel(ERRORS, controls=("axis",)), widths=FORM_WIDTHS),
        Tabs("tab", {"layers": ("Layers", Panel(LAYERS)), "heads": ("Heads on a prompt", HeadMaps(MAPS, MAP))}),
    )

A parameter among a panel's `controls` belongs to that panel: its control is in the panel's header (of those in `over`,
above the figure), and no other panel is asked when it changes, unless that panel names it in `reads`. All other
parameters are in the `Form`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol

from dash import dcc, html

from aotlens.views import View
from app.core.files import File
from app.shell import ids
from app.shell.graph import caption, figure, matrix
from app.shell.page_links import PageLink as PageLink
from app.shell.page_links import Preset as Preset
from app.shell.page_links import link as link
from app.shell.props import Props, props, stores
from app.shell.tables import first_rows, value_tables
from app.shell.views import FILES, Own, start_bar

#: The width of a form next to panels.
FORM_WIDTHS = "245px minmax(0, 1fr)"
#: The height of a figure: two lines, less than usual, usual, as high as wide, or as high as the window allows.
Size = Literal["strip", "low", "view", "tall", "fill"]
#: The fields that a click sets, by how: `rows` or `columns`, the number and name of the entry's line; `place`, its row
#: and column in the matrix; `=lines`, the text after the sign.
Picks = Mapping[str, str]


class Layout(Protocol):
    """A page that is laid out, as its parts ask for what is theirs (`app.shell.view_laid.Laid`)."""

    def lay(self, part: Any) -> Any: ...
    def panel_id(self, panel: Panel) -> str: ...
    def frame(self, panel: Panel, content: Any, *, always: bool = False, links: Any = ()) -> html.Section: ...
    def control(self, field: str, *, small: bool = False) -> Any: ...
    def links(self, links: Sequence[PageLink]) -> list[Any]: ...
    def tabs(self, tabs: Tabs) -> Any: ...
    def form(self, *, strip: bool = False) -> Any: ...


@dataclass(frozen=True)
class Panel:
    """A view: its caption, its figure, and its table if it is listed."""

    view: View
    _: KW_ONLY
    size: Size | None = None
    """The size of the figure; by default the view's."""
    controls: Sequence[str] = ()
    """Parameters that belong to this panel, in its header."""
    over: Sequence[str] = ()
    """Parameters that belong to this panel, in a row above its figure."""
    reads: Sequence[str] = ()
    """Parameters of other panels that this view depends on, too."""
    foot: Sequence[str] = ()
    """Controls of the form that are below the figure instead."""
    links: Sequence[PageLink] = ()
    """Links to other pages, below the figure."""
    notes: Sequence[Callable[[Any], str]] = ()
    """Further sentences of the parameters, below the caption."""
    frames: str = ""
    """The parameter that says which frame of the figure (plotly's) is shown, by its number. The browser goes there, and
    the server is not asked."""
    captioned: bool = True
    """Whether the caption is shown; not where the page says the same elsewhere."""
    title: Callable[[Any, Any], str] | None = None
    """`title(params, result)`; by default the view's title."""
    above: Callable[[Layout], Any] | None = None
    """`above(page)`: what the page's script fills, above the figure."""
    saves: Mapping[str, Callable[[Any, View, Any], File]] = field(default_factory=dict)
    """Further files, by kind (`app.shell.panel`): `write(workshop, view, params)`."""
    presets: Sequence[Preset] = ()
    """Buttons in the header that set fields."""
    ignores: Sequence[str] = ()
    """Fields of the form that the view does not depend on."""
    apart: bool = False
    """Whether the panel is answered in a request of its own, wherever it is in view, since its result takes seconds."""
    always: bool = False
    """Whether the panel is asked wherever it is, in view or not, since another one shows some of its result."""
    facts: Callable[[Any, Any], Any] | None = None
    """`facts(params, result)`: what a script needs to know of the result, in the store `ids.facts(id)`."""
    body: Callable[[Any, Any], Any] | None = None
    """`body(params, result)`: what else is said or drawn of the result, below the caption."""

    @property
    def own(self) -> tuple[str, ...]:
        """The parameters that belong to some panel and that this one depends on."""
        return (*self.controls, *self.over, *self.reads)

    @property
    def asked(self) -> bool:
        """Whether the server is asked for it, in the request for all panels."""
        return True

    @property
    def moves(self) -> Sequence[str]:
        """Parameters whose control the panel has and that do not change its result."""
        return ()

    @property
    def pictured(self) -> bool:
        """Whether the panel has the view's figure."""
        return self.view.pictured

    @property
    def exports(self) -> Sequence[str]:
        """The kinds of files that the panel saves."""
        return (*self.saves, *((*FILES, "json") if self.pictured else ("csv", "json", "python")))

    def drawn(self, id: str) -> View | Own | None:
        """Return what `show_views` draws; None if the panel draws itself."""
        box = props("className", box=ids.box(ids.graph(id))) if self.view.slow and self.pictured else {}
        lines = stores(lines=ids.drawn(f"{id}-lines")) if self.tabled else {}
        if not (self.worded or box or lines):
            return self.view

        def with_words(values: Any, result: Any) -> dict[str, Any]:
            sized = {"box": self.class_name} if box else {}
            return self.words(values, result) | sized | (self._listed(values, result) if lines else {})

        return Own(
            view=self.view, draw=with_words, outputs=box | lines,
            parts=(*(["figure"] if self.pictured else []), "caption", *self.worded),
            empty=self.unnamed | ({"box": "hidden"} if box else {}),
            reads=lambda values: [note(values) for note in self.notes],
        )  # fmt: skip

    @property
    def tabled(self) -> bool:
        """Whether the panel has tables."""
        return self.view.listed

    def _listed(self, values: Any, result: Any) -> dict[str, Any]:
        table, left = first_rows(self.view.frame(result), "rest" if self.pictured else "fill")
        return {"lines": [table], "caption": f"{self.view.caption(values, result)}{left}"}

    @property
    def worded(self) -> tuple[str, ...]:
        """The parts of the panel that `words` fills."""
        return (*(["body"] if self.notes or self.body else []), *(["title"] if self.title else []))

    @property
    def unnamed(self) -> dict[str, Any]:
        """The title if there is no result to name."""
        return {"title": self.view.title} if self.title else {}

    def words(self, values: Any, result: Any) -> dict[str, Any]:
        """Return the notes with the rest of the body, and the title if it depends on the result."""
        lines = [html.Div(line) for note in self.notes if (line := note(values))]
        body = {"body": [*lines, *([self.body(values, result)] if self.body else [])]} if "body" in self.worded else {}
        return body if self.title is None else {**body, "title": self.title(values, result)}

    def content(self, id: str) -> list[Any]:
        """Lay out what is between the panel's header and its foot."""
        return [
            *([start_bar(id)] if self.view.starts else []),
            self.caption(id),
            *([html.Div(id=ids.body(id), className="caption", role="status")] if "body" in self.worded else []),
            *self.figure(id),
        ]

    def caption(self, id: str) -> Any:
        """Lay out the caption."""
        return caption(id) if self.captioned else html.Div(caption(id), hidden=True)

    def figure(self, id: str) -> list[Any]:
        """Lay out the figure, and the tables below it."""
        tables = [value_tables(f"{id}-lines", self.view.title, self.beside)] if self.tabled else []
        return [*([figure(id, self.class_name)] if self.pictured else []), *tables]

    @property
    def beside(self) -> str:
        """The class of two tables next to each other; nothing if they are below each other."""
        return ""

    @property
    def class_name(self) -> str:
        """The class that sets the figure's size."""
        size = self.size or ("strip" if self.view.low else "tall" if self.view.tall else "view")
        return f"graph-{size} graph-wide" if self.view.wide else f"graph-{size}"

    def lay(self, page: Layout) -> Any:
        """Lay the panel out."""
        below = [*(page.control(field, small=True) for field in self.foot), *page.links(self.links)]
        foot = [html.Div(below, className="panel-foot")] if below else []
        kind = "two" if len(self.over) <= 2 else "view-strip"
        over = [html.Div([page.control(field) for field in self.over], className=kind)] if self.over else []
        above = [self.above(page)] if self.above else []
        return page.frame(self, [*over, *above, *self.content(page.panel_id(self)), *foot], always=self.always)


@dataclass(frozen=True)
class Linked(Panel):
    """Tables below the figure, if there is one; cells may be choices. The caption says what is missing."""

    _: KW_ONLY
    lines: Callable[[Any, Any], list[dict[str, Any]]] | None = None
    """`lines(params, result)`: tables (`tables.value_table`) or tokens (`tables.chips`). A cell that is a choice is
    `tables.pick(text, tip, {field: value})`, with {"value": 40, "label": "the"} for a field that is searched."""
    by: Sequence[str] = ()
    """Parameters that `lines` depends on and the view's call does not."""
    pairs: bool = False
    """Whether two tables are next to each other."""
    alone: bool = False
    """Whether the tables are without the view's figure."""

    @property
    def pictured(self) -> bool:
        return self.view.pictured and not self.alone

    @property
    def tabled(self) -> bool:
        return self.lines is not None

    @property
    def beside(self) -> str:
        return "two" if self.pairs else ""

    def drawn(self, id: str) -> Own:
        lines = stores(lines=ids.drawn(f"{id}-lines")) if self.lines else {}
        picture = [self._picture] if self._picture else []
        box = props("className", box=ids.box(ids.graph(id))) if picture == ["figure"] else {}
        return Own(
            view=self.view, draw=self._draw, parts=("caption", *picture, *self.worded),
            outputs=lines | box, empty=self.unnamed | ({"box": "hidden"} if box else {}), quiet=True,
            reads=lambda params: [getattr(params, name) for name in self.by],
        )  # fmt: skip

    @property
    def _picture(self) -> str:
        """The part of the panel that has the figure."""
        return "figure" if self.pictured else ""

    def _draw(self, params: Any, result: Any) -> dict[str, Any]:
        answer = self.words(params, result) | ({"lines": self.lines(params, result)} if self.lines else {})
        if self._picture == "figure":
            answer["box"] = self.class_name
        if not self.captioned:
            return {**answer, "caption": None}
        return answer if self.pictured else {**answer, "caption": self.view.caption(params, result)}

    def caption(self, id: str) -> Any:
        return caption(id)  # which says what is missing


@dataclass(frozen=True)
class Matrix(Linked):
    """A view whose figure is one heat map, drawn by the widget: a click on an entry, or Enter, chooses."""

    _: KW_ONLY
    picks: Picks = field(default_factory=dict)
    marks: str = ""
    """The view whose place in this matrix (`meta["block"]` of its figure) is framed."""

    @property
    def _picture(self) -> str:
        return "matrix"

    def figure(self, id: str) -> list[Any]:
        attributes = {"data-picks": json.dumps(self.picks), "data-marks": self.marks}
        return [html.Div(matrix(id, self.class_name), **attributes), *super().figure(id)[1:]]


@dataclass(frozen=True)
class _FormPanel(Linked):
    """The panel of a form that says what is asked."""

    exports = ()

    def drawn(self, id: str) -> Own:
        def says(params: Any, result: Any) -> dict[str, Any]:
            facts = {} if self.facts is None else {"facts": self.facts(params, result)}
            lines = {"lines": self.lines(params, result)} if self.lines else {}
            return {"caption": self.view.caption(params, result), **self.words(params, result), **facts, **lines}

        outputs = facts_of(self, id) | (stores(lines=ids.drawn(f"{id}-lines")) if self.lines else {})
        return Own(
            view=self.view, draw=says, parts=("caption", *self.worded), quiet=True, outputs=outputs,
            reads=lambda params: [getattr(params, name) for name in self.by],
        )  # fmt: skip

    def lay(self, page: Layout) -> Any:
        id = page.panel_id(self)
        lines, body = self.figure(id)[-1:] if self.lines else [], [html.Div(id=ids.body(id))] if self.body else []
        start = [start_bar(id)] if self.view.starts else []
        content = [page.form(strip=True), *lines, *start, caption(id), *body, *facts_store(self, id)]
        return page.frame(self, content, always=True, links=page.links(self.links))


def facts_of(panel: Panel, id: str) -> Props:
    """Return the output for a panel's facts, if it has some."""
    return {} if panel.facts is None else stores(facts=ids.facts(id))


def facts_store(panel: Panel, id: str) -> list[dcc.Store]:
    """Lay out the store of a panel's facts, if it has some."""
    return [] if panel.facts is None else [dcc.Store(id=ids.facts(id))]


@dataclass(frozen=True)
class Form:
    """The controls of the parameters that belong to no panel: up to five are a strip across the page, in `Rows`; more
    are a column at the left, in `Columns`. With a view it is a strip at the top of the view's panel, which says what is
    asked. It is answered with the limits of all parameters."""

    view: View | None = None
    _: KW_ONLY
    body: Callable[[Any, Any], Any] | None = None
    """`body(params, result)`: what else is said of the view's result."""
    lines: Callable[[Any, Any], list[dict[str, Any]]] | None = None
    """Tables or tokens below the controls, as of `Linked`."""
    links: Sequence[PageLink] = ()
    """Links to other pages, in the header of the view's panel."""
    presets: Sequence[Preset] = ()
    """Buttons in that header that set fields."""
    facts: Callable[[Any, Any], Any] | None = None
    """As a panel's."""
    reads: Sequence[str] = ()
    """Parameters of panels that limits, or what is said of the view, depend on."""
    by: Sequence[str] = ()
    """Parameters that what is said of the view depends on and its call does not."""

    @property
    def parts(self) -> tuple[Panel, ...]:
        """The view's panel, if there is a view."""
        if self.view is None:
            return ()
        rest: dict[str, Any] = {"links": self.links, "presets": self.presets, "facts": self.facts}
        rest |= {"lines": self.lines, "reads": self.reads, "by": self.by}
        return (_FormPanel(self.view, body=self.body, **rest),)

    def lay(self, page: Layout) -> Any:
        """Lay the controls out."""
        return page.form() if self.view is None else self.parts[0].lay(page)


@dataclass(frozen=True)
class Tabs:
    """Parts of which one is open; `field` is the name of the open one in the address."""

    field: str
    sections: Mapping[str, tuple[str, Any]]
    """By value of the field: label and part."""
    _: KW_ONLY
    label: str = "Views"

    @property
    def parts(self) -> tuple[Any, ...]:
        """What is in the sections."""
        return tuple(part for _, part in self.sections.values())

    def lay(self, page: Layout) -> Any:
        """Lay all sections out."""
        return page.tabs(self)


class Rows:
    """Parts below each other; in a narrow window a form is below the first panel."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def lay(self, page: Layout) -> html.Div:
        """Lay the parts out."""
        return html.Div([page.lay(part) for part in self.parts], className="arranged-rows")


class Columns(Rows):
    """Parts next to each other; in a narrow window below each other."""

    def __init__(self, *parts: Any, widths: str = "minmax(0, 1fr) minmax(0, 1fr)") -> None:
        super().__init__(*parts)
        self.widths = widths

    def lay(self, page: Layout) -> html.Div:
        """Lay the parts out."""
        columns = [page.lay(part) for part in self.parts]
        return html.Div(columns, className="arranged-columns", style={"--widths": self.widths})


def walk(part: Any) -> Iterator[Any]:
    """Yield every part of an arrangement, a view as a `Panel`."""
    if isinstance(part, View):
        part = Panel(part)
    yield part
    for inner in getattr(part, "parts", ()):
        yield from walk(inner)
