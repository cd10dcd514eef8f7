"""What the Compare page asks of the server for two heads, and for all pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aotlens.plots import Theme, plot
from app.core.errors import RequestError
from app.core.files import File
from app.core.head_maps import View
from app.pages.compare import captions, differences, files
from app.pages.compare.address import Head, Side
from app.pages.compare.gallery import gallery
from app.pages.compare.ids import ids
from app.pages.compare.service import Compare, HeadPair, Panes
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.graph import blank
from app.shell.head_map import tell_lines, tell_numbers
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, when_seen

_MAPS: dict[Side, str] = {"left": ids.LEFT_MAP, "right": ids.RIGHT_MAP}
_VIEW = {**values(view=ids.VIEW), **props("checked", hide_first=ids.HIDE_FIRST)}


def register(app: App, service: Compare) -> None:
    """The callbacks of the pair's maps and of all pairs."""
    when_seen(app, ids.PAIR, (*_MAPS.values(), ids.DIFFERENCE))
    when_seen(app, ids.SHOWN, (ids.PAIRS, ids.SIMILARITY))
    _register_pair(app, service)
    for side, panel in _MAPS.items():
        _register_map(app, service, side, panel)
    _register_difference(app, service)
    _register_pairs(app, service)
    _register_files(app, service)


def _register_pair(app: App, service: Compare) -> None:
    @guarded(
        app,
        panel=ids.LEFT_MAP,
        inputs=stores(shown=ids.SHOWN) | values(head=ids.HEAD, other_head=ids.OTHER_HEAD),
        state=stores(asked=ids.PANES),
        output=stores(pair=ids.PAIR) | children(line=ids.PAIR_LINE),
        shares_notice=True,
    )
    def match(shown: Any, head: str | None, other_head: str | None, asked: dict[str, Any]) -> Answer:
        if shown is None:
            return None
        panes = service.panes(asked)
        pair = service.pair(panes, _head(head), _head(other_head))
        unmatched = service.why_unmatched(panes) if pair.why == "unmatched" else None
        return {
            "pair": {"key": panes.key, "left": list(pair.left), "right": list(pair.right)},
            "line": captions.pair_line(panes, pair, unmatched),
        }


def _register_map(app: App, service: Compare, side: Side, panel: str) -> None:
    @guarded(
        app,
        panel=panel,
        inputs=stores(pair=shell.seen(panel), theme=shell.THEME) | _VIEW,
        state=stores(asked=ids.PANES),
        parts=("figure", "title"),
        empty={"title": captions.SIDES[side]},
    )
    def draw(pair: Any, asked: dict[str, Any], view: View, hide_first: bool, theme: Theme) -> Answer:
        if pair is None:
            return None
        panes, heads = _drawn(service, asked, pair)
        figure = differences.pane_figure(panes, heads, side, view, hide_first, theme)
        return {"figure": figure, "title": f"{captions.SIDES[side]}: {captions.head_name(getattr(heads, side))}"}

    tell_lines(app, panel, lambda asked: service.panes(asked).results[side], stores(asked=ids.PANES))


def _register_difference(app: App, service: Compare) -> None:
    @guarded(
        app,
        panel=ids.DIFFERENCE,
        inputs=stores(pair=shell.seen(ids.DIFFERENCE), theme=shell.THEME) | _VIEW,
        state=stores(asked=ids.PANES),
        parts=("figure", "caption"),
    )
    def draw(pair: Any, asked: dict[str, Any], view: View, hide_first: bool, theme: Theme) -> Answer:
        if pair is None:
            return None
        panes, heads = _drawn(service, asked, pair)
        if not panes.places:
            return {"figure": blank(captions.why_nothing_corresponds(panes), theme), "caption": None}
        if not np.nan_to_num(differences.difference_values(panes, heads, view, hide_first)).any():
            return {"figure": blank(captions.NO_DIFFERENCE, theme), "caption": captions.places_line(panes)}
        figure = differences.difference_figure(panes, heads, view, hide_first, theme)
        return {"figure": figure, "caption": captions.places_line(panes)}

    def line(wanted: dict[str, Any], asked: dict[str, Any], pair: Any) -> dict[str, Any] | None:
        if pair is None:
            return None
        panes, heads = _drawn(service, asked, pair)
        view, hide_first = wanted["view"], bool(wanted["hide_first"])
        if not panes.places or wanted["key"] != differences.difference_of(panes, heads, view, hide_first)["key"]:
            return None
        return differences.difference_line(panes, heads, view, hide_first, int(wanted["position"]))

    tell_numbers(app, ids.DIFFERENCE, line, stores(asked=ids.PANES, pair=ids.PAIR))


def _register_pairs(app: App, service: Compare) -> None:
    @guarded(
        app,
        panel=ids.PAIRS,
        inputs=stores(shown=shell.seen(ids.PAIRS), theme=shell.THEME) | _VIEW,
        state=stores(asked=ids.PANES),
        output=stores(gallery=shell.drawn(ids.GALLERY)),
        parts=("caption",),
    )
    def list_pairs(shown: Any, asked: dict[str, Any], view: View, hide_first: bool, theme: Theme) -> Answer:
        if shown is None:
            return None
        panes = service.panes(asked)
        pairs = service.pairs(panes)
        return {
            "gallery": gallery(panes, pairs, view, hide_first, theme),
            "caption": captions.pairs_line(panes, pairs),
        }

    @guarded(
        app,
        panel=ids.SIMILARITY,
        inputs=stores(shown=shell.seen(ids.SIMILARITY), theme=shell.THEME),
        state=stores(asked=ids.PANES),
        parts=("figure",),
    )
    def draw_similarity(shown: Any, asked: dict[str, Any], theme: Theme) -> Answer:
        if shown is None:
            return None
        matched = service.matching(service.panes(asked))
        if matched is None:
            return {"figure": blank("Both panes have one checkpoint: each head is like itself.", theme)}
        return {"figure": plot(matched, theme=theme)}


def _register_files(app: App, service: Compare) -> None:
    def of_pair(make: Callable[..., File], *first: Any) -> Callable[..., File]:
        def file(asked: dict[str, Any], pair: Any, view: View, hide_first: bool) -> File:
            if pair is None:
                raise RequestError("There are no heads here to save: run a text first.")
            panes, heads = _drawn(service, asked, pair)
            if make is files.difference_csv and not panes.places:
                raise RequestError(captions.why_nothing_corresponds(panes))
            return make(panes, heads, *first, view, hide_first)

        return file

    def pairs_csv(asked: dict[str, Any], **_: Any) -> File:
        panes = service.panes(asked)
        return files.pairs_csv(panes, service.pairs(panes))

    def similarity_csv(asked: dict[str, Any], **_: Any) -> File:
        return files.similarity_csv(*_matched(service, asked))

    save_files(
        app,
        {
            **{shell.export(panel, "csv"): of_pair(files.map_csv, side) for side, panel in _MAPS.items()},
            shell.export(ids.DIFFERENCE, "csv"): of_pair(files.difference_csv),
            shell.export(ids.PAIRS, "csv"): pairs_csv,
            shell.export(ids.SIMILARITY, "csv"): similarity_csv,
        },
        stores(asked=ids.PANES, pair=ids.PAIR) | _VIEW,
    )


def _matched(service: Compare, asked: dict[str, Any]) -> tuple[Panes, Any]:
    panes = service.panes(asked)
    matched = service.matching(panes)
    if matched is None:
        raise RequestError("Both panes have one checkpoint: there are no cosines to save.")
    return panes, matched


def _drawn(service: Compare, asked: dict[str, Any], pair: dict[str, Any]) -> tuple[Panes, HeadPair]:
    """The panes, and the heads whose maps are shown."""
    panes = service.panes(asked)
    return panes, service.beside(panes, _whole(pair["left"]), _whole(pair["right"]))


def _head(name: str | None) -> Head | None:
    """A head as a choice names it, `1.3`."""
    return None if not name else _whole(name.split("."))


def _whole(head: list[Any]) -> Head:
    layer, index = head
    return int(layer), int(index)
