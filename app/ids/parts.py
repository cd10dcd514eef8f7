"""What belongs to a panel, a graph or a table, named after it."""

from __future__ import annotations


def notice(panel: str) -> str:
    """Where a panel says what went wrong or what is missing."""
    return f"{panel}-notice"


def box(graph: str) -> str:
    """What sets the size of a graph."""
    return f"{graph}-box"


def heading(table: str) -> str:
    """What a table among several lists."""
    return f"{table}-heading"


def explanation(panel: str) -> str:
    """A panel's paragraph."""
    return f"{panel}-explanation"


def title(panel: str) -> str:
    """A panel's heading."""
    return f"{panel}-title"


def maximise(panel: str) -> str:
    """The button that gives a panel the whole window."""
    return f"{panel}-maximise"


def export(panel: str, kind: str) -> str:
    """The menu entry that saves a panel's content as `kind`: png, svg, csv, json or npz."""
    return f"{panel}-export-{kind}"
