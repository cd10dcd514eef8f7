"""The Heads page's functions in the browser (heads.js): draw maps, mark, lock, link to a head's circuits and paths."""

from __future__ import annotations

from app.pages.heads.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.props import inside, props, stores, values

_PROMPT = inside(ids.PROMPT, "checkpoint", "text")
_CELL = {"cell": (ids.CELL, "data.cell"), "against": (ids.CELL, "data.against")}
_CHOSEN = stores(head=ids.HEAD, position=ids.POSITION)
SWITCHED = stores(off=ids.OFF) | values(how=ids.HOW, corpus=ids.CORPUS)
DRAWS = values(new=ids.NEW, temperature=ids.TEMPERATURE, top_k=ids.TOP_K, seed=ids.SEED, stop=ids.STOP)

WRITES = {
    **_PROMPT,
    **_CHOSEN,
    **_CELL,
    **values(direction=ids.DIRECTION, view=ids.VIEW, rank=ids.RANK, tab=ids.TABS),
    **props("checked", hide_first=ids.HIDE_FIRST),
    **SWITCHED,
    **DRAWS,
}

BROWSER = (
    # Two, because the first must not wait for the server to score motifs.
    Browser(
        "show",
        inputs=stores(analysis=ids.ANALYSIS, locked=ids.CELL)
        | _CHOSEN
        | values(tab=ids.TABS, direction=ids.DIRECTION)
        | props("checked", hide=ids.HIDE_FIRST)
        | SWITCHED,
        outputs=stores(predicted=ids.PREDICTED, run=ids.RUN_OF, why=ids.WHY_OF, scored=ids.SCORED),
    ),
    # Beside the callback of the text and not after it, so that the maps come one round trip sooner: as a callback of
    # Dash's it would wait for that one, which may set which heads are off.
    Browser("askMaps", inputs=stores(prompt=ids.PROMPT) | values(view=ids.VIEW) | SWITCHED),
    Browser("showMotifs", inputs=stores(motifs=ids.MOTIFS) | values(rank=ids.RANK)),
    Browser(
        "drawTables",
        inputs=stores(
            **{
                name: shell.drawn(id)
                for name, id in ids.named("losses-whole losses-change next-lines next-off-lines why-pairs").items()
            }
        ),
    ),
    Browser("switchAllOn", inputs=props("n_clicks", clicks=ids.ALL_ON), outputs=stores(off=ids.OFF), at_first=False),
    Link(
        "atlas",
        to=ids.OPEN_ATLAS,
        checkpoint=_PROMPT["checkpoint"],
        head=(ids.HEAD, "data"),
        always={"tab": "head"},
    ),
    Link(
        "compare",
        to=ids.OPEN_COMPARE,
        left_model=_PROMPT["checkpoint"],
        text=_PROMPT["text"],
        right=SWITCHED["off"],
        how=SWITCHED["how"],
        corpus=SWITCHED["corpus"],
        head=(ids.HEAD, "data"),
    ),
    Link("circuits", to=ids.OPEN_CIRCUITS, **_PROMPT, head=(ids.HEAD, "data")),
    Link("paths", to=ids.OPEN_PATHS, **_PROMPT, position=(ids.POSITION, "data"), through=(ids.HEAD, "data")),
)
