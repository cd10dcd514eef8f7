"""The display of a figure by plotly, wherever that is: in the app, in a report, in a notebook."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from aotlens.files import replacing_file

#: The settings of plotly.js, which would show its logo, and a button that sends the figure to a cloud service.
DISPLAY: Final[dict[str, Any]] = {"displaylogo": False, "showSendToCloud": False, "responsive": True}

_SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)


def write_page(figure: go.Figure, path: Path, **options: Any) -> None:
    """Write a figure as one HTML file that needs no network: its Content-Security-Policy names no server, and no script
    but its own by their hashes. Raises `OSError`, with the path, for a full disk."""
    html = figure.to_html(include_plotlyjs=True, config=DISPLAY, **options)
    hashes = (base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in _SCRIPT.findall(html))
    scripts = " ".join(f"'sha256-{each}'" for each in hashes)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    with replacing_file(path) as temporary:
        temporary.write_text(html.replace("<head>", f"<head>{meta}", 1), encoding="utf-8", newline="\n")


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
