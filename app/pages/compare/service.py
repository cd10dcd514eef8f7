"""Two panes as the page asks for them, and the runs that its views and maps are of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from aotlens.conventions import head_name
from aotlens.plots.attention import QUANTITIES
from aotlens.views.compare import RUNS
from aotlens.views.compare_choice import CompareParameters, Pane, Side
from aotlens.widget import HeadMaps, looks, pack
from app.core import Core
from app.core.errors import RequestError
from app.core.runs import RunWorkshop
from app.pages.compare.address import CompareState, Head, pane_of

SIDES: tuple[Side, ...] = ("left", "right")


class Compare:
    """The service of the Compare page: it makes what the page shows."""

    def __init__(self, core: Core) -> None:
        self.core, self.workshop = core, RunWorkshop(core, core.settings.n_views)

    def first_of(self, state: CompareState) -> CompareState:
        """Return the address; of an empty one, the first checkpoint beside itself without a head of its first layer,
        and a head of the next one, which may have read it. (In novels-2l-mhsa: induction without the previous-token
        head.)"""
        shape = self.core.catalog.shape(self.core.catalog.default())
        if state != CompareState() or shape is None:
            return state
        return CompareState(right_off=((0, shape[1] - 1),), head=(min(1, shape[0] - 1), 0))

    def asked_of(self, state: CompareState) -> dict[str, Any]:
        """Return what an address asks for, with the texts themselves, as in the browser; `first_of` if it is empty."""
        state, panes = self.first_of(state), {}
        for side in SIDES:
            checkpoint, _ = pane_of(state, side)
            panes[side] = {"checkpoint": checkpoint or self.core.catalog.default(),
                           "off": [list(head) for head in getattr(state, f"{side}_off")]}  # fmt: skip
        text = self.core.corpora.prompt(pane_of(state, "left")[1])
        other = None if state.other is None else self.core.corpora.prompt(state.other)
        right = text if other is None else other
        return {**panes, "text": text, "other": other, "right_text": right, "how": state.how, "corpus": state.corpus}

    def of_address(self, state: CompareState) -> CompareParameters:
        """Return the choices that an address says."""
        state = self.first_of(state)
        pair = {"left": state.head or (0, 0), "right": state.other_head}
        return self.values(self.asked_of(state), pair, state.view, state.hide_first)

    def values(
        self, asked: Mapping[str, Any], pair: Mapping[str, Any] | None = None, view: str = "attention",
        hide_first: bool = False,
    ) -> CompareParameters:  # fmt: skip
        """Return the panes that a browser asks for, `{left: {checkpoint, off}, right: …, text, other, how, corpus}`,
        and a head of each.

        Raises RequestError as `Inference.tokens` and `Switches.text`, with the name of the pane.
        """
        how = asked.get("how") or "zero"
        panes = {side: self._pane(asked, side, how) for side in SIDES}
        left, right = (pair or {}).get("left") or (0, 0), (pair or {}).get("right")
        infos = tuple(self.core.catalog.info(panes[side].checkpoint) for side in SIDES)
        return CompareParameters(
            infos=infos, inspected=infos[0], panes=panes, text=panes["left"].text, other=panes["right"].text,
            left=panes["left"].ablated, right=panes["right"].ablated, how=how, head=_head(left),
            other_head=None if right is None else _head(right), quantity=view, first="hide" if hide_first else "show",
        )  # fmt: skip

    def _pane(self, asked: Mapping[str, Any], side: Side, how: Any) -> Pane:
        own = side == "right" and asked.get("other") is not None
        text, length = (asked.get(name) for name in (("other", "other_length") if own else ("text", "length")))
        checkpoint, inference = asked[side].get("checkpoint"), self.core.inference
        off = tuple(sorted(_head(head) for head in asked[side].get("off") or ()))
        try:
            loaded, tokens = inference.tokens(checkpoint, text or "", length=length)
            info = self.core.catalog.info(checkpoint)
            reference = self.workshop.windows(info, how, asked.get("corpus"), len(tokens)) if off else None
        except RequestError as error:
            raise RequestError(f"At the {side}: {error}") from error
        return Pane(
            checkpoint=info.name, model=loaded.model.cfg.to_dict(), tokenizer=info.tokenizer_sha256, text=text or "",
            ablated=off, reference=reference,
        )  # fmt: skip

    def key(self, chosen: CompareParameters) -> str:
        """Name the two runs."""
        return hashlib.sha256(RUNS.key(chosen).encode()).hexdigest()[:16]

    def packed(self, state: CompareState) -> bytes:
        """Return all heads' maps of an address's left pane, to within half a 254th of a step, as the widget reads
        them."""
        chosen = self.of_address(state)
        patterns, pane = self.workshop.result(RUNS, chosen).left.patterns, chosen.panes["left"]
        try:
            values = patterns.quantity(chosen.quantity)
        except ValueError as error:
            raise RequestError(f"{pane.checkpoint}: {error}") from error
        off = f"{', '.join(map(head_name, pane.ablated))} ablated" if pane.ablated else ""
        maps = HeadMaps(
            values=values, str_tokens=patterns.str_tokens, visible=patterns.visible,
            token_ids=patterns.tokens.tolist(), quantity=QUANTITIES[chosen.quantity],
            name=" · ".join(filter(None, (pane.checkpoint, off))),
        )  # fmt: skip
        return pack({**maps.header, "signed_themes": looks("diverging")}, [*maps.arrays, maps.finer])


def _head(head: Any) -> Head:
    layer, number = head
    return int(layer), int(number)
