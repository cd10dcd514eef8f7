"""What the Compare page does in the browser (compare.js): presets, one hover and one lock in three maps, links."""

from __future__ import annotations

from app.pages.compare.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.props import children, inside, props, stores, values

_CLICKS = props(
    "n_clicks",
    **ids.named("preset-off preset-mssa-mhsa preset-mhsa-gpt preset-mssa-gpt swap"),
)
_OFF = stores(left_off=ids.LEFT_OFF, right_off=ids.RIGHT_OFF)
_CHOSEN = values(left=ids.LEFT, right=ids.RIGHT)

WRITES = {
    **_CHOSEN,
    **_OFF,
    **values(how=ids.HOW, corpus=ids.CORPUS, head=ids.HEAD, other_head=ids.OTHER_HEAD, view=ids.VIEW, tab=ids.TABS),
    **inside(ids.SHOWN, "text", "other"),
    **props("checked", hide_first=ids.HIDE_FIRST),
    "position": (ids.POSITIONS, "data.left"),
    "other_position": (ids.POSITIONS, "data.own"),
}

BROWSER = (
    Browser(
        "preset",
        inputs=_CLICKS,
        state={**_CHOSEN, **_OFF, **values(head=ids.HEAD)},
        outputs={**_CHOSEN, **_OFF},
        at_first=False,
    ),
    Browser(
        "submit",
        inputs={
            **props("n_clicks", run=ids.RUN),
            **_CHOSEN,
            **_OFF,
            **values(example=ids.EXAMPLE, how=ids.HOW, corpus=ids.CORPUS),
            **props("checked", another=ids.ANOTHER),
        },
        state={**values(text=ids.TEXT, other=ids.OTHER), **stores(panes=ids.PANES)},
        outputs={**stores(panes=ids.PANES), **_OFF, **values(text=ids.TEXT, example=ids.EXAMPLE)}
        | props("className", other_box=ids.OTHER_BOX, corpus_box=ids.CORPUS),
        at_first=False,
    ),
    Browser("sayOff", inputs=_OFF, outputs=children(left=ids.LEFT_OFF_LINE, right=ids.RIGHT_OFF_LINE)),
    # Apart, because a function waits for all that it is given: two models' heads are matched for seconds.
    Browser("showPanes", inputs=stores(shown=ids.SHOWN, positions=ids.POSITIONS)),
    Browser("showLosses", inputs=stores(strip=shell.drawn(ids.STRIP), other=shell.drawn(ids.OTHER_STRIP))),
    Browser("showPair", inputs=stores(pair=ids.PAIR)),
    Browser("showPairs", inputs=stores(gallery=shell.drawn(ids.GALLERY))),
    Browser(
        "lockFromMap",
        inputs=props(
            "clickData",
            **{
                name: shell.graph(panel)
                for name, panel in (("left", ids.LEFT_MAP), ("right", ids.RIGHT_MAP), ("difference", ids.DIFFERENCE))
            },
        ),
        at_first=False,
    ),
    Browser("pickFromTable", inputs=props("clickData", click=shell.graph(ids.SIMILARITY)), at_first=False),
    *(
        Link(
            "heads",
            to=link,
            checkpoint=(ids.SHOWN, f"data.{side}.checkpoint"),
            text=(ids.PANES, f"data.{text}"),
            head=(ids.PAIR, f"data.{side}"),
            position=(ids.POSITIONS, f"data.{side}"),
            view=(ids.VIEW, "value"),
            off=(store, "data"),
            how=(ids.HOW, "value"),
            corpus=(ids.CORPUS, "value"),
        )
        for side, link, store, text in (
            ("left", ids.OPEN_LEFT, ids.LEFT_OFF, "text"),
            ("right", ids.OPEN_RIGHT, ids.RIGHT_OFF, "right_text"),
        )
    ),
)  # fmt: skip
