"""How plotly shows a figure, wherever that is: in the app, in a report, in a notebook."""

from __future__ import annotations

from typing import Any, Final

#: For plotly.js, which would show its logo, and a button that sends the figure to a cloud service.
DISPLAY: Final[dict[str, Any]] = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
