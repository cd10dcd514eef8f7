"""The display of a figure by plotly, wherever that is: in the app, in a report, in a notebook."""

from __future__ import annotations

from typing import Any, Final

import plotly.graph_objects as go

#: The settings of plotly.js, which would show its logo, and a button that sends the figure to a cloud service.
DISPLAY: Final[dict[str, Any]] = {"displaylogo": False, "showSendToCloud": False, "responsive": True}


class NotebookFigure(go.Figure):
    """A figure that shows itself in a notebook as plotly's own do, by the renderer that plotly or the user has chosen,
    but with `DISPLAY`. In all else it is plotly's."""

    def show(self, *args: Any, config: dict[str, Any] | None = None, **options: Any) -> None:
        """Show it as `plotly.graph_objects.Figure.show`; what `config` says comes before `DISPLAY`."""
        super().show(*args, config={**DISPLAY, **(config or {})}, **options)

    def _ipython_display_(self) -> None:
        import plotly.io

        if plotly.io.renderers.render_on_display and plotly.io.renderers.default:
            self.show()
        else:
            print(repr(self))

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None, validate: bool = True, **options: Any
    ) -> dict[str, Any]:
        return super()._repr_mimebundle_(include, exclude, validate, **{"config": DISPLAY, **options})
