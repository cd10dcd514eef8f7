"""Compare: two models, or one with heads ablated, on one text or on two, side by side."""

from __future__ import annotations

from app.pages.compare.address import ADDRESS
from app.pages.compare.callbacks import python, register
from app.pages.compare.ids import ids
from app.pages.compare.layout import layout
from app.pages.compare.service import Compare
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.page import Page
from app.shell.props import children, inside, props, stores, values

_OFF = stores(left_off=ids.LEFT_OFF, right_off=ids.RIGHT_OFF)
_CHOSEN = values(left=ids.LEFT, right=ids.RIGHT)
_HEADS = values(head=ids.HEAD, other_head=ids.OTHER_HEAD)

PAGE = Page(
    title="Compare",
    address=ADDRESS,
    service=Compare,
    layout=layout,
    register=register,
    python=python,
    writes={
        **_CHOSEN,
        **_OFF,
        **_HEADS,
        **values(how=ids.HOW, corpus=ids.CORPUS, view=ids.VIEW, tab=ids.TABS),
        **inside(ids.SHOWN, "text", "other"),
        **props("checked", hide_first=ids.HIDE_FIRST),
        "position": (ids.POSITIONS, "data.left"),
        "other_position": (ids.POSITIONS, "data.own"),
    },
    browser=(
        Browser(
            "preset",
            inputs=props("n_clicks", **ids.named("preset-off preset-mssa-mhsa preset-mhsa-gpt preset-mssa-gpt swap")),
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
        Browser(
            "show",
            inputs={**stores(shown=ids.SHOWN), **_HEADS, **values(view=ids.VIEW)}
            | props("checked", hide=ids.HIDE_FIRST),
            state=stores(panes=ids.PANES, positions=ids.POSITIONS),
        ),
        # Apart, because a function waits for all that it is given: two models' heads are matched for seconds.
        Browser("sayOff", inputs=_OFF, outputs=children(left=ids.LEFT_OFF_LINE, right=ids.RIGHT_OFF_LINE)),
        Browser("showMatched", inputs=stores(matched=ids.MATCHED)),
        Browser("showLosses", inputs=stores(strip=shell.drawn(ids.STRIP), other=shell.drawn(ids.OTHER_STRIP))),
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
    ),
    sends={
        ids.PAIR: {"left": (0, 1), "right": (0, 1)},
        ids.POSITIONS: {"left": 0, "right": 0, "own": 0},
    },
    file=__file__,
)
