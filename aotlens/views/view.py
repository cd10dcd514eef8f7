"""A view: one analysis, declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aotlens.views.calls import Node, Workshop

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from aotlens.plots import Theme

#: The source of several views.
FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"
#: The parameters of a family, an instance of its dataclass.
Values: TypeAlias = Any


def cells(frame: pd.DataFrame, most: int) -> list[tuple[str, ...]]:
    """Return a view's table as it is printed: its columns, and its rows up to so many."""
    rows = (tuple(map(_cell, row)) for row in frame.head(most).itertuples(index=False))
    return [tuple(map(str, frame.columns)), *rows]


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("\n", "\\n")


def pass_cost(model: Mapping[str, Any], n_pos: int) -> float:
    """Estimate how many operations a model's layers take for one prompt, by its configuration: two for each weight and
    position, and for each pair of positions what patterns and values take."""
    n_layers, d_model = int(model["n_layers"]), int(model["d_model"])
    width = int(model["n_heads"]) * int(model.get("d_head") or d_model // int(model["n_heads"]))
    weights = 4 * d_model * width + 2 * d_model * int(model.get("d_mlp") or 0)
    return 2.0 * n_layers * n_pos * (weights + 2 * n_pos * width)


@dataclass(frozen=True, kw_only=True)
class View:
    """One analysis: the call that gives its result, and how it is presented. `values` are the parameters; if these have
    `texts`, `cost` and `held` are of prompts of `n_tokens` each, which the app counts.

    The figure is `aotlens.plot(result)`, the table `result.to_frame()`, the Python the call itself: none is written
    again for a page, a command or a report.
    """

    name: str
    title: str
    about: str
    """What it shows, in sentences."""
    formula: str = ""
    """The formula of its numbers."""
    source: str = ""
    """The paper and place that it is from."""
    call: Callable[[Values], Node]
    """The call for these parameters: its result depends on nothing else."""
    caption: Callable[[Values, Any], str] = lambda values, result: result.sentences()
    """`caption(values, result)`: the answer, in sentences; by default those of the result."""
    file: Callable[[Values], str] = None  # type: ignore[assignment]
    """The name of its files, without an ending; by default that of the checkpoint and of the view."""
    missing: Callable[[Values], str | None] = lambda values: None
    """The reason why there is no result for these parameters, and what to do; None if there is one."""
    drawn: Callable[[Values], Mapping[str, Any]] = lambda values: {}
    """Options of `aotlens.plot`."""
    table: str = "to_frame"
    """The result's method that gives the table."""
    cost: Callable[[Values], float] = lambda values: 0.0
    """The approximate operations of its call: two for each weight, position and pass. 0 if it is always small."""
    held: Callable[[Values], float] = lambda values: 0.0
    """The approximate number of bytes that it holds at once. 0 if it is always small."""
    pictured: bool = True
    """Whether `aotlens.plot` has a figure of it; a table alone has none."""
    low: bool = False
    """Whether its figure is a strip of two or three lines."""
    tall: bool = False
    """Whether its figure is about as high as wide, as a matrix with names along both sides."""
    wide: bool = False
    """Whether its figure has several parts side by side: in a narrow window a page scrolls it."""
    listed: bool = False
    """Whether a page shows its table, too."""
    picks: str = ""
    """`parameter = y.x`: which parameter of the family a click on the figure sets, to the first words of the point's
    labels, as in "1.3" or "5"; `parameter = customdata`: to the point's own, if it has one, `customdata.0` or
    `customdata.1.2`: to some of its items; `parameter = name`: to the head in the trace's name, if it has one;
    `parameter += customdata`: a parameter that lists names, which the point's own joins, or leaves where it is listed
    already. Several with semicolons between; empty if a click does nothing."""
    slow: str = ""
    """The unit that its call counts (`progress`), if it takes so long that a user starts it; with a `cost`, if that is
    more than a request may take."""
    made_by: str = ""
    """The view of the same family whose Run makes this slow view's result, too; empty if it has a Run of its own."""
    before: Callable[[Values], str] | None = None
    """What a page states of a slow view before it is started; by default that Run computes it."""
    slow_part: Callable[[Values], Node] | None = None
    """The part of a slow view's call that takes long, if the rest is quick; None: the whole."""

    def __post_init__(self) -> None:
        if self.file is None:
            object.__setattr__(self, "file", lambda params: f"{params.checkpoint}-{self.name}")

    @property
    def read(self) -> str:
        """`about` without what a pointer or a click does, for where there is neither."""
        sentences = self.about.replace(". ", ".\n").splitlines()
        return " ".join(sentence for sentence in sentences if not sentence.startswith(("Click", "Point at")))

    @property
    def starts(self) -> bool:
        """Whether a user starts it by itself."""
        return bool(self.slow) and not self.made_by

    def result(self, values: Values, workshop: Workshop | None = None) -> Any:
        """Return the result. Raises ValueError with `missing`, and what the library raises."""
        return self._call(values).run(workshop)

    def _call(self, values: Values) -> Node:
        missing = self.missing(values)
        if missing is not None:
            raise ValueError(missing)
        return self.call(values)

    def figure(self, values: Values, result: Any, theme: Theme = "light") -> go.Figure:
        """Draw the figure of a result."""
        from aotlens.plots import plot

        return plot(result, theme=theme, **self.drawn(values))

    def frame(self, result: Any) -> pd.DataFrame:
        """Return the table of a result."""
        frame: pd.DataFrame = getattr(result, self.table)()
        return frame

    def python(self, values: Values) -> str:
        """Write the result, its table and its figure as code. Raises ValueError as `result`."""
        options = "".join(f", {name}={value!r}" for name, value in self.drawn(values).items())
        figure = [f"figure = aotlens.plot(result{options})"] if self.pictured else []
        return self._call(values).python(f"table = result.{self.table}()", *figure)

    def key(self, values: Values) -> str:
        """Return a text that changes whenever its figure or table may."""
        missing = self.missing(values)
        if missing is not None:
            return missing
        call = self.call(values)
        return f"{call.source}{call.stamps}{self.drawn(values)}"
