"""Ids: a page's own, prefixed with its name; and what belongs to a panel, a graph or a table, named after it."""

from __future__ import annotations

from collections import Counter

# The frame of every page.
PROVIDER = "provider"
LOCATION = "location"
PAGE = "page"
NAVIGATION = "navigation"
THEME_CHOICE = "theme-choice"  # light, dark or system
THEME = "theme"  # what that comes to: light or dark
CONNECTION = "connection"  # the notice that the server does not answer
SIGNED_OUT = "signed-out"  # the notice that it asks for its token again
PYTHON = "python"  # the lines that give a view's numbers
PYTHON_CODE = "python-code"
PYTHON_ASKED = "python-asked"  # store: {panel, search}, whose lines are wanted


class Ids:
    """The ids of one page: of `Ids("heads", "map open-paths")`, `ids.OPEN_PATHS` is `heads-open-paths`.

    Names are separated by spaces. A name given twice is refused, and so is one that was not given.
    """

    def __init__(self, page: str, *names: str) -> None:
        self._page = page
        listed = " ".join(names).split()
        twice = [name for name, count in Counter(listed).items() if count > 1]
        if twice:
            raise ValueError(f"The page {page} names twice: {', '.join(twice)}.")
        self._ids = {name.upper().replace("-", "_"): f"{page}-{name}" for name in listed}

    def named(self, names: str) -> dict[str, str]:
        """Return ids by their names: of `ids.named("map open-paths")`, `open_paths` is `heads-open-paths`."""
        listed = [name.replace("-", "_") for name in names.split()]
        return {name: getattr(self, name.upper()) for name in listed}

    def __getattr__(self, name: str) -> str:
        if name.startswith("_") or name not in self._ids:
            raise AttributeError(f"The page {self.__dict__.get('_page')} has no id {name}.")
        return self._ids[name]


def notice(panel: str) -> str:
    """Name the place where a panel says what went wrong or what is missing."""
    return f"{panel}-notice"


def graph(panel: str) -> str:
    """Return a panel's one figure."""
    return f"{panel}-graph"


def body(panel: str) -> str:
    """Name the part of a panel that a callback fills, where that is no figure."""
    return f"{panel}-body"


def caption(panel: str) -> str:
    """Return a sentence about what is shown, beside it."""
    return f"{panel}-caption"


def box(graph: str) -> str:
    """Name the box that sets the size of a graph."""
    return f"{graph}-box"


def explanation(panel: str) -> str:
    """Name the explanation behind a panel's "?"."""
    return f"{panel}-explanation"


def title(panel: str) -> str:
    """Return a panel's heading."""
    return f"{panel}-title"


def value_of(slider: str) -> str:
    """Name the place where the value of a slider is said."""
    return f"{slider}-value"


def seen(panel: str) -> str:
    """Return the store of a panel that is asked for when it is in view: what is shown there, or shall be."""
    return f"{panel}-seen"


def maximise(panel: str) -> str:
    """Return the button that gives a panel the whole window."""
    return f"{panel}-maximise"


def export(panel: str, kind: str) -> str:
    """Return the menu entry that saves a panel's content as `kind`: png, svg, csv, json or npz."""
    return f"{panel}-export-{kind}"


def file_of(page: str) -> str:
    """Name the place where a callback puts a file to save; every page has one."""
    return f"{page}-file"


def upload(choice: str) -> str:
    """Name the place where a file is given to a choice of texts (`app.shell.own_texts`)."""
    return f"{choice}-upload"


def uploaded(choice: str) -> str:
    """Return the store that has that file on its way to the server."""
    return f"{choice}-uploaded"


def keep(choice: str) -> str:
    """Return the button that keeps a pasted text and chooses it."""
    return f"{choice}-keep"


def pasted(choice: str) -> str:
    """Return the box that a text is pasted into."""
    return f"{choice}-pasted"


def delete(choice: str) -> str:
    """Return the button that deletes the chosen text, if it is one's own."""
    return f"{choice}-delete"


def start(panel: str) -> str:
    """Return the button that starts the panel's job (`app.shell.background`)."""
    return f"{panel}-start"


def stop(panel: str) -> str:
    """Return the button that ends it."""
    return f"{panel}-stop"


def progress(panel: str) -> str:
    """Name the place where it is said how far the job is."""
    return f"{panel}-progress"


def timer(panel: str) -> str:
    """Name the timer that asks for that."""
    return f"{panel}-timer"


def watched(panel: str) -> str:
    """Return the store with the key of the job whose result shall be shown."""
    return f"{panel}-watched"


def made(panel: str) -> str:
    """Return the store with the key of the job whose result is there to be shown."""
    return f"{panel}-made"


def drawn(group: str) -> str:
    """Return the store of the elements that the browser draws in a group (`app.shell.drawn`)."""
    return f"{group}-drawn"


def facts(panel: str) -> str:
    """Return the store of what a script needs to know of a panel's result."""
    return f"{panel}-facts"


def matrix(panel: str) -> str:
    """Return a panel's one block of a matrix, which the widget draws (`graph.matrix`)."""
    return f"{panel}-matrix"


def paper(panel: str) -> str:
    """Return the store of a panel that holds a figure to save as a picture (`app.shell.sharing.save_pictures`)."""
    return f"{panel}-paper"


def page_of(id: str) -> str:
    """Return the page of one of its ids."""
    return id.partition("-")[0]


def exporting(entry: str) -> str:
    """Return the panel of such an entry."""
    return entry.rpartition("-export-")[0]
